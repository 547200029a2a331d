"""/api/v1/books, and the two routes of books at the root that other programs rely on."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.store import operations as ops
from support.store_batches import queue
from support.web import Keys, Served, bearer, check_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

BADGES = ("Pending", "Rendering", "Needs attention", "Done")
REGENERATE = ("/books", "/api/v1/books")


def book(book_id: str, pages: int = 3, **changes: Any) -> dict[str, Any]:
    each = [{"inputs": {"color": number}} for number in range(1, pages + 1)]
    return {"book_id": book_id, "title": "Winter", "workflow": "picture", "pages": each, "priority": -1000, **changes}


async def told(house: Served, book_id: str, states: str, **headers: Any) -> None:
    """A book whose pages are done (d), failed (f), rendering (r), cancelled (c) or waiting (w), one letter each."""
    said = book(book_id, len(states), **({"priority": 50} if headers else {}))  # users cannot be first
    answer = await house.post("/api/v1/books", said, **headers)
    assert answer.status == 201, answer.text
    count = len(states.rstrip("wc"))
    for letter, leased in zip(states, await house.lease(count, book_id) if count else [], strict=False):
        if letter == "d":
            await house.finish(leased)
        elif letter == "f":
            await house.fail(leased, "no more paint")
    cancelled = [name for name, letter in zip(await names(house, book_id), states, strict=True) if letter == "c"]
    if cancelled:
        await house.post("/api/v1/jobs/cancel", {"names": cancelled}, **headers)


async def names(house: Served, book_id: str) -> list[str]:
    return [job.config_name async for job in ops.batch_members(house.store, book_id)]


async def badges(house: Served, book_id: str) -> list[str]:
    return [page["status"] for page in await house.store.run(ops.book_pages, book_id)]


async def test_a_book_is_queued_page_by_page_and_found_where_the_answer_says(house: Served) -> None:
    answer = await house.post("/api/v1/books", book("winter", 3))
    assert answer.status == 201
    assert answer.headers["Location"] == "/api/v1/books/winter"
    made = answer.value
    assert (made["id"], made["kind"], made["total"]) == ("winter", "book", 3)
    assert [(page["page"], page["status"]) for page in made["pages"]] == [(n, "Pending") for n in (1, 2, 3)]
    assert (await house.get("/api/v1/books/winter")).value == made
    listed = (await house.get("/api/v1/books")).value["books"]
    assert "winter" in [each["id"] for each in listed]


async def test_a_book_without_an_id_gets_one_from_its_title(house: Served) -> None:
    answer = await house.post("/api/v1/books", {**book("x"), "book_id": None, "title": "Summer Tales"})
    assert answer.value["id"].startswith("Summer_Tales_")


async def test_every_page_is_shown_with_its_badge_and_what_went_wrong(house: Served) -> None:
    await told(house, "states", "dfrw")
    pages = (await house.get("/api/v1/books/states")).value["pages"]
    assert [page["status"] for page in pages] == ["Done", "Needs attention", "Rendering", "Pending"]
    assert pages[1]["image_error"][0]["message"] == "no more paint"
    assert len(pages[1]["job_metadata"]["prompt_ids"]) == 1


async def test_an_id_that_is_taken_is_a_conflict(house: Served) -> None:
    await house.post("/api/v1/books", book("taken"))
    said = check_problem(await house.post("/api/v1/books", book("taken", 5)), 409)
    assert "taken" in said["detail"]
    assert len(await badges(house, "taken")) == 3


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"pages": [{"inputs": {"colour": 1}}]}, "page 1: inputs.colour"),
        ({"inputs": {"width": "wide"}}, "inputs.width"),
        ({"workflow": ""}, "workflow"),
        ({"workflow": "nowhere"}, "workflow"),
        ({"workflow": "workflows/picture.json"}, "workflow"),
        ({"workflow": "/etc/passwd"}, "workflow"),
        ({"pages": [{"workflow": "../picture"}]}, "page 1: workflow"),
    ],
)
async def test_a_book_that_does_not_fit_is_a_conflict_that_names_the_key_and_nothing_is_queued(
    house: Served, changes: dict[str, Any], key: str
) -> None:
    before = await house.store.run(ops.count_jobs)
    said = check_problem(await house.post("/api/v1/books", {**book("unfit"), **changes}), 409)
    assert key in [each["key"] for each in said["errors"]], said
    assert str(house.workspace.root) not in str(said)
    assert await house.store.run(ops.count_jobs) == before
    check_problem(await house.get("/api/v1/books/unfit"), 404)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"title": "no pages"},
        book("empty", 0),
        book("../winter"),
        book("a/b"),
        book(".hidden"),
        book("x" * 101),
        book("wrong", pages=2, title=7),
        {**book("wrong"), "pages": {"1": {}}},
        {**book("wrong"), "pages": [None]},
        {**book("wrong"), "surprise": 1},
    ],
)
async def test_a_book_that_does_not_follow_the_description_is_refused(house: Served, body: Any) -> None:
    check_problem(await house.post("/api/v1/books", body), 422)


@pytest.mark.parametrize("root", REGENERATE)
async def test_the_failed_pages_are_rendered_again_and_named(house: Served, root: str) -> None:
    book_id = f"again{len(root)}"
    await told(house, book_id, "dffd")
    answer = await house.post(f"{root}/{book_id}/regenerate")
    assert answer.status == 202
    assert answer.value == {"book_id": book_id, "pages": [2, 3]}
    assert await badges(house, book_id) == ["Done", "Pending", "Pending", "Done"]


@pytest.mark.parametrize("root", REGENERATE)
async def test_some_of_the_failed_pages_can_be_named(house: Served, root: str) -> None:
    book_id = f"some{len(root)}"
    await told(house, book_id, "dffd")
    answer = await house.post(f"{root}/{book_id}/regenerate", {"pages": [3, 3]})
    assert (answer.status, answer.value) == (202, {"book_id": book_id, "pages": [3]})
    said = check_problem(await house.post(f"{root}/{book_id}/regenerate", {"pages": [1]}), 409)
    assert "has not failed" in said["detail"]
    check_problem(await house.post(f"{root}/{book_id}/regenerate", {"pages": [9]}), 404)


async def test_while_pages_render_and_none_has_failed_it_is_a_conflict(house: Served) -> None:
    await told(house, "busy", "drw")
    said = check_problem(await house.post("/books/busy/regenerate"), 409)
    assert "2 are still to come" in said["detail"]
    said = check_problem(await house.post("/books/busy/regenerate", {"pages": [2]}), 409)
    assert "is rendering" in said["detail"]


async def test_failed_pages_that_are_rendered_again_are_a_conflict_until_they_have_ended(house: Served) -> None:
    await told(house, "twice", "df")
    assert (await house.post("/books/twice/regenerate")).status == 202
    check_problem(await house.post("/books/twice/regenerate"), 409)


async def test_a_book_that_is_done_has_no_pages_to_render_again(house: Served) -> None:
    await told(house, "perfect", "dd")
    said = check_problem(await house.post("/books/perfect/regenerate"), 409)
    assert said["detail"] == "no page of perfect needs attention"
    assert said["remedy"] == "Name a page to render it all the same."


async def test_a_cancelled_page_is_rendered_again_only_by_its_number(house: Served) -> None:
    await told(house, "stopped", "dc")
    said = check_problem(await house.post("/books/stopped/regenerate"), 409)
    assert (said["detail"], said["remedy"]) == ("no page of stopped has failed; some were cancelled", "Name one.")
    assert (await house.post("/books/stopped/regenerate", {"pages": [2]})).value["pages"] == [2]


@pytest.mark.parametrize("root", REGENERATE)
async def test_an_unknown_book_is_not_found(house: Served, root: str) -> None:
    said = check_problem(await house.post(f"{root}/nobody/regenerate"), 404)
    assert "nobody" in said["detail"]
    check_problem(await house.get("/api/v1/books/nobody"), 404)
    check_problem(await house.post("/admin/books/nobody/regenerate-page/1"), 404)


async def test_a_sweep_is_no_book(house: Served) -> None:
    await queue(house.store, 1, "sweep_1", kind=BatchKind.SWEEP)
    check_problem(await house.get("/api/v1/books/sweep_1"), 404)
    check_problem(await house.post("/books/sweep_1/regenerate"), 404)


async def test_an_admin_has_any_page_rendered_again_as_it_was(house: Served) -> None:
    await told(house, "anyone", "dd")
    answer = await house.post("/admin/books/anyone/regenerate-page/2")
    assert (answer.status, answer.value) == (202, {"book_id": "anyone", "pages": [2]})
    assert await badges(house, "anyone") == ["Done", "Pending"]


async def test_an_admin_has_a_page_rendered_again_with_other_inputs_and_the_others_stay(house: Served) -> None:
    await told(house, "changed", "dd")
    answer = await house.post("/admin/books/changed/regenerate-page/1", {"inputs": {"width": 128}})
    assert answer.status == 202
    job = (await house.get(f"/api/v1/jobs/{(await names(house, 'changed'))[0]}")).value
    assert job["inputs"] == {"1.color": 1, "1.width": 128}


@pytest.mark.parametrize("inputs", [{"colour": 1}, {"width": "wide"}])
async def test_inputs_that_do_not_fit_the_page_are_a_conflict_and_it_stays_as_it_was(
    house: Served, inputs: dict[str, Any]
) -> None:
    book_id = f"unfit{len(str(inputs))}"
    await told(house, book_id, "d")
    check_problem(await house.post(f"/admin/books/{book_id}/regenerate-page/1", {"inputs": inputs}), 409)
    assert await badges(house, book_id) == ["Done"]


async def test_a_page_that_renders_or_is_not_there_cannot_be_rendered_again(house: Served) -> None:
    await told(house, "half", "drw")
    check_problem(await house.post("/admin/books/half/regenerate-page/2"), 409)
    check_problem(await house.post("/admin/books/half/regenerate-page/3"), 409)
    said = check_problem(await house.post("/admin/books/half/regenerate-page/4"), 404)
    assert said["remedy"] == "It has 3 pages: name one of them."
    for page in ("0", "-1", "one", "1.5", "99999999999999999999"):
        check_problem(await house.post(f"/admin/books/half/regenerate-page/{page}"), 422)


async def test_a_request_for_a_page_that_does_not_follow_the_description_is_refused(house: Served) -> None:
    await told(house, "unread", "f")
    bodies: list[Any] = [{"inputs": []}, {"new_seed": "yes"}, {"new_seed": 1}, {"pages": [1]}, [], 7]
    for body in bodies:
        check_problem(await house.post("/admin/books/unread/regenerate-page/1", body), 422)


async def test_pages_that_do_not_follow_the_description_are_refused(house: Served) -> None:
    await told(house, "unasked", "f")
    bodies: list[Any] = [{"pages": []}, {"pages": [0]}, {"pages": ["1"]}, {"pages": [True]}, {"page": 1}]
    for body in bodies:
        check_problem(await house.post("/books/unasked/regenerate", body), 422)


async def test_a_user_regenerates_what_failed_and_only_an_admin_any_page(locked_house: tuple[Served, Keys]) -> None:
    house, keys = locked_house
    user, admin = {"headers": bearer(keys.user)}, {"headers": bearer(keys.admin)}
    await told(house, "shared", "df", **user)
    for root in ("", "/api/v1"):
        said = check_problem(await house.post(f"{root}/admin/books/shared/regenerate-page/1", {}, **user), 403)
        assert "admin" in said["detail"]
    assert await badges(house, "shared") == ["Done", "Needs attention"]
    assert (await house.post("/books/shared/regenerate", **user)).value == {"book_id": "shared", "pages": [2]}
    answer = await house.post("/admin/books/shared/regenerate-page/1", {"inputs": {"color": 9}}, **admin)
    assert (answer.status, answer.value) == (202, {"book_id": "shared", "pages": [1]})
