"use strict";
// What is open and picked stands in the address, and only there: `#page=1&show=1.2.3` or
// `#page=1&compare=1.1.1,1.1.2&view=swipe`. Every action changes the address; `render` follows it.

const cells = new Map(JSON.parse(document.getElementById("cells").textContent).map((cell) => [cell.name, cell]));
const element = (id) => document.getElementById(id);
const boxOf = (name) => element(`cell-${name}`);
const canBePicked = (name) => Boolean(cells.get(name)?.kind);
const pageOf = (name) => name.split(".")[0];
const viewer = element("viewer"), stage = element("stage"), scroller = element("scroller");
const SMALL = matchMedia("(max-width: 640px)");
const THUMBNAIL = 320;

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const known = (name) => cells.has(name) ? name : "";
  const picked = [...new Set((asked.get("compare") || "").split(","))].filter(canBePicked).slice(0, 2);
  const show = known(asked.get("show") || "");
  const view = picked.length === 2 && ["side", "swipe"].includes(asked.get("view")) ? asked.get("view") : "";
  const leading = show || (view && picked[0]) || "";
  const page = asked.get("page") || (leading && pageOf(leading)) || "1";
  return { page: element(`page-${page}`) ? page : "1", show: view ? "" : show, picked, view };
}

function go(change, { back = false } = {}) {
  const next = { ...readAddress(), ...change };
  const parts = [];
  if (document.querySelectorAll(".page").length > 1) parts.push(`page=${next.page}`);
  if (next.show) parts.push(`show=${next.show}`);
  if (next.picked.length) parts.push(`compare=${next.picked.join(",")}`);
  if (next.view && next.picked.length === 2) parts.push(`view=${next.view}`);
  const hash = `#${parts.join("&")}`;
  if (hash === (location.hash || "#")) return;
  if (back) location.hash = hash;
  else location.replace(hash);
}

