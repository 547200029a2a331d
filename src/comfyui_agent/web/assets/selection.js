// Selecting several jobs. The selection is kept while the list changes.
"use strict";

(() => {
  const selected = new Map();
  let last = null;

  const rows = () => [...document.querySelectorAll("[data-row]")];
  const facts = (row) => ({
    id: row.dataset.row,
    name: row.dataset.name,
    status: row.dataset.status,
    priority: Number.parseInt(row.dataset.priority, 10) || 0,
  });

  function show() {
    const all = rows();
    for (const row of all) {
      const isSelected = selected.has(row.dataset.row);
      if (isSelected) selected.set(row.dataset.row, facts(row));
      row.classList.toggle("is-selected", isSelected);
      const box = row.querySelector(".pick");
      if (box) box.checked = isSelected;
    }
    const every = document.getElementById("pick-all");
    if (every) {
      const here = all.filter((row) => selected.has(row.dataset.row)).length;
      every.checked = all.length > 0 && here === all.length;
      every.indeterminate = here > 0 && here < all.length;
    }
    const bar = document.getElementById("selected");
    if (!bar) return;
    bar.hidden = selected.size === 0;
    document.body.classList.toggle("has-selection", selected.size > 0);
    const elsewhere = selected.size - all.filter((row) => selected.has(row.dataset.row)).length;
    document.getElementById("selected-words").textContent =
      `${e3.count(selected.size, "job")} selected${elsewhere ? `, ${elsewhere} not on this page` : ""}`;
  }

  function pick(row, isPicked = !selected.has(row.dataset.row)) {
    if (isPicked) selected.set(row.dataset.row, facts(row));
    else selected.delete(row.dataset.row);
    last = row.dataset.row;
  }

  function drop() {
    selected.clear();
    show();
  }

  const asTheyAre = (jobs) =>
    jobs.map((job) => {
      const row = rows().find((each) => each.dataset.row === job.id);
      return row ? facts(row) : (selected.get(job.id) ?? job);
    });
  const names = (jobs) => jobs.map((job) => job.name);
  const called = (jobs) => (jobs.length === 1 ? jobs[0].name : e3.count(jobs.length, "job"));
  const others = (jobs, fitting, many, one = many) => {
    const rest = jobs.length - fitting.length;
    return rest ? `\n${e3.count(rest, "other")} ${rest === 1 ? "is" : "are"} left alone: ${rest === 1 ? one : many}.` : "";
  };

  function decline(words) {
    e3.say(words);
    return false;
  }

  /* Each returns whether it was done; the selection is cleared then. */

  async function retry(jobs) {
    const fitting = jobs.filter((job) => job.status === "failed");
    if (!fitting.length) return decline("Only jobs that failed can be retried");
    const question = `Retry ${called(fitting)}?${others(jobs, fitting, "only what failed can be retried")}`;
    if (jobs.length > 1 && !(await e3.ask(question, { yes: `Retry ${e3.count(fitting.length, "job")}` }))) return false;
    const answer = await e3.call("POST", "/api/v1/jobs/retry", { names: names(fitting) });
    e3.say(e3.became(answer, fitting.length === 1 ? "waits again" : "wait again"), undo("Cancel", "cancel", answer.changed, "cancelled"));
    return true;
  }

  async function cancel(jobs) {
    // Jobs end while the dialog is open: those still selected at the end are cancelled.
    const fitting = () => asTheyAre(jobs).filter((job) => job.status === "pending" || job.status === "processing");
    if (!fitting().length) return decline("Only jobs that wait or render can be cancelled");
    const question = () => `Cancel ${called(fitting())}?${others(jobs, fitting(), "they have ended already", "it has ended already")}`;
    if (!(await e3.ask(question, { yes: () => `Cancel ${e3.count(fitting().length, "job")}`, destroys: true }))) return false;
    if (!fitting().length) return decline("All of them have ended meanwhile");
    const answer = await e3.call("POST", "/api/v1/jobs/cancel", { names: names(fitting()) });
    e3.say(e3.became(answer, "cancelled"), undo("Retry", "retry", answer.changed, "waiting again"));
    return true;
  }

  async function dismiss(jobs) {
    const fitting = jobs.filter((job) => job.status === "failed");
    if (!fitting.length) return decline("Only jobs that failed can be dismissed");
    const question = `Dismiss ${called(fitting)}?${others(jobs, fitting, "only what failed can be dismissed")}`;
    if (jobs.length > 1 && !(await e3.ask(question, { yes: `Dismiss ${e3.count(fitting.length, "job")}` }))) return false;
    const answer = await e3.call("POST", "/api/v1/jobs/dismiss", { names: names(fitting) });
    e3.say(e3.became(answer, "dismissed"));
    return true;
  }

  function undo(label, action, changed, words) {
    if (!changed?.length) return null;
    const run = guarded(async () => e3.say(e3.became(await e3.call("POST", `/api/v1/jobs/${action}`, { names: changed }), words)));
    return { label: changed.length === 1 ? `${label} it` : `${label} them`, run };
  }

  async function bump(jobs) {
    const fitting = jobs.filter((job) => job.status === "pending");
    if (!fitting.length) return decline("Only jobs that wait can be bumped");
    const lowest = Number(document.querySelector("[data-lowest]")?.dataset.lowest ?? 50);
    const question = `Run ${called(fitting)} before others?${others(jobs, fitting, "they do not wait", "it does not wait")}`;
    const priority = await e3.ask(question, {
      yes: `Bump ${e3.count(fitting.length, "job")}`,
      number: lowest - 1,
      label: "Priority",
      hint: `Lower runs earlier; the lowest that waits now is ${lowest}.`,
    });
    if (priority === null) return false;
    await prioritise(fitting.map((job) => [job, priority]));
    e3.say(`${called(fitting)} ${fitting.length === 1 ? "has" : "have"} priority ${priority}`, {
      label: "Undo",
      run: guarded(async () => {
        await prioritise(fitting.map((job) => [job, job.priority]));
        e3.say(`${called(fitting)} ${fitting.length === 1 ? "has its" : "have their"} old priority again`);
      }),
    });
    return true;
  }

  async function prioritise(changes) {
    const left = [...changes];
    const work = async () => {
      for (let next = left.shift(); next; next = left.shift()) {
        const [job, priority] = next;
        await e3.call("PUT", `/api/v1/jobs/${job.id}/priority`, { priority });
      }
    };
    await Promise.all([work(), work(), work(), work()]);
  }

  const guarded = (work) => async (...given) => {
    try {
      return await work(...given);
    } catch (error) {
      e3.complain(error);
      return false;
    }
  };

  const actions = { retry, dismiss, cancel, bump };

  /** Acts on the selection, else on one row. Returns false if there is neither. */
  e3.many = (action, row = null) => {
    const jobs = selected.size ? [...selected.values()] : row ? [facts(row)] : [];
    const button = document.querySelector(`[data-many=${action}]`);
    if (!jobs.length) return false;
    if (!button) e3.say("This is for admins");
    if (!button || button.disabled) return true;
    guarded(actions[action])(jobs).then((isDone) => isDone && drop());
    return true;
  };

  e3.selection = () => [...selected.values()];
  e3.pick = (row) => {
    pick(row);
    show();
  };
  e3.dropSelection = () => {
    const had = selected.size > 0;
    drop();
    return had;
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-many]");
    if (button) e3.many(button.dataset.many);
    else if (event.target.closest("[data-drop]")) drop();
    else if (event.target.matches("#pick-all")) {
      for (const row of rows()) pick(row, event.target.checked);
      show();
    } else if (event.target.matches(".pick")) {
      const row = event.target.closest("[data-row]");
      const all = rows();
      const from = event.shiftKey ? all.findIndex((each) => each.dataset.row === last) : -1;
      if (from >= 0) {
        const [low, high] = [from, all.indexOf(row)].sort((a, b) => a - b);
        for (const each of all.slice(low, high + 1)) pick(each, event.target.checked);
      } else {
        pick(row, event.target.checked);
      }
      show();
    }
  });
  document.addEventListener("e3:changed", show);
})();
