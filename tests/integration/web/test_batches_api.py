"""/api/v1/batches: sweeps are queued, looked at, drawn and steered as one."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.store import operations as ops
from support.batches import KEYS
from support.pictures import opened, png
from support.store_batches import queue
from support.stores import wish
from support.web import Served, check_problem
from support.workspaces import call_e3

pytestmark = pytest.mark.asyncio(loop_scope="module")

SWEEP = {"name": "knights", "workflow": "picture", "set": {"color": "1..3", "width": [32, 64]}}


async def swept(house: Served, **changes: Any) -> dict[str, Any]:
    """A batch that is queued ahead of everything else."""
    answer = await house.post("/api/v1/batches", {**SWEEP, "priority": -1000, **changes})
    assert answer.status == 201, answer.text
    found: dict[str, Any] = answer.value
    return found


async def work_off(house: Served, batch_id: str, *, failing: int = 0) -> None:
    """Every member that waits lands; the first ones fail."""
    for number, leased in enumerate(await house.lease(64, batch_id)):
        if number < failing:
            await house.fail(leased, "no more paint")
        else:
            await house.finish(leased, png((number, 0, 0)))


async def test_a_sweep_is_queued_for_every_combination_and_found_where_the_answer_says(house: Served) -> None:
    answer = await house.post("/api/v1/batches", SWEEP)
    assert answer.status == 201
    made = answer.value
    assert [key for key in made if key in KEYS] == KEYS
    assert made["id"].startswith("knights_")
    assert (made["kind"], made["status"], made["total"], made["pending"]) == ("sweep", "active", 6, 6)
    assert made["is_paused"] is False
    assert made["sentence"]
    assert made["warnings"], "the server could not be asked what it knows: that is said"
    shown = (await house.get(answer.headers["Location"])).value
    assert shown["id"] == made["id"]
    assert [job["batch_index"] for job in shown["jobs"]] == list(range(6))
    assert [axis["name"] for axis in shown["axes"]] == ["color", "width"]


async def test_a_dry_run_says_what_would_be_queued_and_queues_nothing(house: Served) -> None:
    before = await house.store.run(ops.count_jobs)
    answer = await house.post("/api/v1/batches", {**SWEEP, "dry_run": True})
    assert answer.status == 200
    assert (answer.value["total"], answer.value["mode"]) == (6, "matrix")
    assert answer.value["combinations"][0] == {"color": 1, "width": 32}
    assert answer.value["axes"][1] == {"name": "width", "places": ["1.width"], "values": [32, 64]}
    assert await house.store.run(ops.count_jobs) == before


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"set": {"colour": "1..3"}}, "set.colour"),
        ({"set": {"color": "1..0:0"}}, "set.color"),
        ({"set": {"color": "@secrets.txt"}}, "set.color"),
        ({"set": {"color": "@/etc/passwd"}}, "set.color"),
        ({"set": {"color": [1, 2], "width": [1, 2, 3]}, "mode": "linear"}, ""),
        ({"inputs": {"colour": 1}}, "inputs.colour"),
        ({"grid": {"x": "no-axis"}}, "grid.x"),
        ({"job_type": "SCULPTURE"}, "job_type"),
    ],
)
async def test_a_bad_definition_is_a_conflict_that_names_the_key_and_nothing_is_queued(
    house: Served, changes: dict[str, Any], key: str
) -> None:
    before = await house.store.run(ops.count_jobs)
    said = check_problem(await house.post("/api/v1/batches", {**SWEEP, **changes}), 409)
    assert any(each["key"].startswith(key) for each in said["errors"]), said
    assert "root:" not in str(said)
    assert await house.store.run(ops.count_jobs) == before


async def test_bad_values_can_be_left_out_with_a_warning(house: Served) -> None:
    said = {**SWEEP, "set": {"color": [1, "red", 3]}}
    check_problem(await house.post("/api/v1/batches", said), 409)
    made = await swept(house, set={"color": [1, "red", 3]}, skip_bad=True)
    assert made["total"] == 2
    assert any("red" in warning for warning in made["warnings"])


async def test_too_many_combinations_for_one_request_are_a_conflict(house: Served) -> None:
    many = {"color": "1..1000", "width": "16..1000"}
    said = check_problem(await house.post("/api/v1/batches", {**SWEEP, "set": many}), 409)
    assert "985,000 combinations; 100,000 is the most" in said["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"workflow": "picture"},
        {**SWEEP, "set": {}},
        {**SWEEP, "set": []},
        {**SWEEP, "mode": "diagonal"},
        {**SWEEP, "skip_bad": "yes"},
        {**SWEEP, "dry_run": 1},
        {**SWEEP, "surprise": 1},
        {**SWEEP, "priority": 2.5},
        {**SWEEP, "grid": {"z": "color"}},
    ],
)
async def test_a_sweep_that_does_not_follow_the_description_is_refused(house: Served, body: Any) -> None:
    check_problem(await house.post("/api/v1/batches", body), 422)


@pytest.mark.parametrize("workflow", ["nowhere", "workflows/picture.json", "picture.json", "/etc/passwd", "../picture"])
async def test_a_sweep_names_its_workflow_by_id_and_never_by_a_path(house: Served, workflow: str) -> None:
    said = check_problem(await house.post("/api/v1/batches", {**SWEEP, "workflow": workflow}), 404)
    assert str(house.workspace.root) not in str(said)


async def test_results_come_in_their_order_with_settings_and_files(house: Served) -> None:
    made = await swept(house)
    await work_off(house, made["id"], failing=2)
    page = (await house.get(f"/api/v1/batches/{made['id']}/results?limit=4")).value
    assert page["batch_id"] == made["id"]
    assert [each["index"] for each in page["results"]] == [0, 1, 2, 3]
    failed, *_, done = page["results"]
    assert (failed["status"], failed["failure_class"], failed["results"]) == ("failed", "execution", [])
    assert "no more paint" in failed["reason"]
    assert failed["settings"] == {"color": 1, "width": 32}
    assert (done["status"], done["reason"]) == ("done", None)
    assert opened((await house.get(done["results"][0]["url"])).body).size == (12, 8)
    rest = (await house.get(f"/api/v1/batches/{made['id']}/results?limit=4&cursor={page['next']}")).value
    assert [each["index"] for each in rest["results"]] == [4, 5]
    assert rest["next"] is None


async def test_a_batch_of_many_is_shown_without_its_jobs(house: Served) -> None:
    await queue(house.store, 1001, "crowd_1")
    shown = (await house.get("/api/v1/batches/crowd_1")).value
    assert (shown["total"], shown["jobs"]) == (1001, None)


async def test_a_batch_is_found_by_a_name_that_only_it_has(house: Served) -> None:
    made = await swept(house, name="unmistakable")
    assert (await house.get("/api/v1/batches/unmistakable")).value["id"] == made["id"]
    await swept(house, name="unmistakable")
    said = check_problem(await house.get("/api/v1/batches/unmistakable"), 409)
    assert made["id"] in said["remedy"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("GET", "/results", None),
        ("GET", "/grid", None),
        ("POST", "/grid", {}),
        ("POST", "/cancel", None),
        ("POST", "/retry", None),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
    ],
)
async def test_an_unknown_batch_is_not_found(house: Served, method: str, path: str, body: Any) -> None:
    said = check_problem(await house.ask(method, f"/api/v1/batches/nobody{path}", body), 404)
    assert "nobody" in said["detail"]


async def test_a_batch_is_paused_resumed_cancelled_and_retried_and_each_only_when_it_can_be(house: Served) -> None:
    made = await swept(house)
    address = f"/api/v1/batches/{made['id']}"
    check_problem(await house.post(f"{address}/resume"), 409)
    paused = await house.post(f"{address}/pause")
    assert (paused.status, paused.value["is_paused"]) == (202, True)
    assert not await house.lease(1, made["id"])
    again = await house.post(f"{address}/pause")
    assert (again.status, again.value["is_paused"]) == (202, True)
    resumed = await house.post(f"{address}/resume")
    assert (resumed.status, resumed.value["is_paused"]) == (202, False)
    said = check_problem(await house.post(f"{address}/retry"), 409)
    assert "nothing" in said["detail"]
    cancelled = await house.post(f"{address}/cancel")
    assert (cancelled.status, cancelled.value["status"], cancelled.value["failed"]) == (202, "cancelled", 6)
    check_problem(await house.post(f"{address}/cancel"), 409)
    check_problem(await house.post(f"{address}/pause"), 409)
    said = check_problem(await house.post(f"{address}/retry", {}), 409)
    assert "cancelled" in said["remedy"]
    retried = await house.post(f"{address}/retry", {"cancelled": True})
    assert (retried.status, retried.value["pending"], retried.value["generation"]) == (202, 6, 2)


async def test_failed_members_are_retried_and_what_is_done_stays(house: Served) -> None:
    made = await swept(house)
    await work_off(house, made["id"], failing=2)
    retried = await house.post(f"/api/v1/batches/{made['id']}/retry")
    assert retried.status == 202
    assert (retried.value["pending"], retried.value["done"], retried.value["status"]) == (2, 4, "active")


async def test_the_grid_is_drawn_when_asked_for_and_then_shown(house: Served) -> None:
    made = await swept(house)
    address = f"/api/v1/batches/{made['id']}/grid"
    check_problem(await house.get(address), 409)
    await work_off(house, made["id"])
    said = check_problem(await house.post(address, {"x": "no-axis"}), 409)
    assert "no-axis" in said["detail"]
    drawn = await house.post(address, {"x": "color", "y": "width", "cell": 64})
    assert drawn.status == 201, drawn.text
    assert drawn.value["pictures"][0].startswith("jobs/finished/")
    shown = await house.get(address)
    assert (shown.status, shown.headers["Content-Type"]) == (200, "image/png")
    assert opened(shown.body).width > 64
    jpeg = await house.post(address, {"format": "jpeg"})
    assert jpeg.status == 201
    assert (await house.get(address)).headers["Content-Type"] == "image/jpeg"


@pytest.mark.parametrize("grid", ["../outside.png", "/etc/passwd", "config/global_config.yaml", "gone.png"])
async def test_a_grid_that_a_hand_has_recorded_elsewhere_is_not_handed_out(house: Served, grid: str) -> None:
    made = await swept(house)
    batch = await house.store.run(ops.find_batch, made["id"])
    assert batch is not None
    await house.store.run(ops.note_grid, batch, grid)
    said = check_problem(await house.get(f"/api/v1/batches/{made['id']}/grid"), 404)
    assert str(house.workspace.root) not in str(said)


async def test_a_batch_that_is_still_being_filled_cannot_be_cancelled(house: Served) -> None:
    await house.store.run(ops.create_batch, NewBatch("half_1", "half", BatchKind.SWEEP), house.context.lock.worker)
    await house.store.run(ops.fill_batch, [wish("half_0", batch_id="half_1", batch_index=0)])
    said = check_problem(await house.post("/api/v1/batches/half_1/cancel"), 409)
    assert "still being queued" in said["detail"]


async def test_a_layout_that_does_not_follow_the_description_is_refused(house: Served) -> None:
    await queue(house.store, 1, "laid_out")
    bodies: list[Any] = [
        {"cell": 15},
        {"cell": 2049},
        {"cell": "64"},
        {"cell": 20.5},
        {"format": "gif"},
        {"x": 1},
        {"z": "a"},
        [],
    ]
    for body in bodies:
        check_problem(await house.post("/api/v1/batches/laid_out/grid", body), 422)


async def test_the_kind_of_batches_can_be_asked_for(house: Served) -> None:
    await queue(house.store, 1, "letters_1", kind=BatchKind.FILES)
    found = (await house.get("/api/v1/batches?kind=files")).value["batches"]
    assert [each["id"] for each in found] == ["letters_1"]
    check_problem(await house.get("/api/v1/batches?kind=letters"), 422)


async def test_one_that_goes_on_says_how_long_it_takes_by_what_was_measured(house: Served) -> None:
    made = await swept(house, name="foretold", priority=-2000)
    for _ in range(2):  # the first one had to load
        (leased,) = await house.lease(1, made["id"])
        await house.finish(leased, png((0, 0, 0)))
    await house.lease(1, made["id"])
    shown = f"/api/v1/batches/{made['id']}"
    assert 3 * 1.5 <= (await house.get(shown)).value["eta_seconds"] <= 4 * 1.5
    assert "eta_seconds" in (await house.get("/api/v1/status")).value
    listed = (await asyncio.to_thread(call_e3, "batch", "show", made["id"], "-C", str(house.workspace.root))).stdout
    assert re.search(r"2 of 6 done, about [56] s left$", listed, re.MULTILINE), listed
    await house.post(f"{shown}/pause")
    assert (await house.get(shown)).value["eta_seconds"] is None
    await house.post(f"{shown}/cancel")
