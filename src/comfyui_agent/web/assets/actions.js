// Buttons that call the API. They ask before a change that matters, report the result, and offer to undo it.
"use strict";

(() => {
  const read = (text) => (text ? JSON.parse(text) : undefined);

  /** Reports a change of several jobs: how many changed, and why others did not. */
  e3.became = (answer, words) => {
    const { changed = [], refused = [] } = answer;
    const said = changed.length ? `${e3.count(changed.length, "job")} ${words}.` : "Nothing has changed.";
    if (!refused.length) return said;
    const first = refused[0];
    const others = refused.length > 1 ? ` (and ${e3.count(refused.length - 1, "other")})` : "";
    return `${said} Left alone: ${first.name}, ${first.reason}${others}.`;
  };

  const done = (button, answer) => {
    if (Array.isArray(answer.changed)) return e3.became(answer, button.dataset.done || "changed");
    return button.dataset.done || `${button.textContent.trim()}: done`;
  };

  function undoOf(button) {
    const undo = read(button.dataset.undo);
    if (!undo) return null;
    const run = async () => {
      try {
        await e3.call(undo.method ?? "POST", undo.url, undo.body);
        e3.say(undo.done ?? "Undone");
      } catch (error) {
        e3.complain(error);
      }
    };
    return { label: undo.label, run };
  }

  /** The body to send after the person has agreed; null if not. */
  async function agreed(button, question) {
    const { body, field, value, hint } = button.dataset;
    const yes = () => button.dataset.yes ?? button.textContent.trim().replace("…", "");
    const destroys = button.matches(".button-danger");
    if (field) {
      const number = await e3.ask(question, { yes, number: value, label: field.charAt(0).toUpperCase() + field.slice(1), hint });
      return number === null ? null : { ...read(body), [field]: number };
    }
    return question && !(await e3.ask(() => button.dataset.confirm ?? question, { yes, destroys })) ? null : read(button.dataset.body);
  }

  e3.press = async (button) => {
    if (button.disabled || button.getAttribute("aria-busy") === "true") return;
    const { act, url, confirm, go } = button.dataset;
    const body = await agreed(button, confirm);
    if (body === null) return;
    button.setAttribute("aria-busy", "true");
    const undo = undoOf(button);
    try {
      const answer = await e3.call(act, url, body);
      if (go) location.assign(go);
      else e3.say(done(button, answer), undo);
    } catch (error) {
      e3.complain(error);
    } finally {
      button.removeAttribute("aria-busy");
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-act]");
    if (button) e3.press(button);
  });

  /** Puts a text into the clipboard; `data-copied` says what that was. */
  async function copy({ dataset }) {
    try {
      if (navigator.clipboard) await navigator.clipboard.writeText(dataset.copy);
      else copyAsBefore(dataset.copy);
      e3.say(`Copied: ${dataset.copied}`);
    } catch {
      e3.say("The browser does not let a page copy: select the text by hand");
    }
  }

  /** Without TLS, browsers copy only what is selected. */
  function copyAsBefore(text) {
    const field = document.createElement("textarea");
    field.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }

  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-copy]");
    if (button) copy(button);
  });
})();
