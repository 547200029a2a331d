// A page of a book, rendered again with what was changed in its form.
"use strict";

(() => {
  /** What is different, or new; as text, which the agent makes what its place takes. */
  function changes(form) {
    const found = {};
    for (const row of form.querySelectorAll("[data-input]")) {
      const name = row.dataset.input || row.querySelector("[name=name]").value.trim();
      const field = row.querySelector("[name=value]");
      if (name && (field.value !== field.defaultValue || !row.dataset.input)) found[name] = field.value;
    }
    return found;
  }

  async function send(form) {
    const button = form.querySelector("[type=submit]");
    if (button.disabled) return;
    button.disabled = true;
    try {
      const body = { inputs: changes(form), new_seed: form.elements.new_seed.checked };
      await e3.call("POST", form.getAttribute("action"), body);
      e3.say(`${form.dataset.regenerate} waits again. It keeps its picture until there is another.`);
      for (const field of form.querySelectorAll("[data-input] [name=value]")) field.defaultValue = field.value;
      form.closest("details").open = false;
    } catch (error) {
      e3.complain(error);
    } finally {
      button.disabled = false;
    }
  }

  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-regenerate]");
    if (!form) return;
    event.preventDefault();
    send(form);
  });
})();
