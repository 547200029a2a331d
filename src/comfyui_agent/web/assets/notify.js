// Browser notifications while nobody sees the page: all work has ended, or something needs attention.
"use strict";

(() => {
  const KEY = "e3-notify";
  const SETTLING_MS = 5000;
  const ENDINGS = ["job.done", "job.failed", "job.cancelled"];

  const button = document.getElementById("notify");
  const isPossible = "Notification" in window && Boolean(navigator.locks);
  const isOn = () => isPossible && localStorage.getItem(KEY) === "on" && Notification.permission === "granted";
  let stop = () => {};

  function show() {
    button.hidden = !isPossible || document.body.dataset.live !== "yes";
    button.setAttribute("aria-pressed", String(isOn()));
    button.textContent = isOn() ? "You are told when it is done" : "Tell me when it is done";
    button.title = isOn() ? "Turn notifications of this browser off" : "Turn notifications of this browser on";
  }

  function tell(title, body) {
    const shown = new Notification(title, { body, tag: "e3" });
    shown.addEventListener("click", () => {
      window.focus();
      shown.close();
    });
  }

  button.addEventListener("click", async () => {
    if (isOn()) localStorage.removeItem(KEY);
    else if ((await Notification.requestPermission()) !== "granted") e3.say("The browser does not allow notifications of this page: its settings do");
    else {
      localStorage.setItem(KEY, "on");
      e3.say("You are told when all work has ended or something needs attention, while this page is open and not seen");
    }
    show();
  });

  /** Follows the events until the page is seen. Of several hidden tabs, one does. */
  function listen() {
    const leaving = new AbortController();
    stop = () => leaving.abort();
    const left = new Promise((resolve) => leaving.signal.addEventListener("abort", resolve));
    const follow = async () => {
      let timer = null;
      let hasFailed = false;
      const source = new EventSource("/api/v1/events?previews=false");
      const look = async () => {
        timer = null;
        const { counts, kept, sentence } = await e3.call("GET", "/api/v1/status");
        if (leaving.signal.aborted) return;
        if (counts.pending + counts.processing - kept <= 0) tell("All work has ended", sentence);
        else if (hasFailed && counts.attention) tell("Something needs attention", sentence);
        hasFailed = false;
      };
      const hear = ({ type }) => {
        hasFailed ||= type === "job.failed";
        timer ??= setTimeout(() => look().catch(console.warn), SETTLING_MS);
      };
      for (const name of ENDINGS) source.addEventListener(name, hear);
      await left;
      clearTimeout(timer);
      source.close();
    };
    navigator.locks.request(KEY, { signal: leaving.signal }, follow).catch(() => {}); // seen before it was its turn
  }

  document.addEventListener("visibilitychange", () => {
    stop();
    if (document.hidden && isOn()) listen();
    if (!document.hidden) show();
  });
  show();
})();
