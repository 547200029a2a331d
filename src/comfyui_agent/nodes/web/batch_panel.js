/** The panel at the bottom of ComfyUI's page, with one row for each batch. It is hidden without batches. */

import { api } from "../../scripts/api.js";
import { BatchRow, element } from "./batch_row.js";
import { isEnded, sentence } from "./batch_texts.js";
import { STYLE } from "./panel_style.js";

const DISMISSED = "e3.batches.dismissed";
const COLLAPSED = "e3.batches.collapsed";
const MOST_DISMISSED = 200;
const CANVAS_AREA = ".graph-canvas-panel";
const CANVAS_CONTROLS = ".p-buttongroup, .minimap-main-container";
const MOST_TRIES = 40;
const TRY_MILLISECONDS = 250;
const MARGIN = 8;
const WIDEST = 480;
const NARROW = 800;

export class BatchPanel {
  /** `notify(message)` shows a message that belongs to no row. */
  constructor(notify) {
    this.notify = notify;
    this.rows = new Map();
    this.dismissed = new Set(remembered(DISMISSED, []));
    this.news = new Set();
    this.area = null;
    this.tries = 0;
    this.turn = 0;
    this.resizing = new ResizeObserver(() => requestAnimationFrame(() => this.place()));
    this.sentence = element("span", { className: "e3-sentence" });
    this.lost = element("span", { className: "e3-lost", hidden: true });
    this.clear = element("button", { type: "button", onclick: () => this.dismissEnded() });
    this.fold = element("button", {
      type: "button",
      attributes: { "aria-controls": "e3-batches-list" },
      onclick: () => this.collapse(!this.list.hidden),
    });
    this.list = element("ul", { id: "e3-batches-list", className: "e3-list" });
    this.status = element("span", { className: "e3-unseen", attributes: { role: "status" } });
    const head = element("div", { className: "e3-top" }, [this.sentence, this.lost, this.clear, this.fold]);
    this.element = element(
      "section",
      { id: "e3-batches", className: "e3-panel", hidden: true, attributes: { "aria-label": "E3 batches" } },
      [head, this.list, this.status],
    );
    this.element.addEventListener("keydown", keyPressed);
    this.element.addEventListener("keyup", keyPressed);
  }

  /** Add the panel to the page and keep it in place. */
  join() {
    document.head.append(element("style", { id: "e3-batches-style", textContent: STYLE }));
    document.body.append(this.element);
    this.collapse(remembered(COLLAPSED, false));
    window.addEventListener("resize", () => this.place());
  }

  /** Ask ComfyUI for all batches. Events that came meanwhile are newer than the answer. */
  async refresh() {
    this.news.clear();
    const turn = ++this.turn;
    let batches;
    try {
      const response = await api.fetchApi("/wi/batches");
      if (!response.ok) return;
      ({ batches } = await response.json());
      if (!Array.isArray(batches)) return;
    } catch {
      return;
    }
    if (turn !== this.turn) return; // asked again meanwhile: the later answer counts
    const known = new Set(batches.map((batch) => batch.batch_id));
    for (const [batchId, row] of [...this.rows]) {
      if (known.has(batchId) || this.news.has(batchId)) continue;
      const { batch_name: name } = row.batch;
      if (!isEnded(row.batch)) this.notify(`Batch ${name} is gone: ComfyUI was restarted. Queue it again.`);
      this.remove(batchId);
    }
    for (const batch of batches) if (!this.news.has(batch.batch_id)) this.put(batch);
    this.update();
  }

  /** Show the new summary of a batch. */
  show(batch) {
    this.news.add(batch.batch_id);
    this.put(batch);
    this.update();
  }

  /** The connection to ComfyUI is lost, or is back. Without it the rows may be out of date. */
  connection(isThere) {
    const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    this.lost.textContent = isThere ? "" : `no connection since ${time}`;
    this.lost.hidden = isThere;
  }

