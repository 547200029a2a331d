"""Judging a prompt whose history entry is there, with everything else that is known about it."""

from __future__ import annotations

from comfyui_agent.comfy.answers import HistoryEntry
from comfyui_agent.comfy.definitions import NodeDefinitions
from comfyui_agent.comfy.outcomes import Failed, Outcome, PromptFacts, Succeeded, read_outcome
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.comfy.vanished_prompts import all_exist
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.failures import Failure, FailureClass


async def judge_ended(transport: Transport, definitions: NodeDefinitions, watch: Watch, entry: HistoryEntry) -> Outcome:
    """How a prompt ended. A ComfyError means that it could not be found out now."""
    known = PromptFacts(
        server=str(transport.address),
        node_errors=watch.node_errors or (),
        dropped=await _dropped(definitions, watch, entry),
        expected=watch.expected,
        cancel_requested=watch.cancel_requested,
        heard_errors=tuple(watch.heard.errors),
    )
    return await _with_files(transport, read_outcome(entry, known))


async def _dropped(definitions: NodeDefinitions, watch: Watch, entry: HistoryEntry) -> frozenset[str]:
    """Outputs that the server left out, found without the answer to the post: it was lost, or never ours."""
    if watch.node_errors is not None or watch.expected is not None:
        return frozenset()
    outputs = await definitions.output_nodes(entry.graph)
    return outputs - frozenset(entry.outputs_to_execute)


async def _with_files(transport: Transport, outcome: Outcome) -> Outcome:
    """Files named from the cache may be long gone: see that they exist."""
    if not isinstance(outcome, Succeeded):
        return outcome
    old = tuple(file for file in outcome.results.files if file.node_id in outcome.cached_nodes)
    if not old or await all_exist(transport, old):
        return outcome
    failure = Failure(
        FailureClass.OUTPUT,
        f"the server answered from its cache, and {old[0].filename} is no longer there",
        server=str(transport.address),
        prompt_id=outcome.prompt_id,
        node_id=old[0].node_id,
    )
    return Failed(outcome.prompt_id, failure, outcome.results, outcome.cached_nodes)
