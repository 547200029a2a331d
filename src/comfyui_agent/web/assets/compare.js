// Two cells of a grid side by side. The address names both, so that it can be sent to someone.
"use strict";

(() => {
  const MOST = 2;
  const form = document.querySelector("[data-compare]");
  if (!form) return;
  const bar = document.getElementById("comparing");
  const words = document.getElementById("comparing-words");
  const open = document.getElementById("comparing-open");

  const asked = () => (new URLSearchParams(location.search).get("compare") ?? "").split(",").filter(Boolean);
  const boxes = () => [...form.querySelectorAll(".slot-pick")];
  const slotOf = (id) => form.querySelector(`[data-slot="${id}"]`);
  let picked = asked();

  function go() {
    const query = new URLSearchParams(location.search);
    if (picked.length) query.set("compare", picked.join(","));
    else query.delete("compare");
    location.assign(`${location.pathname}?${query.toString().replaceAll("%2C", ",")}`);
  }

  function show() {
    for (const box of boxes()) box.checked = picked.includes(box.value);
    const waits = picked.length === 1 && asked().length === 0;
    bar.hidden = !waits;
    document.body.classList.toggle("has-selection", waits);
    if (!waits) return;
    words.textContent = `${slotOf(picked[0])?.dataset.label ?? "One cell"} is selected. Choose another to compare.`;
    open.href = `/jobs/${picked[0]}`;
  }

  function toggle(id) {
    picked = picked.includes(id) ? picked.filter((each) => each !== id) : [...picked, id].slice(-MOST);
    show();
    if (picked.length === MOST || asked().length) go();
  }

  function clear() {
    picked = [];
    show();
  }

  // Keys: arrows move between cells, x picks one, Esc clears the choice.

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  function neighbour(slot, [across, down]) {
    const slots = [...form.querySelectorAll(".slot")];
    if (across) return slots[slots.indexOf(slot) + across];
    const { left, width } = slot.getBoundingClientRect();
    const inLine = slots.filter((each) => Math.abs(each.getBoundingClientRect().left - left) < width / 2);
    return inLine[inLine.indexOf(slot) + down];
  }

  function focus(slot) {
    const link = slot?.querySelector("[data-open], .frame-link");
    link?.focus({ preventScroll: true, focusVisible: true });
    slot?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const slot = event.target.closest?.(".slot");
    if (event.key === "Escape" && picked.length && !asked().length) clear();
    else if (event.key === "Escape" && asked().length && !event.target.matches?.("#search")) document.getElementById("compare-close")?.click();
    else if (slot && ARROWS[event.key]) {
      event.preventDefault();
      focus(neighbour(slot, ARROWS[event.key]));
    } else if (slot?.dataset.slot && event.key === "x" && slot.querySelector(".is-done")) toggle(slot.dataset.slot);
  });

  /** The grid is drawn once. New cells are announced. */
  function count() {
    const more = document.getElementById("batch-more");
    const missing = Number(more?.dataset.count ?? 0) - form.querySelectorAll(".slot").length;
    if (!more) return;
    more.hidden = missing <= 0;
    more.querySelector("span").textContent = missing > 0 ? `${e3.count(missing, "more cell")} ${missing === 1 ? "has" : "have"} come.` : "";
    more.querySelector("a").href = location.href;
  }

  document.addEventListener("e3:changed", count);
  form.addEventListener("change", ({ target }) => target.matches(".slot-pick") && toggle(target.value));
  document.getElementById("comparing-clear").addEventListener("click", clear);
  window.addEventListener("pageshow", () => {
    picked = asked();
    show();
  });
  show();
})();
