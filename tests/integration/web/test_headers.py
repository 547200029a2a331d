"""What every answer carries, so that a browser does no more than it should: pages, files, problems and streams."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from comfyui_agent.comfy.content import MEDIA_TYPES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.web.guard import POLICY
from comfyui_agent.web.outputs import ResultFile
from support.pictures import png
from support.stores import intercept
from support.web import Answer, Served, check_problem, served, watching

pytestmark = pytest.mark.asyncio(loop_scope="module")

PEOPLE = {"Accept": "text/html,*/*;q=0.8"}
ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gallery(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A job with a picture, a page with scripts in it and a drawing with scripts in it."""
    async with served(tmp_path_factory.mktemp("gallery")) as house:
        await house.job("painted")
        [leased] = await house.lease()
        page, drawing = (
            b"<html><script>alert(1)</script>",
            b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        )
        await house.finish(leased, png(size=(400, 300)), page, drawing)
        yield house


def check_headers(answer: Answer) -> str:
    """Its policy."""
    for name, value in ALWAYS.items():
        assert answer.headers[name] == value, name
    assert answer.headers["Cache-Control"]
    assert "camera=()" in answer.headers["Permissions-Policy"]
    assert "Server" not in answer.headers
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    return policy


@pytest.mark.parametrize(
    "path", ["/", "/queue", "/jobs/1", "/books", "/new", "/admin", "/login", "/api/v1/jobs", "/metrics"]
)
async def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing_that_stands_in_it(
    gallery: Served, path: str
) -> None:
    answer = await gallery.get(path, headers=PEOPLE)
    assert answer.status == 200
    policy = check_headers(answer)
    assert policy == POLICY
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy
    assert answer.headers["Cache-Control"] == "no-store"


async def test_only_the_page_of_the_document_may_have_styles_in_it_and_no_scripts(gallery: Served) -> None:
    policy = check_headers(await gallery.get("/docs"))
    assert "style-src 'self' 'unsafe-inline'" in policy
    assert "script-src 'self';" in policy
    assert policy.count("unsafe") == 1


@pytest.mark.parametrize(
    ("method", "path", "status", "options"),
    [
        ("GET", "/nowhere", 404, {}),
        ("GET", "/api/v1/jobs/nobody", 404, {}),
        ("DELETE", "/api/v1/jobs", 405, {}),
        ("POST", "/api/v1/jobs", 400, {"data": b"{", "headers": {"Content-Type": "application/json"}}),
        ("POST", "/api/v1/jobs", 403, {"headers": {"Origin": "http://evil.example"}}),
        ("POST", "/api/v1/jobs", 415, {"data": b"{}", "headers": {"Content-Type": "text/plain"}}),
        ("POST", "/api/v1/jobs", 422, {"data": b"{}", "headers": {"Content-Type": "application/json"}}),
        ("GET", "/api/v1/jobs/painted/results/1", 416, {"headers": {"Range": "bytes=999999-"}}),
        ("GET", "/", 403, {"headers": {"Host": "evil.example"}}),
    ],
)
async def test_problems_carry_them_too_for_programs_and_for_people(
    gallery: Served, method: str, path: str, status: int, options: dict[str, dict[str, str]]
) -> None:
    answer = await gallery.ask(method, path, **options)
    check_problem(answer, status)
    assert check_headers(answer) == POLICY
    people = await gallery.ask(method, path, **{**options, "headers": {**options.get("headers", {}), **PEOPLE}})
    assert people.status == status
    assert check_headers(people) == POLICY
    is_page = not path.startswith("/api/")
    assert people.headers["Content-Type"].startswith("text/html" if is_page else "application/problem+json")


