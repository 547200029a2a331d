"""Results are handed out if a row records them, they lie where results lie, and their bytes are what they should be."""

from __future__ import annotations

import dataclasses
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.comfy.content import ATTACHMENT
from comfyui_agent.config.settings import Paths, Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.results import Result
from comfyui_agent.files import folder as results_folder
from comfyui_agent.web import thumbnail_cache
from comfyui_agent.web.outputs import NotShown, Outputs

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100
HTML = b"<!doctype html><script>alert(1)</script>"
MEDIA = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"\0" * 20,
    "image/gif": b"GIF89a" + b"\0" * 20,
    "image/webp": b"RIFF\x10\0\0\0WEBPVP8 ",
    "image/avif": b"\0\0\0\x20ftypavif" + b"\0" * 20,
    "image/tiff": b"II*\0" + b"\0" * 20,
    "video/mp4": b"\0\0\0\x20ftypisom" + b"\0" * 20,
    "video/quicktime": b"\0\0\0\x14ftypqt  " + b"\0" * 20,
    "video/webm": b"\x1a\x45\xdf\xa3" + b"\0" * 20 + b"\x42\x82\x84webm",
    "video/x-matroska": b"\x1a\x45\xdf\xa3" + b"\0" * 20 + b"\x42\x82\x88matroska",
    "video/x-msvideo": b"RIFF\x10\0\0\0AVI LIST",
    "audio/flac": b"fLaC" + b"\0" * 20,
    "audio/mpeg": b"ID3\x04" + b"\0" * 20,
    "audio/wav": b"RIFF\x10\0\0\0WAVEfmt ",
    "audio/ogg": b"OggS" + b"\0" * 24 + b"OpusHead",
    "audio/mp4": b"\0\0\0\x20ftypM4A " + b"\0" * 20,
    "model/gltf-binary": b"glTF" + b"\0" * 20,
}


def workspace_at(root: Path, config: str | None = "config/global_config.yaml", **paths: str) -> Workspace:
    workspace = Workspace(root, Settings(paths=Paths(**paths)), root / config if config else None)
    for folder in ("config", "database", "jobs/processing/image", "jobs/finished/image", "workflows"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    return workspace


def job_with(*recorded: str) -> Job:
    facts: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    return Job(**{**facts, "id": 7, "config_name": "seven.yaml", "outputs": recorded})


def write(path: Path, data: bytes = PNG) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def painted(path: Path, colour: tuple[int, int, int] = (200, 30, 30), edge: int = 400) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (edge, edge), colour).save(path)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


@pytest.fixture
def outputs(root: Path) -> Outputs:
    return Outputs(workspace_at(root))


async def thumbnail(outputs: Outputs, job: Job, width: int) -> Path:
    return await outputs.thumbnail(outputs.find(job, 1), width)


def reason(outputs: Outputs, *recorded: str, number: int = 1) -> str:
    """Why it is not shown."""
    job = job_with(*recorded)
    assert outputs.shown(job) == []
    with pytest.raises(NotShown) as caught:
        outputs.find(job, number)
    return str(caught.value)


# What is shown


@pytest.mark.parametrize("media_type", MEDIA)
def test_a_medium_is_told_by_its_bytes_whatever_its_name(outputs: Outputs, root: Path, media_type: str) -> None:
    path = write(root / "jobs/finished/image/odd.txt", MEDIA[media_type])
    found = outputs.find(job_with("jobs/finished/image/odd.txt"), 1)
    assert (found.path, found.media_type) == (path.resolve(), media_type)


@pytest.mark.parametrize("name", ["page.html", "page.png", "drawing.svg", "facts.json", "words.txt", "empty.png"])
def test_what_a_browser_could_run_is_handed_out_only_to_be_saved(outputs: Outputs, root: Path, name: str) -> None:
    data = {"drawing.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>", "empty.png": b""}.get(name, HTML)
    write(root / "jobs/finished/image" / name, data)
    found = outputs.find(job_with(f"jobs/finished/image/{name}"), 1)
    assert (found.media_type, found.is_picture) == (ATTACHMENT, False)
    [shown] = outputs.shown(job_with(f"jobs/finished/image/{name}"))
    assert (shown.media_type, shown.thumbnail, shown.thumbnail_at(640)) == (ATTACHMENT, None, "")


def test_and_only_from_among_the_results(outputs: Outputs, root: Path) -> None:
    write(root / "renders/page.png", HTML)
    assert "is no picture, film, sound or model" in reason(outputs, "renders/page.png")
    write(root / "renders/real.png")
    assert outputs.find(job_with("renders/real.png"), 1).path == (root / "renders/real.png").resolve()


