"""/api/v1/jobs: what is queued, what became of it, and changing that."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Digest
from support.pictures import opened, png
from support.web import SERVER, Served, check_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = {"Content-Type": "application/json"}
WISH = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 7}}


async def test_a_submitted_job_waits_under_its_name_and_is_found_where_the_answer_says(house: Served) -> None:
    answer = await house.post("/api/v1/jobs", {**WISH, "name": "knight", "priority": 3, "metadata": {"for": "anna"}})
    assert answer.status == 201
    assert (answer.value["config_name"], answer.value["status"], answer.value["priority"]) == ("knight", "pending", 3)
    assert answer.value["metadata"] == {"for": "anna"}
    assert answer.value["inputs"] == {"1.color": 7}
    shown = await house.get(answer.headers["Location"])
    assert {key: shown.value[key] for key in answer.value} == answer.value


async def test_a_job_without_a_name_gets_one_that_no_other_has(house: Served) -> None:
    names = {(await house.post("/api/v1/jobs", WISH)).value["config_name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("picture_") for name in names)


async def test_a_name_that_is_taken_is_a_conflict_and_the_first_job_stays_as_it_was(house: Served) -> None:
    first = (await house.post("/api/v1/jobs", {**WISH, "name": "only-one"})).value
    said = check_problem(await house.post("/api/v1/jobs", {**WISH, "name": "only-one", "priority": 1}), 409)
    assert "only-one" in said["detail"]
    assert (await house.get("/api/v1/jobs/only-one")).value["priority"] == first["priority"]


async def test_an_unknown_workflow_is_not_found_and_nothing_is_queued(house: Served) -> None:
    said = check_problem(await house.post("/api/v1/jobs", {**WISH, "workflow_id": "pictur", "name": "lost"}), 404)
    assert "pictur" in said["detail"]
    check_problem(await house.get("/api/v1/jobs/lost"), 404)


@pytest.mark.parametrize("path", ["picture.json", "workflows/picture.json", "../picture", "/etc/passwd"])
async def test_a_workflow_is_named_by_its_id_and_never_by_a_path(house: Served, path: str) -> None:
    said = check_problem(await house.post("/api/v1/jobs", {**WISH, "workflow_id": path}), 404)
    assert str(house.workspace.root) not in str(said)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"inputs": {"colour": 1}}, "inputs.colour"),
        ({"inputs": {"color": "red"}}, "inputs.color"),
        ({"outputs": {"node": "77"}}, "outputs.node"),
        ({"outputs": {"file_path": "../outside.png"}}, "outputs.file_path"),
        ({"outputs": {"file_path": "/etc/outside.png"}}, "outputs.file_path"),
        ({"outputs": {"file_path": "config/global_config.yaml"}}, "outputs.file_path"),
        ({"name": "ü" * 190}, "name"),
        ({"name": ".hidden"}, "name"),
    ],
)
async def test_values_that_do_not_fit_are_a_conflict_that_names_the_key(
    house: Served, changes: dict[str, Any], key: str
) -> None:
    before = await house.store.run(ops.count_jobs)
    said = check_problem(await house.post("/api/v1/jobs", {**WISH, **changes}), 409)
    assert key in [each["key"] for each in said["errors"]]
    assert await house.store.run(ops.count_jobs) == before


async def test_a_result_path_that_belongs_to_another_job_is_a_conflict(house: Served) -> None:
    place = {"outputs": {"file_path": "jobs/finished/image/mine.png"}}
    await house.post("/api/v1/jobs", {**WISH, **place, "name": "owner", "priority": -100})
    [leased] = await house.lease()
    await house.store.run(ops.claim_files, leased.lease, ["jobs/finished/image/mine.png"], 60)
    said = check_problem(await house.post("/api/v1/jobs", {**WISH, **place, "name": "thief"}), 409)
    assert "belongs to the job owner" in said["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"job_type": "T2I"},
        {**WISH, "job_type": "SCULPTURE"},
        {**WISH, "inputs": []},
        {**WISH, "priority": "soon"},
        {**WISH, "priority": 2**31},
        {**WISH, "timeout_seconds": 0},
        {**WISH, "retry_limit": -1},
        {**WISH, "surprise": 1},
        {**WISH, "name": "a/b"},
        {**WISH, "name": ""},
        {**WISH, "name": "12"},
        [],
        "job",
        7,
        None,
    ],
)
async def test_what_does_not_follow_the_description_is_refused_with_the_key(house: Served, body: Any) -> None:
    check_problem(await house.post("/api/v1/jobs", data=json.dumps(body), headers=JSON), 422)


async def test_a_job_is_shown_with_its_runs_its_results_and_its_workflow(house: Served) -> None:
    await house.job("painted", priority=-200)
    [leased] = await house.lease()
    await house.finish(leased, png((1, 2, 3), (640, 400)), png())
    shown = (await house.get("/api/v1/jobs/painted")).value
    assert (shown["status"], shown["duration"], shown["server"]) == ("done", 1.5, SERVER)
    [attempt] = shown["attempts"]
    assert (attempt["number"], attempt["outcome"], attempt["server"]) == (1, "done", SERVER)
    first, second = shown["results"]
    assert (first["number"], second["number"], first["media_type"]) == (1, 2, "image/png")
    picture = await house.get(first["url"])
    assert opened(picture.body).size == (640, 400)
    small = await house.get(first["thumbnail"])
    assert small.headers["Content-Type"] == "image/webp"
    assert opened(small.body).size == (320, 200)
    workflow = (await house.get("/api/v1/jobs/painted/workflow")).value
    assert workflow["workflow_id"] == "picture"
    assert workflow["prompt"]["1"]["class_type"] == "EmptyImage"
    assert workflow["inputs"] == {"1.color": 1}


async def test_a_result_says_what_it_was_when_it_was_published(house: Served) -> None:
    await house.job("digested", priority=-200)
    [leased] = await house.lease()
    content, path = png(), f"jobs/finished/image/result_{leased.lease.job_id}_1.png"
    digest = Digest(hashlib.sha256(content).hexdigest(), len(content))
    await house.store.run(ops.claim_files, leased.lease, [path], 60.0, {path: digest})
    await house.finish(leased, content, content)
    shown = (await house.get("/api/v1/jobs/digested")).value
    assert [(each["sha256"], each["bytes"]) for each in shown["results"]] == [(*vars(digest).values(),), (None, None)]
    assert (shown["seeds"], shown["models"], shown["from_cache"]) == ({}, [], False)
    answer = await house.get(shown["results"][0]["url"])
    said = base64.b64encode(hashlib.sha256(answer.body).digest()).decode()
    assert (answer.headers["ETag"], answer.headers["Repr-Digest"]) == (f'"{digest.sha256}"', f"sha-256=:{said}:")
    assert "Repr-Digest" not in (await house.get(shown["results"][1]["url"])).headers


async def test_a_failed_job_says_what_happened_in_each_run(house: Served) -> None:
    await house.job("broken", priority=-200)
    [leased] = await house.lease()
    await house.fail(leased, "the sampler ran dry")
    shown = (await house.get("/api/v1/jobs/broken")).value
    assert (shown["status"], shown["failure_class"]) == ("failed", "execution")
    assert "the sampler ran dry" in shown["error_trace"]
    assert shown["attempts"][0]["error"]["message"] == "the sampler ran dry"
    assert shown["results"] == []
    assert shown["live"] is None


async def test_a_file_that_is_not_there_is_not_found_and_a_preview_that_is_not_there_now_a_conflict(
    house: Served,
) -> None:
    await house.job("empty")
    for path, status in (("results/1", 404), ("results/1/thumbnail", 404), ("preview", 409)):
        said = check_problem(await house.get(f"/api/v1/jobs/empty/{path}"), status)
        assert "empty" in said["detail"]
    for number in ("0", "-1", "x", "99999999999"):
        check_problem(await house.get(f"/api/v1/jobs/empty/results/{number}"), 422)


async def test_a_job_that_a_hand_has_written_has_no_template_to_show(house: Served) -> None:
    await house.store.run(ops.submit_jobs, [NewJob("by-hand", "T2I", "picture")])
    check_problem(await house.get("/api/v1/jobs/by-hand/workflow"), 409)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PUT", "/priority", {"priority": 1}),
        ("POST", "/retry", None),
        ("POST", "/cancel", None),
        ("GET", "/results/1", None),
        ("GET", "/results/1/thumbnail", None),
        ("GET", "/preview", None),
        ("GET", "/workflow", None),
    ],
)
async def test_an_unknown_job_is_not_found(house: Served, method: str, path: str, body: Any) -> None:
    said = check_problem(await house.ask(method, f"/api/v1/jobs/nobody{path}", body), 404)
    assert "nobody" in said["detail"]


async def test_a_priority_is_set_for_what_waits_and_refused_for_what_is_done(house: Served) -> None:
    await house.job("bumped")
    answer = await house.put("/api/v1/jobs/bumped/priority", {"priority": -500})
    assert (answer.status, answer.value["config_name"], answer.value["priority"]) == (200, "bumped", -500)
    [leased] = await house.lease()
    assert leased.config_name == "bumped"
    await house.finish(leased)
    check_problem(await house.put("/api/v1/jobs/bumped/priority", {"priority": 1}), 409)


async def test_one_job_is_cancelled_and_retried_and_each_only_when_it_can_be(house: Served) -> None:
    await house.job("turned")
    check_problem(await house.post("/api/v1/jobs/turned/retry"), 409)
    cancelled = await house.post("/api/v1/jobs/turned/cancel")
    assert (cancelled.status, cancelled.value["failure_class"]) == (202, "cancelled")
    check_problem(await house.post("/api/v1/jobs/turned/cancel"), 409)
    retried = await house.post("/api/v1/jobs/turned/retry")
    assert (retried.status, retried.value["status"]) == (202, "pending")


async def test_an_answer_is_about_the_job_that_was_asked_for_even_if_another_is_called_like_its_id(
    house: Served,
) -> None:
    asked = await house.job("asked-for")
    await house.store.run(ops.submit_jobs, [NewJob(str(asked.id), "T2I", "picture")])
    for method, path, body in (("PUT", "priority", {"priority": 9}), ("POST", "cancel", None), ("POST", "retry", None)):
        answer = await house.ask(method, f"/api/v1/jobs/asked-for/{path}", body)
        assert answer.value["config_name"] == "asked-for"


async def test_several_jobs_are_cancelled_and_retried_and_each_is_reported(house: Served) -> None:
    jobs = [await house.job(f"several-{number}") for number in range(3)]
    names = ["several-0", str(jobs[1].id), "several-1", "nobody"]
    cancelled = await house.post("/api/v1/jobs/cancel", {"names": names})
    assert cancelled.status == 202
    assert cancelled.value["changed"] == ["several-0", "several-1"]
    assert [each["name"] for each in cancelled.value["refused"]] == ["nobody"]
    retried = await house.post("/api/v1/jobs/retry", {"names": ["several-0", "several-2"]})
    assert retried.value["changed"] == ["several-0"]
    assert [each["name"] for each in retried.value["refused"]] == ["several-2"]
    assert all(each["reason"] for each in retried.value["refused"])


async def test_all_that_failed_is_retried_but_not_what_was_cancelled(house: Served) -> None:
    await house.job("all-failed", priority=-900)
    [leased] = await house.lease()
    await house.fail(leased)
    await house.job("all-cancelled")
    await house.post("/api/v1/jobs/all-cancelled/cancel")
    answer = await house.post("/api/v1/jobs/retry", {"failed": True})
    assert answer.status == 202
    assert "all-failed" in answer.value["changed"]
    assert "all-cancelled" not in answer.value["changed"]
    assert (await house.get("/api/v1/jobs/all-cancelled")).value["status"] == "failed"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"failed": False},
        {"names": []},
        {"names": ["x"], "failed": True},
        {"names": ["x"], "failed": False},
        {"names": "x"},
        {"names": [1]},
        {"failed": 1},
        {"failed": "true"},
    ],
)
async def test_which_jobs_to_retry_is_said_in_one_way(house: Served, body: Any) -> None:
    check_problem(await house.post("/api/v1/jobs/retry", body), 422)


async def failed_job(house: Served, name: str) -> int:
    job = await house.job(name, priority=-1_000)
    [leased] = await house.lease()
    assert leased.config_name == name
    await house.fail(leased)
    return job.id


async def test_a_dismissed_job_needs_no_attention_and_is_still_there(house: Served) -> None:
    await house.post("/api/v1/jobs/dismiss", {"failed": True})
    job_id = await failed_job(house, "dismissed-one")
    before = (await house.get("/api/v1/status")).value["counts"]
    answer = await house.post("/api/v1/jobs/dismissed-one/dismiss")
    assert (answer.status, answer.value["status"], answer.value["id"]) == (202, "failed", job_id)
    assert answer.value["dismissed_at"]
    after = (await house.get("/api/v1/status")).value
    assert (before["attention"], after["counts"]["attention"], after["counts"]["failed"]) == (1, 0, before["failed"])
    assert "attention" not in after["sentence"]
    assert (await house.get("/api/v1/jobs?attention=true")).value["jobs"] == []
    aside = (await house.get("/api/v1/jobs?attention=false")).value["jobs"]
    assert job_id in [job["id"] for job in aside]
    page = (await house.get("/")).body.decode()
    assert "dismissed-one" not in page
    assert "Nothing. All is well." in page
    assert "Dismissed" in (await house.get(f"/jobs/{job_id}")).body.decode()
    retried = await house.post("/api/v1/jobs/dismissed-one/retry")
    assert (retried.value["status"], retried.value["dismissed_at"]) == ("pending", None)
    check_problem(await house.post("/api/v1/jobs/dismissed-one/dismiss"), 409)
    await house.post("/api/v1/jobs/dismissed-one/cancel")


async def test_what_was_cancelled_is_in_no_count_and_no_sentence(house: Served) -> None:
    await house.post("/api/v1/jobs/dismiss", {"failed": True})
    await house.job("on-purpose")
    await house.post("/api/v1/jobs/on-purpose/cancel")
    status = (await house.get("/api/v1/status")).value
    assert status["counts"]["attention"] == 0
    for address in ("/", "/queue", "/admin", "/batches"):
        page = (await house.get(address)).body.decode()
        sentence = page.partition('id="sentence"')[2].partition("</")[0]
        assert "attention" not in sentence or "0 jobs need attention" in sentence, address
    metrics = (await house.get("/metrics")).body.decode()
    assert "e3_jobs_needing_attention 0.0" in metrics


async def test_several_are_dismissed_and_each_is_reported(house: Served) -> None:
    await failed_job(house, "dismissed-two")
    await house.job("still-waits")
    answer = await house.post("/api/v1/jobs/dismiss", {"names": ["dismissed-two", "still-waits", "nobody"]})
    assert (answer.status, answer.value["changed"]) == (202, ["dismissed-two"])
    assert [each["name"] for each in answer.value["refused"]] == ["still-waits", "nobody"]
    check_problem(await house.post("/api/v1/jobs/dismiss", {"names": ["x"], "failed": True}), 422)
    await house.post("/api/v1/jobs/still-waits/cancel")


async def test_an_ended_job_is_removed_and_its_results_stay(house: Served) -> None:
    await house.job("removed-one", priority=-1_000)
    check_problem(await house.post("/api/v1/jobs/removed-one/remove"), 409)
    [leased] = await house.lease()
    check_problem(await house.post("/api/v1/jobs/removed-one/remove"), 409)
    [path] = await house.finish(leased)
    answer = await house.post("/api/v1/jobs/removed-one/remove")
    assert (answer.status, answer.value) == (200, {"removed": "removed-one", "results": [path]})
    assert (house.workspace.root / path).is_file()
    check_problem(await house.get("/api/v1/jobs/removed-one"), 404)


async def test_what_was_sent_is_reported_with_the_model_and_the_values(house: Served) -> None:
    job = await house.job("sent-one", priority=-1_000)
    before = (await house.get("/api/v1/jobs/sent-one/workflow")).value
    assert (before["sent"], before["filled"]["1"]["inputs"]["color"]) == (None, 1)
    assert "as it would be sent" in (await house.get(f"/jobs/{job.id}")).body.decode()
    [leased] = await house.lease()
    sent = {"2.filename_prefix": "e3_x/0/1", "1.ckpt_name": "dream.safetensors"}
    lease = replace(leased.lease, sent=json.dumps(sent))
    await house.store.run(ops.complete_job, lease, [], 1.0)
    after = (await house.get("/api/v1/jobs/sent-one/workflow")).value
    assert after["sent"] == sent
    assert after["filled"]["1"]["inputs"]["ckpt_name"] == "dream.safetensors"
    shown = (await house.get("/api/v1/jobs/sent-one")).value
    assert (shown["models"], shown["attempts"][0]["sent"]) == (["dream.safetensors"], sent)
    assert [(each["place"], each["value"]) for each in shown["given"]] == [("1.color", 1)]
    page = (await house.get(f"/jobs/{job.id}")).body.decode()
    assert "as it was sent" in page
    assert "dream.safetensors" in page
