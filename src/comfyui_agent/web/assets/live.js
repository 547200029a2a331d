// Live updates: changes are put in place as they arrive, and a lost connection is shown.
"use strict";

(() => {
  const GRACE_MS = 1500;
  const QUIET_MS = 15_000;
  const STALE_MS = 60_000;
  const PATIENCE_MS = 5000;
  const PAUSES_MS = [500, 1000, 2000, 4000, 5000];
  const MUTED = "[data-act], [data-many], [data-send] button[type=submit], [data-regenerate] button[type=submit]";

  const sign = document.getElementById("live");
  const word = document.getElementById("live-word");
  const banner = document.getElementById("lost");

  let source = null;
  let watched = "";
  let heardAt = new Date();
  let streamedAt = new Date();
  let lostAt = null;
  let tries = 0;
  let again = null;
  let grace = null;

  const here = () => location.pathname + location.search;
  const lives = () => document.body.dataset.live === "yes" && !document.hidden;

  function show(state, words) {
    sign.hidden = false;
    sign.dataset.state = state;
    word.textContent = words;
  }

  function warn(words) {
    if (banner.textContent !== words) banner.textContent = words;
    banner.hidden = !words;
  }

  function mute(isMuted) {
    for (const button of document.querySelectorAll(MUTED)) {
      if (isMuted && !button.disabled) {
        button.dataset.muted = "";
        button.disabled = true;
      } else if (!isMuted && "muted" in button.dataset) {
        delete button.dataset.muted;
        button.disabled = false;
      }
    }
  }

  function close() {
    clearTimeout(again);
    source?.close();
    source = null;
  }

  function open() {
    close();
    if (!lives()) return;
    watched = here();
    source = new EventSource(`/stream?page=${encodeURIComponent(watched)}`);
    source.addEventListener("open", alive);
    source.addEventListener("error", lose);
    source.addEventListener("beat", (event) => {
      alive();
      const { behind } = JSON.parse(event.data);
      if (behind) show("live", `${behind} s behind`);
    });
    source.addEventListener("bye", lose);
    source.addEventListener("fragments", (event) => {
      alive();
      if (watched === here()) put(JSON.parse(event.data));
    });
    source.addEventListener("trouble", (event) => warn(`The page cannot be kept fresh: ${JSON.parse(event.data).message}`));
    source.addEventListener("gone", (event) => {
      close();
      show("off", "gone");
      warn(`This is not there any more: ${JSON.parse(event.data).message}`);
      mute(true);
    });
  }

  function alive() {
    heardAt = streamedAt = new Date();
    tries = 0;
    clearTimeout(grace);
    grace = null;
    show("live", "live");
    warn("");
    if (lostAt !== null) {
      lostAt = null;
      mute(false);
    }
  }

  function lose() {
    close();
    if (!lives()) return;
    if (lostAt === null && grace === null) {
      const since = heardAt;
      show("off", "waiting");
      grace = setTimeout(() => tellLost(since), GRACE_MS);
    }
    again = setTimeout(open, PAUSES_MS[Math.min(tries, PAUSES_MS.length - 1)]);
    tries += 1;
    if (tries === 3) askWhoWeAre();
  }

  function tellLost(since) {
    grace = null;
    lostAt = since;
    const time = since.toLocaleTimeString("en-GB");
    show("lost", "lost");
    warn(`Connection to the agent lost since ${time}. What you see is from then. Trying again…`);
    mute(true);
  }

  /** The agent may answer although the session has ended. */
  async function askWhoWeAre() {
    const answer = await fetch("/api/v1/me", { credentials: "same-origin" }).catch(() => null);
    if (answer?.status === 401) location.assign(`/login?next=${encodeURIComponent(here())}`);
  }

  /** A connection can be dead without an error: after some silence, ask the agent; after more, reconnect. */
  async function doubt() {
    if (source === null || new Date() - heardAt < QUIET_MS) return;
    const asked = source;
    const answer = await fetch("/healthz", { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store" }).catch(() => null);
    if (source !== asked) return;
    if (answer === null) lose();
    else if (new Date() - streamedAt > STALE_MS) open();
    else heardAt = new Date();
  }

  const callbacks = {
    beforeNodeMorphed(old, fresh) {
      if (old.nodeType !== Node.ELEMENT_NODE) return true;
      if (old.matches("time") && old.dateTime === fresh.dateTime) return false;
      if (old.matches("[data-keep]")) {
        for (const name of Object.keys(fresh.dataset)) old.dataset[name] = fresh.dataset[name];
        return false;
      }
      return true;
    },
    beforeAttributeUpdated(name, element, kind) {
      if (name === "open" && element.matches("details, dialog")) return false;
      if (name === "disabled" && "muted" in element.dataset) return false;
      if (name === "aria-busy" || (name === "class" && kind === "remove")) return false;
      return true;
    },
  };

  function put(fragments) {
    for (const { id, html } of fragments) {
      const element = document.getElementById(id);
      if (element === null) continue;
      Idiomorph.morph(element, html, { morphStyle: "outerHTML", ignoreActiveValue: true, restoreFocus: true, callbacks });
      const fresh = document.getElementById(id);
      if (fresh !== null && window.htmx) htmx.process(fresh);
    }
    document.dispatchEvent(new CustomEvent("e3:changed"));
  }

  const SAID_MS = 20_000;
  let saidAt = 0;
  /** A sentence for screen readers, now and then, instead of every changed figure. */
  document.addEventListener("e3:changed", () => {
    const said = document.getElementById("said");
    const words = document.getElementById("sentence")?.textContent ?? "";
    if (words === said.textContent || Date.now() - saidAt < SAID_MS) return;
    said.textContent = words;
    saidAt = Date.now();
  });

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      clearTimeout(grace);
      grace = null;
      close();
    } else {
      heardAt = lostAt ?? new Date();
      open();
    }
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => event.persisted && open());
  window.addEventListener("online", open);
  document.addEventListener("htmx:pushedIntoHistory", open);
  document.addEventListener("htmx:afterSettle", () => {
    if (lostAt !== null) mute(true);
    document.dispatchEvent(new CustomEvent("e3:changed"));
  });
  setInterval(doubt, PATIENCE_MS);
  if (document.body.dataset.live === "yes") open();
})();
