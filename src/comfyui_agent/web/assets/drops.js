// Files, pictures and results that are dropped anywhere on the page.
"use strict";

(() => {
  const RESULT = /\/api\/v1\/jobs\/(\d+)\/results\//;
  const MEDIA = /^(image|video|audio)\//;
  const CARRIED = ["workflow", "prompt"];
  const LOOKED_AT = 256 * 1024;

  const isForUs = (transfer) => [...transfer.types].some((type) => type === "Files" || type === "text/uri-list");

  /** Whether a picture says that it carries the graph it was made with: a look at its first bytes. */
  async function carriesWorkflow(file) {
    const text = new TextDecoder("latin1").decode(await file.slice(0, LOOKED_AT).arrayBuffer());
    return CARRIED.some((word) => text.includes(`tEXt${word}\0`) || text.includes(`${word}:{`));
  }

  async function takeFile(file, target) {
    const isMedia = MEDIA.test(file.type);
    const picked = target.closest?.("[data-key-of]")?.querySelector("[data-picked]") ?? document.querySelector("[data-picked]");
    if (!isMedia) return e3.importWorkflow(file);
    if (!picked && (await carriesWorkflow(file))) {
      const words = `${file.name} carries the workflow that it was made with.`;
      const isWanted = await e3.ask(words, { yes: "Import the workflow", no: "Use it as a picture" });
      if (isWanted) return e3.importWorkflow(file);
    }
    if (picked) return e3.takePicture(picked, file);
    const made = await e3.uploadPicture(file);
    location.assign(`/new?${new URLSearchParams({ picture: made.value })}`);
    return undefined;
  }

  async function take(event) {
    const { files } = event.dataTransfer;
    const address = event.dataTransfer.getData("text/uri-list");
    if (files.length && !RESULT.test(address)) return takeFile(files[0], event.target);
    const result = RESULT.exec(address);
    if (result) location.assign(`/new?use=${result[1]}`);
    return undefined;
  }

  document.addEventListener("dragover", (event) => {
    if (!isForUs(event.dataTransfer)) return;
    event.preventDefault();
    document.documentElement.classList.add("is-dropping");
  });
  for (const name of ["dragleave", "drop", "dragend"]) {
    document.addEventListener(name, (event) => {
      if (name !== "dragleave" || !event.relatedTarget) document.documentElement.classList.remove("is-dropping");
    });
  }
  document.addEventListener("drop", (event) => {
    if (!isForUs(event.dataTransfer)) return;
    event.preventDefault();
    take(event).catch(e3.complain);
  });
})();
