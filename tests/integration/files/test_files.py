"""What every place for files keeps: whole or not at all, once, and never somebody else's in its stead."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfyui_agent.domain.locations import Location
from comfyui_agent.files import local_cache, objects
from comfyui_agent.files.connect import missing_files, open_files
from comfyui_agent.files.port import BadLocation, Files, FilesAway
from comfyui_agent.lab.fault_proxy import Delay, Refuse
from support.object_stores import Bucket, CutUpload, ObjectStores, Status, credentials
from support.servers import free_port
from support.threaded_proxy import ThreadedProxy, threaded_proxy

SIZE = 2_000_000
NAME = "jobs/finished/image/a fox, 50% ünique#1?.png"


@pytest.fixture(params=["folder", "moto", "rclone"])
def files(
    request: pytest.FixtureRequest, tmp_path: Path, object_stores: ObjectStores, monkeypatch: pytest.MonkeyPatch
) -> Files:
    if request.param == "folder":
        (tmp_path / "results" / NAME).parent.mkdir(parents=True)
        return open_files(Location(tmp_path / "results"))
    return opened(object_stores.bucket(request.param), tmp_path, monkeypatch)


def opened(bucket: Bucket, folder: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int = 10**9) -> Files:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return open_files(bucket.location(folder, most_bytes))


def written(folder: Path, data: bytes, name: str = "staged.png") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_a_published_file_is_there_under_its_name_and_can_be_read_and_removed(files: Files, tmp_path: Path) -> None:
    files.check()
    assert (files.exists(NAME), files.missing([NAME])) == (False, [NAME])
    files.publish(written(tmp_path, b"a picture"), NAME, replaces=False)
    assert (files.exists(NAME), files.missing([NAME, "other.png"])) == (True, ["other.png"])
    assert files.local(NAME).read_bytes() == b"a picture"
    assert files.local(NAME).suffix == ".png"
    assert files.peek(NAME, 3).head == b"a p"
    for _ in range(2):
        files.remove(NAME)
    assert not files.exists(NAME)


def test_what_replaces_a_file_is_seen_at_once(files: Files, tmp_path: Path) -> None:
    files.publish(written(tmp_path, b"before"), NAME, replaces=False)
    assert files.local(NAME).read_bytes() == b"before"
    before = files.peek(NAME, 100, "run 1").version
    files.publish(written(tmp_path, b"after!"), NAME, replaces=True)
    assert files.local(NAME).read_bytes() == b"after!"
    assert files.peek(NAME, 100, "run 2").version != before


def test_a_file_in_the_way_is_kept_aside(files: Files, tmp_path: Path) -> None:
    for text in ("one", "two"):
        files.publish(written(tmp_path, text.encode()), NAME, replaces=False)
        kept = files.keep_aside(NAME)
        assert files.local(str(Path(NAME).with_name(kept))).read_bytes() == text.encode()
        assert not files.exists(NAME)
    assert kept.endswith(".kept-2.png")


def test_what_is_gone_is_said_to_be_gone(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.peek(NAME, 10)
    if files.is_remote:
        with pytest.raises(FileNotFoundError):
            files.local(NAME)


@pytest.mark.parametrize("name", ["../x.png", "a//b.png", "\ud800.png", "."])
def test_names_that_no_object_can_have(
    moto: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    files = opened(moto, tmp_path, monkeypatch)
    with pytest.raises(FileNotFoundError):
        files.local(name)
    with pytest.raises(OSError, match="no object can have this name"):
        files.publish(written(tmp_path, b"x"), name, replaces=False)


def test_an_object_of_somebody_else_is_not_replaced_and_equal_bytes_are_an_earlier_try(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = opened(bucket, tmp_path, monkeypatch)
    bucket.put("fox.png", b"theirs")
    with pytest.raises(FileExistsError) as refused:
        files.publish(written(tmp_path, b"ours"), "fox.png", replaces=False)
    assert refused.value.filename == "fox.png"
    files.publish(written(tmp_path, b"theirs"), "fox.png", replaces=False)
    assert bucket.objects() == {"fox.png": b"theirs"}, "no probe or other object is left"


def test_a_name_is_fenced_where_nothing_else_helps(
    moto: Bucket, rclone: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not opened(moto, tmp_path, monkeypatch).is_fenced(1000)
    assert opened(rclone, tmp_path, monkeypatch).is_fenced(1000)
    assert opened(moto, tmp_path, monkeypatch).is_fenced(objects.LARGEST_PUT + 1), "it is sent in parts"


def test_a_large_file_is_sent_in_parts(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LARGEST_PUT", 1024**2)
    monkeypatch.setattr(objects, "PART_BYTES", 5 * 1024**2)
    files, film = opened(bucket, tmp_path, monkeypatch), os.urandom(6 * 1024**2)
    files.publish(written(tmp_path, film), "film.f1.mp4", replaces=False)
    assert bucket.objects() == {"film.f1.mp4": film}


def test_of_two_agents_with_one_name_one_wins_and_the_other_sees_it(
    moto: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: dict[int, object] = {}

    def publish(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            outcomes[number] = opened(moto, folder, monkeypatch).publish(
                written(folder, f"agent {number}".encode()), "fox.png", replaces=False
            )
        except FileExistsError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [number for number, outcome in outcomes.items() if outcome is None]
    assert moto.objects() == {"fox.png": f"agent {winner}".encode()}


def test_an_object_that_changed_since_it_was_seen_is_looked_at_again(
    moto: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that lost its lease writes between the look and the put of the one that has it."""
    files = opened(moto, tmp_path, monkeypatch)
    moto.put("fox.png", b"old")
    really, seen = objects.ObjectFiles._read, []

    def read(self: objects.ObjectFiles, name: str, size: int) -> object:
        found = really(self, name, size)
        seen.append(found)
        if len(seen) == 1:
            moto.put("fox.png", b"late")
        return found

    monkeypatch.setattr(objects.ObjectFiles, "_read", read)
    files.publish(written(tmp_path, b"winner"), "fox.png", replaces=True)
    assert (moto.objects(), len(seen)) == ({"fox.png": b"winner"}, 3)


