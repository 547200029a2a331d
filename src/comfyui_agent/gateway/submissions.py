"""Queueing: what clients post becomes a durable job."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping

from comfyui_agent.config.sealing import SecretBox
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import DEFAULT_PRIORITY, GATEWAY, NewJob, Template
from comfyui_agent.domain.kinds import job_type_of
from comfyui_agent.domain.prompts import lift_values, mint_prompt_id
from comfyui_agent.gateway.context import DIALECT, Caller
from comfyui_agent.gateway.presentation import names_of
from comfyui_agent.gateway.validation import (
    check_prompt,
    has_own_checks,
    may_be_wrong,
    named_files,
    output_nodes,
    upload_path,
)
from comfyui_agent.pools import OBJECTS
from comfyui_agent.sim.engine.validation import ValidationResult
from comfyui_agent.store import operations as ops
from comfyui_agent.store.idempotency import KeyClaim
from comfyui_agent.store.posted_prompts import NewPrompt
from comfyui_agent.wire.prompts import Accepted, Rejected, Submission

FRONT, LAST = 10, 90
NO_FILES: Mapping[str, str] = {}
VERDICT_SECONDS = 2.0
"""How long the answer to a post waits for a free server's own."""


async def submit_prompt(
    caller: Caller, submission: Submission, files: Mapping[str, str] = NO_FILES, claim: KeyClaim | None = None
) -> Accepted | Rejected:
    """Validate a prompt as a server would, and commit it as a job. `files`: kept files by further paths of uploads.

    KeyUsed, and nothing is made, if its idempotency key was used before. A prompt that is refused uses up none.
    """
    gateway, prompt = caller.gateway, submission.prompt
    prompt_id = submission.prompt_id or mint_prompt_id()
    gateway.definitions.use(await gateway.facts.object_info(None))
    named = named_files(prompt)
    uploads = {**await gateway.uploads.find({upload_path(value) for value in named.values()}), **files}
    verdict = check_prompt(gateway.definitions, prompt, submission.targets, uploads, DIALECT)
    if may_be_wrong(gateway.definitions, prompt, verdict):  # a server has the last word
        verdict = ValidationResult(None, output_nodes(gateway.definitions, prompt, submission.targets), {})
    if verdict.error is not None:
        return await _known(caller, prompt_id) or Rejected(verdict.error, verdict.node_errors)
    pictures = {place: uploads[upload_path(value)] for place, value in named.items() if upload_path(value) in uploads}
    is_asked = has_own_checks(gateway.definitions, prompt) and await _is_server_free(caller)
    with gateway.relay.awaiting_verdict(prompt_id) as judged:
        made = await _post(caller, submission, prompt_id, verdict.outputs, pictures, claim)
        if made is None:
            return await _known(caller, prompt_id) or _refused("prompt_id_taken", "a job of E3 has this name already")
        if is_asked:
            await asyncio.wait({judged}, timeout=VERDICT_SECONDS)
            if (rejected := await _rejection(caller, prompt_id)) is not None:
                if claim is not None:
                    await gateway.store.run(ops.release_key, claim.key, claim.scope)
                return rejected
    return Accepted(prompt_id, made, verdict.node_errors)


async def _post(
    caller: Caller,
    submission: Submission,
    prompt_id: str,
    targets: list[str],
    pictures: Mapping[str, str],
    claim: KeyClaim | None,
) -> float | None:
    """Commit the prompt as a job. Returns its number; None if a job has that name."""
    item = submission.queued(submission.number or 0.0, targets, round(time.time() * 1000))
    bare, values = lift_values(item.prompt)
    template = Template.of(bare)
    client_id = item.extra_data.get("client_id")
    job = NewJob(
        prompt_id,
        job_type_of(item.prompt),
        f"wf_{template.hash[:8]}",
        template,
        values,
        priority=await _priority(caller, submission),
        retry_limit=0,
        source=GATEWAY,
        pictures=pictures,
        created_by=caller.actor.token_id,
    )
    secrets = None
    if item.sensitive:
        secrets = await OBJECTS.run(SecretBox(caller.gateway.workspace.secrets_key).seal, item.sensitive)
    posted = NewPrompt(
        str(client_id) if client_id is not None else None,
        submission.number,
        submission.front,
        item.extra_data,
        targets,
        secrets,
    )
    audit = Event(EventName.AUDIT_JOB_SUBMIT, actor=caller.actor.name, address=caller.actor.address)
    caller.gateway.store.hurry()
    async with caller.actor.room(1):
        made = await caller.gateway.store.run_eagerly(ops.post_prompt, job, posted, audit, claim)
    caller.gateway.relay.wake()
    if made is None:
        return None
    caller.gateway.relay.expect(prompt_id, made[0], item.prompt)
    return made[1]


async def _is_server_free(caller: Caller) -> bool:
    return caller.gateway.hears() and await caller.remaining() < caller.gateway.facts.servers


async def _rejection(caller: Caller, prompt_id: str) -> Rejected | None:
    """The answer of the server that refused a prompt. The caller hears of it once: clients see no such prompt."""
    prompt = await caller.find(prompt_id)
    answer = prompt.entry.get("rejected") if prompt is not None and prompt.ended_at is not None else None
    if prompt is None or not isinstance(answer, dict):
        return None
    await caller.gateway.store.run(ops.hide_prompts, [prompt.job_id])
    await caller.gateway.store.run(ops.note_told, [prompt.job_id])
    said = names_of(prompt).text(answer)
    return Rejected(said["error"], said.get("node_errors", {}))


async def _known(caller: Caller, prompt_id: str) -> Accepted | Rejected | None:
    """The answer to an id that was posted before: the same job, never a second one."""
    known = await caller.find(prompt_id)
    return None if known is None else Accepted(prompt_id, known.number, {})


async def _priority(caller: Caller, submission: Submission) -> int:
    """Lower numbers come first. Without one, a prompt comes behind what is there, or in front of all. Users get no
    further than `ui.user_priority_floor`."""
    wanted, floor = await _wanted_priority(caller, submission), caller.actor.lowest_priority
    return wanted if floor is None else max(wanted, floor)


async def _wanted_priority(caller: Caller, submission: Submission) -> int:
    if submission.number is None:
        return await _in_front(caller) if submission.front else DEFAULT_PRIORITY
    if not math.isfinite(submission.number):
        return LAST if submission.number > 0 else FRONT
    waiting = await caller.gateway.store.run(ops.open_prompts, None, 1)
    ahead = submission.number - (waiting[0].job_id if waiting else 0)
    return max(FRONT, min(LAST, DEFAULT_PRIORITY + math.floor(ahead)))


async def _in_front(caller: Caller) -> int:
    first = await caller.gateway.store.run(ops.first_posted_priority)
    return min(FRONT, first - 1) if first is not None else FRONT


def _refused(kind: str, message: str) -> Rejected:
    return Rejected({"type": kind, "message": message, "details": message, "extra_info": {}}, {})
