"""How fast jobs are taken in, ten thousand lines to a request, on either kind of database."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pg_server import postgres
from report import Line, at_most
from sizes import size
from support.web import served

LINES = size(10_000, 50)
REQUESTS = size(10, 2)
MOST_SECONDS = 20.0
HEADERS = {"Content-Type": "application/x-ndjson"}


def lines(first: int) -> bytes:
    """Jobs that differ in a seed, each with a key of its own."""
    said = {"job_type": "T2I", "workflow_id": "picture", "metadata": {"shop": "north"}}
    return b"".join(
        json.dumps({**said, "inputs": {"color": number}, "external_id": f"order-{number}"}).encode() + b"\n"
        for number in range(first, first + LINES)
    )


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure_on(name: str, environment: Mapping[str, str]) -> list[Line]:
    with TemporaryDirectory(prefix="e3-bench-") as folder:
        async with served(Path(folder), environment=environment) as house:
            bodies = [lines(LINES * number) for number in range(REQUESTS)]
            began, cpu = time.perf_counter(), cpu_seconds()
            for body in bodies:
                answer = await house.post("/api/v1/jobs/bulk", data=body, headers=HEADERS)
                assert [each["status"] for each in answer.value] == [201] * LINES, answer.value[0]
            took, cpu = time.perf_counter() - began, cpu_seconds() - cpu
            again = time.perf_counter()
            answer = await house.post("/api/v1/jobs/bulk", data=bodies[0], headers=HEADERS)
            repeated = time.perf_counter() - again
            assert answer.text.count('"status": 200') == LINES, answer.text[:500]
    count = f"{LINES * REQUESTS:,} jobs in {REQUESTS} requests"
    more = f"{cpu:.1f} s of processor in E3, a repeated request {repeated:.2f} s"
    return [at_most(f"{name}: {count} ({more})", MOST_SECONDS, took, " s")]


async def measure() -> list[Line]:
    found = await measure_on("SQLite", {})
    with postgres() as server, server.fresh() as url:
        return found + await measure_on("PostgreSQL", {"E3_DATABASE__URL": url})
