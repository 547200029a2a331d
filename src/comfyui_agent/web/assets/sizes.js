// How large pictures are shown: chosen with a slider, kept by this browser. It runs before the page is drawn.
"use strict";

(() => {
  const KEY = "e3-cell";
  const USUAL = 240;
  const root = document.documentElement;

  let chosen = 0;
  try {
    chosen = Number(localStorage.getItem(KEY));
  } catch {
    // Nothing is kept here; the slider works all the same.
  }

  function show() {
    if (chosen) {
      root.style.setProperty("--cell", `${chosen}px`);
      root.dataset.sized = "";
    }
    for (const slider of document.querySelectorAll("[data-sizer]")) {
      slider.parentElement.hidden = false;
      slider.value = chosen || USUAL;
    }
  }

  document.addEventListener("input", ({ target }) => {
    if (!target.matches("[data-sizer]")) return;
    chosen = Number(target.value);
    show();
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      // As above.
    }
  });
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("e3:changed", show);
  show();
})();
