// Relative times, kept up to date. The exact time shows on hover.
"use strict";

(() => {
  const EVERY_MS = 10_000;
  const NOTICED_MS = 5_000;
  const DAWN = 5;

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

  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
  const dayAndClock = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

  const now = () => new Date(Date.now() - ahead);
  const hourOf = (day, hour) => new Date(day.getFullYear(), day.getMonth(), day.getDate(), hour);
  const timeOfDay = (when) => (hourOf(when, 0) - hourOf(now(), 0) === 0 ? clock : dayAndClock).format(when);

  /** Whether most of a stretch of time was in the night before this day, from 20:00 to 08:00. */
  function wasLastNight(began, ended) {
    const [from, until] = [hourOf(now(), -4), hourOf(now(), 8)];
    return now().getHours() >= DAWN && Math.min(ended, until) - Math.max(began, from) > (ended - began) / 2;
  }

  function said(time, when) {
    if (time.dataset.clock !== undefined) return timeOfDay(when);
    return time.dataset.exact === undefined ? words((now() - when) / 1000) : exact.format(when);
  }

  function refresh() {
    for (const work of document.querySelectorAll("[data-began]")) {
      const isNight = wasLastNight(new Date(work.dataset.began), new Date(work.dataset.ended));
      const text = isNight ? "Last night" : "The last work";
      if (work.textContent !== text) work.textContent = text;
    }
    for (const time of document.querySelectorAll("time[datetime]")) {
      const when = new Date(time.dateTime);
      if (Number.isNaN(when.valueOf())) continue;
      const text = said(time, when);
      if (time.textContent !== text) time.textContent = text;
      time.title = exact.format(when);
    }
  }

  refresh();
  setInterval(refresh, EVERY_MS);
  document.addEventListener("e3:changed", refresh);
})();
