"""Programs in TypeScript: types are made of the OpenAPI document, and the example that uses them is right."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from support.web import Served

EXAMPLE = Path(__file__).parents[3] / "examples" / "render.ts"
TOOLS = Path(sys.prefix) / "typescript" / "node_modules" / ".bin"
STRICT = ("--noEmit", "--strict", "--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler")


async def run(tool: str, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        TOOLS / tool, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.skipif(not TOOLS.exists(), reason="make installs openapi-typescript where npm is")
async def test_the_example_is_well_typed_by_the_document(house: Served, tmp_path: Path) -> None:
    document, example = tmp_path / "openapi.json", tmp_path / EXAMPLE.name
    document.write_bytes((await house.get("/openapi.json")).body)
    await run("openapi-typescript", str(document), "--output", str(tmp_path / "e3.d.ts"))
    shutil.copy(EXAMPLE, example)
    await run("tsc", *STRICT, str(example))