# When the store is in trouble.


@pytest.fixture
def proxy(moto: Bucket) -> Iterator[ThreadedProxy]:
    with threaded_proxy(moto.endpoint) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Status("503 Service Unavailable"), "503 Service Unavailable"),
        (Status("507 Insufficient Storage"), "507 Insufficient Storage"),
        (Status("403 Forbidden"), "403 Forbidden"),
        (Refuse(), "does not answer"),
        (None, "does not answer"),
    ],
    ids=["5xx", "full", "denied", "away", "cut upload"],
)
def test_a_store_in_trouble_says_what_is_wrong_and_nothing_is_half_there(
    moto: Bucket,
    proxy: ThreadedProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Status | Refuse | None,
    words: str,
) -> None:
    files, staged = opened(moto.through(proxy.url), tmp_path, monkeypatch), written(tmp_path, b"x" * SIZE)
    files.check()
    proxy.inject(fault or CutUpload(proxy), "fox.png", None)
    with pytest.raises(FilesAway, match=words) as trouble:
        files.publish(staged, "fox.png", replaces=False)
    assert "\n" not in str(trouble.value)
    assert moto.objects() in ({}, {"fox.png": b"x" * SIZE}), "its answer may have been lost"
    proxy.heal()
    files.publish(staged, "fox.png", replaces=False)
    assert moto.objects() == {"fox.png": b"x" * SIZE}


