"""Job files and their rows: what each verdict does to every column, what it tells, and that it happens once or not at
all."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.job_files import Disposition, FileVerdict, ReadFile
from comfyui_agent.domain.jobs import JobId, Template
from comfyui_agent.domain.needs import needs_of_template
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost, StoreError
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store
from support.stores import (
    LEASE_SECONDS,
    SERVER,
    Database,
    broken,
    everything,
    lease,
    lease_one,
    open_attempt,
    real_counts,
    take_over,
    wish,
)

KNIGHT = "knight.yaml"
SOURCE = "jobs/processing/image/knight.yaml"
GRAPH = {"1": {"class_type": "EmptyImage", "inputs": {"width": 8}}}
OTHER_GRAPH = {"7": {"class_type": "SaveImage", "inputs": {}}}


def filed(
    content: str = "first",
    name: str = KNIGHT,
    problem: str = "",
    *,
    folder: str = "image",
    is_moved: bool = False,
    is_retry: bool = False,
    **facts: Any,
) -> ReadFile:
    """A file as it was read; `content` stands for its bytes."""
    job = wish(name, source=f"jobs/processing/{folder}/{name}", digest=content, **facts)
    return ReadFile(job, problem, is_moved=is_moved, is_retry=is_retry)


def full(content: str, number: int) -> ReadFile:
    """A file that says something about everything, each number something else."""
    return filed(
        content,
        job_type=("T2I", "T2V")[number],
        workflow_id=f"wf_{number}",
        template=Template.of((GRAPH, OTHER_GRAPH)[number]),
        inputs={"1.width": number},
        priority=10 + number,
        retry_limit=20 + number,
        timeout_seconds=30.5 + number,
        file_path=f"jobs/finished/{number}.png",
        output_node=f"{number}",
        metadata={"creator": f"ö{number}"},
        pictures={"4.image": f"{number}.png"},
    )


def columns_of(number: int) -> dict[str, Any]:
    """What `full` is in the row."""
    return {
        "job_type": ("T2I", "T2V")[number],
        "workflow_id": f"wf_{number}",
        "template_hash": Template.of((GRAPH, OTHER_GRAPH)[number]).hash,
        "inputs": f'{{"1.width":{number}}}',
        "priority": 10 + number,
        "retry_limit": 20 + number,
        "timeout_seconds": 30.5 + number,
        "file_path": f"jobs/finished/{number}.png",
        "output_node": f"{number}",
        "metadata": f'{{"creator":"ö{number}"}}',
        "pictures": f'{{"4.image":"{number}.png"}}',
        "needs": needs_of_template(Template.of((GRAPH, OTHER_GRAPH)[number]), {"1.width": number}).key,
    }


FRESH = {
    "status": "pending",
    "dismissed_at": None,
    "retries_attempted": 0,
    "end_time": None,
    "duration": None,
    "error_trace": None,
    "worker_id": None,
    "lease_expires_at": None,
    "failure_class": None,
    "next_attempt_at": None,
    "needs_regeneration": False,
    "hold": None,
    "strikes": 0,
    "avoids": None,
    "resubmit": None,
    "reserved": None,
    "written": None,
    "created_by": None,
}
"""What a job is that has only just been wished for."""
NEVER_RUN = {
    "is_shortened": False,
    "run_count": 0,
    "start_time": None,
    "server": None,
    "prompt_id": None,
    "batch_id": None,
    "batch_index": None,
    "outputs": (),
    "fence": 0,
    "lost_at": None,
    "take": None,
    "rating": None,
    "external_id": None,
    "reuse": None,
    "fingerprint": None,
    "reused_from": None,
}


async def file_one(store: Store, one: ReadFile) -> Disposition:
    (ruling,) = await store.run(ops.file_jobs, [one])
    return ruling


async def verdict_on(store: Store, one: ReadFile) -> FileVerdict:
    return (await file_one(store, one)).verdict


async def row(store: Store, name: str = KNIGHT) -> dict[str, Any]:
    job = await store.run(ops.find_job_by_name, name)
    assert job is not None
    return asdict(job)


async def told(store: Store, after: int = 0) -> list[tuple[str, str | None]]:
    return [(event.name, event.config_name) for event in await store.run(ops.events_after, after)]


async def bring_to(store: Store, state: str, one: ReadFile | None = None) -> Leased | None:
    """The job of a file, in a state."""
    await file_one(store, one or filed())
    if state == "pending":
        return None
    leased = await lease_one(store)
    if state == "done":
        await store.run(ops.complete_job, leased.lease, ["a.png"], 1.5)
    elif state == "failed":
        await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION, needs_regeneration=True))
    elif state == "cancelled":
        await store.run(ops.cancel_jobs, [leased.lease.job_id])
    return leased


STATES = ["pending", "processing", "failed", "cancelled", "done"]


# A new name.


async def test_a_new_file_is_a_waiting_job_that_says_all_that_the_file_says(store: Store, database: Database) -> None:
    assert await file_one(store, full("bytes", 0)) == Disposition(FileVerdict.ACCEPTED)
    expected = columns_of(0) | FRESH | NEVER_RUN
    expected |= {"id": 1, "config_name": KNIGHT, "source": SOURCE, "digest": "bytes"}
    assert await row(store) == expected | {"created_at": database.clock.text()}
    assert await told(store) == [("job.submitted", KNIGHT)]


async def test_a_new_file_that_says_only_what_it_must_has_defaults_and_nulls(store: Store, database: Database) -> None:
    await file_one(store, filed())
    facts = {"job_type": "T2I", "workflow_id": "wf_realistic_portrait", "priority": 50, "source": SOURCE}
    nothing = dict.fromkeys(columns_of(0).keys() - facts.keys())
    expected = FRESH | NEVER_RUN | nothing | facts | {"id": 1, "config_name": KNIGHT, "digest": "first"}
    assert await row(store) == expected | {"created_at": database.clock.text()}


async def test_a_bad_file_is_a_failed_row_that_never_ran_and_says_what_is_wrong(
    store: Store, database: Database
) -> None:
    problem = f"{SOURCE}:3: inputs.seed: is missing: write seed: 7"
    assert await file_one(store, filed(problem=problem)) == Disposition(FileVerdict.ACCEPTED, problem)
    now = database.clock.text()
    expected = {"status": "failed", "failure_class": "invalid", "needs_regeneration": True, "run_count": 0}
    expected |= {"error_trace": f"invalid: {problem}", "end_time": now, "created_at": now, "digest": "first"}
    found = await row(store)
    assert {key: found[key] for key in expected} == expected
    assert found["retries_attempted"] == 0
    assert await store.run(ops.list_attempts, found["id"]) == []
    assert await lease(store) == []
    (event,) = await store.run(ops.events_after, 0)
    assert (event.name, event.job_id, event.config_name) == ("job.failed", found["id"], KNIGHT)
    assert (event.failure_class, event.message) == ("invalid", problem)
    assert await store.run(ops.failures_since, 0) == 1


async def test_good_and_bad_files_of_one_call_each_get_their_own_end(store: Store, database: Database) -> None:
    files = [filed(name="a.yaml"), filed(name="b.yaml", problem="b is bad"), filed(name="c.yaml")]
    rulings = await store.run(ops.file_jobs, files)
    assert [each.verdict for each in rulings] == [FileVerdict.ACCEPTED] * 3
    assert [each.reason for each in rulings] == ["", "b is bad", ""]
    assert [(await row(store, name))["status"] for name in ("a.yaml", "b.yaml", "c.yaml")] == [
        "pending",
        "failed",
        "pending",
    ]
    assert sorted(await told(store)) == [
        ("job.failed", "b.yaml"),
        ("job.submitted", "a.yaml"),
        ("job.submitted", "c.yaml"),
    ]
    assert real_counts(database) == {"pending": 2, "processing": 0, "done": 0, "failed": 1, "attention": 1}


async def test_ids_follow_the_order_of_the_files(store: Store) -> None:
    names = [f"take_{number}.yaml" for number in (3, 1, 2, 10, 4)]
    await store.run(ops.file_jobs, [filed(name=name) for name in names])
    assert [job.config_name for job in await store.run(ops.list_jobs)] == names


async def test_no_files_are_no_trouble(store: Store, database: Database) -> None:
    before = everything(database)
    assert await store.run(ops.file_jobs, []) == []
    assert everything(database) == before


async def test_a_thousand_files_are_one_transaction(store: Store, database: Database) -> None:
    before = database.commits(store)
    rulings = await store.run(
        ops.file_jobs, [filed(str(n), f"{n}.yaml", template=Template.of(GRAPH)) for n in range(1000)]
    )
    assert {each.verdict for each in rulings} == {FileVerdict.ACCEPTED}
    assert database.commits(store) == before + 1
    assert len(await store.run(ops.events_after, 0, 5000)) == 1000


async def test_names_and_texts_are_taken_as_they_are(store: Store) -> None:
    name = '\'; DROP TABLE jobs; -- "日本" 🎨 %_\\ ["x"].yaml'
    await file_one(store, filed(name=name, metadata={"a\u2028": "\x00"}, inputs={"6.text": "'\"\\"}))
    found = await row(store, name)
    assert json.loads(found["metadata"]) == {"a\u2028": "\x00"}
    assert json.loads(found["inputs"]) == {"6.text": "'\"\\"}
    assert await verdict_on(store, filed(name=name)) is FileVerdict.UNCHANGED


async def test_a_problem_that_cannot_be_written_as_it_is_is_still_reported(store: Store) -> None:
    await file_one(store, filed(problem="half a letter: \ud800 " + "x" * 100_000))
    found = await row(store)
    assert found["error_trace"].startswith("invalid: half a letter: \\ud800")
    assert len(found["error_trace"]) < 40_000


# The same name, the same bytes.


@pytest.mark.parametrize("state", ["pending", "processing", "failed", "cancelled"])
async def test_the_same_bytes_again_change_nothing_at_all(store: Store, database: Database, state: str) -> None:
    await bring_to(store, state)
    before = everything(database)
    database.clock.advance(60)
    assert await verdict_on(store, filed(priority=1, inputs={"x": 1})) is FileVerdict.UNCHANGED
    assert everything(database) == before


async def test_the_same_bytes_of_a_job_that_is_done_are_to_be_put_away(store: Store, database: Database) -> None:
    await bring_to(store, "done")
    before = everything(database)
    assert await verdict_on(store, filed()) is FileVerdict.FINISHED
    assert everything(database) == before


async def test_a_bad_file_that_is_still_the_same_is_not_reported_again(store: Store, database: Database) -> None:
    await file_one(store, filed(problem="bad"))
    before = everything(database)
    assert await verdict_on(store, filed(problem="bad")) is FileVerdict.UNCHANGED
    assert everything(database) == before


# Changed while it waits.


async def test_a_file_that_changes_while_its_job_waits_is_what_the_row_says(store: Store, database: Database) -> None:
    await file_one(store, full("first", 0))
    before = await row(store)
    database.clock.advance(60)
    assert await file_one(store, full("second", 1)) == Disposition(FileVerdict.UPDATED, "", SOURCE)
    expected = before | columns_of(1) | {"digest": "second", "created_at": database.clock.text(), "fence": 1}
    assert await row(store) == expected
    assert await told(store) == [("job.submitted", KNIGHT)] * 2


async def test_what_a_file_no_longer_says_is_no_longer_in_the_row(store: Store) -> None:
    await file_one(store, full("first", 0))
    await file_one(store, filed("second"))
    found = await row(store)
    gone = columns_of(0).keys() - {"job_type", "workflow_id", "priority"}
    assert {key: found[key] for key in gone} == dict.fromkeys(gone)
    assert found["priority"] == 50


async def test_a_job_in_backoff_whose_file_changes_begins_anew_at_once(store: Store, database: Database) -> None:
    await file_one(store, full("first", 0))
    leased = await lease_one(store)
    await store.run(
        ops.requeue_job, leased.lease, broken(), Retry(3600.0, charged=True, strike=True), avoid_server=True
    )
    before = await row(store)
    assert before["hold"] == "backoff"
    assert await verdict_on(store, full("second", 1)) is FileVerdict.UPDATED
    expected = before | columns_of(1) | FRESH | {"digest": "second", "created_at": database.clock.text()}
    assert await row(store) == expected | {"fence": before["fence"] + 1}
    assert (await lease_one(store, server=SERVER)).config_name == KNIGHT


async def test_a_waiting_job_whose_file_becomes_bad_fails_and_does_not_run(store: Store, database: Database) -> None:
    await file_one(store, full("first", 0))
    assert await file_one(store, filed("second", problem="it is bad now")) == Disposition(
        FileVerdict.UPDATED, "it is bad now", SOURCE
    )
    found = await row(store)
    assert (found["status"], found["failure_class"], found["error_trace"]) == (
        "failed",
        "invalid",
        "invalid: it is bad now",
    )
    assert (found["run_count"], found["needs_regeneration"], found["digest"]) == (0, True, "second")
    assert found["end_time"] == database.clock.text()
    assert await lease(store) == []
    assert await told(store) == [("job.submitted", KNIGHT), ("job.failed", KNIGHT)]


async def test_a_row_made_by_hand_becomes_that_of_a_file_of_its_name(store: Store, database: Database) -> None:
    database.by_hand(
        f"INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('{KNIGHT}', 'T2I', 'w', 'pending')"
    )
    assert await verdict_on(store, filed()) is FileVerdict.UPDATED
    found = await row(store)
    assert (found["source"], found["digest"], found["workflow_id"]) == (SOURCE, "first", "wf_realistic_portrait")


# Changed while it runs.


async def test_a_file_that_changes_while_its_job_runs_is_noted_and_the_run_is_left_alone(
    store: Store, database: Database
) -> None:
    leased = await bring_to(store, "processing", full("first", 0))
    assert leased is not None
    before = await row(store)
    assert await verdict_on(store, full("second", 1)) is FileVerdict.LATER
    assert await row(store) == before | {"resubmit": 1}
    event = (await store.run(ops.events_after, 0))[-1]
    assert (event.name, event.job_id) == ("alert.file", leased.lease.job_id)
    seen = everything(database)
    assert await verdict_on(store, full("third", 1)) is FileVerdict.LATER
    assert everything(database) == seen, "it is told once"
    await store.run(ops.complete_job, leased.lease, ["a.png"], 1.0)


async def test_a_file_that_is_changed_and_changed_back_while_its_job_runs_is_not_submitted_again(store: Store) -> None:
    leased = await bring_to(store, "processing")
    assert leased is not None
    before = await row(store)
    await verdict_on(store, filed("second"))
    assert await verdict_on(store, filed("first")) is FileVerdict.UNCHANGED
    assert await row(store) == before
    await store.run(ops.complete_job, leased.lease, [], 1.0)
    assert await verdict_on(store, filed("first")) is FileVerdict.FINISHED
    assert await verdict_on(store, filed("third", problem="wrong")) is FileVerdict.REJECTED


async def test_cancelling_is_the_last_word_on_what_was_changed_while_it_ran(store: Store) -> None:
    leased = await bring_to(store, "processing", full("first", 0))
    assert leased is not None
    await verdict_on(store, full("second", 1))
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    for _ in range(2):
        assert await verdict_on(store, full("second", 1)) is FileVerdict.UNCHANGED
    found = await row(store)
    assert (found["status"], found["failure_class"], found["digest"]) == ("failed", "cancelled", "second")
    assert await verdict_on(store, full("third", 1)) is FileVerdict.RESUBMITTED


@pytest.mark.parametrize("end", ["done", "failed", "requeued"])
async def test_what_was_changed_while_it_ran_is_submitted_again_when_that_has_ended(
    store: Store, database: Database, end: str
) -> None:
    leased = await bring_to(store, "processing", full("first", 0))
    assert leased is not None
    await verdict_on(store, full("second", 1))
    if end == "done":
        await store.run(ops.complete_job, leased.lease, ["a.png"], 1.0)
    elif end == "failed":
        await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION))
    else:
        await store.run(ops.requeue_job, leased.lease, broken(), Retry(60.0, charged=True))
    before = await row(store)
    newest = await store.run(ops.newest_event)
    verdict = FileVerdict.UPDATED if end == "requeued" else FileVerdict.RESUBMITTED
    assert await verdict_on(store, full("second", 1)) is verdict
    expected = before | columns_of(1) | FRESH | {"digest": "second", "created_at": database.clock.text()}
    take = 2 if end == "done" else None
    assert await row(store) == expected | {"fence": before["fence"] + 1, "take": take}
    assert await told(store, newest) == [("job.submitted", KNIGHT)]
    again = await lease_one(store)
    assert again.prompt_id != leased.prompt_id
    assert (again.inputs, again.pictures) == ('{"1.width":1}', '{"4.image":"1.png"}')
    assert [attempt.number for attempt in await store.run(ops.list_attempts, again.lease.job_id)] == [1, 2]


async def test_what_was_changed_into_something_bad_while_it_ran_leaves_the_result_alone(
    store: Store, database: Database
) -> None:
    leased = await bring_to(store, "processing")
    assert leased is not None
    await verdict_on(store, filed("second", problem="bad"))
    await store.run(ops.complete_job, leased.lease, ["a.png"], 1.0)
    before = everything(database)
    ruling = await file_one(store, filed("second", problem="bad"))
    assert (ruling.verdict, ruling.reason) == (FileVerdict.REJECTED, "bad")
    assert everything(database) == before


async def test_an_agent_that_sees_the_change_first_notes_it_once(store: Store) -> None:
    leased = await bring_to(store, "done")
    assert leased is not None
    newest = await store.run(ops.newest_event)
    await store.run(ops.note_file_changed, leased.lease.job_id)
    await store.run(ops.note_file_changed, leased.lease.job_id)
    assert await told(store, newest) == [("alert.file", KNIGHT)]
    assert (await row(store))["resubmit"] == 1
    assert await verdict_on(store, filed("second")) is FileVerdict.RESUBMITTED


async def test_a_change_of_a_job_that_does_not_exist_is_nothing(store: Store, database: Database) -> None:
    before = everything(database)
    await store.run(ops.note_file_changed, JobId(999))
    assert everything(database) == before


# Changed after it has ended.


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_a_file_that_changes_after_its_job_failed_is_submitted_anew(
    store: Store, database: Database, state: str
) -> None:
    await bring_to(store, state, full("first", 0))
    before = await row(store)
    newest = await store.run(ops.newest_event)
    database.clock.advance(60)
    assert await verdict_on(store, full("second", 1)) is FileVerdict.RESUBMITTED
    expected = before | columns_of(1) | FRESH | {"digest": "second", "created_at": database.clock.text()}
    assert await row(store) == expected | {"fence": before["fence"] + 1, "run_count": 1}
    assert await told(store, newest) == [("job.submitted", KNIGHT)]
    assert real_counts(database)["pending"] == (await store.run(ops.count_jobs)).pending == 1


async def test_a_bad_file_that_is_put_right_is_submitted_anew(store: Store) -> None:
    await file_one(store, filed(problem="bad"))
    assert await verdict_on(store, full("second", 0)) is FileVerdict.RESUBMITTED
    found = await row(store)
    assert {key: found[key] for key in FRESH} == FRESH
    assert found["run_count"] == 0
    assert (await lease_one(store)).config_name == KNIGHT


async def test_a_bad_file_that_becomes_bad_in_another_way_says_the_new_reason(store: Store) -> None:
    await file_one(store, filed(problem="bad"))
    assert await verdict_on(store, filed("second", problem="worse")) is FileVerdict.RESUBMITTED
    found = await row(store)
    assert (found["status"], found["error_trace"], found["run_count"]) == ("failed", "invalid: worse", 0)
    assert await told(store) == [("job.failed", KNIGHT)] * 2


async def test_after_done_a_wrong_file_of_the_name_is_rejected_with_the_reason(
    store: Store, database: Database
) -> None:
    await bring_to(store, "done")
    before = everything(database)
    ruling = await file_one(store, filed("second", problem="line 3: no such workflow"))
    assert (ruling.verdict, ruling.reason) == (FileVerdict.REJECTED, "line 3: no such workflow")
    assert everything(database) == before


async def test_a_retry_submits_the_same_bytes_again_if_the_job_has_failed(store: Store) -> None:
    await file_one(store, filed(problem="no such workflow"))
    assert await verdict_on(store, filed(is_retry=True, inputs={"1.width": 1})) is FileVerdict.RESUBMITTED
    found = await row(store)
    assert {key: found[key] for key in FRESH} == FRESH
    assert found["inputs"] == '{"1.width":1}'


@pytest.mark.parametrize(("state", "verdict"), [("pending", "unchanged"), ("processing", "unchanged")])
async def test_a_retry_of_what_has_not_failed_changes_nothing(
    store: Store, database: Database, state: str, verdict: str
) -> None:
    await bring_to(store, state)
    before = everything(database)
    assert await verdict_on(store, filed(is_retry=True)) == verdict
    assert everything(database) == before


# In another folder.


@pytest.mark.parametrize("content", ["first", "second"])
@pytest.mark.parametrize("state", STATES)
async def test_the_same_name_in_another_folder_is_elsewhere_and_changes_nothing(
    store: Store, database: Database, state: str, content: str
) -> None:
    await bring_to(store, state)
    before = everything(database)
    ruling = await file_one(store, filed(content, folder="video"))
    assert (ruling.verdict, ruling.other_source) == (FileVerdict.ELSEWHERE, SOURCE)
    assert SOURCE in ruling.reason
    assert everything(database) == before


@pytest.mark.parametrize("state", ["pending", "processing", "failed"])
async def test_a_file_that_was_moved_is_known_by_its_new_place(store: Store, database: Database, state: str) -> None:
    await bring_to(store, state)
    before = await row(store)
    newest = await store.run(ops.newest_event)
    assert await verdict_on(store, filed(folder="video", is_moved=True)) is FileVerdict.UNCHANGED
    assert await row(store) == before | {"source": "jobs/processing/video/knight.yaml"}
    assert await told(store, newest) == []


@pytest.mark.parametrize(
    ("state", "verdict"),
    [("pending", "updated"), ("processing", "later"), ("failed", "resubmitted"), ("done", "rejected")],
)
async def test_a_file_that_was_moved_and_changed_is_judged_as_one_that_was_changed(
    store: Store, state: str, verdict: str
) -> None:
    await bring_to(store, state)
    assert await verdict_on(store, filed("second", folder="video", is_moved=True)) == verdict
    expected = "video" if verdict in ("updated", "resubmitted") else "image"
    assert (await row(store))["source"] == f"jobs/processing/{expected}/knight.yaml"


# Prompts of what a file said before.


async def leave_cleanly(store: Store, leased: Leased) -> None:
    assert await store.run(ops.release_jobs, "first-agent") == 1


async def die_and_be_put_back(store: Store, leased: Leased) -> None:
    assert await store.run(ops.put_back_orphans, "host") == 1


async def be_cancelled(store: Store, leased: Leased) -> None:
    assert await store.run(ops.cancel_jobs, [leased.lease.job_id])


@pytest.mark.parametrize("part", [leave_cleanly, die_and_be_put_back, be_cancelled])
@pytest.mark.parametrize("problem", ["", "bad"])
async def test_a_renewed_job_never_adopts_the_prompt_of_what_its_file_said_before(
    store: Store, database: Database, part: Any, problem: str
) -> None:
    await file_one(store, full("first", 0))
    leased = await lease_one(store)
    await part(store, leased)
    stale = await open_attempt(store)
    assert await verdict_on(store, filed("second", problem=problem)) in (FileVerdict.UPDATED, FileVerdict.RESUBMITTED)
    assert await store.run(ops.open_attempts) == []
    assert await store.run(ops.owned_prompts) == frozenset()
    assert await store.run(ops.adopt_attempt, stale, "second-agent", LEASE_SECONDS) is None
    (attempt,) = await store.run(ops.list_attempts, leased.lease.job_id)
    assert (attempt.outcome, attempt.ended_at) == ("cancelled", database.clock.text())
    with pytest.raises(LeaseLost):
        await store.run(ops.complete_job, leased.lease, ["old.png"], 1.0)
    found = await row(store)
    assert (found["outputs"], found["digest"]) == ((), "second")
    if problem:
        assert await lease(store) == []
        return
    again = await lease_one(store)
    assert again.prompt_id != leased.prompt_id
    assert [(each.number, each.outcome) for each in await store.run(ops.list_attempts, leased.lease.job_id)] == [
        (1, "cancelled"),
        (2, None),
    ]


async def test_an_unchanged_job_with_an_open_attempt_is_still_taken_over(store: Store) -> None:
    await file_one(store, full("first", 0))
    leased = await lease_one(store)
    await store.run(ops.release_jobs, "first-agent")
    assert await verdict_on(store, full("first", 0)) is FileVerdict.UNCHANGED
    again = await take_over(store)
    assert (again.prompt_id, again.source, again.digest) == (leased.prompt_id, SOURCE, "first")
    assert again.pictures == '{"4.image":"0.png"}'


# Where results go.


def going_to(path: str, name: str, content: str = "first", *, insists: bool = True) -> ReadFile:
    return replace(filed(content, name, file_path=path), insists=insists)


async def test_a_path_of_a_file_that_waits_is_reported_before_anything_is_written(store: Store) -> None:
    """Whoever asks can see whether that file is still there: one that was renamed is about to be cancelled."""
    await file_one(store, going_to("x.png", "owner.yaml"))
    ruling = await file_one(store, going_to("x.png", "late.yaml", insists=False))
    assert (ruling.verdict, ruling.other_source) == (FileVerdict.TAKEN, "jobs/processing/image/owner.yaml")
    assert "belongs to the job owner.yaml" in ruling.reason
    assert await store.run(ops.find_job_by_name, "late.yaml") is None


@pytest.mark.parametrize("state", ["pending", "processing", "done"])
async def test_a_path_that_belongs_to_another_job_makes_the_file_a_failed_one(
    store: Store, database: Database, state: str
) -> None:
    await bring_to(store, state, going_to("jobs/finished/x.png", "owner.yaml"))
    before = await row(store, "owner.yaml")
    ruling = await file_one(store, going_to("jobs/finished/x.png", "late.yaml"))
    assert ruling.verdict is FileVerdict.ACCEPTED
    found = await row(store, "late.yaml")
    assert (found["status"], found["failure_class"], found["run_count"]) == ("failed", "invalid", 0)
    for part in ("outputs.file_path", "jobs/finished/x.png", "owner.yaml"):
        assert part in found["error_trace"]
        assert part in ruling.reason
    assert await row(store, "owner.yaml") == before


async def test_a_path_of_a_job_that_failed_is_free(store: Store) -> None:
    await bring_to(store, "failed", going_to("x.png", "failed.yaml"))
    await file_one(store, filed(name="bad.yaml", problem="bad", file_path="y.png"))
    rulings = await store.run(ops.file_jobs, [going_to("x.png", "a.yaml"), going_to("y.png", "b.yaml")])
    assert [each.reason for each in rulings] == ["", ""]
    assert (await store.run(ops.count_jobs)).pending == 2


async def test_a_file_that_lies_there_as_the_result_of_another_job_is_never_to_be_overwritten(store: Store) -> None:
    await file_one(store, filed(name="owner.yaml"))
    leased = await lease_one(store)
    await store.run(ops.claim_files, leased.lease, ["jobs/finished/image/owner.png"], LEASE_SECONDS)
    await store.run(ops.complete_job, leased.lease, ["jobs/finished/image/owner.png"], 1.0)
    ruling = await file_one(store, going_to("jobs/finished/image/owner.png", "late.yaml"))
    assert "owner.yaml" in ruling.reason
    assert (await row(store, "late.yaml"))["status"] == "failed"


async def test_of_two_files_of_one_call_that_want_one_path_the_first_gets_it(store: Store) -> None:
    rulings = await store.run(
        ops.file_jobs, [going_to("x.png", "b.yaml"), going_to("x.png", "a.yaml"), filed(name="c.yaml")]
    )
    assert ["b.yaml" in each.reason for each in rulings] == [False, True, False]
    assert [(await row(store, name))["status"] for name in ("a.yaml", "b.yaml", "c.yaml")] == [
        "failed",
        "pending",
        "pending",
    ]


async def test_a_bad_file_keeps_no_path_from_the_others_of_its_call(store: Store) -> None:
    rulings = await store.run(
        ops.file_jobs, [filed(name="a.yaml", problem="bad", file_path="x.png"), going_to("x.png", "b.yaml")]
    )
    assert [each.reason for each in rulings] == ["bad", ""]


@pytest.mark.parametrize("state", ["failed", "done"])
async def test_a_file_that_is_not_submitted_keeps_no_path_from_the_others_of_its_call(store: Store, state: str) -> None:
    """One that failed and is as it was, one that is rejected: a monitor that starts sees them beside the new ones."""
    await bring_to(store, state, going_to("x.png", "a.yaml") if state == "failed" else filed(name="a.yaml"))
    old = going_to("x.png", "a.yaml")
    old = old if state == "failed" else replace(old, problem="wrong", job=replace(old.job, digest="second"))
    rulings = await store.run(ops.file_jobs, [old, going_to("x.png", "b.yaml")])
    assert [each.verdict for each in rulings] == ["unchanged" if state == "failed" else "rejected", "accepted"]
    assert rulings[1].reason == ""
    assert (await row(store, "b.yaml"))["status"] == "pending"


async def test_a_job_does_not_stand_in_its_own_way(store: Store) -> None:
    leased = await bring_to(store, "processing", going_to("x.png", KNIGHT))
    assert leased is not None
    await store.run(ops.claim_files, leased.lease, ["x.png"], LEASE_SECONDS)
    await verdict_on(store, going_to("x.png", KNIGHT, "second"))
    await store.run(ops.complete_job, leased.lease, ["x.png"], 1.0)
    ruling = await file_one(store, going_to("x.png", KNIGHT, "second"))
    assert (ruling.verdict, ruling.reason) == (FileVerdict.RESUBMITTED, "")


async def test_a_path_is_free_again_when_its_owner_has_chosen_another(store: Store) -> None:
    await file_one(store, going_to("x.png", "owner.yaml"))
    await file_one(store, going_to("x.png", "late.yaml"))
    await file_one(store, going_to("y.png", "owner.yaml", "second"))
    assert (await file_one(store, going_to("x.png", "late.yaml", "second"))).reason == ""
    assert (await row(store, "late.yaml"))["status"] == "pending"


async def test_a_waiting_job_that_chooses_a_path_of_another_fails_and_leaves_its_own(store: Store) -> None:
    await store.run(ops.file_jobs, [going_to("x.png", "a.yaml"), going_to("y.png", "b.yaml")])
    ruling = await file_one(store, going_to("x.png", "b.yaml", "second"))
    assert ruling.verdict is FileVerdict.UPDATED
    assert (await row(store, "b.yaml"))["status"] == "failed"
    assert (await row(store, "a.yaml"))["status"] == "pending"
    assert (await file_one(store, going_to("y.png", "c.yaml"))).reason == ""


# Several at once.


async def test_a_file_that_two_see_at_once_is_one_job_and_one_event(store: Store, database: Database) -> None:
    stores = [store, *(database.open() for _ in range(3))]
    files = [filed(name=f"{number}.yaml") for number in range(5)]
    answers = await asyncio.gather(*(each.run(ops.file_jobs, files) for each in stores for _ in range(3)))
    for number in range(5):
        verdicts = sorted(answer[number].verdict for answer in answers)
        assert verdicts == [FileVerdict.ACCEPTED] + [FileVerdict.UNCHANGED] * 11
    assert sorted(await told(store)) == sorted(("job.submitted", one.job.config_name) for one in files)


async def test_a_change_that_two_see_at_once_is_one_submission(store: Store, database: Database) -> None:
    await bring_to(store, "failed")
    newest = await store.run(ops.newest_event)
    other = database.open()
    answers = await asyncio.gather(*(verdict_on(each, filed("second")) for each in (store, other, store, other)))
    assert sorted(answers) == [FileVerdict.RESUBMITTED] + [FileVerdict.UNCHANGED] * 3
    assert await told(store, newest) == [("job.submitted", KNIGHT)]


async def test_taking_files_in_wakes_the_agent(store: Store) -> None:
    woken = asyncio.Event()
    store.on_change(woken.set)
    await file_one(store, filed())
    assert woken.is_set()
    woken.clear()
    await store.run(ops.cancel_deleted, [SOURCE])
    assert woken.is_set()


async def test_when_one_file_cannot_be_written_down_none_is(store: Store, database: Database) -> None:
    await bring_to(store, "failed")
    await file_one(store, filed(name="waits.yaml"))
    database.refuse("jobs", "INSERT", "NEW.config_name = 'last.yaml'")
    files = [
        filed("second"),
        filed("second", "waits.yaml", template=Template.of(OTHER_GRAPH)),
        filed(name="new.yaml", template=Template.of(GRAPH)),
        filed(name="bad.yaml", problem="bad"),
        filed(name="last.yaml"),
    ]
    before = everything(database)
    with pytest.raises(StoreError):
        await store.run(ops.file_jobs, files)
    assert everything(database) == before
    database.allow("jobs")
    assert [each.verdict for each in await store.run(ops.file_jobs, files)] == [
        FileVerdict.RESUBMITTED,
        FileVerdict.UPDATED,
        FileVerdict.ACCEPTED,
        FileVerdict.ACCEPTED,
        FileVerdict.ACCEPTED,
    ]


async def test_when_an_event_cannot_be_written_down_nothing_is(store: Store, database: Database) -> None:
    database.refuse("events", "INSERT")
    before = everything(database)
    for one in (filed(), filed(problem="bad")):
        with pytest.raises(StoreError):
            await file_one(store, one)
    assert everything(database) == before


# Deleted.


async def test_a_waiting_job_whose_file_is_deleted_is_cancelled(store: Store, database: Database) -> None:
    await file_one(store, full("first", 0))
    before = await row(store)
    database.clock.advance(5)
    assert await store.run(ops.cancel_deleted, [SOURCE]) == [KNIGHT]
    expected = {"status": "failed", "failure_class": "cancelled", "end_time": database.clock.text(), "digest": None}
    trace = f"cancelled: its file {SOURCE} was deleted"
    assert await row(store) == before | expected | {"error_trace": trace, "fence": 1}
    event = (await store.run(ops.events_after, 0))[-1]
    assert (event.name, event.config_name, event.failure_class) == ("job.cancelled", KNIGHT, "cancelled")
    assert await lease(store) == []
    assert await store.run(ops.cancel_deleted, [SOURCE]) == []
    assert await told(store) == [("job.submitted", KNIGHT), ("job.cancelled", KNIGHT)]


@pytest.mark.parametrize("state", ["processing", "failed", "cancelled", "done"])
async def test_only_jobs_that_wait_are_cancelled_with_their_files(store: Store, database: Database, state: str) -> None:
    await bring_to(store, state)
    before = everything(database)
    assert await store.run(ops.cancel_deleted, [SOURCE]) == []
    assert everything(database) == before


async def test_only_jobs_of_those_files_are_cancelled(store: Store, database: Database) -> None:
    await store.run(ops.file_jobs, [filed(name="a.yaml"), filed(name="b.yaml"), filed(name="c.yaml", folder="video")])
    await store.run(ops.submit_jobs, [wish("by hand.yaml")])
    gone = ["jobs/processing/image/b.yaml", "jobs/processing/video/c.yaml", "jobs/processing/image/none.yaml"]
    assert sorted(await store.run(ops.cancel_deleted, gone)) == ["b.yaml", "c.yaml"]
    assert await store.run(ops.cancel_deleted, []) == []
    assert {leased.config_name for leased in await lease(store, most=10)} == {"a.yaml", "by hand.yaml"}


async def test_a_job_in_backoff_whose_file_is_deleted_never_runs_again(store: Store, database: Database) -> None:
    leased = await bring_to(store, "processing")
    assert leased is not None
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(15.0, charged=True))
    assert await store.run(ops.cancel_deleted, [SOURCE]) == [KNIGHT]
    found = await row(store)
    assert (found["hold"], found["next_attempt_at"], found["run_count"]) == (None, None, 1)
    database.clock.advance(3600)
    assert await lease(store) == []
    assert await store.run(ops.seconds_until_next) is None


async def test_the_prompt_of_a_job_whose_file_is_deleted_is_still_to_be_taken_back(store: Store) -> None:
    leased = await bring_to(store, "processing")
    assert leased is not None
    await store.run(ops.release_jobs, "first-agent")
    assert await store.run(ops.cancel_deleted, [SOURCE]) == [KNIGHT]
    assert await store.run(ops.owned_prompts) == {leased.prompt_id}
    attempt = await open_attempt(store)
    assert not attempt.is_wanted
    assert await store.run(ops.adopt_attempt, attempt, "second-agent", LEASE_SECONDS) is None


async def test_a_file_that_is_put_back_unchanged_is_a_new_job(store: Store, database: Database) -> None:
    await file_one(store, full("first", 0))
    await store.run(ops.cancel_deleted, [SOURCE])
    before = await row(store)
    assert await verdict_on(store, full("first", 0)) is FileVerdict.RESUBMITTED
    expected = before | FRESH | {"digest": "first", "created_at": database.clock.text(), "fence": 2}
    assert await row(store) == expected
    assert (await lease_one(store)).config_name == KNIGHT


async def test_a_file_of_a_job_that_a_person_cancelled_does_not_bring_it_back(store: Store) -> None:
    await file_one(store, filed())
    await store.run(ops.cancel_jobs, [JobId(1)])
    assert await verdict_on(store, filed()) is FileVerdict.UNCHANGED
    assert await store.run(ops.cancel_deleted, [SOURCE]) == []
    assert await lease(store) == []


async def test_the_files_of_waiting_jobs_are_listed_and_no_others(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish("by hand.yaml", priority=90)])
    await store.run(
        ops.file_jobs,
        [
            filed(name="runs.yaml", priority=1),
            filed(name="waits.yaml"),
            filed(name="also.yaml", folder="video"),
            filed(name="bad.yaml", problem="bad"),
        ],
    )
    await lease_one(store)
    assert sorted(await store.run(ops.pending_sources)) == [
        "jobs/processing/image/waits.yaml",
        "jobs/processing/video/also.yaml",
    ]


# Rejected.


async def test_why_files_were_rejected_is_remembered_and_reported(store: Store, database: Database) -> None:
    await store.run(ops.reject_file, "a.yaml.rejected", "it is done already")
    database.clock.advance(1)
    await store.run(ops.reject_file, "b.yaml.rejected", "another one")
    assert await store.run(ops.rejections) == {
        "a.yaml.rejected": "it is done already",
        "b.yaml.rejected": "another one",
    }
    assert [(event.name, event.message) for event in await store.run(ops.events_after, 0)] == [
        ("alert.file", "a.yaml.rejected: it is done already"),
        ("alert.file", "b.yaml.rejected: another one"),
    ]


async def test_the_latest_reason_counts_and_the_oldest_rejection_is_first(store: Store, database: Database) -> None:
    await store.run(ops.reject_file, "a", "old")
    database.clock.advance(1)
    await store.run(ops.reject_file, "b", "reason")
    database.clock.advance(1)
    await store.run(ops.reject_file, "a", "new")
    assert list((await store.run(ops.rejections)).items()) == [("b", "reason"), ("a", "new")]


# What is known of a file lasts as long as its job.


async def test_source_digest_and_pictures_are_in_every_lease_and_survive_every_transition(store: Store) -> None:
    known = (SOURCE, "bytes", '{"4.image":"0.png"}')

    async def assert_known(leased: Leased | None = None) -> None:
        found = await row(store)
        assert (found["source"], found["digest"], found["pictures"]) == known
        if leased is not None:
            assert (leased.source, leased.digest, leased.pictures) == known

    await file_one(store, full("bytes", 0))
    leased = await lease_one(store)
    await assert_known(leased)
    await store.run(ops.return_unsent, leased.lease)
    await assert_known()
    leased = await lease_one(store)
    await store.run(ops.release_jobs, "first-agent")
    leased = await take_over(store)
    await assert_known(leased)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(0.0, charged=True))
    leased = await lease_one(store)
    await assert_known(leased)
    await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION))
    await assert_known()
    await store.run(ops.retry_jobs, [leased.lease.job_id])
    leased = await lease_one(store)
    await assert_known(leased)
    await store.run(ops.refuse_job, leased.lease, broken())
    await store.run(ops.retry_jobs, [leased.lease.job_id])
    leased = await lease_one(store)
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    await assert_known()
    attempt = await open_attempt(store)
    await store.run(ops.withdraw_attempt, attempt)
    await store.run(ops.retry_jobs, [leased.lease.job_id])
    leased = await lease_one(store)
    await store.run(ops.complete_job, leased.lease, ["a.png"], 1.0)
    await assert_known()
