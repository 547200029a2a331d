"""`e3 demo`: a simulator, a handful of prompts, pictures in a folder."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.cli.demo_prompts import DemoPrompt, demo_prompts
from comfyui_agent.cli.printing import fail, on_terminal
from comfyui_agent.cli.running import run_until_signal

if TYPE_CHECKING:
    from comfyui_agent.cli.live import Board
    from comfyui_agent.comfy.client import ComfyClient

FLAGS = ("--render-seconds", "lognormal:1.2:0.25", "--model-load-seconds", "0.5", "--seed", "3")


def demo(
    output_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder for the results; made if it is not there.")
    ] = Path("demo_output"),
) -> None:
    """See it work: render a few pictures and a film with the built-in simulator.

    Needs no ComfyUI, no GPU and no network, and takes about fifteen seconds. One of the prompts is wrong on purpose,
    to show what that looks like.
    """
    run_until_signal(_demo(output_dir))


async def _demo(folder: Path) -> int:
    from comfyui_agent.cli.live import Board
    from comfyui_agent.comfy.client import ComfyClient
    from comfyui_agent.sim.process import simulator

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"cannot make the folder {folder}: {error.strerror}. Give another with --output-dir")
    prompts = demo_prompts()
    with tempfile.TemporaryDirectory(prefix="e3-demo-") as place:
        server = simulator(Path(place), *FLAGS)
        server.launch()
        try:
            await asyncio.to_thread(server.wait_until_up)
            async with ComfyClient(server.url) as comfy:
                typer.echo(f"A ComfyUI simulator runs at {server.url}. {len(prompts)} prompts go there.")
                with Board([prompt.name for prompt in prompts], live=on_terminal()) as board:
                    results = await asyncio.gather(*(_render(comfy, board, prompt, folder) for prompt in prompts))
        finally:
            server.stop()
    kept = [result for result in results if result is not None]
    typer.echo(f"{len(kept)} of {len(prompts)} done, {len(prompts) - len(kept)} needs attention, as it should.")
    typer.echo(f"The results are in {folder.resolve()}")
    return 0 if len(kept) == len(prompts) - 1 else 1


async def _render(comfy: ComfyClient, board: Board, prompt: DemoPrompt, folder: Path) -> Path | None:
    from comfyui_agent.comfy.errors import PromptRejected
    from comfyui_agent.comfy.outcomes import Failed
    from comfyui_agent.domain.prompts import mint_prompt_id

    try:
        watch = await comfy.submit(prompt.graph, mint_prompt_id())
    except PromptRejected as rejection:
        board.failed(prompt.name, rejection.details[0] if rejection.details else rejection.message)
        return None
    async for progress in watch.changes():
        board.show(prompt.name, progress)
    outcome = await watch.outcome()
    if isinstance(outcome, Failed):
        board.failed(prompt.name, outcome.failure.message)
        return None
    staged = await comfy.download(outcome.results.kept[0], folder)
    home = staged.publish(folder / f"{prompt.name}.{staged.kind.extension}")
    board.done(prompt.name, home, outcome.seconds)
    return home
