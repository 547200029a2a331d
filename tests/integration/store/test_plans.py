"""No question that agents ask again and again reads a whole table, however many jobs there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from comfyui_agent.store.opening import open_store
from comfyui_agent.store.sqlite.session import QUERIES

PARAMETER = re.compile(r":(\w+)")
WHOLE_TABLE = re.compile(r"SCAN (jobs|attempts|events|files|templates)\b(?! USING (COVERING )?INDEX)")
SMALL_INDEXES = ("idx_jobs_next", "idx_attempts_open", "idx_attempts_at_server")
"""What a scan may go through: it ends at a limit, or holds no more than the windows of the servers."""
RARE = ("recount", "check_pages", "wrong_counts")


@pytest.fixture
async def connection(tmp_path: Path) -> Iterator[apsw.Connection]:
    await open_store(tmp_path / "plans.db").close()
    with apsw.Connection(str(tmp_path / "plans.db")) as connection:
        yield connection
    connection.close()


def plan_of(connection: apsw.Connection, query: str) -> list[str]:
    values = dict.fromkeys(PARAMETER.findall(QUERIES[query]), 1)
    return [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[query]}", values)]


@pytest.mark.parametrize("query", [query for query in QUERIES if query not in RARE])
async def test_a_question_goes_through_an_index(connection: apsw.Connection, query: str) -> None:
    plan = plan_of(connection, query)
    assert [step for step in plan if WHOLE_TABLE.search(step)] == []
    scans = [step for step in plan if step.startswith(("SCAN jobs", "SCAN attempts"))]
    assert [step for step in scans if not step.endswith(SMALL_INDEXES)] == []


async def test_what_runs_next_is_read_in_order_and_not_sorted(connection: apsw.Connection) -> None:
    plan = plan_of(connection, "next_jobs")
    assert plan[0] == "SCAN jobs USING INDEX idx_jobs_next"
    assert not [step for step in plan if "TEMP B-TREE" in step]
