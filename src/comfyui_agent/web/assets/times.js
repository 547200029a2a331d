// Relative times, kept up to date. The exact time shows on hover.
"use strict";

(() => {
  const EVERY_MS = 10_000;
  const NOTICED_MS = 5_000;

  /** How far the browser's clock is ahead of E3's. All times are E3's. */
  const apart = Date.now() - new Date(document.body.dataset.now);
  const ahead = Math.abs(apart) > NOTICED_MS ? apart : 0;

  const span = (seconds) => {
    if (seconds < 60) return `${Math.round(seconds)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} days`;
  };

  const words = (passed) => {
    if (passed < 0) return `in ${span(-passed)}`;
    return passed < 5 ? "just now" : `${span(passed)} ago`;
  };

  const exact = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });

  function refresh() {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const when = new Date(time.dateTime);
      if (Number.isNaN(when.valueOf())) continue;
      const said = time.dataset.exact === undefined ? words((Date.now() - ahead - when) / 1000) : exact.format(when);
      if (time.textContent !== said) time.textContent = said;
      time.title = exact.format(when);
    }
  }

  refresh();
  setInterval(refresh, EVERY_MS);
  document.addEventListener("e3:changed", refresh);
})();
