/** Where the value of a widget goes in the prompt. Ids there are paths through subgraphs, such as 98:6. */

import { app } from "../../scripts/app.js";

/** The graph of the workflow, then every subgraph that is used in it. */
export function graphsOf() {
  return [...new Set(walk().map(({ graph }) => graph))];
}

export function findAll(graph, type) {
  return (graph?.nodes ?? []).filter((node) => node.type === type);
}

/** The inputs of the prompt that a widget sets, `{nodeId, inputName}`: one for each use of the subgraph it is in. */
export function places(node, widget) {
  const inner = innerOf(node, widget);
  if (!inner || !isInPrompt(inner.widget)) return [];
  const paths = walk().filter(({ graph }) => graph === node.graph);
  return paths.map(({ path }) => ({ nodeId: [...path, ...inner.path].join(":"), inputName: inner.inputName }));
}

function isInPrompt(widget) {
  const isSaid = widget.options?.serialize !== false && widget.serialize !== false && widget.type !== "button";
  return isSaid && !widget.hidden && ["string", "number", "boolean"].includes(typeof widget.value);
}

/** Every graph with the ids of the subgraph nodes that lead to it. */
function walk(graph = app.rootGraph ?? app.graph.rootGraph ?? app.graph, path = [], depth = 0) {
  if (depth > 20) return [];
  const below = (graph.nodes ?? graph._nodes ?? []).filter((node) => node.subgraph);
  return [{ graph, path }, ...below.flatMap((node) => walk(node.subgraph, [...path, node.id], depth + 1))];
}

/** The node that owns a widget: a subgraph node shows widgets of inner nodes. */
function innerOf(node, widget) {
  if (!node.subgraph) return { path: [node.id], inputName: widget.name, widget };
  const target = shownFrom(node, widget);
  const inner = target && node.subgraph.getNodeById(target.nodeId);
  const its = inner?.widgets?.find((each) => each.name === target.widgetName);
  const further = its && innerOf(inner, its);
  return further ? { ...further, path: [node.id, ...further.path] } : null;
}

function shownFrom(node, widget) {
  const shown = widget._overlay; // as this frontend says whose widget a subgraph node shows
  if (shown?.isProxyWidget) return { nodeId: shown.nodeId, widgetName: shown.widgetName };
  const input = node.subgraph.inputs?.find((each) => each.name === widget.name);
  const link = input?.linkIds?.length ? node.subgraph.getLink?.(input.linkIds[0]) : null;
  const target = link && node.subgraph.getNodeById(link.target_id);
  const slot = target?.inputs?.[link.target_slot];
  return slot ? { nodeId: target.id, widgetName: slot.widget?.name ?? slot.name } : null;
}
