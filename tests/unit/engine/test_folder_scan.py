"""Looking for job files: links are not followed, pipes not waited for, what changes meanwhile is not believed."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.engine.intake import folder_scan
from comfyui_agent.engine.intake.folder_scan import (
    LARGEST,
    Refused,
    Signature,
    Unsettled,
    digest_of,
    is_job_file,
    look,
    read_whole,
    sign,
    trouble_with,
)


def write(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read(path: Path, **more: Any) -> bytes:
    return read_whole(str(path), signed(path), **more)


def signed(path: Path) -> Signature:
    found = sign(str(path))
    assert found is not None
    return found


def names(folder: Path, paths: Any) -> list[str]:
    return sorted(os.path.relpath(path, folder) for path in paths)


# Looking


def test_every_job_file_below_the_folder_is_seen_with_its_signature(tmp_path: Path) -> None:
    files = [write(tmp_path / name) for name in ("a.yaml", "image/b.yml", "video/deep/down/C.YAML", "3d/ü ñ.Yml")]
    sight = look(tmp_path)
    assert sight.files == {str(path): signed(path) for path in files}
    assert not sight.rejected
    assert not sight.oddities


@pytest.mark.parametrize(
    "name",
    [
        "a.txt",
        "yaml",
        "a.yaml~",
        "a.yaml.tmp",
        ".a.yaml",
        ".a.yaml.swp",
        "a.yaml.part",
        "#a.yaml#",
        "a.json",
        "a.yaml.kept-1",
    ],
)
def test_what_is_no_job_file_is_passed_over(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    sight = look(tmp_path)
    assert (sight.files, sight.rejected, sight.oddities) == ({}, [], {})
    assert not is_job_file(name)


def test_hidden_folders_are_not_looked_into(tmp_path: Path) -> None:
    write(tmp_path / ".git/a.yaml")
    write(tmp_path / "image/.stversions/a.yaml")
    assert not look(tmp_path).files


def test_rejected_files_are_listed_apart(tmp_path: Path) -> None:
    write(tmp_path / "image/a.yaml.rejected")
    write(tmp_path / "b.yml.rejected")
    sight = look(tmp_path)
    assert names(tmp_path, sight.rejected) == ["b.yml.rejected", "image/a.yaml.rejected"]
    assert not sight.files


def test_a_folder_with_the_name_of_a_job_file_is_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml/b.yaml")
    assert names(tmp_path, look(tmp_path).files) == ["a.yaml/b.yaml"]
    assert sign(str(tmp_path / "a.yaml")) is None


def test_a_link_to_a_folder_is_an_oddity_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere/a.yaml")
    (tmp_path / "drop").mkdir()
    (tmp_path / "drop/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "drop/round").symlink_to(tmp_path / "drop")
    sight = look(tmp_path / "drop")
    assert not sight.files
    assert names(tmp_path / "drop", sight.oddities) == ["link", "round"]
    assert all("not followed: set paths.jobs_processing" in reason for reason in sight.oddities.values())


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real/a.yaml")
    (tmp_path / "drop").symlink_to(tmp_path / "real")
    assert names(tmp_path / "drop", look(tmp_path / "drop").files) == ["a.yaml"]


def test_a_folder_that_is_gone_is_empty_and_one_that_is_a_file_is_odd(tmp_path: Path) -> None:
    sight = look(tmp_path / "nothing")
    assert (sight.files, sight.rejected, sight.oddities) == ({}, [], {})
    write(tmp_path / "file")
    assert look(tmp_path / "file").oddities == {str(tmp_path / "file"): "it cannot be read: Not a directory"}


def test_a_folder_that_cannot_be_read_is_odd_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "closed/a.yaml")
    write(tmp_path / "open/b.yaml")
    scandir = os.scandir

    def guarded(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    sight = look(tmp_path)
    assert names(tmp_path, sight.files) == ["open/b.yaml"]
    assert sight.oddities == {str(tmp_path / "closed"): "it cannot be read: Permission denied"}


def test_a_file_that_vanishes_while_it_is_looked_at_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.yaml")
    write(tmp_path / "b.yaml")

    def gone(name: str) -> str:
        (tmp_path / "a.yaml").unlink(missing_ok=True)
        return ""

    monkeypatch.setattr(folder_scan, "trouble_with", gone)
    assert set(names(tmp_path, look(tmp_path).files)) <= {"b.yaml"}


def test_hundreds_of_folders_in_one_another_are_no_trouble(tmp_path: Path) -> None:
    write(tmp_path / ("d/" * 300) / "a.yaml")
    assert len(look(tmp_path).files) == 1


@pytest.mark.parametrize("name", ["a\nb.yaml", "a\tb.yaml", "a\x1b[31m.yaml", "a\x7f.yaml", "a\x85.yaml"])
def test_a_name_with_control_characters_is_an_oddity(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    sight = look(tmp_path)
    assert not sight.files
    assert "rename it" in sight.oddities[str(tmp_path / name)]


def test_a_name_that_is_not_utf8_is_an_oddity(tmp_path: Path) -> None:
    path = write(tmp_path / os.fsdecode(b"a\xff.yaml"))
    sight = look(tmp_path)
    assert not sight.files
    assert "is not UTF-8: rename it" in sight.oddities[str(path)]


@pytest.mark.parametrize("folder", [b"a\xff", b"a\nb"], ids=["not UTF-8", "two lines"])
def test_a_folder_of_such_a_name_is_an_oddity_too(tmp_path: Path, folder: bytes) -> None:
    write(tmp_path / os.fsdecode(folder) / "a.yaml")
    sight = look(tmp_path)
    assert not sight.files
    assert sight.oddities


@pytest.mark.parametrize(
    "name", ["a.yaml", "ü.yaml", "日本語.yaml", "🦊.yaml", "a b (1).yaml", "e\u0301.yaml", "-rf.yaml", "$x.yaml"]
)
def test_a_name_in_any_script_is_a_name(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    assert not trouble_with(name)
    assert names(tmp_path, look(tmp_path).files) == [name]


# Reading


@pytest.mark.parametrize("data", [b"", b"a: 1\n", bytes(range(256)), b"x" * LARGEST])
def test_a_file_is_read_whole(tmp_path: Path, data: bytes) -> None:
    assert read(write(tmp_path / "a.yaml", data)) == data


def test_one_byte_too_many_is_refused_with_its_size(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"it is 1\.0 MB: a job file has at most 1 MB"):
        read(write(tmp_path / "a.yaml", b"x" * (LARGEST + 1)))
    with pytest.raises(Refused, match="at most 0 MB"):
        read(tmp_path / "a.yaml", largest=10)


def test_a_sparse_file_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.yaml").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(Refused, match=r"it is 1,048,576\.0 MB"):
        read(tmp_path / "a.yaml")


@pytest.mark.parametrize("target", ["real.yaml", "nowhere", "/etc/passwd", "a.yaml", "folder"])
def test_a_link_is_refused_wherever_it_leads(tmp_path: Path, target: str) -> None:
    write(tmp_path / "real.yaml")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.yaml").symlink_to(target)
    with pytest.raises(Refused, match="it is a link: put the file itself here"):
        read(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    "target",
    [
        "real.yaml",
        "nowhere",
        "/etc/passwd",
        "a.yaml",
    ],
)
def test_a_link_to_anything_but_a_folder_is_seen_and_can_be_refused(tmp_path: Path, target: str) -> None:
    write(tmp_path / "real.yaml")
    (tmp_path / "a.yaml").symlink_to(target)
    assert "a.yaml" in names(tmp_path, look(tmp_path).files)


@pytest.mark.timeout(20)
def test_a_pipe_without_a_writer_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    sight = look(tmp_path)
    with pytest.raises(Refused, match="it is not a file"):
        read_whole(str(tmp_path / "a.yaml"), sight.files[str(tmp_path / "a.yaml")])


@pytest.mark.timeout(20)
def test_a_pipe_with_a_writer_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    both = os.open(tmp_path / "a.yaml", os.O_RDWR)
    try:
        os.write(both, b"job_type: T2I\n")
        with pytest.raises(Refused, match="it is not a file"):
            read(tmp_path / "a.yaml")
    finally:
        os.close(both)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("a.yaml")
        with pytest.raises(Refused):
            read(tmp_path / "a.yaml")


def test_a_folder_that_came_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml")
    signature = signed(path)
    path.unlink()
    path.mkdir()
    with pytest.raises((Refused, Unsettled)):
        read_whole(str(path), signature)


def test_a_file_that_cannot_be_opened_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.yaml")

    def refuse(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Refused, match="it cannot be read: Permission denied"):
        read(path)


def test_a_file_that_is_gone_is_unsettled(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml")
    signature = signed(path)
    path.unlink()
    assert sign(str(path)) is None
    with pytest.raises(Unsettled):
        read_whole(str(path), signature)


@pytest.mark.parametrize("change", ["content", "time", "size", "replaced", "renamed over"])
def test_a_file_that_was_changed_since_it_was_seen_is_unsettled(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "a.yaml", b"a: 1\n")
    os.utime(path, ns=(10**9, 10**9))
    signature = signed(path)
    match change:
        case "content":
            path.write_bytes(b"a: 2\n")
        case "time":
            os.utime(path, ns=(2 * 10**9, 2 * 10**9))
        case "size":
            path.write_bytes(b"a: 1\nb: 2\n")
            os.utime(path, ns=(10**9, 10**9))
        case "replaced":
            path.rename(tmp_path / "old")
            write(path, b"a: 1\n")
            os.utime(path, ns=(10**9, 10**9))
        case _:
            write(tmp_path / "new", b"a: 1\n").rename(path)
            os.utime(path, ns=(10**9, 10**9))
    with pytest.raises(Unsettled):
        read_whole(str(path), signature)


@pytest.mark.parametrize("change", ["grows", "shrinks", "is rewritten"])
def test_a_file_that_changes_while_it_is_read_is_unsettled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = write(tmp_path / "a.yaml", b"x" * 1000)
    signature = signed(path)
    fdopen = os.fdopen

    def meddling(handle: int, mode: str) -> Any:
        file = fdopen(handle, mode)

        class Meddled:
            def __enter__(self) -> Meddled:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def read(self, most: int) -> bytes:
                if change == "shrinks":
                    os.truncate(path, 500)
                data: bytes = file.read(most)
                if change == "grows":
                    with path.open("ab") as more:
                        more.write(b"y")
                if change == "is rewritten":
                    path.write_bytes(b"z" * 1000)
                    os.utime(path, ns=(10**9, 10**9))
                return data

        return Meddled()

    monkeypatch.setattr(os, "fdopen", meddling)
    with pytest.raises(Unsettled):
        read_whole(str(path), signature)


def test_no_handle_is_left_open(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        read(path)
        with pytest.raises(Refused):
            read(tmp_path / "pipe.yaml")
        with pytest.raises(Unsettled):
            read_whole(str(path), (0, 0, 0, 0))
    assert len(os.listdir("/proc/self/fd")) == before


# Digests


def test_the_digest_tells_bytes_apart_and_nothing_else() -> None:
    assert digest_of(b"a") == digest_of(b"a") != digest_of(b"b")
    assert len(digest_of(b"")) == 64