function render() {
  const now = readAddress();
  for (const page of document.querySelectorAll(".page")) page.hidden = page.id !== `page-${now.page}`;
  for (const tab of document.querySelectorAll(".tabs a")) {
    if (tab.hash === `#page=${now.page}`) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  renderPicks(now.picked);
  const shown = element(`page-${now.page}`), first = shown.querySelector(".cell");
  if (first && !shown.querySelector(".cell [tabindex='0']")) become(nameOf(first));
  if (now.view) renderViewer(now.picked, now.view);
  else if (now.show) renderViewer([now.show], "");
  else if (viewer.open) closeViewer();
}

// Picking two cells

function toggle(name) {
  const { picked } = readAddress();
  if (!canBePicked(name)) return;
  go({ picked: picked.includes(name) ? picked.filter((other) => other !== name) : [...picked, name].slice(-2) });
}

function renderPicks(picked) {
  for (const box of document.querySelectorAll(".cell.picked")) mark(box, "");
  picked.forEach((name, place) => mark(boxOf(name), "AB"[place]));
  element("tray").hidden = picked.length === 0;
  element("picked-a").textContent = picked[0] ? titleOf(picked[0]) : "";
  element("picked-b").textContent = picked[1] ? titleOf(picked[1]) : "pick a second cell";
  element("compare").disabled = picked.length < 2;
}

function mark(box, letter) {
  const button = box.querySelector(".pick");
  box.classList.toggle("picked", Boolean(letter));
  button.setAttribute("aria-pressed", String(Boolean(letter)));
  if (letter) button.dataset.letter = letter;
  else delete button.dataset.letter;
}

const titleOf = (name) => cells.get(name).label || `Cell ${name}`;

// The large view

function renderViewer(names, mode) {
  const shown = names.map((name) => cells.get(name));
  const key = `${names}/${mode}`;
  if (viewer.open && viewer.dataset.shown === key) return;
  viewer.dataset.shown = key;
  viewer.dataset.last = names[0];
  element("viewer-title").textContent = names.length === 1 ? titleOf(names[0]) : "Compare";
  element("walk").hidden = names.length > 1;
  element("modes").hidden = names.length < 2;
  element("swiper").hidden = mode !== "swipe";
  element("side").setAttribute("aria-pressed", String(mode === "side"));
  element("swipe").setAttribute("aria-pressed", String(mode === "swipe"));
  element("said").textContent = "";
  stage.className = mode;
  viewer.classList.toggle("single", !mode);
  const inOrder = mode === "swipe" ? [...shown].reverse() : shown; // B lies below A
  stage.replaceChildren(...inOrder.map((cell) => figureOf(cell, names.length > 1 ? "AB"[names.indexOf(cell.name)] : "")));
  if (mode === "swipe") {
    const line = document.createElement("div");
    line.id = "line";
    stage.append(line);
    swipeTo(50);
  }
  element("about").replaceChildren(...shown.map((cell, place) => aboutOf(cell, "AB"[place], shown[1 - place])));
  if (!viewer.open) viewer.showModal();
  viewer.focus();
}

function closeViewer() {
  viewer.close();
  stage.replaceChildren(); // films stop
  focusCell(viewer.dataset.last);
}

function figureOf(cell, letter) {
  const figure = document.createElement("figure");
  const address = addressOf(cell);
  if (cell.kind === "Video" || cell.kind === "Audio") {
    const media = document.createElement(cell.kind.toLowerCase());
    media.controls = true;
    media.loop = cell.kind === "Video";
    media.src = address;
    figure.append(media);
  } else if (cell.kind === "Picture") {
    const image = new Image();
    image.alt = cell.label;
    image.src = address || thumbnailOf(cell);
    image.addEventListener("error", () => {
      if (image.src === thumbnailOf(cell)) return;
      image.src = thumbnailOf(cell);
      element("said").textContent = "The file is not beside this page any more: this is its thumbnail.";
    });
    figure.append(image);
  } else {
    figure.append(wordOf(cell));
  }
  if (letter) {
    const caption = document.createElement("figcaption");
    caption.textContent = letter;
    figure.append(caption);
  }
  return figure;
}

const thumbnailOf = (cell) => boxOf(cell.name).querySelector("img")?.src || "";

function addressOf(cell) {
  return cell.embedded ? cell.embedded + element(`file-${cell.name}`).textContent : cell.isShown ? cell.href : "";
}

function wordOf(cell) {
  const word = document.createElement("div"), sign = document.createElement("b"), detail = document.createElement("small");
  word.className = cell.mark === "△" ? "word attention" : "word";
  sign.textContent = cell.mark;
  detail.textContent = cell.detail;
  word.append(sign, ` ${cell.word}`, detail);
  return word;
}

function aboutOf(cell, letter, other) {
  const section = document.createElement("section"), list = document.createElement("dl");
  const others = new Map(other ? other.settings : cell.settings);
  if (other) {
    list.append(...pair(letter, titleOf(cell.name), false));
    list.firstChild.className = "letter";
  }
  for (const [name, value] of cell.settings) list.append(...pair(name, value, others.get(name) !== value));
  if (cell.size) list.append(...pair("Size", cell.size, Boolean(other) && other.size !== cell.size));
  const buttons = document.createElement("div");
  buttons.className = "buttons";
  if (cell.settings.length) {
    buttons.append(copying("Copy settings as JSON", cell.json), copying("Copy as --set flags", cell.flags));
  }
  if (cell.href) {
    const link = document.createElement("a");
    link.href = cell.href;
    link.textContent = "Open the file";
    buttons.append(link);
  }
  section.append(list, buttons);
  return section;
}

function pair(name, value, differs) {
  const term = document.createElement("dt"), text = document.createElement("dd");
  term.textContent = name;
  text.textContent = value;
  text.classList.toggle("differs", differs);
  return [term, text];
}

function copying(title, text) {
  const button = document.createElement("button");
  button.textContent = title;
  button.addEventListener("click", () => copy(text, button));
  return button;
}

async function copy(text, button) {
  const section = button.closest("section");
  section.querySelector("textarea")?.remove();
  let copied = false;
  try {
    await navigator.clipboard.writeText(text);
    copied = true;
  } catch {
    const field = document.createElement("textarea"); // no clipboard for this page: the old way, or by hand
    field.value = text;
    field.readOnly = true;
    section.append(field);
    field.select();
    copied = document.execCommand("copy");
    if (copied) field.remove();
  }
  element("said").textContent = copied ? "Copied." : "This browser does not let the page copy: press Ctrl+C or ⌘C.";
  if (copied) button.focus();
}

function walk(across, down) {
  const { show } = readAddress();
  const next = show && neighbour(show, across, down);
  if (next) go({ show: next, page: pageOf(next) });
}

// From cell to cell

function neighbour(name, across, down) {
  const page = element(`page-${pageOf(name)}`);
  const boxes = [...page.querySelectorAll(".cell")];
  const here = boxOf(name), place = boxes.indexOf(here);
  if (across) return nameOf(boxes[place + across]);
  const { left, width } = here.getBoundingClientRect();
  const inLine = boxes.filter((box) => Math.abs(box.getBoundingClientRect().left - left) < width / 2);
  return nameOf(inLine[inLine.indexOf(here) + down]);
}

const nameOf = (box) => box ? box.id.slice("cell-".length) : "";

function focusCell(name) {
  const box = name && boxOf(name);
  if (!box || box.closest("[hidden]")) return;
  (box.querySelector(".enlarge") || box.querySelector(".open")).focus({ preventScroll: true });
  bringIntoView(box);
}

function bringIntoView(box) {
  const table = box.closest("table");
  const seen = scroller.getBoundingClientRect(), at = box.getBoundingClientRect();
  const top = seen.top + (table ? table.tHead.offsetHeight : 0) + 4;
  const left = seen.left + (table ? table.querySelector(".corner").offsetWidth : 0) + 4;
  const by = (start, end, from, to) => start < from ? start - from : end > to ? Math.min(end - to, start - from) : 0;
  scroller.scrollBy({ left: by(at.left, at.right, left, seen.right - 8), top: by(at.top, at.bottom, top, seen.bottom - 8) });
}

function become(name) { // one cell of the grid is reached by Tab, the others by arrows from there
  for (const old of document.querySelectorAll(".cell [tabindex='0']")) old.tabIndex = -1;
  for (const part of boxOf(name).querySelectorAll(".open, .enlarge, .pick")) part.tabIndex = 0;
}

// Size of the cells, and sharp pictures where thumbnails are too small

const zoom = element("zoom");
function setZoom(pixels) {
  zoom.value = String(pixels);
  document.documentElement.style.setProperty("--cell", `${zoom.value}px`);
  for (const box of inView) sharpen(box);
}

const inView = new Set();
const watching = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) {
    if (isIntersecting) inView.add(target);
    else inView.delete(target);
    sharpen(target);
  }
}, { root: scroller, rootMargin: "200px" });

