"""A sweep defined in a workspace: its servers are asked, seeds are drawn, pictures kept. Nothing is queued here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from comfyui_agent.batches.sweeps import Sweep, SweepWish, define
from comfyui_agent.comfy.server_names import address_of
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.seeds import draw_seeds
from comfyui_agent.engine.asking import ask_definitions
from comfyui_agent.engine.intake.keeping import keep_patiently


@dataclass(frozen=True)
class Defined:
    """A sweep that was checked, and the servers that were silent where no other could say what its nodes take."""

    sweep: Sweep
    silent: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know before it runs."""
        unheard = f"{', '.join(self.silent)} does not answer: values are checked against the workflow only"
        return (unheard, *self.sweep.warnings) if self.silent else self.sweep.warnings


async def define_sweep(workspace: Workspace, wish: SweepWish, read_lines: Callable[[str], Sequence[str]]) -> Defined:
    """Check all that can be known before anything is queued.

    `read_lines` gives the lines of the file that `@NAME` stands for; its OSError or ValueError says why it does not.
    BadSweep says what is wrong with the wish. NotKept, here or while the jobs of the sweep are made, that a picture
    could not be kept.
    """
    classes = {place.class_type for place in wish.workflow.places.all.values()}
    definitions, silent = await ask_definitions(workspace.settings.comfyui.urls, classes)
    found = await asyncio.to_thread(
        define,
        wish,
        workspace.settings.paths.jobs_finished,
        definitions,
        read_lines=read_lines,
        draw=draw_seeds,
        keep=keep_patiently(workspace),
        limit_kb=workspace.settings.job_limit_kb,
    )
    return Defined(found, () if definitions else tuple(address_of(url) for url in silent))
