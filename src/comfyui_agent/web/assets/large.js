// A finished picture in large, over the page that it was opened from. The address names it, so that it can be sent to someone.
"use strict";

(() => {
  const ADDRESS = /^#job-(\d+)$/;
  const GROUPS = ".sheet, .pages, .matrix, .strip, .jobs, .gallery-part";
  const dialog = document.getElementById("large");
  if (!dialog) return;
  const content = document.getElementById("large-content");
  const place = document.getElementById("large-place");
  const toasts = document.getElementById("toasts");
  const [before, next] = dialog.querySelectorAll("[data-walk]");

  let shown = "";
  let group = null;
  let isPushed = false;

  const asked = () => ADDRESS.exec(location.hash)?.[1] ?? "";
  const frameOf = (id) => (group?.isConnected ? group : document).querySelector(`.frame[data-job="${id}"][data-status="done"]`);
  /** The jobs of the finished pictures beside the one that is shown, each once. */
  const beside = () => [...new Set([...(group?.querySelectorAll('.frame[data-job][data-status="done"]') ?? [])].map((frame) => frame.dataset.job))];

  function address(id) {
    const hash = id ? `#job-${id}` : location.pathname + location.search;
    // A state of htmx would be loaded anew on the way back.
    const pushes = id && !dialog.open && !history.state?.htmx;
    history[pushes ? "pushState" : "replaceState"](history.state, "", hash);
    if (pushes) isPushed = true;
  }

  function tell(words) {
    const text = document.createElement("p");
    text.className = "empty";
    text.textContent = words;
    content.replaceChildren(text);
  }

  async function load(id) {
    const answer = await fetch(`/jobs/${id}/large`, { credentials: "same-origin" }).catch(() => null);
    if (shown !== id) return;
    if (answer?.status === 401) return location.reload();
    if (!answer?.ok) return tell(answer?.status === 404 ? "This job is not there any more." : "The agent did not answer. Close this, and open it again.");
    content.innerHTML = await answer.text();
    document.dispatchEvent(new CustomEvent("e3:changed"));
  }

  function show(id) {
    shown = id;
    const all = beside();
    const at = all.indexOf(id);
    before.disabled = at <= 0;
    next.disabled = at < 0 || at === all.length - 1;
    place.textContent = at < 0 || all.length < 2 ? "" : `${at + 1} of ${all.length}`;
    if (!dialog.open) {
      dialog.showModal();
      dialog.append(toasts); // what is behind a dialog cannot be seen
    }
    load(id);
  }

  function walk(step) {
    const all = beside();
    const to = all[all.indexOf(shown) + step];
    if (!to || !all.includes(shown)) return;
    address(to);
    show(to);
  }

  /** Opens the picture of a frame, or of what is inside or around one. Its neighbours are those of the same sheet. */
  window.openLarge = (element) => {
    const frame = element.closest("[data-job]") ?? element.querySelector("[data-job]");
    if (!frame) return;
    group = frame.closest(GROUPS);
    address(frame.dataset.job);
    show(frame.dataset.job);
  };

  dialog.addEventListener("close", () => {
    const id = shown;
    shown = "";
    content.replaceChildren();
    document.body.append(toasts);
    if (isPushed && asked()) history.back();
    else if (asked()) address("");
    isPushed = false;
    frameOf(id)?.querySelector(".frame-link")?.focus({ preventScroll: true });
  });

  async function copy(button) {
    try {
      if (navigator.clipboard) await navigator.clipboard.writeText(button.dataset.copy);
      else copyAsBefore(button);
      e3.say("The settings are copied");
    } catch {
      e3.say("The browser does not let a page copy: select the settings by hand");
    }
  }

  /** Without TLS, browsers copy only what is selected. */
  function copyAsBefore(button) {
    const field = document.createElement("textarea");
    field.value = button.dataset.copy;
    button.after(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }

  dialog.addEventListener("click", ({ target }) => {
    if (target === dialog) dialog.close();
    const step = target.closest("[data-walk]");
    if (step) walk(Number(step.dataset.walk));
  });

  dialog.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("video, audio, input, textarea")) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const button = /^[a-z]$/.test(event.key) && dialog.querySelector(`[data-key="${event.key}"]`);
    if (step) walk(step);
    else if (button) e3.press(button);
    else return;
    event.preventDefault();
  });

  document.addEventListener("click", (event) => {
    const copies = event.target.closest("[data-copy]");
    if (copies) copy(copies);
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab shows the page of the job
    const frame = event.target.closest('.frame-link, [data-large-link]')?.closest('[data-job][data-status="done"]');
    if (!frame) return;
    event.preventDefault();
    openLarge(frame);
  });

  /** The address was opened, or gone back to. */
  function follow() {
    const id = asked();
    if (!id && dialog.open) dialog.close();
    if (!id || id === shown) return;
    group = frameOf(id)?.closest(GROUPS) ?? null;
    show(id);
  }

  window.addEventListener("popstate", follow);
  window.addEventListener("hashchange", follow);
  follow();
})();
