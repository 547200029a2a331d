/** E3's nodes in ComfyUI's page: the batch panel, slots that grow, and parameters from a node's menu. */

import { api } from "../../scripts/api.js";
import { app } from "../../scripts/app.js";
import { BatchPanel } from "./batch_panel.js";
import { menuItems, openMenu } from "./parameter_menu.js";
import { growSlots } from "./parameter_slots.js";

const NOTICE_MILLISECONDS = 15000;
const ITERATE = "e3.iterateOver";
let lastPress = null;

function notify(detail, severity = "info") {
  try {
    app.extensionManager.toast.add({ severity, summary: "E3", detail, life: NOTICE_MILLISECONDS });
  } catch {
    console.warn(`E3: ${detail}`);
  }
}

app.registerExtension({
  name: "e3.iterator",

  commands: [
    {
      id: ITERATE,
      label: "E3: iterate over …",
      icon: "pi pi-th-large",
      function: () => openMenu(Object.values(app.canvas.selected_nodes ?? {})[0], lastPress, notify),
    },
  ],

  async setup() {
    document.addEventListener("pointerdown", (event) => (lastPress = event), { capture: true, passive: true });
    const panel = new BatchPanel((message) => notify(message, "warn"));
    panel.join();
    api.addEventListener("e3.batch", ({ detail }) => panel.show(detail));
    api.addEventListener("e3.notice", ({ detail }) => notify(detail.message, "warn"));
    api.addEventListener("reconnecting", () => panel.connection(false));
    api.addEventListener("reconnected", () => {
      panel.connection(true);
      panel.refresh();
    });
    await panel.refresh();
  },

  beforeRegisterNodeDef(nodeType, nodeData) {
    if (nodeData.name === "WIIterator") growSlots(nodeType);
    if (!app.collectNodeMenuItems) addToMenu(nodeType);
  },

  getNodeMenuItems(node) {
    return menuItems(node, notify);
  },

  /** Nodes that are not drawn on the canvas have a menu without extensions. A button above them opens ours. */
  getSelectionToolboxCommands(node) {
    return window.LiteGraph.vueNodesMode && menuItems(node, notify).length ? [ITERATE] : [];
  },
});

/** For pages that do not ask extensions for menu entries. */
function addToMenu(nodeType) {
  const { getExtraMenuOptions } = nodeType.prototype;
  nodeType.prototype.getExtraMenuOptions = function (canvas, options) {
    const extra = getExtraMenuOptions?.apply(this, [canvas, options]);
    options.push(...menuItems(this, notify));
    return extra;
  };
}
