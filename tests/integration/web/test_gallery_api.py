"""The gallery, ratings and exports over HTTP."""

from __future__ import annotations

import csv
import io
from zipfile import ZipFile

import pytest
from PIL import Image

from comfyui_agent.domain.jobs import Job
from comfyui_agent.store import operations as ops
from support.pictures import png
from support.web import Served, check_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

RED, BLUE = png((255, 0, 0)), png((0, 0, 255))
EXPORT = "/api/v1/results/export"


async def result(house: Served, name: str, *pictures: bytes) -> Job:
    """A job that is done."""
    job = await house.job(name, priority=1)
    [leased] = await house.lease()
    assert leased.lease.job_id == job.id
    await house.finish(leased, *pictures)
    return job


async def shown(house: Served, question: str = "") -> list[str]:
    """The names that the gallery shows, in their order."""
    page = (await house.get(f"/gallery{question}")).text
    return [part.partition('"')[0] for part in page.split('data-name="')[1:]]


async def test_a_star_and_a_rejection_are_shown_and_can_be_taken_back(house: Served) -> None:
    for name in ("liked", "disliked"):
        await result(house, name)
    rated = await house.put("/api/v1/jobs/liked/rating", {"rating": "star"})
    assert (rated.status, rated.value["rating"]) == (200, 1)
    said = await house.post("/api/v1/jobs/rate", {"names": ["disliked", "nobody"], "rating": "reject"})
    assert said.value == {
        "changed": ["disliked"],
        "refused": [{"name": "nobody", "reason": "there is no such job"}],
    }
    assert await shown(house, "?show=starred") == ["liked"]
    assert await shown(house, "?show=rejected") == ["disliked"]
    assert "disliked" not in await shown(house)
    assert {"liked", "disliked"} <= set(await shown(house, "?show=all"))
    listed = (await house.get("/api/v1/jobs?rated=starred")).value["jobs"]
    assert [job["config_name"] for job in listed] == ["liked"]
    for name in ("liked", "disliked"):
        assert (await house.put(f"/api/v1/jobs/{name}/rating", {"rating": None})).value["rating"] is None
    assert await shown(house, "?show=starred") == []


async def test_what_has_no_result_is_not_rated(house: Served) -> None:
    job = await house.job("waits", priority=90)
    said = check_problem(await house.put("/api/v1/jobs/waits/rating", {"rating": "star"}), 409)
    assert "it waits already" in said["detail"]
    for wrong in ({"rating": 1}, {"rating": "good"}, {}):
        check_problem(await house.put("/api/v1/jobs/waits/rating", wrong), 422)
    await house.store.run(ops.cancel_jobs, [job.id])


async def test_the_gallery_goes_on_by_cursor_and_says_what_is_wrong_with_a_question(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comfyui_agent.web.pages.gallery.AT_ONCE", 2)
    names = [f"part-{number}" for number in range(5)]
    for name in names:
        await result(house, name)
    found: list[str] = []
    question = ""
    while len(found) < 5:
        page = (await house.get(f"/gallery{question}")).text
        found += [part.partition('"')[0] for part in page.split('data-name="')[1:]]
        question = page.partition('class="gallery-next" hx-get="/gallery')[2].partition('"')[0]
    assert found[:5] == names[::-1]
    for wrong in ("?since=yesterday", "?until=0001-01-01", "?show=some", "?cursor=x"):
        check_problem(await house.get(f"/gallery{wrong}"), 404)
    assert "No result is like that." in (await house.get("/gallery?since=2150-01-01")).text
    check_problem(await house.get("/api/v1/jobs?since=soon"), 422)


async def test_a_zip_has_every_file_under_a_name_of_its_own_and_a_table(house: Served) -> None:
    two = await result(house, "two-files", RED, BLUE)
    gone = await result(house, "gone")
    await house.job("same-name", priority=1)
    [leased] = await house.lease()
    same = house.workspace.root / "jobs/finished/image/other" / f"result_{two.id}_1.png"
    same.parent.mkdir()
    same.write_bytes(BLUE)
    await house.store.run(ops.complete_job, leased.lease, [same.relative_to(house.workspace.root).as_posix()], 1.0)
    (house.workspace.root / f"jobs/finished/image/result_{gone.id}_1.png").unlink()
    answer = await house.post(EXPORT, {"names": ["two-files", str(gone.id), "same-name"], "as": "zip"})
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/zip")
    with ZipFile(io.BytesIO(answer.body)) as archive:
        assert archive.testzip() is None
        found = {name: archive.read(name) for name in archive.namelist()}
    rows = list(csv.DictReader(io.StringIO(found.pop("results.csv").decode())))
    first, second, third = (f"result_{two.id}_{end}.png" for end in ("1", "2", "1_2"))
    assert found == {first: RED, second: BLUE, third: BLUE}
    expected = [("two-files", first), ("two-files", second), ("gone", ""), ("same-name", third)]
    assert [(row["name"], row["path"]) for row in rows] == expected


async def test_a_sheet_is_one_picture_of_what_has_a_star(house: Served) -> None:
    names = ["sheet-1", "sheet-2"]
    for name in names:
        await result(house, name)
    await house.post("/api/v1/jobs/rate", {"names": names, "rating": "star"})
    answer = await house.post(EXPORT, {"starred": True, "as": "sheet"})
    assert (answer.status, answer.headers["Content-Type"]) == (200, "image/png")
    with Image.open(io.BytesIO(answer.body)) as sheet:
        assert sheet.width > sheet.height, "two beside each other"
    await house.post("/api/v1/jobs/rate", {"names": names, "rating": None})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"names": ["x"], "starred": True}, 422),
        ({"names": ["x"] * 2_001}, 422),
        ({"names": ["x"], "as": "pdf"}, 422),
        ({"names": ["nobody"]}, 404),
        ({"batch": "nobody"}, 404),
        ({"starred": True}, 409),
    ],
)
async def test_what_cannot_be_exported_is_a_problem_that_says_so(house: Served, body: object, status: int) -> None:
    check_problem(await house.post(EXPORT, body), status)
