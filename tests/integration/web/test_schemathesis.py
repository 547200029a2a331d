"""A machine that reads the document and tries whatever it allows and forbids finds nothing."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from support.shared_servers import Servers
from support.web import served

NOT_TRIED = r"(/api/v1/events|/wait|/api/v1/jobs/bulk)$"
"""The stream never ends, waits take their time, and it makes no lines of JSON."""
EXAMPLES = 4
"""Of each operation, besides everything that covers the document; `make faults` has more."""
CALL = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"


async def tried(folder: Path, url: str, examples: int, *options: str) -> tuple[int, str]:
    """`schemathesis run`, all phases and all checks; its exit status, and what it said."""
    async with served(folder / "house", url) as house:
        await house.job("knight")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CALL, "--no-color", "run", f"{house.url}/openapi.json"),
            *("--exclude-path-regex", NOT_TRIED, "--max-examples", str(examples), *options),
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode("utf-8", "replace")


@pytest.mark.slow
async def test_schemathesis_finds_nothing(tmp_path: Path, servers: Servers) -> None:
    code, said = await tried(tmp_path, servers.url("sim"), EXAMPLES, "--seed", "7")
    assert code == 0, said[-20_000:]
    assert re.search(r"Operations: +(\d+) selected / (\d+) total", said)
    for phase in ("Coverage", "Fuzzing", "Stateful"):
        assert re.search(rf"✅ +{phase}", said), said
    found = re.search(r"(\d+) generated, (\d+) passed", said)
    assert found is not None
    assert found[1] == found[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_schemathesis_finds_nothing_however_long_it_looks(tmp_path: Path, servers: Servers) -> None:
    code, said = await tried(tmp_path, servers.url("sim"), 100)
    assert code == 0, said[-20_000:]
