"""The outcome of a prompt that has ended, or that its server no longer knows, from all that is known."""

from __future__ import annotations

from comfyui_agent.comfy.answers import HistoryEntry
from comfyui_agent.comfy.definitions import NodeDefinitions
from comfyui_agent.comfy.errors import ServerLost
from comfyui_agent.comfy.outcomes import Failed, Outcome, PromptFacts, Succeeded, read_outcome
from comfyui_agent.comfy.results import ResultFile, Results, nodes_with_results
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.node_classes import LISTED
from comfyui_agent.domain.prompts import class_of, makes_one_picture, saving_nodes

MOST_LOOKED_FOR = 200


async def judge_ended(transport: Transport, definitions: NodeDefinitions, watch: Watch, entry: HistoryEntry) -> Outcome:
    """How a prompt ended. A ComfyError means that it could not be found out now."""
    dropped: frozenset[str] = frozenset()
    if watch.node_errors is None and watch.expected is None:  # the answer to the post was lost, or never ours
        dropped = await definitions.output_nodes(entry.graph) - frozenset(entry.outputs_to_execute)
    known = PromptFacts(
        node_errors=watch.node_errors or (),
        dropped=dropped,
        expected=watch.expected,
        cancel_requested=watch.cancel_requested,
        heard_errors=tuple(watch.heard.errors),
    )
    outcome = read_outcome(entry, known)
    if isinstance(outcome, Failed):
        return outcome
    old = tuple(file for file in outcome.results.files if file.node_id in outcome.cached_nodes)
    if not old or await _all_exist(transport, old):
        return outcome
    message = f"the server answered from its cache, and {old[0].filename} is no longer there"
    failure = Failure(FailureClass.OUTPUT, message, node_id=old[0].node_id)
    return Failed(watch.prompt_id, failure, outcome.results, outcome.cached_nodes)


async def judge_vanished(transport: Transport, watch: Watch) -> Outcome:
    """A prompt may be evicted, cleared away, or lost in a restart. Look for its outputs, else it is lost."""
    kind, message = FailureClass.CANCELLED, "cancelled"
    if not watch.cancel_requested:
        for evidence, results in (("websocket", _heard(watch)), ("files", _guessed(watch))):
            if results is not None and await _all_exist(transport, results.files):
                return Succeeded(watch.prompt_id, results, evidence=evidence)
        kind = FailureClass.SERVER_LOST
        message = "the server no longer knows the prompt: it was restarted, or its history was cleared"
    return Failed(watch.prompt_id, Failure(kind, message))


async def _all_exist(transport: Transport, files: tuple[ResultFile, ...]) -> bool:
    """Whether the server has every one of these files, without reading them. Only a clear no is a no."""
    for file in files[:MOST_LOOKED_FOR]:
        answer = await transport.ask_again("HEAD", "view", most=transport.limits.small_answer_bytes, params=file.query)
        if answer.status in (400, 403, 404):
            return False
        if answer.status != 200:
            raise ServerLost(f"{transport.address} answered {answer.status} when asked for a file")
    return bool(files)


def _heard(watch: Watch) -> Results | None:
    """What the websocket listed, if it also reported success and every node that saves is among it."""
    if not watch.heard.success or watch.node_errors:
        return None
    graph = watch.graph or {}
    listed = frozenset(node_id for node_id in graph if class_of(graph, node_id) in LISTED)
    expected = watch.expected if watch.expected is not None else listed
    if expected - nodes_with_results(watch.heard.outputs):
        return None
    return Results.read(watch.heard.outputs)


def _guessed(watch: Watch) -> Results | None:
    """The file that must be there, if the prompt makes one picture and saves it once under a prefix of its own."""
    graph = watch.graph or {}
    saving = saving_nodes(graph)
    if len(saving) != 1 or watch.node_errors or not makes_one_picture(graph):
        return None
    ((node_id, prefix),) = saving.items()
    if watch.prompt_id not in prefix or "%" in prefix:
        return None
    subfolder, _, stem = prefix.rpartition("/")
    return Results((ResultFile(node_id, f"{stem}_00001_.png", subfolder, "output"),))
