/** "E3: iterate over …" in the menu of every node: a parameter for one of its widgets, without typing an id. */

import { app } from "../../scripts/app.js";
import { freeSlot } from "./parameter_slots.js";
import { findAll, graphsOf, places } from "./prompt_places.js";

const OWN = ["WIIterator", "WIParameter"];
const GAP = 40;
const LONGEST_SHOWN = 40;

/** The entry for a node's menu; none if the node has nothing to iterate over. */
export function menuItems(node, notify) {
  if (!node || OWN.includes(node.comfyClass ?? node.type)) return [];
  const widgets = (node.widgets ?? []).filter((widget) => places(node, widget).length);
  if (!widgets.length) return [];
  const options = widgets.map((widget) => ({
    content: asText(`${widget.label || widget.name}: ${shortened(widget.value)}`),
    callback: () => iterateOver(node, widget, notify),
  }));
  return [{ content: "E3: iterate over …", has_submenu: true, submenu: { options } }];
}

/** The same as a separate menu at the place of `event`, for pages whose node menus take no other entries. */
export function openMenu(node, event, notify) {
  const [item] = menuItems(node, notify);
  if (item) new window.LiteGraph.ContextMenu(item.submenu.options, { event, title: item.content });
  else notify("Select a node with values first: E3 iterates over one of them.");
}

/** Make the parameter, and the iterator if there is none, and connect them. */
function iterateOver(node, widget, notify) {
  const found = places(node, widget);
  const [place] = found;
  const iterator = nearestIterator(node) ?? makeIterator(node);
  const graph = iterator.graph;
  const beside = graph === node.graph ? node : iterator;
  const taken = findAll(graph, "WIParameter").map((each) => valueOf(each, "name"));
  const name = taken.includes(place.inputName) ? `${place.inputName} of ${place.nodeId}` : place.inputName;
  const parameter = make(graph, "WIParameter", beside, -1);
  const { nodeId: node_id, inputName: input_name } = place;
  set(parameter, { name, type: "AUTO", values: written(widget.value), node_id, input_name });
  parameter.title = `E3 Parameter: ${place.inputName} of ${node.title || node.type}`;
  parameter.connect(0, iterator, freeSlot(iterator));
  app.canvas.setDirty(true, true);
  const uses = found.length;
  const others = uses > 1 ? ` Its subgraph is used ${uses} times: this drives node ${place.nodeId}.` : "";
  notify(`${name} is a parameter now: write its values into the new node, such as 1,2,3 or 1..10:2.${others}`);
}

/** The iterator of the node's own graph, else any. Links do not leave a graph, and a parameter may be anywhere. */
function nearestIterator(node) {
  return [node.graph, ...graphsOf()].flatMap((graph) => findAll(graph, "WIIterator"))[0];
}

function makeIterator(node) {
  const root = graphsOf()[0];
  const outer = node.graph === root ? node : root.nodes.find((each) => each.subgraph) ?? node;
  const iterator = make(root, "WIIterator", outer, 1);
  for (const each of ["WISaveImage", "WIGridCompositor"].flatMap((type) => findAll(root, type))) {
    const slot = each.inputs.findIndex((input) => input.name === "iterator" && input.link == null);
    if (slot >= 0) iterator.connect(0, each, slot);
  }
  return iterator;
}

/** Add a node to the left (-1) or right (1) of another, moved down until it covers none. */
function make(graph, type, beside, side) {
  const node = window.LiteGraph.createNode(type);
  graph.add(node);
  const x = side < 0 ? beside.pos[0] - node.size[0] - GAP : beside.pos[0] + beside.size[0] + GAP;
  node.pos = [x, beside.pos[1]];
  const covers = (other) =>
    other !== node &&
    other.pos[0] < node.pos[0] + node.size[0] &&
    other.pos[0] + other.size[0] > node.pos[0] &&
    other.pos[1] - GAP < node.pos[1] + node.size[1] &&
    other.pos[1] + other.size[1] + GAP > node.pos[1];
  for (let other; (other = graph.nodes.find(covers)); ) node.pos = [x, other.pos[1] + other.size[1] + GAP + 1];
  return node;
}

function set(node, values) {
  for (const [name, value] of Object.entries(values)) {
    const widget = node.widgets.find((each) => each.name === name);
    widget.value = value;
    widget.callback?.(value);
  }
}

function valueOf(node, name) {
  return node.widgets?.find((each) => each.name === name)?.value;
}

/** A value as a parameter reads it: in quotes where it would mean something else. */
export function written(value) {
  const text = String(value);
  const isBare = text !== "" && text === text.trim() && !/^(@|random:)|[",|…]|\.\./.test(text);
  return isBare ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

function shortened(value) {
  const text = String(value).replace(/\s+/g, " ");
  return text.length > LONGEST_SHOWN ? `${text.slice(0, LONGEST_SHOWN - 1)}…` : text;
}

/** Escape a text, because menus take entries as markup. */
function asText(text) {
  return text.replaceAll("<", "‹").replaceAll(">", "›");
}
