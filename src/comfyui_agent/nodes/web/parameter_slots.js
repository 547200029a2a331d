/** The slots of an E3 Iterator: one for each connection, and a free one. */

import { app } from "../../scripts/app.js";

const SLOT = /^param_\d+$/;
const TYPE = "WI_PARAMETER";
const OPTIONAL = { shape: 7 }; // the ring that ComfyUI draws for inputs that may stay free

/** Keep the slots of every iterator in order. */
export function growSlots(nodeType) {
  const { onConnectionsChange, onConfigure, onAdded } = nodeType.prototype;
  nodeType.prototype.onConnectionsChange = function (...given) {
    const result = onConnectionsChange?.apply(this, given);
    if (!app.configuringGraph) offerOne(this); // at once: who connects one after the other finds the next
    tidySoon(this);
    return result;
  };
  nodeType.prototype.onConfigure = function (...given) {
    const result = onConfigure?.apply(this, given);
    tidySoon(this);
    return result;
  };
  nodeType.prototype.onAdded = function (...given) {
    const result = onAdded?.apply(this, given);
    tidySoon(this);
    return result;
  };
}

/** The slot where the next parameter goes. */
export function freeSlot(iterator) {
  offerOne(iterator);
  return iterator.inputs.findIndex(isFree);
}

function isSlot(input) {
  return SLOT.test(input.name);
}

function isFree(input) {
  return isSlot(input) && input.link == null;
}

function offerOne(node) {
  if (node.inputs?.some(isFree)) return;
  const numbers = (node.inputs ?? []).filter(isSlot).map((input) => Number(input.name.slice("param_".length)));
  node.addInput(`param_${Math.max(0, ...numbers) + 1}`, TYPE, { ...OPTIONAL });
  fit(node);
}

/** Wait while a graph is loaded or a connection is made, because links use the numbers of slots. */
function tidySoon(node) {
  if (node.e3Tidying) return;
  node.e3Tidying = true;
  const end = app.configuringGraph ? () => {} : oneStep();
  setTimeout(() => {
    delete node.e3Tidying;
    if (app.configuringGraph) tidySoon(node);
    else if (node.graph) tidy(node);
    end();
  });
}

/** Group all changes until the returned function is called into one step of undo. */
function oneStep() {
  const tracker = activeTracker();
  if (!tracker?.beforeChange || !tracker.afterChange) return () => {};
  tracker.beforeChange();
  return () => {
    if (activeTracker() === tracker) tracker.afterChange();
    else tracker.changeCount -= 1; // another workflow is open by now: what is there is not this one's change
  };
}

function activeTracker() {
  return app.extensionManager?.workflow?.activeWorkflow?.changeTracker;
}

function tidy(node) {
  offerOne(node);
  const last = node.inputs.findLastIndex(isSlot);
  const spare = node.inputs.map((input, index) => (isFree(input) ? index : -1)).filter((index) => index >= 0);
  if (spare.length > 1 || spare[0] !== last) {
    for (const index of spare.reverse()) node.removeInput(index);
    offerOne(node);
  }
  node.inputs.filter(isSlot).forEach((input, index) => {
    const name = `param_${index + 1}`;
    if (input.name === name) return;
    if (input.label === input.name) delete input.label;
    input.name = name;
    input.localized_name = name;
  });
  node.setDirtyCanvas?.(true, true);
}

function fit(node) {
  const [width, height] = node.computeSize();
  node.setSize?.([Math.max(node.size[0], width), Math.max(node.size[1], height)]);
}