def test_results_are_listed_in_order_with_addresses_of_their_own(outputs: Outputs, root: Path) -> None:
    for name in ("a.png", "a_3.mp4"):
        write(root / "jobs/finished/image" / name, MEDIA["image/png" if name.endswith("png") else "video/mp4"])
    job = job_with(*(f"jobs/finished/image/{name}" for name in ("a.png", "gone.png", "a_3.mp4")))
    first, third = outputs.shown(job)
    version = outputs.find(job, 1).version
    assert first == Result(
        1,
        "a.png",
        f"/api/v1/jobs/7/results/1?v={version}",
        f"/api/v1/jobs/7/results/1/thumbnail?width=320&v={version}",
        "image/png",
    )
    assert first.thumbnail_at(1280) == f"/api/v1/jobs/7/results/1/thumbnail?width=1280&v={version}"
    assert (third.number, third.media_type, third.thumbnail, third.name) == (3, "video/mp4", None, "a_3.mp4")
    assert outputs.shown(job, most=1) == [first]


def test_an_address_changes_with_the_file_and_only_then(outputs: Outputs, root: Path) -> None:
    path = write(root / "jobs/finished/image/a.png")
    job = job_with("jobs/finished/image/a.png")
    [before] = outputs.shown(job)
    assert outputs.shown(job) == [before]
    fresh = write(root / "jobs/finished/image/fresh", MEDIA["image/jpeg"])
    os.utime(fresh, ns=(1, 1))
    fresh.replace(path)
    [after] = outputs.shown(job)
    assert after.url != before.url
    assert after.thumbnail != before.thumbnail
    assert after.media_type == "image/jpeg"


def test_a_link_within_the_results_is_followed(outputs: Outputs, root: Path) -> None:
    real = write(root / "jobs/finished/image/real.png")
    (root / "jobs/finished/image/link.png").symlink_to("real.png")
    assert outputs.find(job_with("jobs/finished/image/link.png"), 1).path == real.resolve()


def test_an_absolute_path_in_the_workspace_is_as_good_as_a_relative_one(outputs: Outputs, root: Path) -> None:
    path = write(root / "jobs/finished/image/a.png")
    assert outputs.find(job_with(str(path)), 1).path == path.resolve()


def test_a_workspace_in_a_hidden_folder_is_no_hidden_place(tmp_path: Path) -> None:
    root = tmp_path / ".e3" / "workspace"
    outputs = Outputs(workspace_at(root))
    write(root / "jobs/finished/image/a.png")
    assert outputs.shown(job_with("jobs/finished/image/a.png"))


# What is not


@pytest.mark.parametrize("number", [-1, 0, 2, 10**30])
def test_a_number_that_is_not_there_is_said_so(outputs: Outputs, root: Path, number: int) -> None:
    write(root / "jobs/finished/image/a.png")
    with pytest.raises(NotShown, match=f"seven.yaml has 1 result: there is no number {number}"):
        outputs.find(job_with("jobs/finished/image/a.png"), number)
    with pytest.raises(NotShown, match="has no result"):
        outputs.find(job_with(), number)


@pytest.mark.parametrize(
    "recorded",
    [
        "../outside.png",
        "jobs/finished/../../../outside.png",
        "{outside}",
        "jobs/finished/image/link.png",
        "jobs/finished/linked/outside.png",
    ],
)
def test_what_leads_out_of_the_workspace_is_refused(
    outputs: Outputs, root: Path, tmp_path: Path, recorded: str
) -> None:
    outside = write(tmp_path / "outside.png")
    (root / "jobs/finished/image/link.png").symlink_to(outside)
    (root / "jobs/finished/linked").symlink_to(tmp_path)
    said = reason(outputs, recorded.format(outside=outside))
    assert said.endswith("lies outside the workspace: it is not shown here, open it where it lies")


def test_results_of_a_burst_elsewhere_are_refused_though_the_command_line_named_the_folder(
    root: Path, tmp_path: Path
) -> None:
    elsewhere = write(tmp_path / "elsewhere" / "EP01" / "prompt_1.png")
    workspace = dataclasses.replace(workspace_at(root), named=(tmp_path / "elsewhere",))
    said = reason(Outputs(workspace), elsewhere.as_posix())
    assert said == "prompt_1.png lies outside the workspace: it is not shown here, open it where it lies"


