"""How much one caller may ask for: requests a minute, and open jobs; others are not slowed down by it."""

from __future__ import annotations

from pathlib import Path

from comfyui_agent.domain.tokens import Role
from comfyui_agent.store import operations as ops
from support.web import Served, bearer, check_problem, served

JOB = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 1}}
SWEEP = {"name": "knights", "workflow": "picture", "set": {"color": "1..3"}}
BOOK = {"workflow": "picture", "pages": [{"inputs": {"color": number}} for number in range(3)]}


async def test_each_token_has_so_many_changes_and_reads_a_minute_and_probes_are_free(tmp_path: Path) -> None:
    async with served(tmp_path / "house", changes_per_minute=3, reads_per_minute=5) as page:
        secret = await page.token(Role.USER, "ann")
        ann, bob = bearer(secret), bearer(await page.token(Role.USER, "bob"))
        made = [await page.post("/api/v1/jobs", JOB, headers=ann) for _ in range(4)]
        assert [answer.status for answer in made] == [201, 201, 201, 429]
        said = check_problem(made[-1], 429)
        assert "3 changes a minute" in said["detail"]
        assert 1 <= int(made[-1].headers["Retry-After"]) <= 20
        login = await page.form(token=secret)
        assert (login.status, "Set-Cookie" in login.headers) == (429, False), "to log in is a change, too"
        looked = [(await page.get("/api/v1/me", headers=ann)).status for _ in range(6)]
        assert looked == [200] * 5 + [429]
        assert (await page.get("/", headers={**ann, "Accept": "text/html"})).status == 429
        assert (await page.post("/api/v1/jobs", JOB, headers=bob)).status == 201
        assert [(await page.get("/healthz")).status for _ in range(10)] == [200] * 10
        assert (await page.store.run(ops.count_jobs)).pending == 4


async def open_jobs(page: Served) -> int:
    return await page.store.run(ops.open_jobs_of, 1, 1_000)


async def test_a_user_has_so_many_open_jobs_however_they_are_made(tmp_path: Path) -> None:
    async with served(tmp_path / "house", open_jobs_per_user=5) as page:
        ann, admin = bearer(await page.token(Role.USER, "ann")), bearer(await page.token(Role.ADMIN, "studio"))
        batch = (await page.post("/api/v1/batches", SWEEP, headers=ann)).value
        jobs = [(await page.post("/api/v1/jobs", JOB, headers=ann)).value["config_name"] for _ in range(2)]
        for path, body in (("jobs", JOB), ("batches", SWEEP), ("books", BOOK)):
            answer = await page.post(f"/api/v1/{path}", body, headers=ann)
            said = check_problem(answer, 429)
            assert "at most 5 may wait or render" in said["detail"]
            assert "ui.open_jobs_per_user" in said["remedy"]
            assert answer.headers["Retry-After"] == "60"
        assert await open_jobs(page) == 5
        assert (await page.post("/api/v1/jobs", JOB, headers=admin)).status == 201, "admins have no quota"
        assert (await page.post(f"/api/v1/batches/{batch['id']}/cancel", headers=ann)).status == 202
        book = (await page.post("/api/v1/books", BOOK, headers=ann)).value["id"]
        assert (await page.post(f"/api/v1/batches/{book}/cancel", headers=ann)).status == 202
        assert (await page.post("/api/v1/books", BOOK, headers=ann)).status == 201, "what has ended does not count"
        for path, body in (
            (f"books/{book}/regenerate", {"pages": [1]}),
            (f"batches/{batch['id']}/retry", {"cancelled": True}),
            ("jobs/retry", {"names": [job.config_name async for job in ops.batch_members(page.store, batch["id"])]}),
        ):
            check_problem(await page.post(f"/api/v1/{path}", body, headers=ann), 429)
        assert (await page.post(f"/api/v1/jobs/{jobs[0]}/cancel", headers=ann)).status == 202
        assert (await page.post(f"/api/v1/jobs/{jobs[0]}/retry", headers=ann)).status == 202
        assert await open_jobs(page) == 5
