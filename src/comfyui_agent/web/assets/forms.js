// Forms for new jobs, sweeps and books. Each sends one request, then opens the page of its result.
"use strict";

(() => {
  const COUNT_MS = 400;
  const ROUTES = {
    job: { url: "/api/v1/jobs", page: (made) => `/jobs/${made.id}` },
    sweep: { url: "/api/v1/batches", page: (made) => `/batches/${encodeURIComponent(made.id)}` },
    book: { url: "/api/v1/books", page: (made) => `/books/${encodeURIComponent(made.id)}` },
    again: { url: (form) => `/api/v1/jobs/${form.dataset.from}/again`, page: (made) => `/jobs/${made.id}` },
    vary: { url: (form) => `/api/v1/jobs/${form.dataset.from}/vary`, page: (made) => `/batches/${encodeURIComponent(made.id)}` },
  };
  const urlOf = (form) => {
    const { url } = ROUTES[form.dataset.send];
    return typeof url === "string" ? url : url(form);
  };
  const isSweep = (form) => ["sweep", "vary"].includes(form.dataset.send);

  /** The idempotency key of a form stays until the request succeeds or the form changes. */
  const keys = new WeakMap();

  const forms = () => [...document.querySelectorAll("form[data-send]")];
  const value = (form, name) => form.elements[name]?.value?.trim() ?? "";

  /** A number; as text if it is too large for a JavaScript number. */
  const number = (text) => {
    const read = Number(text);
    return text === "" || Number.isNaN(read) || (Number.isInteger(read) && !Number.isSafeInteger(read)) ? text : read;
  };

  const read = (field) => {
    if (field.dataset.kind === "yes") return field.checked;
    const text = field.dataset.kind === "long" ? field.value : field.value.trim();
    return field.dataset.kind === "whole" || field.dataset.kind === "number" ? number(text) : text;
  };

  /** The inputs to send: required ones, and those that differ from their default. */
  function inputs(form, swept = new Set()) {
    const found = {};
    for (const field of form.querySelectorAll("[data-input]")) {
      const name = field.dataset.input;
      const given = read(field);
      if (swept.has(name) || given === "") continue;
      const isSame = String(given) === field.dataset.now || (typeof given === "number" && given === Number(field.dataset.now));
      if ((form.dataset.from || !field.required) && isSame) continue;
      found[name] = given;
    }
    return found;
  }

  const axes = (form) => {
    const found = {};
    for (const row of form.querySelectorAll(".axis")) {
      const name = row.querySelector(".axis-name").value.trim();
      const values = row.querySelector(".axis-values").value.trim();
      if (name && values) found[name] = values;
    }
    return found;
  };

  const lines = (form) => value(form, "pages").split("\n").map((line) => line.trim()).filter(Boolean);

  function body(form) {
    const priority = value(form, "priority");
    const rank = priority ? { priority: number(priority) } : {};
    const workflow = form.dataset.workflow;
    switch (form.dataset.send) {
      case "again":
        return { inputs: inputs(form), ...rank };
      case "vary": {
        const set = axes(form);
        return { set, mode: value(form, "mode") || "matrix", inputs: inputs(form, new Set(Object.keys(set))), ...rank };
      }
      case "job":
        return { workflow_id: workflow, job_type: form.dataset.type, inputs: inputs(form), ...rank };
      case "sweep": {
        const set = axes(form);
        const name = value(form, "name");
        const swept = new Set(Object.keys(set));
        return { workflow, mode: value(form, "mode") || "matrix", set, inputs: inputs(form, swept), ...(name ? { name } : {}), ...rank };
      }
      default: {
        const prompt = value(form, "prompt_input");
        const pages = lines(form).map((line) => ({ inputs: { [prompt]: line } }));
        return { title: value(form, "title"), workflow, inputs: inputs(form, new Set([prompt])), pages, ...rank };
      }
    }
  }

  const said = (form, words) => {
    form.querySelector(".make-said").textContent = words;
  };

  function clear(form) {
    for (const problem of form.querySelectorAll(".field-problem")) problem.remove();
    for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  }

  /** Shows each problem below its field. Returns the first such field. */
  function mark(form, key, message) {
    const name = key.replace(/^(inputs|set)\./, "").replace(/^"|"$/g, "");
    const axis = [...form.querySelectorAll(".axis")].find((row) => row.querySelector(".axis-name").value.trim() === name);
    const place = axis ?? form.querySelector(`[data-key-of="${CSS.escape(key)}"], [data-key-of="inputs.${CSS.escape(name)}"]`);
    const field = place?.querySelector(axis ? ".axis-values" : "input, textarea, select");
    if (!field) return null;
    const words = document.createElement("p");
    words.className = "field-problem";
    words.textContent = message;
    field.setAttribute("aria-invalid", "true");
    place.append(words);
    place.closest("details")?.setAttribute("open", "");
    return field;
  }

  function missing(form, sent) {
    const swept = new Set(Object.keys(sent.set ?? {}));
    const empty = [...form.querySelectorAll("[required]")].filter(
      (field) => !field.value.trim() && !swept.has(field.dataset.input),
    );
    const wrong = [...form.querySelectorAll("input[pattern]")].filter((field) => field.value && !field.checkValidity());
    for (const field of empty) mark(form, keyOf(field), "Fill this in.");
    for (const field of wrong) mark(form, keyOf(field), `${field.title}, please.`);
    const isIdle = isSweep(form) && !swept.size;
    if (isIdle) said(form, "Name at least one input that changes, and its values.");
    const isSame = form.dataset.send === "again" && !Object.keys(sent.inputs).length;
    if (isSame) said(form, "Nothing is different yet: change a value, or draw another seed.");
    (empty[0] ?? wrong[0])?.focus();
    return empty.length + wrong.length > 0 || isIdle || isSame;
  }

  const keyOf = (field) => field.closest("[data-key-of]")?.dataset.keyOf ?? "";

  async function send(form) {
    const { page } = ROUTES[form.dataset.send];
    const button = form.querySelector("[type=submit]");
    const sent = body(form);
    clear(form);
    said(form, "");
    if (button.disabled || missing(form, sent)) return;
    if (!keys.has(form)) keys.set(form, e3.idempotencyKey());
    button.disabled = true;
    try {
      const made = await e3.call("POST", urlOf(form), sent, { "Idempotency-Key": keys.get(form) });
      location.assign(page(made));
    } catch (error) {
      button.disabled = false;
      const marked = (error.errors ?? []).map(({ key, message }) => mark(form, key, message)).filter(Boolean);
      marked[0]?.focus();
      e3.complain(error);
    }
  }

  /** How long so many pictures take and how much room they need, by what this workflow took before. */
  function estimate(form, count) {
    const { seconds, bytes, servers = 1 } = JSON.parse(form.dataset.estimate ?? "{}");
    const found = [];
    if (seconds) {
      const left = (seconds * count) / Math.min(servers, count);
      const shown = left < 90 ? `${Math.max(1, Math.round(left))} s` : left < 5400 ? `${Math.round(left / 60)} min` : `${(left / 3600).toFixed(1)} h`;
      found.push(`about ${shown}${servers > 1 && count > 1 ? ` on ${Math.min(servers, count)} servers` : ""}`);
    }
    if (bytes) found.push(`${bytes * count < 1e6 ? Math.ceil((bytes * count) / 1e3) + " KB" : Math.ceil((bytes * count) / 1e6) + " MB"} on disk`);
    return found;
  }

  let counting = null;
  let counted = 0;

  /** How many pictures it would be; the agent counts them. */
  async function count(form) {
    const turn = ++counted;
    if (form.dataset.send === "book") {
      const pages = lines(form).length;
      return said(form, pages ? [e3.count(pages, "page"), ...estimate(form, pages)].join(", ") : "");
    }
    const sent = body(form);
    if (!isSweep(form)) {
      const made = Number(form.querySelector('[data-input="batch"]')?.value) || 1;
      return said(form, [e3.count(made, form.dataset.type.endsWith("V") ? "film" : "picture"), ...estimate(form, 1)].join(", "));
    }
    if (!Object.keys(sent.set).length) return said(form, "");
    let words;
    clear(form);
    try {
      const plan = await e3.call("POST", urlOf(form), { ...sent, dry_run: true });
      const each = plan.axes.map((axis) => axis.values.length);
      const how = plan.mode === "matrix" && each.length > 1 ? `${each.join(" × ")} = ` : "";
      const costs = [e3.count(plan.total, "picture"), ...estimate(form, plan.total)].join(", ");
      words = `${how}${costs}. ${plan.warnings.join(" ")}`;
    } catch (error) {
      const marked = turn === counted && (error.errors ?? []).filter(({ key, message }) => mark(form, key, message));
      words = marked.length ? "See what is marked." : error.words || error.title;
    }
    if (turn === counted) said(form, words);
    return undefined;
  }

  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-send]");
    if (!form) return;
    event.preventDefault();
    send(form);
  });
  /** An input that the sweep changes is disabled as a single field. */
  function dim(form) {
    const swept = new Set(isSweep(form) ? Object.keys(axes(form)) : []);
    for (const field of form.querySelectorAll("[data-input]")) {
      field.disabled = swept.has(field.dataset.input);
      field.closest(".field").classList.toggle("is-swept", field.disabled);
    }
  }

  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-send]");
    if (!form) return;
    keys.delete(form);
    dim(form);
    clearTimeout(counting);
    counting = setTimeout(() => count(form), COUNT_MS);
  });
  document.addEventListener("click", (event) => {
    const random = event.target.closest("[data-random]");
    if (random) {
      const field = document.getElementById(random.dataset.random);
      field.value = crypto.getRandomValues(new Uint32Array(1))[0];
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
    if (event.target.closest("[data-add-axis]")) {
      const list = document.getElementById("axes");
      const row = list.lastElementChild.cloneNode(true);
      row.querySelectorAll(".field-problem").forEach((problem) => problem.remove());
      for (const field of row.querySelectorAll("input")) {
        field.value = "";
        field.removeAttribute("aria-invalid");
        field.setAttribute("aria-label", `${field.matches(".axis-name") ? "Input" : "Values"} ${list.children.length + 1}`);
      }
      list.append(row);
      row.querySelector("input").focus();
    }
  });
  for (const form of forms()) count(form);
})();