@pytest.mark.parametrize(
    "recorded",
    [
        "config/global_config.yaml",
        "config/picture.png",
        "config/deep/down/picture.png",
        "database/comfyui_agent.db",
        "database/inputs/picture.png",
        "database/thumbnails/ab/picture.png",
        "jobs/processing/image/picture.png",
        "workflows/picture.png",
        "jobs/finished/image/link.png",
    ],
)
def test_what_e3_works_with_is_refused_even_if_it_is_a_picture(outputs: Outputs, root: Path, recorded: str) -> None:
    write(root / "config/picture.png")
    (root / "jobs/finished/image/link.png").symlink_to(root / "config/picture.png")
    write(root / recorded)
    assert "lies among the files that E3 works with" in reason(outputs, recorded)


@pytest.mark.parametrize(
    "recorded", [".env", ".git/picture.png", "jobs/finished/.hidden/a.png", "jobs/finished/image/.a.png"]
)
def test_hidden_files_are_refused(outputs: Outputs, root: Path, recorded: str) -> None:
    write(root / recorded)
    assert "hidden" in reason(outputs, recorded)


def test_a_link_to_a_hidden_file_is_refused(outputs: Outputs, root: Path) -> None:
    write(root / ".secret/a.png")
    (root / "jobs/finished/image/a.png").symlink_to(root / ".secret/a.png")
    assert "hidden" in reason(outputs, "jobs/finished/image/a.png")


def test_a_way_round_that_ends_among_the_results_is_refused_too(outputs: Outputs, root: Path) -> None:
    write(root / "jobs/finished/image/a.png")
    assert "hidden" in reason(outputs, "jobs/finished/../finished/image/a.png")


@pytest.mark.parametrize(
    ("config", "paths"),
    [
        ("global_config.yaml", {"database": "comfyui_agent.db", "workflows": ".", "jobs_processing": "."}),
        ("jobs/global_config.yaml", {"jobs_processing": "jobs"}),
        (None, {}),
    ],
)
def test_results_are_shown_where_everything_lies_in_one_folder(
    root: Path, config: str | None, paths: dict[str, str]
) -> None:
    """The innermost folder decides; what E3 works with is still refused."""
    outputs = Outputs(workspace_at(root, config, **paths))
    write(root / "jobs/finished/image/a.png")
    assert outputs.shown(job_with("jobs/finished/image/a.png"))
    works_with = ["database" if "database" not in paths else "inputs", config or "config/global_config.yaml"]
    for recorded in [f"{works_with[0]}/a.png", works_with[1], paths.get("database", "database/comfyui_agent.db")]:
        write(root / recorded)
        assert "lies among the files that E3 works with" in reason(outputs, recorded)


def test_a_database_among_the_results_is_refused(root: Path) -> None:
    outputs = Outputs(workspace_at(root, database="jobs/finished/memory/e3.db"))
    write(root / "jobs/finished/memory/a.png")
    assert "works with" in reason(outputs, "jobs/finished/memory/a.png")


@pytest.mark.parametrize(
    "recorded", ["jobs/finished/image", "jobs/finished/image/pipe.png", "jobs/finished/image/s.png"]
)
def test_folders_pipes_and_sockets_are_refused_and_not_waited_for(
    outputs: Outputs, root: Path, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "jobs/finished/image")  # a socket's path is short
    os.mkfifo("pipe.png")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s.png")
        assert reason(outputs, recorded).endswith("is not a file")


