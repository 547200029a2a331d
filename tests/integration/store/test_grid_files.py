"""Paths of grids: claimed like those of results, so that neither takes the place of the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyui_agent.domain.job_files import FileVerdict, ReadFile
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.errors import FileTaken
from comfyui_agent.store.sqlite.migrator import MIGRATIONS, OURS
from comfyui_agent.store.store import Store
from support.store_batches import FOX, queue
from support.stores import LEASE_SECONDS, Database, everything, in_the_shell, lease, removed, wish

FOLDER = f"jobs/finished/image/{FOX}"
GRID = [f"{FOLDER}/grid.png", f"{FOLDER}/grid_2.png", f"{FOLDER}/grid.html"]


async def recorded(store: Store, paths: list[str]) -> list[str]:
    return sorted(await store.run(ops.owned_files, paths))


async def test_a_result_is_in_the_way_of_a_grid_and_nothing_is_claimed(store: Store, database: Database) -> None:
    await store.run(ops.submit_jobs, [wish("a.yaml")])
    (leased,) = await lease(store)
    await store.run(ops.claim_files, leased.lease, [GRID[1]], LEASE_SECONDS)
    await queue(store)
    before = everything(database)
    assert await store.run(ops.claim_grid_files, FOX, GRID, []) == f"{GRID[1]} belongs to the job a.yaml"
    assert everything(database) == before


@pytest.mark.parametrize("status", ["pending", "done"])
async def test_a_job_that_names_the_path_of_its_result_is_in_the_way(
    store: Store, database: Database, status: str
) -> None:
    await queue(store)
    await store.run(ops.submit_jobs, [wish("a.yaml", file_path=GRID[0])])
    database.by_hand(f"UPDATE jobs SET status = '{status}' WHERE config_name = 'a.yaml'")
    assert await store.run(ops.claim_grid_files, FOX, GRID, []) == f"{GRID[0]} belongs to the job a.yaml"


async def test_the_grid_of_another_batch_is_in_the_way(store: Store) -> None:
    await queue(store, batch_id="other")
    await queue(store)
    assert await store.run(ops.claim_grid_files, "other", ["x/grid.png"], []) == ""
    assert await store.run(ops.claim_grid_files, FOX, ["x/grid.png"], []) == "x/grid.png belongs to the grid of other"


async def test_a_job_never_takes_the_place_of_a_grid(store: Store) -> None:
    await queue(store, 1)
    assert await store.run(ops.claim_grid_files, FOX, GRID, []) == ""
    (leased,) = await lease(store)
    with pytest.raises(FileTaken, match=rf"grid_2\.png belongs to the grid of {FOX}: give this one another file_path"):
        await store.run(ops.claim_files, leased.lease, [GRID[1]], LEASE_SECONDS)
    assert await recorded(store, GRID) == sorted(GRID)
    assert await removed(store, [*GRID, "nobodys.png"]) == ["nobodys.png"]


@pytest.mark.parametrize(
    ("path", "is_free"),
    [
        (GRID[0], False),
        (f"{FOLDER}/Grid_17.JPG", False),  # not claimed yet: it is the place of a grid all the same
        (f"{FOLDER}/grid", False),
        (f"{FOLDER}/grids.png", True),
        (f"{FOLDER}/knight.png", True),
        ("jobs/finished/image/grid.png", True),
    ],
)
async def test_a_path_that_is_a_grids_is_refused_when_the_job_comes(store: Store, path: str, is_free: bool) -> None:
    await queue(store)
    words = None if is_free else f"the grid of {FOX}"
    assert await store.run(ops.holder_of_path, path) == words
    filed = ReadFile(NewJob("a.yaml", "T2I", "wf", file_path=path, source="jobs/processing/image/a.yaml", digest="1"))
    [ruling] = await store.run(ops.file_jobs, [filed])
    assert ruling.verdict is FileVerdict.ACCEPTED
    job = await store.run(ops.find_job_by_name, "a.yaml")
    assert job is not None
    assert (job.error_trace or "").startswith("" if is_free else "invalid: outputs.file_path")
    assert ruling.reason == ("" if is_free else f"outputs.file_path: {path} belongs to {words}: give this one another")


async def test_what_lies_there_and_is_not_recorded_is_never_replaced(store: Store) -> None:
    await queue(store)
    words = f"{GRID[2]} is there already and is no grid of {FOX}"
    assert await store.run(ops.claim_grid_files, FOX, GRID, [GRID[2]]) == words
    assert await store.run(ops.claim_grid_files, FOX, GRID, []) == ""
    assert await store.run(ops.claim_grid_files, FOX, GRID, GRID) == ""  # its own
    assert await store.run(ops.claim_grid_files, FOX, ["/out.png", "/out.html"], ["/out.png"], "/out.png") == ""
    assert "is there already" in await store.run(
        ops.claim_grid_files, FOX, ["/b.png", "/b.html"], ["/b.html"], "/b.png"
    )


async def test_only_files_of_an_earlier_grid_in_the_same_place_are_strays(store: Store) -> None:
    await queue(store)
    await store.run(ops.claim_grid_files, FOX, ["/out.png", "/out.html"], [], "/out.png")
    await store.run(ops.claim_grid_files, FOX, GRID, [])
    assert await store.run(ops.keep_grid_files, FOX, GRID) == []
    assert await store.run(ops.keep_grid_files, FOX, [GRID[0], GRID[2]]) == [GRID[1]]
    assert await recorded(store, [*GRID, "/out.png", "/out.html"]) == ["/out.html", "/out.png", GRID[2], GRID[0]]


async def test_a_path_whose_batch_or_job_is_gone_is_free_and_still_known_as_a_result(
    store: Store, database: Database
) -> None:
    await queue(store, 1)
    await store.run(ops.claim_grid_files, FOX, GRID, [])
    database.by_hand(f"DELETE FROM batches WHERE id = '{FOX}'")
    (leased,) = await lease(store)
    assert await recorded(store, GRID) == []
    assert await store.run(ops.recorded_files, [*GRID, "x.png"]) == set(GRID)
    assert await store.run(ops.claim_files, leased.lease, GRID, LEASE_SECONDS) == []


async def test_grids_from_before_are_replaced_with_all_their_pages(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    for number in range(1, 6):
        in_the_shell(path, MIGRATIONS[number].read_text(encoding="utf-8"))
    batch = "INSERT INTO batches (id, name, kind, status, grid) VALUES ('{}', 'x', 'sweep', 'complete', '{}');"
    rows = batch.format(FOX, GRID[0]) + batch.format("spoilt", "shared/grid.png")
    rows += "INSERT INTO jobs (id, config_name, job_type, workflow_id, status) VALUES (1, 'a', 'T2I', 'wf', 'done');"
    rows += "INSERT INTO files (path, job_id) VALUES ('shared/grid.png', 1);"
    in_the_shell(path, f"{rows} PRAGMA user_version = 5; PRAGMA application_id = {OURS}")
    store = open_store(path)
    try:
        assert await store.run(ops.claim_grid_files, FOX, GRID, GRID) == ""
        assert await store.run(ops.keep_grid_files, FOX, GRID[:1]) == sorted(GRID[1:])
        words = "shared/grid.png belongs to the job a"
        assert await store.run(ops.claim_grid_files, "spoilt", ["shared/grid.png"], ["shared/grid.png"]) == words
    finally:
        await store.close()