function sharpen(box) {
  const media = box.querySelector("video");
  if (media && inView.has(box)) media.preload = "metadata";
  const image = box.querySelector("img");
  if (!image) return;
  const cell = cells.get(nameOf(box));
  const wanted = inView.has(box) && Number(zoom.value) > THUMBNAIL && addressOf(cell);
  if (wanted && !box.dataset.small) {
    box.dataset.small = image.src;
    image.src = wanted;
  } else if (!wanted && box.dataset.small) {
    image.src = box.dataset.small;
    delete box.dataset.small;
  }
}

// The swipe

function swipeTo(share) {
  const at = Math.min(100, Math.max(0, share));
  element("swipe-at").value = String(at);
  const [, upper] = stage.querySelectorAll("figure");
  if (upper) upper.style.clipPath = `inset(0 ${100 - at}% 0 0)`;
  const line = element("line");
  if (line) line.style.left = `calc(8px + (100% - 16px) * ${at / 100})`;
}

function swipeWith(event) {
  const { left, width } = stage.getBoundingClientRect();
  swipeTo((event.clientX - left - 8) / (width - 16) * 100);
}

stage.addEventListener("pointerdown", (event) => {
  if (!stage.classList.contains("swipe") || event.target.closest("video, audio")) return;
  stage.setPointerCapture(event.pointerId);
  swipeWith(event);
});
stage.addEventListener("pointermove", (event) => {
  if (stage.classList.contains("swipe") && stage.hasPointerCapture(event.pointerId)) swipeWith(event);
});
stage.addEventListener("click", (event) => {
  if (event.target.matches("img") && !stage.classList.contains("swipe")) stage.classList.toggle("actual");
});
element("swipe-at").addEventListener("input", (event) => swipeTo(Number(event.target.value)));

