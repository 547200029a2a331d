"""Results and input pictures in an object store: agents, grids, books, the page and commands work as with a folder."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from PIL import Image

from comfyui_agent.domain.states import JobStatus
from support.agents import AgentWorkspace
from support.children import keep
from support.object_stores import STORES, Bucket
from support.pictures import png
from support.sampling import some
from support.servers import ServerProcess, simulator
from support.web import served
from support.workspaces import call_e3, drop, job_text, new_workspace, run_e3

FENCED = {"moto": "", "rclone": r"\.f\d+"}


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = simulator(tmp_path_factory.mktemp("sim")).start()
    keep(process.process)
    yield process
    process.kill()


def workspace_for(folder: Path, sim: ServerProcess, settings: dict[str, str]) -> AgentWorkspace:
    workspace = new_workspace(folder, sim.url)
    workspace.environment.update(settings)
    return workspace


def work(workspace: AgentWorkspace, *arguments: str) -> str:
    done = run_e3(*arguments, "-C", str(workspace.root), cwd=workspace.root, **workspace.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def say(workspace: AgentWorkspace, *arguments: str) -> str:
    done = call_e3(*arguments, "-C", str(workspace.root), cwd=workspace.root, **workspace.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def no_results_in(workspace: AgentWorkspace) -> bool:
    return not [path for path in (workspace.root / "jobs").rglob("*.png") if path.is_file()]


def test_jobs_a_sweep_with_its_grid_and_a_book(bucket: Bucket, sim: ServerProcess, tmp_path: Path) -> None:
    workspace = workspace_for(tmp_path / "ws", sim, bucket.settings())
    mark = FENCED[bucket.kind]
    drop(workspace, "fox.yaml", job_text(0x112233))
    book = {"book_id": "tale", "workflow": "picture", "pages": [{"inputs": {"color": 7}}, {"inputs": {"color": 8}}]}
    (workspace.root / "book.yaml").write_text(yaml.safe_dump(book))
    say(workspace, "book", "create", "book.yaml")
    batch = say(workspace, "sweep", "picture", "--set", "1.color=1..4", "--name", "hues").strip()
    work(workspace, "run", "--until-idle")
    objects = bucket.objects()
    patterns = [
        rf"jobs/finished/image/fox{mark}\.png",
        *(rf"jobs/finished/image/tale/page_00{page}{mark}\.png" for page in (1, 2)),
        *(rf"jobs/finished/image/{batch}/{end}" for end in (rf"grid{mark}\.png", rf"grid{mark}\.html")),
    ]
    for pattern in patterns:
        assert [name for name in objects if re.fullmatch(pattern, name)], (pattern, list(objects))
    assert len([name for name in objects if batch in name]) == 6
    assert no_results_in(workspace)
    with Image.open(io.BytesIO(objects[workspace.job("fox.yaml").outputs[0]])) as picture:
        assert picture.convert("RGB").getpixel((0, 0)) == (0x11, 0x22, 0x33)
    grid = next(name for name in objects if re.search(r"grid.*\.html", name))
    members = [Path(name).name for name in objects if f"{batch}/" in name and "grid" not in name]
    assert [name for name in members if name.encode() not in objects[grid]] == []
    assert f"{bucket.url}/jobs/finished/image/fox" in say(workspace, "show", "fox.yaml")
    checked = {each["name"]: each for each in json.loads(say(workspace, "db", "check", "--json"))}
    assert checked["results"]["message"] == "the files of 7 done jobs are there"
    assert f"{bucket.url}/jobs/finished/image/{batch}/grid" in say(workspace, "batch", "grid", batch)
    assert len(bucket.objects()) == len(objects)


@pytest.mark.parametrize("bucket", some(STORES, 2), indirect=True)
def test_the_page_serves_thumbnails_grids_and_parts_of_objects(
    bucket: Bucket, sim: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_for(tmp_path / "ws", sim, bucket.settings())
    batch = say(workspace, "sweep", "picture", "--set", "1.color=1,2", "--name", "two").strip()
    work(workspace, "execute", "--until-idle")
    stored = bucket.objects()[workspace.jobs()[0].outputs[0]]
    config = workspace.root / "config" / "global_config.yaml"
    config.write_text(f"paths: {{results: '{bucket.url}'}}\n")
    (workspace.root / "database" / "cache").rename(tmp_path / "of another machine")
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    asyncio.run(look_at_page(workspace, batch, stored))


async def look_at_page(workspace: AgentWorkspace, batch: str, stored: bytes) -> None:
    async with served(workspace.root) as page:
        job = (await page.get("/api/v1/jobs")).value["jobs"][0]
        shown = (await page.get(f"/api/v1/jobs/{job['id']}")).value
        (result,) = shown["results"]
        whole = await page.get(result["url"])
        assert (whole.status, whole.body, whole.headers["Content-Type"]) == (200, stored, "image/png")
        assert shown["outputs"][0].rpartition("/")[2] in whole.headers["Content-Disposition"]
        part = await page.get(result["url"], headers={"Range": "bytes=2-5"})
        assert (part.status, part.body) == (206, stored[2:6])
        small = await page.get(result["thumbnail"])
        assert (small.status, small.headers["Content-Type"]) == (200, "image/webp")
        assert (await page.get(f"/api/v1/batches/{batch}/grid")).body.startswith(b"\x89PNG")
        assert (await page.get(f"/batches/{batch}")).status == 200


@pytest.mark.parametrize("bucket", some(STORES, 2), indirect=True)
def test_a_result_can_be_an_input_and_inputs_travel_to_another_workspace(
    bucket: Bucket, sim: ServerProcess, tmp_path: Path
) -> None:
    settings = {**bucket.settings(), "E3_PATHS__INPUTS": f"{bucket.url}/inputs"}
    first = workspace_for(tmp_path / "first", sim, settings)
    graph = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "x.png"}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
    }
    (first.root / "workflows" / "copy.json").write_text(json.dumps(graph))
    (first.root / "pictures" / "mine.png").parent.mkdir(exist_ok=True)
    (first.root / "pictures" / "mine.png").write_bytes(png((1, 2, 3)))
    drop(first, "fox.yaml", job_text(0x445566))
    work(first, "run", "--until-idle")
    result = first.job("fox.yaml").outputs[0]
    for name, image in (("again.yaml", result), ("own.yaml", "pictures/mine.png")):
        drop(first, name, job_text(workflow_id="copy", inputs={"image": image}))
    work(first, "monitor", "--until-idle")
    kept = sorted(path.name for path in (first.root / "database" / "inputs").glob("*.png"))
    assert [name for name in sorted(bucket.objects()) if name.startswith("inputs/")] == [f"inputs/{n}" for n in kept]
    second = workspace_for(tmp_path / "second", sim, settings)
    (first.root / "database").rename(tmp_path / "database")
    (tmp_path / "database" / "inputs").rename(tmp_path / "of the first machine")
    (tmp_path / "database").rename(second.root / "database")
    work(second, "execute", "--until-idle")
    assert {job.status for job in second.jobs()} == {JobStatus.DONE}, [job.error_trace for job in second.jobs()]
    objects = bucket.objects()
    for name, colour in (("again.yaml", (0x44, 0x55, 0x66)), ("own.yaml", (1, 2, 3))):
        with Image.open(io.BytesIO(objects[second.job(name).outputs[0]])) as picture:
            assert picture.convert("RGB").getpixel((0, 0)) == colour


def test_results_on_a_share_and_a_regenerated_page(sim: ServerProcess, tmp_path: Path, moto: Bucket) -> None:
    share = tmp_path / "share"
    share.mkdir()
    for number, settings in enumerate([{"E3_PATHS__RESULTS": str(share)}, moto.settings()]):
        workspace = workspace_for(tmp_path / f"ws{number}", sim, settings)
        book = {"book_id": "tale", "workflow": "picture", "pages": [{"inputs": {"color": 7}}]}
        (workspace.root / "book.yaml").write_text(yaml.safe_dump(book))
        work(workspace, "book", "create", "book.yaml", "--wait")
        drop(workspace, "fox.yaml")
        work(workspace, "run", "--until-idle")
        say(workspace, "book", "regenerate", "tale", "--page", "1", "--set", "1.color=255")
        work(workspace, "execute", "--until-idle")
        name = "jobs/finished/image/tale/page_001_2.png"
        data = (share / name).read_bytes() if number == 0 else moto.objects()[name]
        with Image.open(io.BytesIO(data)) as picture:
            assert picture.convert("RGB").getpixel((0, 0)) == (0, 0, 255)
        assert no_results_in(workspace)
        assert (workspace.root / "jobs" / "finished" / "image" / "fox.yaml").is_file()
    assert sorted(path.name for path in share.rglob("*.png")) == ["fox.png", "page_001.png", "page_001_2.png"]


def test_an_object_of_somebody_is_not_replaced_by_a_result(sim: ServerProcess, tmp_path: Path, moto: Bucket) -> None:
    workspace = workspace_for(tmp_path / "ws", sim, moto.settings())
    moto.put("pictures/mine.png", b"mine")
    moto.put("jobs/finished/image/fox.png", b"an older fox")
    drop(workspace, "fox.yaml")
    drop(workspace, "chosen.yaml", job_text(5, outputs={"file_path": "pictures/mine.png"}))
    ended = run_e3("run", "--until-idle", "-C", str(workspace.root), **workspace.environment)
    assert ended.returncode == 1
    objects = moto.objects()
    assert objects.pop("jobs/finished/image/fox.png").startswith(b"\x89PNG")
    assert objects == {"pictures/mine.png": b"mine", "jobs/finished/image/fox.kept-1.png": b"an older fox"}
    assert "is there already and is no result of E3" in (workspace.job("chosen.yaml").error_trace or "")


def test_a_burst_keeps_its_results_on_this_machine(sim: ServerProcess, tmp_path: Path, moto: Bucket) -> None:
    workspace = workspace_for(tmp_path / "ws", sim, moto.settings())
    prompts = workspace.root / "prompts"
    prompts.mkdir()
    (prompts / "one.txt").write_text("7")
    graph = workspace.root / "workflows" / "picture.json"
    burst = ["burst", "prompts", "--workflow", str(graph), "--node", "2.filename_prefix", "--poll", "0.1"]
    work(workspace, *burst, "--server", sim.url)
    assert (workspace.root / "output" / "one.png").is_file()
    assert moto.objects() == {}
    say(workspace, "db", "check")


def test_a_place_that_cannot_be_used_stops_the_start_with_one_line(
    sim: ServerProcess, tmp_path: Path, moto: Bucket
) -> None:
    workspace = workspace_for(tmp_path / "ws", sim, moto.environment)
    for value, words in (
        ("s3://no-such-bucket/x", "there is no bucket no-such-bucket: make it"),
        ("ftp://host/x", "paths.results: no address of a bucket: write s3://bucket/prefix (or gs://, az://)"),
        ("s3://user:hunter22@bucket/x", "credentials do not belong there"),
        (str(tmp_path / "unmounted"), "mount it"),
    ):
        for command in (["execute", "--until-idle"], ["doctor"]):
            told = call_e3(*command, "-C", str(workspace.root), **moto.environment, E3_PATHS__RESULTS=value)
            text = told.stdout + told.stderr
            assert told.returncode != 0
            assert words in text
            assert "hunter22" not in text
            assert command == ["doctor"] or len(text.strip().splitlines()) == 1, text
