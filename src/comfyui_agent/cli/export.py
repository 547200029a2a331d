"""`e3 export`: results as a zip, or as one picture."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.batches.name_lookup import find_batch
from comfyui_agent.cli.completion import batch_names
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.job_commands import EVERYTHING, find_jobs
from comfyui_agent.cli.output import fail
from comfyui_agent.domain.texts import counted
from comfyui_agent.usecases.exports import chosen_results, contact_sheet, to_export, zip_parts
from comfyui_agent.usecases.prompts import Prompts
from comfyui_agent.web.outputs import Outputs

SHEETS = {".png"}
MOST_ON_A_SHEET = 2_000


@workspace_command()
async def export(
    call: Invocation,
    names: Annotated[
        list[str], typer.Argument(metavar="[NAME…] FILE", help="Jobs by name or id; then FILE.zip, or FILE.png.")
    ],
    starred: Annotated[bool, typer.Option("--starred", help="All that have a star.")] = False,
    batch: Annotated[
        str, typer.Option("--batch", metavar="ID", help="Of this batch.", autocompletion=batch_names)
    ] = "",
) -> None:
    """Write results into a zip, with a table of their prompts, seeds and models; or into one labelled picture."""
    *names, last = names
    file = Path(last)
    is_sheet = file.suffix.lower() in SHEETS
    if not is_sheet and file.suffix.lower() != ".zip":
        fail(f"{last} is neither FILE.zip nor FILE.png: name the file last", code=2)
    if bool(names) == (starred or bool(batch)):
        fail("name the jobs, or say --starred or --batch ID", code=2)
    if file.exists():
        fail(f"{last} is there already: name another file")
    find = Outputs(call.workspace).path_of
    async with call.opened() as store:
        batch_id = (await find_batch(store, batch)).id if batch else None
        most = MOST_ON_A_SHEET if is_sheet else EVERYTHING
        jobs = await find_jobs(store, names) if names else []
        jobs = jobs or await chosen_results(store, most, starred=starred, batch_id=batch_id)
        results = await to_export(store, Prompts(store), jobs)
        unnamed = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            with unnamed.open("xb") as target:
                if is_sheet:
                    with await contact_sheet(results, find) as picture:
                        shutil.copyfileobj(picture, target)
                else:
                    target.writelines(zip_parts(results, find))
            unnamed.rename(file)
        except OSError as error:
            fail(f"{last} cannot be written: {error.strerror or error}")
        finally:
            unnamed.unlink(missing_ok=True)
    found = {"file": str(file), "jobs": [each.job.config_name for each in results]}
    call.show(found, f"{counted(len(results), 'result')} in {last}")
