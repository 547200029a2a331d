"""`e3 sim`: a ComfyUI without a GPU."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.output import fail
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.sim.settings import AT_ONCE, CHECKPOINTS, PAGE_MODELS, Duration, SimSettings
from comfyui_agent.sim.simulator import Simulator
from comfyui_agent.wire.dialect import IMITATED, Dialect


def sim(
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at; 0 takes a free one.", min=0, max=65535)] = 8188,
    render_seconds: Annotated[
        str,
        typer.Option(metavar="SPEC", help="How long a render takes: 0.5, uniform:MIN:MAX or lognormal:MEDIAN:SIGMA."),
    ] = "0",
    model_load_seconds: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]SPEC", help="How long a model takes to load, or that one; may be repeated."),
    ] = None,
    card: Annotated[
        str | None, typer.Option(metavar="NAME", help="The card: simulators on one share its speed and memory.")
    ] = None,
    vram_gb: Annotated[
        float,
        typer.Option(
            min=0.1, max=4096.0, help="Video memory; a picture that does not fit ends in an out-of-memory error."
        ),
    ] = 24.0,
    held_gb: Annotated[
        float,
        typer.Option(
            min=0.0, max=4096.0, help="Video memory that something holds until the server is told to free it."
        ),
    ] = 0.0,
    failure_rate: Annotated[float, typer.Option(min=0.0, max=1.0, help="The share of renders that fail.")] = 0.0,
    crash_after: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Die in the middle of render N+1.")
    ] = None,
    hang_after: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Never come back from render N+1; HTTP goes on.")
    ] = None,
    cuda_lost_after: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Lose the CUDA context in render N+1: all fail from then on.")
    ] = None,
    start_delay: Annotated[
        float, typer.Option(metavar="S", min=0.0, max=1e6, help="Seconds before the port opens.")
    ] = 0.0,
    models: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A checkpoint to offer, or FOLDER/NAME such as loras/ink.safetensors."),
    ] = None,
    object_info: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Node definitions of your own server: the answer of its GET /object_info."),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where files go and survive a restart; else a temporary folder.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Makes times and failures repeatable.")] = None,
    imitate: Annotated[
        str, typer.Option(metavar="VERSION", help="The ComfyUI version to behave like: 0.33, 0.7 or another.")
    ] = IMITATED,
    frontend: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Show ComfyUI's page: the folder static of its comfyui-frontend-package."),
    ] = None,
) -> None:
    """Run a ComfyUI without a GPU, for trying things out and for tests."""
    try:
        Dialect(imitate)
        loads = [each.rpartition("=") for each in model_load_seconds or ()]
        load_seconds_of = {name: Duration.parse(spec) for name, _, spec in loads}
        settings = SimSettings(
            render_seconds=Duration.parse(render_seconds),
            model_load_seconds=load_seconds_of.pop("", AT_ONCE),
            load_seconds_of=load_seconds_of,
            card=card,
            vram_gb=vram_gb,
            held_gb=held_gb,
            failure_rate=failure_rate,
            crash_after=crash_after,
            hang_after=hang_after,
            cuda_lost_after=cuda_lost_after,
            models=tuple(models) if models else (*CHECKPOINTS, *(PAGE_MODELS if frontend else ())),
            object_info=object_info,
            output_dir=output_dir,
            seed=seed,
            imitate=imitate,
            frontend=frontend,
        )
    except ValueError as error:
        fail(str(error), code=2)
    run_until_signal(_serve(settings, host, port, start_delay))


async def _serve(settings: SimSettings, host: str, port: int, start_delay: float) -> None:
    await asyncio.sleep(start_delay)
    simulator = Simulator(settings, host, port)
    try:
        await simulator.start()
    except ValueError as error:
        fail(str(error), code=2)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            fail(f"port {port} at {host} is taken: stop what runs there, or give another with --port")
        if error.filename is not None:
            fail(f"cannot keep files in {error.filename}: {error.strerror}; give a folder with --output-dir", code=2)
        fail(f"cannot start a simulator at {host}:{port}: {error.strerror or error}")
    threading.excepthook = _report_dead_worker
    try:
        typer.echo(f"ComfyUI simulator ({settings.imitate}) at {simulator.url}, files in {simulator.output_dir}")
        await simulator.serve()
    except TypeError as error:
        fail(f"the simulator died of TypeError: {error}. A real server dies of such a client_id too; start it again")
    finally:
        await simulator.stop()


def _report_dead_worker(args: threading.ExceptHookArgs) -> None:
    name = args.exc_type.__name__
    typer.echo(f"e3: the prompt worker died of {name}: {args.exc_value}. HTTP goes on, as it would.", err=True)
