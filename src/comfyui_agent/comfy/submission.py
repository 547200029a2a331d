"""Sending a prompt exactly once."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from comfyui_agent.comfy import errors, shapes
from comfyui_agent.comfy.lookup import Unknown, look_at_queue, look_up_twice
from comfyui_agent.comfy.rejections import NodeProblem, read_node_errors, read_rejection
from comfyui_agent.comfy.transport import Answer, Transport


class ServerFailed(errors.ProtocolError):
    """The server failed on the prompt (500). It may have queued it nevertheless."""


async def send(transport: Transport, prompt_id: str, body: Mapping[str, Any]) -> tuple[NodeProblem, ...] | None:
    """Post a prompt, once. Returns the node errors of the answer, or None if it was accepted but the answer lost.

    If the answer is lost or makes no sense, the id is looked up twice: the prompt was accepted if the server knows it.
    """
    try:
        answer = await transport.ask("POST", "prompt", most=transport.limits.history_bytes, body=body)
        if answer.status == 200:
            return await _accepted(transport, prompt_id, body, answer)
        await _refused(transport, answer)
    except (errors.Unreachable, errors.RedirectRefused, errors.NotComfyUI):
        raise
    except (errors.ServerLost, errors.ProtocolError) as error:
        await _find_out(transport, prompt_id, error)
    return None


async def _accepted(
    transport: Transport, prompt_id: str, body: Mapping[str, Any], answer: Answer
) -> tuple[NodeProblem, ...]:
    given, problems = await transport.parse(answer, "prompt", _read_reply)
    if given != prompt_id:
        await _take_back(transport, given, body["client_id"])
        raise errors.ProtocolError(
            f"{transport.address} runs the prompt under an id of its own: E3 needs ComfyUI 0.3.57 or newer"
        )
    return problems


async def _take_back(transport: Transport, given: str, client_id: str) -> None:
    """Delete a prompt with an id that we did not choose, if it is ours. A proxy may mix up answers."""
    with contextlib.suppress(errors.ComfyError):
        view = await look_at_queue(transport)
        if any(prompt.prompt_id == given and prompt.client_id == client_id for prompt in view.pending):
            await transport.change("queue", {"delete": [given]})


def _read_reply(document: Any) -> tuple[str, tuple[NodeProblem, ...]]:
    reply = shapes.expect(dict, document, "the answer to a prompt")
    return shapes.expect(str, reply.get("prompt_id"), "prompt_id"), read_node_errors(reply.get("node_errors"))


async def _refused(transport: Transport, answer: Answer) -> None:
    server = str(transport.address)
    if answer.status == 400:
        try:
            rejection = await transport.parse(answer, "prompt", partial(read_rejection, server))
        except errors.ProtocolError:
            rejection = read_rejection(server, {"error": transport.excerpt(answer)})
        facts = rejection.facts.cleaned(transport.address.without_secrets)
        raise errors.PromptRejected(facts.message, facts, rejection.choice, rejection.answer)
    if answer.status == 413:
        raise errors.PromptRejected(f"{server} rejected the prompt: it is larger than the server takes (413)")
    if answer.status in (401, 403, 404, 405):
        raise errors.NotComfyUI(
            f"{server} refused the prompt ({answer.status}): is that a ComfyUI, and does it want a login?"
        )
    message = f"{server} answered the prompt with {answer.status}: {transport.excerpt(answer)!r}"
    raise ServerFailed(message) if answer.status == 500 else errors.ProtocolError(message)


async def _find_out(transport: Transport, prompt_id: str, cause: errors.ComfyError) -> None:
    """Return if the server has the prompt, else raise."""
    try:
        sighting = await look_up_twice(transport, prompt_id)
    except errors.ComfyError as error:
        raise errors.AcceptanceUnknown(
            f"{cause.message}; and it cannot be asked whether the prompt arrived: {error.message}"
        ) from None
    if isinstance(sighting, Unknown) and isinstance(cause, ServerFailed):
        raise errors.PromptRejected(f"{cause.message}; something in the prompt is not as a prompt should be") from None
    if isinstance(sighting, Unknown):
        raise errors.NotAccepted(f"{cause.message}; the server does not know the prompt") from None