def test_a_pipe_that_takes_the_place_of_a_file_at_the_last_moment_is_not_waited_for(
    outputs: Outputs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(root / "jobs/finished/image/a.png")
    looked = Path.lstat

    def look_and_swap(self: Path) -> os.stat_result:
        facts = looked(self)
        if self == path.resolve():
            path.unlink()
            os.mkfifo(path)
        return facts

    monkeypatch.setattr(Path, "lstat", look_and_swap)
    with pytest.raises(NotShown, match="is not a file"):
        outputs.find(job_with("jobs/finished/image/a.png"), 1)


@pytest.mark.parametrize("recorded", ["", ".", "/", "\0.png", "a\0/b.png", "\ud800.png", "x" * 5000, "a.png/b.png"])
def test_paths_that_cannot_be_are_refused_in_words_that_can_be_sent(
    outputs: Outputs, root: Path, recorded: str
) -> None:
    write(root / "a.png")
    reason(outputs, recorded).encode("utf-8")


def test_links_in_circles_are_refused(outputs: Outputs, root: Path) -> None:
    (root / "jobs/finished/image/a.png").symlink_to("b.png")
    (root / "jobs/finished/image/b.png").symlink_to("a.png")
    assert "leads nowhere" in reason(outputs, "jobs/finished/image/a.png")


def test_a_file_that_is_gone_is_said_to_be_gone(outputs: Outputs, root: Path) -> None:
    assert reason(outputs, "jobs/finished/image/a.png") == "a.png is not there any more"


def test_a_file_that_vanishes_while_it_is_looked_at_is_gone(
    outputs: Outputs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(root / "jobs/finished/image/a.png")
    opened = os.open

    def vanish(name: Any, *more: Any) -> int:
        path.unlink(missing_ok=True)
        return opened(name, *more)

    monkeypatch.setattr(os, "open", vanish)
    assert outputs.shown(job_with("jobs/finished/image/a.png")) == []
    with pytest.raises(NotShown, match="not there any more"):
        outputs.find(job_with("jobs/finished/image/a.png"), 1)


def test_a_file_that_may_not_be_read_is_said_so(outputs: Outputs, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "jobs/finished/image/a.png")

    def refuse(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(results_folder.os, "open", refuse)
    with pytest.raises(NotShown, match=r"a\.png cannot be read: Permission denied"):
        outputs.find(job_with("jobs/finished/image/a.png"), 1)


# Grids


def test_the_picture_of_a_grid_is_found_and_nothing_else(outputs: Outputs, root: Path) -> None:
    path = write(root / "jobs/finished/image/knights_1a2b3c4d/grid.png")
    assert outputs.grid("jobs/finished/image/knights_1a2b3c4d/grid.png") == path.resolve()
    write(root / "jobs/finished/image/knights_1a2b3c4d/grid.html", HTML)
    with pytest.raises(NotShown, match="is no picture"):
        outputs.grid("jobs/finished/image/knights_1a2b3c4d/grid.html")
    with pytest.raises(ValueError, match="lies among"):
        outputs.grid("config/global_config.yaml" if write(root / "config/global_config.yaml") else "")


# Thumbnails


@pytest.mark.parametrize(("asked", "given"), [(-5, 160), (160, 160), (161, 320), (9000, 1280)])
async def test_the_next_larger_width_is_given(outputs: Outputs, root: Path, asked: int, given: int) -> None:
    painted(root / "jobs/finished/image/a.png", edge=1400)
    path = await thumbnail(outputs, job_with("jobs/finished/image/a.png"), asked)
    with Image.open(path) as made:
        assert (made.format, made.size) == ("WEBP", (given, given))
    assert path.is_relative_to((root / "database/thumbnails").resolve())
    assert path.parent.name == path.name[:2]


async def test_a_picture_that_is_replaced_gets_a_new_thumbnail(outputs: Outputs, root: Path) -> None:
    job = job_with("jobs/finished/image/a.png")
    first = painted(root / "jobs/finished/image/a.png", (200, 30, 30))
    os.utime(first, ns=(10**18, 10**18))
    before = await thumbnail(outputs, job, 160)
    painted(root / "jobs/finished/image/fresh.png", (30, 30, 200)).replace(first)
    after = await thumbnail(outputs, job, 160)
    with Image.open(before) as old, Image.open(after) as new:
        assert old.getpixel((5, 5))[0] > 150  # type: ignore[index]
        assert new.getpixel((5, 5))[2] > 150  # type: ignore[index]


async def test_what_is_no_picture_has_no_thumbnail(outputs: Outputs, root: Path) -> None:
    write(root / "jobs/finished/image/a.mp4", MEDIA["video/mp4"])
    with pytest.raises(NotShown, match=r"a\.mp4 is no picture: it has no thumbnail"):
        await thumbnail(outputs, job_with("jobs/finished/image/a.mp4"), 160)
    write(root / "jobs/finished/image/broken.png", PNG)
    with pytest.raises(NotShown, match=r"broken\.png is no picture that can be shown"):
        await thumbnail(outputs, job_with("jobs/finished/image/broken.png"), 160)


async def test_a_picture_that_vanishes_before_its_thumbnail_is_made_is_gone(
    outputs: Outputs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = painted(root / "jobs/finished/image/a.png")
    make = thumbnail_cache.make_thumbnail

    def vanish(*asked: Any) -> None:
        path.unlink()
        make(*asked)

    monkeypatch.setattr(thumbnail_cache, "make_thumbnail", vanish)
    with pytest.raises(NotShown, match=r"a\.png is not there any more"):
        await thumbnail(outputs, job_with("jobs/finished/image/a.png"), 160)


async def test_a_full_disk_is_said_so(outputs: Outputs, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    painted(root / "jobs/finished/image/a.png")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(thumbnail_cache, "make_thumbnail", fail)
    with pytest.raises(NotShown, match=r"the thumbnail of a\.png cannot be made: No space left on device"):
        await thumbnail(outputs, job_with("jobs/finished/image/a.png"), 160)
