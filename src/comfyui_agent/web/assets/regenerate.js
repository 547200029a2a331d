// Renders a page of a book again with the changes made in its form.
"use strict";

(() => {
  /** The changed and new inputs, as text. The agent converts them to the types of their places. */
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
