"""The seconds of each node, from what was heard on the websocket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from comfyui_agent.comfy.watch import Moment
from comfyui_agent.domain.prompts import Graph, class_of


@dataclass(frozen=True)
class NodeTime:
    """What one node of a run took. Without reported steps, `first_step_sec` is None and `steps` is 0."""

    node_id: str
    class_type: str
    seconds: float
    first_step_sec: float | None = None
    steps: int = 0
    step_gaps: tuple[float, ...] = field(default=(), repr=False)
    """Seconds from each step to the next."""


@dataclass
class _Stay:
    """From a node's beginning to the beginning of the next."""

    node_id: str
    began: float
    ended: float
    steps: int = 0
    step_moments: list[float] = field(default_factory=list)


def node_times(moments: Sequence[Moment], graph: Graph) -> tuple[NodeTime, ...]:
    """The seconds of each node that ran, in the order in which they began.

    A node lasts until the next one begins or the prompt ends; without an end, until the last moment that was heard.
    What a node expands into counts as the node itself. A node that begins several times is summed up.
    """
    found: dict[str, list[_Stay]] = {}
    for stay in _stays(moments, graph):
        found.setdefault(stay.node_id, []).append(stay)
    return tuple(_summed(node_id, class_of(graph, node_id), stays) for node_id, stays in found.items())


def _stays(moments: Sequence[Moment], graph: Graph) -> list[_Stay]:
    stays: list[_Stay] = []
    current: _Stay | None = None
    for moment in moments:
        node_id = _owner(graph, moment.node_id)
        if moment.kind == "step":
            stepping = next((stay for stay in reversed(stays) if stay.node_id == node_id), None)
            if stepping is not None:
                stepping.steps = max(stepping.steps, moment.steps)
                stepping.step_moments.append(moment.at)
        if current is not None:
            current.ended = moment.at
        if moment.kind in ("success", "end"):
            current = None
        elif moment.kind == "node" and (current is None or current.node_id != node_id):
            current = _Stay(node_id, moment.at, moment.at)
            stays.append(current)
    return stays


def _owner(graph: Graph, node_id: str) -> str:
    """The node of the workflow that a node belongs to: ComfyUI names what node 5 expands into `5.0.0.1`."""
    while node_id not in graph and "." in node_id:
        node_id = node_id.rpartition(".")[0]
    return node_id


def _summed(node_id: str, class_type: str, stays: Sequence[_Stay]) -> NodeTime:
    stepped = next((stay for stay in stays if stay.step_moments), None)
    gaps = [
        later - earlier
        for stay in stays
        for earlier, later in zip(stay.step_moments, stay.step_moments[1:], strict=False)
    ]
    return NodeTime(
        node_id=node_id,
        class_type=class_type,
        seconds=sum(stay.ended - stay.began for stay in stays),
        first_step_sec=None if stepped is None else stepped.step_moments[0] - stepped.began,
        steps=max(stay.steps for stay in stays),
        step_gaps=tuple(gaps),
    )
