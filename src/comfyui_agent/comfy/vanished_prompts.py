"""A prompt that its server no longer knows: evicted, cleared away, lost in a restart. Its files may still be there."""

from __future__ import annotations

from comfyui_agent.comfy.errors import ServerLost
from comfyui_agent.comfy.outcomes import Failed, Outcome, Succeeded
from comfyui_agent.comfy.results import ResultFile, Results, nodes_with_results
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.node_classes import LISTED
from comfyui_agent.domain.prompts import class_of, makes_one_picture, saving_nodes

MOST_LOOKED_FOR = 200


async def judge_vanished(transport: Transport, watch: Watch) -> Outcome:
    """Look for the outputs, else the prompt is lost."""
    server = str(transport.address)
    if watch.cancel_requested:
        failure = Failure(FailureClass.CANCELLED, "cancelled", server=server, prompt_id=watch.prompt_id)
        return Failed(watch.prompt_id, failure)
    for evidence, results in (("websocket", _heard(watch)), ("files", _guessed(watch))):
        if results is not None and await all_exist(transport, results.files):
            return Succeeded(watch.prompt_id, results, evidence=evidence)
    failure = Failure(
        FailureClass.SERVER_LOST,
        "the server no longer knows the prompt: it was restarted, or its history was cleared",
        server=server,
        prompt_id=watch.prompt_id,
    )
    return Failed(watch.prompt_id, failure)


async def all_exist(transport: Transport, files: tuple[ResultFile, ...]) -> bool:
    """Whether the server has every one of these files, without reading them. Only a clear no is a no."""
    for file in files[:MOST_LOOKED_FOR]:
        if not await _exists(transport, file):
            return False
    return bool(files)


async def _exists(transport: Transport, file: ResultFile) -> bool:
    answer = await transport.ask_again("HEAD", "view", most=transport.limits.small_answer_bytes, params=file.query)
    if answer.status in (400, 403, 404):
        return False
    if answer.status != 200:
        raise ServerLost(f"{transport.address} answered {answer.status} when asked for a file")
    return True


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
    return Results((ResultFile(node_id, "images", f"{stem}_00001_.png", subfolder, "output"),))