def test_a_lost_answer_and_a_slow_one_are_no_trouble(
    moto: Bucket, proxy: ThreadedProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = opened(moto.through(proxy.url), tmp_path, monkeypatch)
    files.check()
    proxy.inject(Status("500 Internal Server Error"), "PUT")
    proxy.inject(Delay(0.3), "GET")
    files.publish(written(tmp_path, b"once"), "fox.png", replaces=False)
    assert moto.objects() == {"fox.png": b"once"}


def test_who_only_looks_is_not_made_to_wait_for_every_file(
    moto: Bucket, proxy: ThreadedProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = opened(moto.through(proxy.url), tmp_path, monkeypatch)
    proxy.inject(Refuse(), "", None)
    for number in range(50):
        with pytest.raises(FilesAway):
            files.peek(f"{number}.png", 10)
    assert len(proxy.times("")) < 10


def test_bytes_that_come_back_changed_are_not_called_stored(
    moto: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, staged = opened(moto, tmp_path, monkeypatch), written(tmp_path, b"sent")
    files.check()
    monkeypatch.setattr(Path, "read_bytes", lambda _: b"sunk")
    with pytest.raises(FilesAway, match="gave back other bytes"):
        files.publish(staged, "fox.png", replaces=False)


# Local copies.


def test_the_least_recently_used_copies_are_removed(
    moto: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_cache, "USED_LATELY_SECONDS", 0.0)
    files = opened(moto, tmp_path, monkeypatch, most_bytes=8_000)
    for number in range(14):
        moto.put(f"{number}.png", bytes([number]) * 1000)
    copies = [files.local(f"{number}.png") for number in range(14)]
    left = [path for path in copies if path.exists()]
    assert 5 <= len(left) <= 9
    assert copies[-1] in left
    assert files.local("0.png").read_bytes() == bytes(1000), "it is fetched again"


def test_what_this_machine_published_is_not_fetched(
    moto: Bucket, proxy: ThreadedProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = opened(moto.through(proxy.url), tmp_path, monkeypatch)
    files.publish(written(tmp_path, b"mine"), "fox.png", replaces=False)
    before = len(proxy.times("GET"))
    assert files.local("fox.png").read_bytes() == b"mine"
    assert len(proxy.times("GET")) == before


def test_files_on_this_machine_are_looked_for_on_this_machine(
    moto: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(moto, tmp_path, monkeypatch)
    here, gone = written(tmp_path, b"here"), str(tmp_path / "gone.png")
    location = moto.location(tmp_path)
    assert missing_files(location, [str(here), gone, "fox.png"]) == ["fox.png", gone]
    assert open_files(location, str(here)).local(str(here)) == here
    assert location.address("fox.png") == f"{moto.url}/fox.png"
    assert location.address(str(here)) == str(here)


# Places that cannot be used.


@pytest.mark.parametrize(
    ("url", "environment", "words"),
    [
        ("s3://no-such-bucket/x", {}, "there is no bucket no-such-bucket: make it"),
        ("az://container/x", {}, "Account must be specified"),
    ],
)
def test_a_place_that_cannot_be_used_is_one_clear_line(
    moto: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    environment: dict[str, str],
    words: str,
) -> None:
    for name, value in {**moto.environment, **environment}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadLocation) as refused:
        open_files(Location(tmp_path, url, tmp_path / "memory")).check()
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_wrong_credentials_are_refused_and_not_repeated(
    rclone: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**rclone.environment, "AWS_SECRET_ACCESS_KEY": "not-the-right-one"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadLocation, match="403 Forbidden") as refused:
        open_files(rclone.location(tmp_path)).check()
    assert "not-the-right-one" not in str(refused.value)
    assert rclone.environment["AWS_ACCESS_KEY_ID"] not in str(refused.value)


def test_a_store_that_is_away_is_no_mistake_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in credentials(f"http://127.0.0.1:{free_port()}").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FilesAway, match="does not answer"):
        open_files(Location(tmp_path, "s3://bucket/x", tmp_path / "memory")).check()


def test_the_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "comfyui_agent.files.objects", raising=False)
    with pytest.raises(BadLocation, match=r"needs the package obstore: pip install 'e3-comfyui-agent\[objects\]'"):
        open_files(Location(tmp_path, "s3://bucket/y", tmp_path / "memory"))


def test_a_folder_that_is_not_mounted_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadLocation, match="mount it"):
        open_files(Location(tmp_path / "gone")).check()
