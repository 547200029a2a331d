"""Looking whether the memory is sound finds what is wrong, says what to do, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyui_agent.files.folder import Folder
from comfyui_agent.store import operations as ops
from comfyui_agent.store.integrity import examine
from comfyui_agent.store.store import Store
from support.stores import HOST, LEASE_SECONDS, WORKER, Database, everything, lease, register, submit_one, wish


@pytest.fixture
async def at_work(store: Store, tmp_path: Path) -> Path:
    """A job that runs and one that is done, with its file."""
    await register(store, WORKER, host="elsewhere")
    await store.run(ops.submit_jobs, [wish("done"), wish("runs")])
    done, _ = await lease(store, most=2)
    await store.run(ops.complete_job, done.lease, ["done.png"], None)
    (tmp_path / "done.png").write_bytes(b"bytes")
    return tmp_path


async def findings(store: Store, root: Path) -> dict[str, str]:
    """What is not fine."""
    found = await examine(store, HOST, Folder(root).missing)
    assert len({each.name for each in found}) == len(found)
    return {each.name: each.message for each in found if not each.is_fine}


async def test_a_sound_memory_is_said_to_be_fine(store: Store, database: Database, at_work: Path) -> None:
    before = everything(database)
    assert await findings(store, at_work) == {}
    assert everything(database) == before


async def test_wrong_counts_are_found(store: Store, database: Database, at_work: Path) -> None:
    database.by_hand("UPDATE job_counts SET jobs = 7 WHERE status = 'failed'")
    (message,) = (await findings(store, at_work)).values()
    assert "failed says 7, there are 0" in message
    await store.run(ops.recount)
    assert await findings(store, at_work) == {}


async def test_jobs_without_a_living_agent_are_found(store: Store, database: Database, at_work: Path) -> None:
    database.clock.advance(LEASE_SECONDS + 1)
    assert (await findings(store, at_work)).keys() == {"leases"}
    await store.run(ops.renew_leases, WORKER, LEASE_SECONDS)
    assert await findings(store, at_work) == {}
    await store.run(ops.remove_agent, WORKER)
    assert "1 job has no living agent" in (await findings(store, at_work))["leases"]


async def test_results_that_are_gone_are_found(store: Store, at_work: Path) -> None:
    (at_work / "done.png").unlink()
    assert (await findings(store, at_work))["results"] == "1 of 1 done jobs miss files, such as done"


async def test_an_empty_memory_is_fine(store: Store, tmp_path: Path) -> None:
    assert await findings(store, tmp_path) == {}


async def test_files_that_belong_to_a_job_are_known(store: Store, database: Database) -> None:
    await submit_one(store)
    (leased,) = await lease(store)
    await store.run(ops.claim_files, leased.lease, ["a.png", "ä'.png"], LEASE_SECONDS)
    assert await store.run(ops.owned_files, ["a.png", "ä'.png", "b.png"]) == {"a.png", "ä'.png"}
    assert await store.run(ops.owned_files, []) == frozenset()
    database.by_hand("DELETE FROM jobs")
    assert await store.run(ops.owned_files, ["a.png"]) == frozenset()
