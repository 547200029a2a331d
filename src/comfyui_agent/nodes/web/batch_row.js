/** One batch in the panel. It is updated in place, so that the focus stays where it is. */

import { api } from "../../scripts/api.js";
import { attention, badge, cancelled, ending, isEnded, progress, reasons, remaining } from "./batch_texts.js";

/** Make an element. Texts never become markup, because people choose the names of batches. */
export function element(tag, properties = {}, children = []) {
  const { attributes = {}, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export class BatchRow {
  /** `onDismiss(batchId)` is called when the row is closed, `announce(text)` tells screen readers what has changed. */
  constructor(batch, { onDismiss, announce }) {
    this.announce = announce;
    this.mark = element("span", { className: "e3-mark", attributes: { "aria-hidden": "true" } });
    this.word = element("span", { className: "e3-word" });
    this.name = element("span", { className: "e3-name" });
    this.count = element("span", { className: "e3-count" });
    this.cancel = element("button", { type: "button", textContent: "Cancel", onclick: () => this.ask() });
    this.dismiss = element("button", {
      type: "button",
      textContent: "Dismiss",
      onclick: () => onDismiss(this.batch.batch_id),
    });
    this.done = element("span", { className: "e3-done" });
    this.failed = element("span", { className: "e3-failed" });
    this.bar = element(
      "div",
      { className: "e3-bar", attributes: { role: "progressbar", "aria-valuemin": "0" } },
      [this.done, this.failed],
    );
    this.question = element("div", { className: "e3-question", hidden: true, attributes: { role: "group" } });
    this.why = element("button", {
      type: "button",
      className: "e3-why",
      hidden: true,
      attributes: { "aria-expanded": "false" },
      onclick: () => this.unfold(this.why.getAttribute("aria-expanded") !== "true"),
    });
    this.reasons = element("ul", { className: "e3-reasons", hidden: true });
    this.note = element("p", { className: "e3-note", hidden: true });
    this.grids = element("div", { className: "e3-grids", hidden: true });
    const head = element("div", { className: "e3-head" }, [
      this.mark,
      this.word,
      this.name,
      this.count,
      this.cancel,
      this.dismiss,
    ]);
    this.element = element("li", { className: "e3-batch" }, [
      head,
      this.bar,
      this.question,
      this.why,
      this.reasons,
      this.note,
      this.grids,
    ]);
    this.show(batch);
  }

  show(batch) {
    const before = this.batch;
    this.batch = batch;
    const { mark, word } = badge(batch);
    this.element.dataset.state = batch.state;
    this.element.dataset.batch = batch.batch_id;
    this.mark.textContent = mark;
    this.word.textContent = word;
    this.name.textContent = batch.batch_name;
    this.name.title = batch.batch_id;
    this.count.textContent = progress(batch);
    this.showBar();
    this.cancel.hidden = isEnded(batch) || !this.question.hidden;
    this.cancel.setAttribute("aria-label", `Cancel batch ${batch.batch_name}`);
    this.dismiss.hidden = !isEnded(batch);
    this.dismiss.setAttribute("aria-label", `Dismiss batch ${batch.batch_name}`);
    this.showQuestion();
    this.showFailed(before);
    if (batch.reason) this.say(batch.reason);
    this.showGrids();
    if (isEnded(batch) && before && !isEnded(before)) this.end();
  }

  showBar() {
    const { total, completed_count: done, failed } = this.batch;
    const share = (part) => `${total ? (100 * part) / total : 0}%`;
    this.done.style.width = share(done);
    this.failed.style.width = share(failed);
    const text = `${progress(this.batch)} done${failed ? `, ${attention(failed)}` : ""}`;
    const told = { label: `Batch ${this.batch.batch_name}`, valuemax: total, valuenow: done + failed, valuetext: text };
    for (const [name, value] of Object.entries(told)) this.bar.setAttribute(`aria-${name}`, String(value));
  }

  showFailed(before) {
    const { failed } = this.batch;
    this.why.hidden = !failed;
    this.why.textContent = attention(failed);
    const isOpen = this.why.getAttribute("aria-expanded") === "true";
    if (isOpen && before?.failed !== failed) this.unfold(true);
  }

  showGrids() {
    const grids = this.batch.grids ?? (this.batch.grid ? [this.batch.grid] : []);
    const shown = JSON.stringify(grids);
    if (this.grids.dataset.shown === shown) return;
    this.grids.dataset.shown = shown;
    this.grids.hidden = !grids.length;
    this.grids.replaceChildren(...grids.map((grid, index) => picture(grid, this.gridLabel(index, grids.length))));
  }

  gridLabel(index, count) {
    const which = count > 1 ? `grid ${index + 1} of ${count}` : "the grid";
    return `Open ${which} of batch ${this.batch.batch_name}`;
  }

  /** Show or hide why members failed. */
  async unfold(isOpen) {
    this.why.setAttribute("aria-expanded", String(isOpen));
    this.reasons.hidden = !isOpen;
    if (!isOpen) return;
    let lines;
    try {
      const response = await api.fetchApi(`/wi/batch/${encodeURIComponent(this.batch.batch_id)}`);
      const answer = await response.json();
      lines = response.ok ? reasons(answer.members) : [answer.error];
    } catch {
      lines = ["ComfyUI does not answer: close this and open it again to ask once more."];
    }
    this.reasons.replaceChildren(...lines.map((line) => element("li", { textContent: line })));
  }

  /** Ask for confirmation with the count, because a cancel cannot be undone. */
  ask() {
    const text = element("span");
    const stop = element("button", { type: "button", className: "e3-stop", onclick: () => this.stop() });
    const keep = element("button", { type: "button", textContent: "Keep rendering", onclick: () => this.askNoMore() });
    this.question.replaceChildren(text, stop, keep);
    this.question.onkeydown = (event) => event.key === "Escape" && this.askNoMore();
    this.question.hidden = false;
    this.cancel.hidden = true;
    this.showQuestion();
    stop.focus();
  }

  /** Update the count while the question is open. */
  showQuestion() {
    const stop = this.question.querySelector(".e3-stop");
    if (this.question.hidden || !stop) return;
    const left = remaining(this.batch);
    const text = left === 1 ? "Stop the one that is not done?" : `Stop the ${left} that are not done?`;
    this.question.setAttribute("aria-label", text);
    this.question.firstChild.textContent = text;
    stop.textContent = `Stop ${left}`;
  }

  askNoMore() {
    this.question.hidden = true;
    this.cancel.hidden = isEnded(this.batch);
    this.cancel.focus();
  }

  async stop() {
    this.question.replaceChildren(element("span", { textContent: "Stopping…" }));
    try {
      const route = `/wi/cancel_batch/${encodeURIComponent(this.batch.batch_id)}`;
      const response = await api.fetchApi(route, { method: "POST" });
      const answer = await response.json();
      this.say(response.ok ? cancelled(answer) : answer.error);
    } catch {
      this.say("It could not be cancelled: ComfyUI does not answer. Try again.");
    }
    this.question.hidden = true;
    this.cancel.hidden = isEnded(this.batch);
    (this.cancel.hidden ? this.dismiss : this.cancel).focus();
    this.announce(this.note.textContent);
  }

  end() {
    if (!this.question.hidden && this.question.querySelector("button")) {
      const hadFocus = this.question.contains(document.activeElement);
      this.question.hidden = true;
      if (hadFocus) this.dismiss.focus();
    }
    this.announce(ending(this.batch));
  }

  say(text) {
    this.note.textContent = text;
    this.note.hidden = !text;
  }
}

/** A thumbnail of a grid that opens the whole picture. */
function picture({ filename, subfolder, type }, label) {
  const query = { filename, subfolder, type };
  const whole = api.apiURL(`/view?${new URLSearchParams(query)}`);
  const small = api.apiURL(`/view?${new URLSearchParams({ ...query, preview: "webp;70" })}`);
  const image = element("img", { src: small, alt: label, title: label });
  return element("a", { href: whole, target: "_blank", rel: "noopener" }, [image]);
}
