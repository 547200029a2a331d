// Shared by the other scripts: calls of the API, messages and dialogs.
"use strict";

window.e3 = (() => {
  const MOST_TOASTS = 3;
  const SHOWN_MS = 8000;

  class Problem extends Error {
    constructor({ title, detail = "", remedy = "", errors = [] }) {
      super(title);
      this.title = title;
      this.words = [detail && sentence(detail), remedy].filter(Boolean).join(" ");
      this.errors = errors;
    }
  }

  const ended = (text) => (/[.!?…:]$/.test(text) ? text : `${text}.`);
  const sentence = (text) => ended(/^[a-z]+ /.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text);

  const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

  /** Calls the API. A file is sent as it is. Returns its answer, or throws a Problem with the cause and the remedy. */
  async function call(method, url, body, headers = {}) {
    const isFile = body instanceof Blob;
    const type = isFile ? "application/octet-stream" : "application/json";
    let answer;
    try {
      answer = await fetch(url, {
        method,
        credentials: "same-origin",
        headers: { Accept: "application/json", "Content-Type": type, ...headers },
        body: method === "GET" ? undefined : isFile ? body : JSON.stringify(body ?? {}),
      });
    } catch {
      throw new Problem({
        title: "The agent did not answer",
        remedy: "It may not have heard you. See that it runs (e3 run), look how things stand, then try again.",
      });
    }
    const found = await answer.json().catch(() => ({}));
    if (answer.status === 401) {
      location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
    }
    if (!answer.ok) {
      throw new Problem({ title: `The agent answered ${answer.status}`, ...found });
    }
    return found;
  }

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  };

  function toast({ title = "", words, isProblem = false, undo = null }) {
    const shown = element("div", `toast${isProblem ? " toast-problem" : ""}`);
    shown.setAttribute("role", isProblem ? "alert" : "status");
    const text = element("p", "toast-words");
    if (title) text.append(element("span", "toast-title", sentence(title)), " ");
    text.append(words);
    shown.append(text);
    if (undo) {
      const button = element("button", "button button-small", undo.label ?? "Undo");
      button.addEventListener("click", () => {
        shown.remove();
        undo.run();
      });
      shown.append(button);
    }
    const close = element("button", "button button-small button-quiet", "Close");
    close.addEventListener("click", () => shown.remove());
    shown.append(close);
    const place = document.getElementById("toasts");
    place.append(shown);
    while (place.children.length > MOST_TOASTS) place.firstElementChild.remove();
    if (!isProblem) {
      const leave = () => (shown.matches(":hover, :focus-within") ? setTimeout(leave, 1000) : shown.remove());
      setTimeout(leave, SHOWN_MS);
    }
  }

  /** Shows a message. `undo` is {label, run}. */
  const say = (words, undo = null) => toast({ words: ended(words), undo });

  /** Shows an error and its remedy until it is closed. */
  const complain = (error) => {
    if (!(error instanceof Problem)) console.error(error);
    const known = error instanceof Problem ? error : new Problem({ title: "The page itself failed", detail: String(error), remedy: "Load it again." });
    toast({ title: known.title, words: known.words, isProblem: true });
  };

  /** Asks for confirmation. Returns whether the answer was yes; with `number`, the number or null. `hint` explains it.
      `words` and `yes` may be functions: they are called again when the page changes behind the dialog. What `destroys`
      has the colour of a warning. */
  function ask(words, { yes = "Yes", no = "Leave it", number = null, label = "", hint = "", destroys = false } = {}) {
    const dialog = document.getElementById("ask");
    const field = document.getElementById("ask-value");
    const now = (said) => (typeof said === "function" ? said() : said);
    const tell = () => {
      document.getElementById("ask-words").textContent = now(words);
      document.getElementById("ask-yes").textContent = now(yes);
    };
    tell();
    document.getElementById("ask-no").textContent = no;
    document.getElementById("ask-yes").classList.toggle("button-warn", destroys);
    document.addEventListener("e3:changed", tell);
    document.getElementById("ask-field").hidden = number === null;
    document.getElementById("ask-label").textContent = label;
    document.getElementById("ask-hint").textContent = hint;
    field.value = number ?? "0";
    field.required = number !== null;
    dialog.returnValue = "no";
    dialog.showModal();
    (number === null ? document.getElementById("ask-yes") : field).focus();
    if (number !== null) field.select();
    return new Promise((resolve) => {
      dialog.addEventListener(
        "close",
        () => {
          document.removeEventListener("e3:changed", tell);
          const isYes = dialog.returnValue === "yes";
          resolve(number === null ? isYes : isYes ? Number(field.value) : null);
        },
        { once: true },
      );
    });
  }

  /** An idempotency key: a request that is sent again with the same key is done once. */
  const idempotencyKey = () =>
    Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

  /** A picture that cannot be loaded keeps its frame, which says so. */
  const judge = (picture, isBroken) => {
    const frame = picture.closest(".frame");
    frame?.classList.toggle("is-gone", isBroken && frame.matches(".is-done"));
    frame?.classList.toggle("is-blank", isBroken && !frame.matches(".is-done"));
  };
  const isPicture = (target) => target instanceof HTMLElement && target.matches("img.frame-picture");
  document.addEventListener("error", ({ target }) => isPicture(target) && judge(target, true), true);
  document.addEventListener("load", ({ target }) => isPicture(target) && judge(target, false), true);
  const judgeAll = () => {
    for (const picture of document.querySelectorAll("img.frame-picture")) {
      if (picture.complete && picture.src) judge(picture, picture.naturalWidth === 0);
    }
  };
  document.addEventListener("e3:changed", judgeAll);
  judgeAll();

  document.addEventListener("htmx:sendError", () => complain(new Problem({ title: "The agent did not answer", remedy: "See that it runs (e3 run), then try again." })));
  document.addEventListener("htmx:responseError", ({ detail }) => {
    const { status } = detail.xhr;
    if (status === 401) location.reload();
    else complain(new Problem({ title: `The agent answered ${status}`, remedy: "Load the page again to see why." }));
  });
  document.addEventListener("htmx:configRequest", ({ detail }) => {
    for (const [name, value] of [...detail.formData]) if (value === "") detail.formData.delete(name);
  });
  /** Shows the log-out button to people who logged in with a token. */
  async function greet() {
    const answer = await fetch("/api/v1/me", { credentials: "same-origin" }).catch(() => null);
    const { token, role } = answer?.ok ? await answer.json() : {};
    if (!token) return;
    document.getElementById("who").textContent = `${token}, ${role}`;
    document.getElementById("leave").hidden = false;
  }
  if (document.body.dataset.live === "yes") greet();

  return { Problem, call, say, complain, ask, count, idempotencyKey };
})();