async def test_a_fault_of_e3_itself_is_a_problem_like_any_other_and_says_nothing_of_its_inside(
    gallery: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret of the inside")

    intercept(monkeypatch, gallery.store, ops.job_page, fails)
    answer = await gallery.get("/api/v1/jobs")
    said = check_problem(answer, 500)
    assert check_headers(answer) == POLICY
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "log" in said["remedy"]
    assert "a secret of the inside" in caplog.text, "the log says what it was"
    page = await gallery.get("/queue", headers=PEOPLE)
    assert (page.status, page.headers["Content-Type"]) == (500, "text/html; charset=utf-8")
    assert "secret" not in page.text
    check_headers(page)


async def test_a_database_that_is_away_is_reported_to_people_on_a_page(
    gallery: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise DatabaseAway("the database is locked")

    intercept(monkeypatch, gallery.store, ops.job_page, away)
    page = await gallery.get("/queue", headers=PEOPLE)
    assert (page.status, page.headers["Content-Type"]) == (503, "text/html; charset=utf-8")
    assert "the database is locked" in page.text.lower()
    check_headers(page)


async def test_a_picture_is_shown_where_nothing_in_it_can_run(gallery: Served) -> None:
    answer = await gallery.get("/api/v1/jobs/painted/results/1")
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.headers["Content-Disposition"].startswith("inline;")
    assert check_headers(answer) == "sandbox; default-src 'none'"
    assert answer.headers["Cache-Control"].startswith("private")


@pytest.mark.parametrize("number", [2, 3])
async def test_a_result_that_could_run_something_is_handed_out_to_be_saved(gallery: Served, number: int) -> None:
    answer = await gallery.get(f"/api/v1/jobs/painted/results/{number}")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment;")
    assert check_headers(answer) == "sandbox; default-src 'none'"


async def test_a_file_that_goes_away_while_it_is_asked_for_is_not_found(
    gallery: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*_: object) -> ResultFile:
        return ResultFile(gallery.workspace.root / "gone.png", "image/png", "1", "gone.png")

    monkeypatch.setattr(gallery.context.outputs, "find", found)
    said = check_problem(await gallery.get("/api/v1/jobs/painted/results/1"), 404)
    assert str(gallery.workspace.root) not in str(said)


async def test_an_address_of_a_thumbnail_that_changes_with_its_picture_is_kept_for_ever(gallery: Served) -> None:
    [first, *_] = (await gallery.get("/api/v1/jobs/painted")).value["results"]
    answer = await gallery.get(first["thumbnail"])
    assert answer.headers["Content-Type"] == "image/webp"
    assert "immutable" in answer.headers["Cache-Control"]
    assert "private" in answer.headers["Cache-Control"]
    check_headers(answer)
    path = gallery.workspace.root / (await gallery.get("/api/v1/jobs/painted")).value["outputs"][0]
    path.write_bytes(png((9, 9, 9), (500, 300)))
    [changed, *_] = (await gallery.get("/api/v1/jobs/painted")).value["results"]
    assert changed["thumbnail"] != first["thumbnail"]


async def test_files_that_come_with_e3_are_kept_for_ever_at_addresses_that_change_with_them(gallery: Served) -> None:
    page = (await gallery.get("/")).text
    assert "/assets/e3.css?v=" in page
    answer = await gallery.get("/assets/e3.css?v=1")
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Type"].startswith("text/css")
    check_headers(answer)
    assert (await gallery.get("/assets/vendor/README.md")).status == 404


@pytest.mark.parametrize("path", ["/api/v1/events", "/stream?page=/"])
async def test_streams_carry_them_too(gallery: Served, path: str) -> None:
    async with watching(gallery, path) as stream:
        headers = stream.response.headers
        assert headers["Content-Type"].startswith("text/event-stream")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"] == POLICY
        assert headers["Cache-Control"] == "no-store"


async def test_every_kind_of_result_that_is_handed_out_stands_in_the_document(gallery: Served) -> None:
    document = (await gallery.get("/openapi.json")).value
    route = document["paths"]["/api/v1/jobs/{name}/results/{number}"]["get"]
    described = {kind.removesuffix("*") for kind in route["responses"]["200"]["content"]}
    for kind in {*MEDIA_TYPES.values(), "application/octet-stream"}:
        assert any(kind.startswith(each) for each in described), kind
