// Keyboard shortcuts. They are off while someone types.
"use strict";

(() => {
  const ITEMS = "[data-row], .cell";
  const OPENS = "[data-open], .frame-link, a[href]";

  const opener = (item) => item?.querySelector("[data-open]") ?? item?.querySelector(OPENS);
  const items = () => [...document.querySelectorAll(`main :is(${ITEMS})`)].filter(opener);
  const current = () => document.activeElement?.closest(ITEMS) ?? null;

  function move(step) {
    const all = items();
    const at = all.indexOf(current());
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
    const link = opener(next);
    link?.focus({ preventScroll: true, focusVisible: true });
    next?.scrollIntoView({ block: "nearest" });
  }

  function act(action, key) {
    const item = current();
    const inside = item?.querySelector(`[data-key="${key}"]`);
    if (inside) return e3.press(inside);
    if (e3.many(action, item?.matches("[data-row]") ? item : null)) return undefined;
    const whole = document.querySelector(`main .actions [data-key="${key}"]`);
    return whole && (whole.matches("[data-act]") ? e3.press(whole) : whole.click());
  }

  function search() {
    const field = document.getElementById("search");
    field?.focus();
    field?.select();
  }

  e3.move = move;
  e3.current = current;
  const help = () => document.getElementById("help").showModal();

  const keys = {
    "/": search,
    j: () => move(1),
    k: () => move(-1),
    x: () => {
      const item = current();
      if (item?.matches("[data-row]")) e3.pick(item);
    },
    r: () => act("retry", "r"),
    d: () => act("dismiss", "d"),
    c: () => act("cancel", "c"),
    b: () => act("bump", "b"),
    "?": help,
  };

  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const types = target.matches?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
    if (key === "Escape" && target.matches?.("#search")) {
      event.preventDefault(); // or the field would be emptied, and the filter lost
      target.blur();
    } else if (key === "Escape" && !document.querySelector("dialog[open]")) e3.dropSelection();
    if (types || document.querySelector("dialog[open]") || !Object.hasOwn(keys, key)) return;
    event.preventDefault();
    keys[key]();
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-help]")) help();
    const more = document.querySelector(".menu-more[open]");
    if (more && !more.contains(event.target)) more.open = false;
  });
})();
