// The gallery: shapes of pictures, parts that are far away, stars, export and the slideshow.
"use strict";

(() => {
  const NEAR = "1600px 0px";
  const SLIDE_MS = 4000;
  const [NARROWEST, WIDEST] = [0.4, 3];

  const cells = () => [...document.querySelectorAll("#gallery .gallery-cell")];
  const cellOf = (id) => document.querySelector(`#gallery [data-row="${id}"]`);
  const more = () => document.querySelector("#gallery .gallery-next");

  /* The shape of a cell is that of its picture: as its template says, else once it is loaded. */

  function shape(cell, ratio) {
    if (!(ratio > 0)) return;
    cell.style.setProperty("--ratio", Math.min(WIDEST, Math.max(NARROWEST, ratio)).toFixed(4));
  }
  function shapeAsLoaded({ target }) {
    const cell = target.closest?.(".gallery-cell");
    if (!cell || !target.matches(".frame-picture")) return;
    const ratio = (target.naturalWidth || target.videoWidth) / (target.naturalHeight || target.videoHeight);
    if (!(ratio > 0) || Math.abs(ratio / Number(cell.dataset.ratio) - 1) < 0.02) return;
    cell.dataset.ratio = ratio.toFixed(4);
    shape(cell, ratio);
  }
  document.addEventListener("load", shapeAsLoaded, true);
  document.addEventListener("loadedmetadata", shapeAsLoaded, true);

  /* Parts that are far away keep their height, and what was in them compressed. */

  const kept = new WeakMap();
  const near = new WeakSet();
  const through = (data, stream) => new Response(new Response(data).body.pipeThrough(stream));
  const watch = new IntersectionObserver(
    (changes) => {
      for (const { target, isIntersecting, boundingClientRect } of changes) {
        if (isIntersecting) bringBack(target);
        else putAway(target, boundingClientRect.height);
      }
    },
    { rootMargin: NEAR },
  );

  function putAway(part, height) {
    near.delete(part);
    if (kept.has(part) || part.contains(document.activeElement) || !height) return;
    for (const cell of part.children) cell.removeAttribute("style"); // the page takes no styles from texts
    kept.set(part, through(part.innerHTML, new CompressionStream("gzip")).arrayBuffer());
    part.style.height = `${height}px`;
    part.replaceChildren();
  }

  async function bringBack(part) {
    near.add(part);
    if (!kept.has(part)) return;
    const html = await through(await kept.get(part), new DecompressionStream("gzip")).text();
    if (!near.has(part) || !kept.delete(part)) return;
    part.innerHTML = html;
    part.style.height = "";
    for (const cell of part.children) shape(cell, Number(cell.dataset.ratio));
    document.dispatchEvent(new CustomEvent("e3:changed"));
  }

  /** A row that is not full goes on in the next part. */
  function joinRows(before, part) {
    if (!before?.matches(".gallery-part") || !before.lastElementChild) return;
    const last = before.lastElementChild.offsetTop;
    part.prepend(...[...before.children].filter((cell) => cell.offsetTop === last));
  }

  function adopt() {
    for (const part of document.querySelectorAll("#gallery .gallery-part:not([data-watched])")) {
      part.dataset.watched = "";
      for (const cell of part.children) shape(cell, Number(cell.dataset.ratio));
      joinRows(part.previousElementSibling, part);
      watch.observe(part);
    }
  }
  document.addEventListener("htmx:afterSettle", adopt);
  adopt();

  /* Stars and rejects. */

  const wanted = () => {
    const selected = e3.selection();
    const current = e3.current()?.closest(".gallery-cell");
    return selected.length ? selected.map((each) => each.id) : current ? [current.dataset.row] : [];
  };

  function show(id, rating) {
    const cell = cellOf(id);
    if (!cell) return;
    cell.dataset.rating = { star: 1, reject: -1 }[rating] ?? 0;
    cell.querySelector("[data-star]")?.setAttribute("aria-pressed", String(rating === "star"));
  }

  async function send(ids, rating) {
    if (ids.length === 1) await e3.call("PUT", `/api/v1/jobs/${ids[0]}/rating`, { rating });
    else await e3.call("POST", "/api/v1/jobs/rate", { names: ids, rating });
    for (const id of ids) show(id, rating);
  }

  /** What all of them have already is taken back. */
  async function rate(ids, said) {
    if (!ids.length) return;
    const number = said === "star" ? "1" : "-1";
    const before = ids.map((id) => cellOf(id)?.dataset.rating);
    const rating = before.every((each) => each === number) ? null : said;
    const words = { star: "starred", reject: "rejected" }[rating] ?? "neither starred nor rejected";
    try {
      await send(ids, rating);
      if (ids.length > 1 || rating === "reject") {
        const run = () => send(ids, null).catch(e3.complain);
        e3.say(`${e3.count(ids.length, "result")} ${words}`, rating && { label: "Take it back", run });
      }
    } catch (error) {
      e3.complain(error);
    }
  }

  /* Export. */

  async function exportAs(kind, button) {
    const names = e3.selection().map((each) => each.id);
    button.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch("/api/v1/results/export", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ names, as: kind }),
      });
      if (!answer.ok) throw new e3.Problem({ title: `The agent answered ${answer.status}`, ...(await answer.json().catch(() => ({}))) });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await answer.blob());
      link.download = kind === "zip" ? "results.zip" : "sheet.png";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      e3.say(`${e3.count(names.length, "result")} saved as ${link.download}`);
    } catch (error) {
      e3.complain(error instanceof TypeError ? new e3.Problem({ title: "The export was cut off", remedy: "See that the agent runs, then try again." }) : error);
    } finally {
      button.removeAttribute("aria-busy");
    }
  }

  /* The slideshow walks through the cells; the page behind it scrolls along, so that more is loaded. */

  const slides = document.getElementById("slides");
  const pause = slides.querySelector("[data-slide=pause]");
  let shown = null;
  let timer = null;

  const plan = () => {
    clearTimeout(timer);
    if (slides.open && pause.getAttribute("aria-pressed") === "false") timer = setTimeout(() => step(1), SLIDE_MS);
  };

  function present(cell) {
    shown = cell.dataset.row;
    cell.scrollIntoView({ block: "center" });
    const small = cell.querySelector(".frame-picture");
    const large = small?.cloneNode() ?? document.createElement("p");
    if (large instanceof HTMLImageElement) {
      for (const name of ["srcset", "sizes"]) large.removeAttribute(name);
      large.src = small.src.replace(/width=\d+/, "width=1280");
    }
    else if (large instanceof HTMLVideoElement) Object.assign(large, { src: small.src.split("#")[0], loop: true, autoplay: true });
    else large.textContent = cell.dataset.name;
    large.className = "";
    large.loading = "eager";
    slides.querySelector("[data-stage]").replaceChildren(large);
    slides.querySelector(".slides-words").textContent = cell.querySelector(".gallery-words").textContent;
    plan();
  }

  function step(by) {
    const all = cells();
    const next = all[all.findIndex((cell) => cell.dataset.row === shown) + by];
    if (next) present(next);
    else if (by > 0 && more()) plan();
    else hold(true);
  }

  function hold(isHeld) {
    pause.setAttribute("aria-pressed", String(isHeld));
    plan();
  }

  function begin() {
    const first = e3.current()?.closest(".gallery-cell") ?? cells()[0];
    if (!first) return;
    slides.showModal();
    slides.requestFullscreen?.().catch(() => {});
    hold(false);
    present(first);
  }

  slides.addEventListener("close", () => {
    clearTimeout(timer);
    if (document.fullscreenElement) document.exitFullscreen();
    cellOf(shown)?.querySelector(".frame-link")?.focus({ focusVisible: true });
  });
  document.addEventListener("fullscreenchange", () => {
    if (!document.fullscreenElement && slides.open) slides.close();
  });
  slides.addEventListener("keydown", (event) => {
    const doing = { " ": "pause", ArrowRight: "next", j: "next", ArrowLeft: "back", k: "back", s: "star" }[event.key];
    if (!doing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (doing === "star") rate([shown], "star");
    else slideTo(doing);
  });
  const slideTo = (doing) => {
    if (doing === "pause") hold(pause.getAttribute("aria-pressed") === "false");
    else if (doing === "end") slides.close();
    else step(doing === "next" ? 1 : -1);
  };

  /* Keys and buttons. */

  /** To the cell above or below. */
  function climb(by) {
    const here = e3.current()?.getBoundingClientRect();
    if (!here) return e3.move(by);
    const middle = here.left + here.width / 2;
    const boxes = cells().map((cell) => [cell, cell.getBoundingClientRect()]);
    const beyond = boxes.filter(([, box]) => (box.top - here.top) * by > 1);
    const top = beyond.reduce((best, [, box]) => (best === null || (box.top - best) * by < 0 ? box.top : best), null);
    const row = beyond.filter(([, box]) => Math.abs(box.top - top) < 1);
    const gap = ([, box]) => Math.abs(box.left + box.width / 2 - middle);
    const next = row.sort((a, b) => gap(a) - gap(b))[0]?.[0];
    next?.querySelector(".frame-link").focus({ preventScroll: true, focusVisible: true });
    next?.scrollIntoView({ block: "nearest" });
    return undefined;
  }

  function openLarge(event) {
    const cell = e3.current()?.closest(".gallery-cell");
    if (!cell || !window.openLarge || event.target.matches("input, button")) return false;
    window.openLarge(cell);
    return true;
  }

  const keys = {
    s: () => rate(wanted(), "star"),
    0: () => rate(wanted(), "reject"),
    "-": () => rate(wanted(), "reject"),
    p: begin,
    ArrowRight: () => e3.move(1),
    ArrowLeft: () => e3.move(-1),
    ArrowDown: () => climb(1),
    ArrowUp: () => climb(-1),
    Enter: openLarge,
  };
  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const types = target.matches?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
    const isArrow = key.startsWith("Arrow");
    if (types || document.querySelector("dialog[open]") || !Object.hasOwn(keys, key)) return;
    if (isArrow && !e3.current()) return; // the page scrolls
    if (keys[key](event) !== false) event.preventDefault();
  });

  document.addEventListener("click", ({ target }) => {
    const star = target.closest("[data-star]");
    const button = target.closest("[data-rate], [data-export], [data-slides], [data-slide]");
    if (star) rate([star.closest("[data-row]").dataset.row], "star");
    else if (button?.dataset.rate) rate(wanted(), button.dataset.rate);
    else if (button?.dataset.export) exportAs(button.dataset.export, button);
    else if (button?.dataset.slide) slideTo(button.dataset.slide);
    else if (button) begin();
  });
})();
