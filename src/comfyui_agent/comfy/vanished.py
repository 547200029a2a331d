"""A prompt that its server no longer knows: evicted, cleared away, lost in a restart. Its files may still be there."""

from __future__ import annotations

from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.outcomes import Failed, Outcome, Succeeded
from comfyui_agent.comfy.results import ResultFile, Results, nodes_with_results
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.prompts import class_of, makes_one_picture, saving_nodes

MOST_LOOKED_FOR = 200
EXTENSIONS = {
    "SaveAnimatedWEBP": "webp",
    "SaveVideo": "mp4",
    "SaveWEBM": "webm",
    "SaveLatent": "latent",
    "SaveAudio": "flac",
    "SaveAudioMP3": "mp3",
    "SaveAudioOpus": "opus",
    "SaveGLB": "glb",
}


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
    """Whether the server has every one of these files, without reading them."""
    for file in files[:MOST_LOOKED_FOR]:
        try:
            answer = await transport.ask("HEAD", "view", most=transport.limits.small_answer_bytes, params=file.query)
        except ComfyError:
            return False
        if answer.status != 200:
            return False
    return bool(files)


def _heard(watch: Watch) -> Results | None:
    """What the websocket listed, if it also reported success and every node that saves is among it."""
    if not watch.heard.success or watch.node_errors:
        return None
    expected = watch.expected if watch.expected is not None else frozenset(saving_nodes(watch.graph or {}))
    if expected - nodes_with_results(watch.heard.outputs):
        return None
    return Results.read(watch.heard.outputs)


def _guessed(watch: Watch) -> Results | None:
    """The files that must be there, if the prompt saves one picture a node under prefixes that are its own."""
    graph = watch.graph or {}
    saving = saving_nodes(graph)
    if not saving or watch.node_errors or not makes_one_picture(graph):
        return None
    if not all(watch.prompt_id in prefix and "%" not in prefix for prefix in saving.values()):
        return None
    files = []
    for node_id, prefix in saving.items():
        subfolder, _, stem = prefix.rpartition("/")
        extension = EXTENSIONS.get(class_of(graph, node_id), "png")
        files.append(ResultFile(node_id, "images", f"{stem}_00001_.{extension}", subfolder, "output"))
    return Results(tuple(files))
