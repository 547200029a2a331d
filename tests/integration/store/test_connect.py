"""What cannot be used is refused in one line that says what to do, and is left as it was."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw
import pytest

from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store, version_of
from comfyui_agent.store.errors import (
    DatabaseUnusable,
    StoreError,
)
from comfyui_agent.store.sqlite.migrator import NEWEST
from support.stores import in_the_shell, lease_one, submit_one

OPEN_AS_SOMEBODY_ELSE = """
import asyncio, os, sys
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.connect import open_store

async def main():
    try:
        await open_store(sys.argv[1]).close()
    except StoreError as error:
        print(f"{type(error).__name__}: {error}")

os.setgroups([])
os.setgid(65534)
os.setuid(65534)
asyncio.run(main())
"""


def refused(path: Path | str, kind: type[StoreError], *, create: bool = True) -> str:
    """The words in which a database is refused: one line."""
    with pytest.raises(kind) as raised:
        open_store(path, create=create)
    assert type(raised.value) is kind
    words = str(raised.value)
    assert "\n" not in words
    return words


def fingerprints(folder: Path) -> dict[str, str]:
    """Everything in a folder, to see that nothing was changed."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A database of ours with a job in it, closed."""
    path = tmp_path / "place" / "comfyui_agent.db"
    store = open_store(path)
    await submit_one(store)
    await store.close()
    return path


async def test_a_new_database_is_made_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "new.db"
    store = open_store(path)
    await submit_one(store)
    await store.close()
    assert path.exists()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("form", ["sqlite:///{}", "{}"])
async def test_a_database_is_named_by_a_path_or_a_url(path: Path, form: str) -> None:
    store = open_store(form.format(path), create=False)
    assert (await store.run(ops.count_jobs)).pending == 1
    await store.close()


async def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    store = open_store(tmp_path / "empty.db")
    await submit_one(store)
    await store.close()


async def test_a_copy_elsewhere_has_another_name(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copyfile(path, copy)
    stores = open_store(path), open_store(copy), open_store(path.parent / ".." / "place" / path.name)
    original, copied, same = (store.identity for store in stores)
    assert original == same != copied
    for store in stores:
        await store.close()


def test_a_newer_version_is_refused(path: Path) -> None:
    in_the_shell(path, f"PRAGMA user_version = {NEWEST + 1}")
    before = fingerprints(path.parent)
    words = refused(path, DatabaseUnusable)
    assert f"version {NEWEST + 1}" in words
    assert f"up to {NEWEST}" in words
    assert str(path) in words
    assert fingerprints(path.parent) == before


@pytest.mark.parametrize(
    "content", [b"a note", b"just a note\n" * 3, b"config: value\n" * 1000, b"\x00" * 5000, b"SQLite format 3\x00"]
)
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert "is not a database" in refused(path, DatabaseUnusable)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "made_with",
    [
        pytest.param("CREATE TABLE bookmarks (url TEXT)", id="other-tables"),
        pytest.param("CREATE TABLE jobs (id INTEGER PRIMARY KEY, title TEXT)", id="other-jobs"),
        pytest.param("CREATE TABLE bookmarks (url TEXT); PRAGMA user_version = 1", id="a-version-we-know"),
        pytest.param("PRAGMA application_id = 7; CREATE TABLE x (y)", id="another-application"),
        pytest.param("PRAGMA user_version = 1", id="a-version-and-nothing-else"),
    ],
)
def test_a_database_of_another_program_is_refused_and_left_as_it_was(tmp_path: Path, made_with: str) -> None:
    path = tmp_path / "theirs.db"
    in_the_shell(path, made_with)
    before = fingerprints(tmp_path)
    assert "another program" in refused(path, DatabaseUnusable)
    assert fingerprints(tmp_path) == before
    assert in_the_shell(path, "PRAGMA journal_mode") == [{"journal_mode": "delete"}]


def test_a_database_whose_first_page_is_rubbish_is_said_to_be_corrupt(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * 3900)
    before = fingerprints(path.parent)
    assert "restore a copy" in refused(path, DatabaseUnusable)
    assert fingerprints(path.parent) == before


async def test_pages_that_turn_to_rubbish_are_said_to_be_corrupt_and_not_believed(path: Path) -> None:
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        for page in range(1, pages):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    with pytest.raises(DatabaseUnusable, match="is corrupt"):
        await submit_another(path)


async def submit_another(path: Path) -> None:
    store = open_store(path)
    try:
        await submit_one(store, "another")
    finally:
        await store.close()


def test_a_database_that_was_cut_short_is_said_to_be_corrupt(path: Path) -> None:
    os.truncate(path, 4096 + 100)
    assert "is corrupt" in refused(path, DatabaseUnusable)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "it is a folder; name a file" in refused(tmp_path, DatabaseUnusable)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    assert str(tmp_path / "file") in refused(tmp_path / "file" / "x.db", DatabaseUnusable)
    assert (tmp_path / "file").read_text() == "here"


def test_a_database_that_is_not_there_is_not_made_when_nobody_wants_that(tmp_path: Path) -> None:
    path = tmp_path / "a" / "none.db"
    assert f"there is no database {path}" in refused(path, DatabaseUnusable, create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_a_kind_that_is_not_known_is_refused_without_its_password() -> None:
    words = refused("mysql://me:s3cr3t@host/e3", DatabaseUnusable)
    assert "mysql://" in words
    assert "s3cr3t" not in words


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("what", ["file", "folder", "both"])
def test_what_may_only_be_read_is_refused(path: Path, what: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        theirs = Path(folder, path.name)
        shutil.copyfile(path, theirs)
        theirs.chmod(0o666 if what == "folder" else 0o444)
        theirs.parent.chmod(0o777 if what == "file" else 0o755)
        before = fingerprints(theirs.parent)
        command = [sys.executable, "-c", OPEN_AS_SOMEBODY_ELSE, str(theirs)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout.startswith(f"{DatabaseUnusable.__name__}: the database {theirs} is read-only")
        assert answer.stdout.count("\n") == 1
        assert fingerprints(theirs.parent) == before


async def test_a_database_that_was_refused_is_not_kept_open(path: Path) -> None:
    in_the_shell(path, f"PRAGMA user_version = {NEWEST + 1}")
    refused(path, DatabaseUnusable)
    in_the_shell(path, f"PRAGMA journal_mode = delete; PRAGMA user_version = {NEWEST}")
    store = open_store(path)
    assert (await lease_one(store)).config_name == "knight.yaml"
    await store.close()


def test_the_version_is_the_true_one_also_while_only_the_log_has_it(tmp_path: Path) -> None:
    path = tmp_path / "night.db"
    with contextlib.closing(apsw.Connection(str(path))) as database:
        database.execute("PRAGMA journal_mode = WAL")
        for pragma in ("user_version = 3", "wal_checkpoint(TRUNCATE)", "wal_autocheckpoint = 0", "user_version = 5"):
            database.execute(f"PRAGMA {pragma}")
        assert int.from_bytes(path.read_bytes()[60:64], "big") == 3
        assert version_of(path) == (5, NEWEST)
    assert version_of(path) == (5, NEWEST)