// What people do

scroller.addEventListener("click", (event) => {
  const box = event.target.closest(".cell");
  if (!box || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (event.target.closest(".pick")) toggle(nameOf(box));
  else if (event.target.closest("a.open, button.open, .enlarge")) {
    event.preventDefault();
    go({ show: nameOf(box), view: "" }, { back: true });
  }
});
scroller.addEventListener("focusin", (event) => {
  const box = event.target.closest(".cell");
  if (box) become(nameOf(box));
});
element("compare").addEventListener("click", () => go({ view: "side", show: "" }, { back: true }));
element("clear").addEventListener("click", () => go({ picked: [], view: "" }));
element("side").addEventListener("click", () => go({ view: "side" }));
element("swipe").addEventListener("click", () => go({ view: "swipe" }));
element("previous").addEventListener("click", () => walk(-1, 0));
element("next").addEventListener("click", () => walk(1, 0));
element("close").addEventListener("click", () => go({ show: "", view: "" }));
element("help-button").addEventListener("click", () => element("help").showModal());
element("help-close").addEventListener("click", () => element("help").close());
viewer.addEventListener("cancel", (event) => {
  event.preventDefault();
  go({ show: "", view: "" });
});
zoom.addEventListener("input", () => setZoom(Number(zoom.value)));

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("textarea, video, audio")) return;
  const arrow = ARROWS[event.key], now = readAddress();
  if (arrow && event.target.matches("input")) return;
  if (viewer.open) {
    if (arrow && now.show) walk(...arrow);
    else if (arrow && now.view === "swipe") swipeTo(Number(element("swipe-at").value) + arrow[0] * 2);
    else if (event.key === "s" && now.view) go({ view: now.view === "side" ? "swipe" : "side" });
    else return;
    event.preventDefault();
    return;
  }
  if (element("help").open) return;
  const box = event.target.closest(".cell");
  if (arrow && box) focusCell(neighbour(nameOf(box), ...arrow));
  else if (event.key === "x" && box) toggle(nameOf(box));
  else if (event.key === "c" && now.picked.length === 2) go({ view: "side", show: "" }, { back: true });
  else if (event.key === "+" || event.key === "=") setZoom(Number(zoom.value) + 32);
  else if (event.key === "-") setZoom(Number(zoom.value) - 32);
  else if (event.key === "?") element("help").showModal();
  else return;
  event.preventDefault();
});

for (const link of document.querySelectorAll(".tabs a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    go({ page: link.hash.slice("#page=".length), show: "", view: "" }, { back: true });
  });
}
for (const box of document.querySelectorAll(".cell")) {
  for (const part of box.querySelectorAll(".open, .enlarge, .pick")) part.tabIndex = -1;
  watching.observe(box);
}
addEventListener("hashchange", render);
setZoom(SMALL.matches ? 160 : 224);
render();
