// Importing a workflow: a file is sent to the agent, which says what it found, and the page of the new workflow opens.
"use strict";

(() => {
  const MOST_BYTES = 64 * 1024 * 1024;
  const FOUND = "e3.imported";

  const words = ({ workflow_id, format, nodes, inputs }) => {
    const names = Object.keys(inputs).join(", ") || "none that have a usual name";
    return `Imported ${workflow_id}: ${format}, ${e3.count(nodes, "node")}. Inputs: ${names}`;
  };

  /** Makes a workflow of any file that carries one. What is refused is shown. */
  e3.importWorkflow = async (file) => {
    if (file.size > MOST_BYTES) {
      e3.complain(new e3.Problem({ title: `${file.name} is too large`, remedy: "64 MB is the most. Try e3 workflow import." }));
      return;
    }
    const button = document.querySelector("[data-import]");
    button?.setAttribute("aria-busy", "true");
    try {
      const found = await e3.call("POST", `/api/v1/workflows?file=${encodeURIComponent(file.name)}`, file);
      sessionStorage.setItem(FOUND, words(found));
      location.assign(`/new?workflow=${encodeURIComponent(found.workflow_id)}`);
    } catch (error) {
      e3.complain(error);
    } finally {
      button?.removeAttribute("aria-busy");
    }
  };

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-import]")) document.getElementById("import-file").click();
  });
  document.addEventListener("change", ({ target }) => {
    if (target.id !== "import-file" || !target.files.length) return;
    e3.importWorkflow(target.files[0]);
    target.value = "";
  });

  const found = sessionStorage.getItem(FOUND);
  if (found && location.pathname === "/new") {
    sessionStorage.removeItem(FOUND);
    e3.say(found);
  }
})();
