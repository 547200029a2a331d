"""Whoever has an answer already is told so in a line."""

from __future__ import annotations

import pytest

from support.web import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOOK = {"book_id": "tagged", "workflow": "picture", "pages": [{"inputs": {"color": 1}}]}
SWEEP = {"name": "tagged", "workflow": "picture", "set": {"color": "1"}}


async def test_an_answer_that_did_not_change_is_not_sent_again(house: Served) -> None:
    await house.post("/api/v1/books", BOOK)
    batch = (await house.post("/api/v1/batches", SWEEP)).value["id"]
    await house.job("tagged", priority=-400)
    [leased] = await house.lease()
    lists = ["jobs", "batches", "books", "workflows", "inputs"]
    for path in [*lists, "jobs/tagged", f"batches/{batch}", "books/tagged", "workflows/picture", "jobs/tagged/takes"]:
        first = await house.get(f"/api/v1/{path}")
        known = {"If-None-Match": f'W/"other", {first.headers["ETag"]}'}
        again = await house.get(f"/api/v1/{path}", headers=known)
        assert (first.status, again.status, again.body) == (200, 304, b""), path
        assert again.headers["ETag"] == first.headers["ETag"]
        other = await house.get(f"/api/v1/{path}", headers={"If-None-Match": '"other"'})
        assert (other.status, other.body) == (200, first.body)
    before = (await house.get("/api/v1/jobs/tagged")).headers["ETag"]
    await house.finish(leased)
    after = await house.get("/api/v1/jobs/tagged", headers={"If-None-Match": before})
    assert (after.status, after.value["status"]) == (200, "done")
    assert after.headers["ETag"] != before
    unknown = await house.get("/api/v1/jobs/nobody", headers={"If-None-Match": "*"})
    assert unknown.status == 404
    file = await house.get(after.value["results"][0]["url"], headers={"If-None-Match": '""'})
    assert file.status == 200
