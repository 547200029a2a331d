// Input pictures of a form: chosen, dropped, or uploaded before.
"use strict";

(() => {
  const MOST_SHOWN = 60;

  /** Keeps a file at the agent. Returns what jobs name it by. */
  async function upload(file) {
    const query = new URLSearchParams({ name: file.name });
    return e3.call("POST", `/api/v1/inputs?${query}`, file);
  }

  function fill(picked, made) {
    const field = document.getElementById(picked.dataset.picked);
    field.value = made.value;
    picked.querySelector(".picked-picture")?.remove();
    const shown = document.createElement("img");
    shown.className = "picked-picture";
    shown.src = made.thumbnail;
    shown.alt = made.name;
    shown.addEventListener("error", () => shown.remove());
    picked.prepend(shown);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  async function take(picked, file) {
    picked.classList.add("is-busy");
    try {
      fill(picked, await upload(file));
    } catch (error) {
      e3.complain(error);
    }
    picked.classList.remove("is-busy");
  }

  /** Shows what was uploaded before, below the buttons. A second press takes it away again. */
  async function offer(picked) {
    const before = picked.parentElement.querySelector(".picked-others");
    if (before) return before.remove();
    const { inputs } = await e3.call("GET", `/api/v1/inputs?limit=${MOST_SHOWN}`);
    const list = document.createElement("div");
    list.className = "picked-others";
    if (!inputs.length) list.textContent = "Nothing was uploaded yet.";
    for (const each of inputs) {
      const button = document.createElement("button");
      button.type = "button";
      button.title = each.name;
      const small = document.createElement("img");
      small.src = each.thumbnail;
      small.alt = each.name;
      small.loading = "lazy";
      button.append(small);
      button.addEventListener("click", () => {
        fill(picked, each);
        list.remove();
      });
      list.append(button);
    }
    picked.after(list);
    return undefined;
  }

  document.addEventListener("click", (event) => {
    const picked = event.target.closest("[data-picked]");
    if (!picked) return;
    if (event.target.closest("[data-choose-file]")) picked.querySelector("input[type=file]").click();
    if (event.target.closest("[data-choose-upload]")) offer(picked).catch(e3.complain);
  });
  document.addEventListener("change", (event) => {
    const picked = event.target.closest("[data-picked]");
    if (picked && event.target.files?.length) take(picked, event.target.files[0]);
  });

  window.e3.uploadPicture = upload;
  window.e3.takePicture = take;
})();