  put(batch) {
    if (this.dismissed.has(batch.batch_id)) return;
    const row = this.rows.get(batch.batch_id);
    if (row) return row.show(batch);
    const made = new BatchRow(batch, {
      onDismiss: (batchId) => this.dismissOne(batchId),
      announce: (text) => this.announce(text),
    });
    const isOlder = ({ dataset }) => this.rows.get(dataset.batch).batch.created_at < batch.created_at;
    const older = [...this.list.children].find(isOlder);
    this.list.insertBefore(made.element, older ?? null);
    this.rows.set(batch.batch_id, made);
    if (!isEnded(batch)) this.announce(`Batch ${batch.batch_name} begins: ${batch.total} to render`);
  }

  update() {
    const batches = [...this.rows.values()].map((row) => row.batch);
    const ended = batches.filter(isEnded).length;
    this.element.hidden = !batches.length;
    if (!batches.length) return;
    this.sentence.textContent = sentence(batches);
    this.clear.hidden = ended < 2 || this.list.hidden;
    this.clear.textContent = `Dismiss ${ended} ended`;
    this.place();
  }

  /** Place the panel at the lower edge of the canvas, beside its controls, or above them if there is no room. */
  place() {
    if (this.element.hidden) return;
    const area = this.follow(document.querySelector(CANVAS_AREA));
    const whole = { left: 0, right: window.innerWidth, bottom: window.innerHeight };
    const { left, right, bottom } = area?.getBoundingClientRect() ?? whole;
    const taken = [...(area?.querySelectorAll(CANVAS_CONTROLS) ?? [])].map((each) => each.getBoundingClientRect());
    const controls = taken.filter((box) => box.width && box.bottom > bottom - 320 && box.top < bottom);
    const isNarrow = right - left < NARROW;
    const end = isNarrow ? right : Math.min(right, ...controls.map((box) => box.left));
    const floor = isNarrow ? Math.min(bottom, ...controls.map((box) => box.top)) : bottom;
    const width = Math.max(0, Math.min(WIDEST, end - left - 2 * MARGIN));
    Object.assign(this.element.style, {
      width: `${width}px`,
      left: `${left + (end - left - width) / 2}px`,
      bottom: `${window.innerHeight - floor + MARGIN}px`,
      maxHeight: `${Math.max(96, floor * 0.45)}px`,
    });
  }

  /** Watch the area of the canvas. The page creates it late and may replace it. */
  follow(area) {
    if (!area && this.tries++ < MOST_TRIES) setTimeout(() => this.place(), TRY_MILLISECONDS);
    if (area === this.area) return area;
    this.resizing.disconnect();
    if (area) this.resizing.observe(area);
    this.area = area;
    return area;
  }

  collapse(isCollapsed) {
    this.list.hidden = isCollapsed;
    this.fold.textContent = isCollapsed ? "Show" : "Hide";
    this.fold.setAttribute("aria-expanded", String(!isCollapsed));
    this.fold.setAttribute("aria-label", isCollapsed ? "Show E3 batches" : "Hide E3 batches");
    remember(COLLAPSED, isCollapsed);
    this.update();
  }

  dismissOne(batchId) {
    const { element: row } = this.rows.get(batchId);
    const next = row.nextElementSibling ?? row.previousElementSibling;
    this.forget(batchId);
    this.update();
    (next?.querySelector(".e3-head button:not([hidden])") ?? this.fold).focus();
  }

  dismissEnded() {
    for (const [batchId, row] of [...this.rows]) if (isEnded(row.batch)) this.forget(batchId);
    this.update();
    this.fold.focus();
  }

  /** Hide a batch for good, also after the page is reloaded. */
  forget(batchId) {
    this.dismissed.add(batchId);
    remember(DISMISSED, [...this.dismissed].slice(-MOST_DISMISSED));
    this.remove(batchId);
  }

  remove(batchId) {
    this.rows.get(batchId)?.element.remove();
    this.rows.delete(batchId);
  }

  announce(text) {
    this.status.textContent = text;
  }
}

/** Keep keys pressed in the panel from the canvas, which would take them as shortcuts. */
function keyPressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  event.stopPropagation();
  if (event.key !== " " || event.target.tagName !== "BUTTON") return;
  event.preventDefault();
  if (event.type === "keydown" && !event.repeat) event.target.click();
}

function remembered(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // without storage the batch is shown again
  }
}
