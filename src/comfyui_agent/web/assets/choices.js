// What servers offer for a field: a list below it, searched by typing, with a small picture beside each model that has one.
"use strict";

(() => {
  const MOST = 80;

  const fieldOf = (target) => target.closest?.("[data-choices]");
  const listOf = (field) => document.getElementById(field.getAttribute("aria-controls"));
  const activeOf = (field) => document.getElementById(field.getAttribute("aria-activedescendant"));
  const isOpen = (field) => field.getAttribute("aria-expanded") === "true";

  /** A picture is asked for when its line comes into sight. Where there is none its place stays empty. */
  function pictureOf(folder, name) {
    const picture = document.createElement("img");
    Object.assign(picture, { className: "choice-picture", alt: "", loading: "lazy", decoding: "async", width: 40, height: 40 });
    picture.addEventListener("error", () => picture.replaceWith(Object.assign(document.createElement("span"), { className: "choice-picture" })));
    picture.src = `/api/v1/models/${encodeURIComponent(folder)}/preview?${new URLSearchParams({ name })}`;
    return picture;
  }

  function optionOf(field, name, number) {
    const option = document.createElement("div");
    Object.assign(option, { className: "choice", id: `${field.id}-choice-${number}`, role: "option" });
    option.dataset.value = name;
    option.setAttribute("aria-selected", String(name === field.value));
    if (field.dataset.models) option.append(pictureOf(field.dataset.models, name));
    option.append(Object.assign(document.createElement("span"), { className: "choice-name", textContent: name }));
    return option;
  }

  /** The list with every choice that has all these words. */
  function show(field, text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...field.parentElement.querySelectorAll("datalist option")].map((option) => option.value);
    const found = all.filter((name) => words.every((word) => name.toLowerCase().includes(word)));
    const list = listOf(field);
    const here = found.indexOf(field.value);
    const first = here < MOST ? 0 : here - 5;
    list.replaceChildren(...found.slice(first, first + MOST).map((name, number) => optionOf(field, name, number)));
    if (found.length > MOST) {
      const more = document.createElement("p");
      Object.assign(more, { className: "choice-more", textContent: `${found.length} in all: type a part of the name.` });
      list.append(more);
    }
    list.hidden = !found.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
    field.removeAttribute("aria-activedescendant");
    list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }

  function close(field) {
    listOf(field).hidden = true;
    listOf(field).replaceChildren();
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  function choose(field, option) {
    field.value = option.dataset.value;
    field.dispatchEvent(new CustomEvent("input", { bubbles: true, detail: "chosen" }));
    close(field);
  }

  function move(field, by) {
    const options = [...listOf(field).querySelectorAll("[role=option]")];
    const before = activeOf(field) ?? listOf(field).querySelector("[aria-selected=true]");
    const at = options.indexOf(before) + (before || by > 0 ? by : 0);
    const next = options.at(at % options.length);
    before?.classList.remove("is-active");
    next.classList.add("is-active");
    field.setAttribute("aria-activedescendant", next.id);
    next.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("click", ({ target }) => {
    const option = target.closest("[role=option][data-value]");
    if (option) choose(document.querySelector(`[aria-controls="${CSS.escape(option.parentElement.id)}"]`), option);
    else if (fieldOf(target) && !isOpen(fieldOf(target))) show(fieldOf(target), "");
  });
  document.addEventListener("mousedown", (event) => {
    if (event.target.closest(".choice-list")) event.preventDefault(); // the field keeps the focus
  });
  document.addEventListener("input", (event) => {
    const field = fieldOf(event.target);
    if (field && event.detail !== "chosen") show(field, field.value);
  });
  document.addEventListener("focusout", ({ target }) => fieldOf(target) && close(fieldOf(target)));
  document.addEventListener("keydown", (event) => {
    const field = fieldOf(event.target);
    if (!field || event.isComposing) return;
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const active = activeOf(field);
    if (by) {
      if (!isOpen(field)) show(field, "");
      if (isOpen(field)) move(field, by);
    } else if (event.key === "Enter" && active) choose(field, active);
    else if (event.key === "Escape" && isOpen(field)) close(field);
    else return;
    event.preventDefault();
  });
})();
