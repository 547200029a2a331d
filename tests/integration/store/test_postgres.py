"""A PostgreSQL that cannot be used is refused in one line; its tables are made once; several writers keep an order."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import compact_store, migrate_store, open_store, version_of
from comfyui_agent.store.errors import DatabaseAway, DatabaseUnusable, StoreError
from comfyui_agent.store.postgres.migrator import NEWEST
from comfyui_agent.store.store import Store
from support import postgres
from support.stores import PostgresDatabase, lease, submit_one

PASSWORD = "s3cr3t"


@pytest.fixture
def url() -> str:
    """An empty database."""
    return postgres.new_database()


def refused(url: str, kind: type[StoreError]) -> str:
    """The one line that somebody reads who opens this."""
    with pytest.raises(kind) as caught:
        open_store(url, give_up=lambda: True)
    words = str(caught.value)
    assert "\n" not in words
    assert PASSWORD not in words
    return words


def with_user(url: str, user: str) -> str:
    """The same database for another user, or with a password."""
    return f"postgresql://{user}@{url.rpartition('@')[2]}"


# Whose tables they are.


def test_a_newer_database_is_refused_in_one_line_and_left_alone(url: str) -> None:
    migrate_store(url)
    postgres.execute(url, "UPDATE about SET value = '99' WHERE key IN ('version', 'compatible')")
    words = refused(url, DatabaseUnusable)
    assert f"has version 99, this E3 knows up to {NEWEST}: install the newer E3 again" in words
    assert version_of(url) == (99, NEWEST)


async def test_a_newer_database_that_says_so_is_worked_with(url: str) -> None:
    migrate_store(url)
    postgres.execute(url, "UPDATE about SET value = '99' WHERE key = 'version'")
    store = open_store(url)
    assert await submit_one(store) == 1
    await store.close()
    assert migrate_store(url) == (99, 99)


@pytest.mark.parametrize(
    "tables",
    [
        "CREATE TABLE jobs (id int)",
        "CREATE TABLE about (author text)",
        "CREATE TABLE about (author text); CREATE TABLE jobs (id int)",
        "CREATE TABLE about (key text, value text); CREATE TABLE jobs (id int)",
        "CREATE TABLE about (key, value) AS VALUES ('version', 'first edition'); CREATE TABLE jobs (id int)",
        "CREATE TABLE about (key int, value int); CREATE TABLE jobs (id int)",
    ],
)
def test_tables_of_another_program_are_left_alone(url: str, tables: str) -> None:
    postgres.execute(url, tables)
    assert "of another program: name another database, or a schema of its own" in refused(url, DatabaseUnusable)
    found = postgres.execute(url, "SELECT count(*) AS tables FROM pg_class WHERE relname IN ('batches', 'attempts')")
    assert found == [{"tables": 0}]


async def test_a_schema_of_its_own_is_beside_tables_of_another_program(url: str) -> None:
    postgres.execute(url, "CREATE TABLE jobs (id int); CREATE SCHEMA e3")
    store = open_store(f"{url}?options=-csearch_path%3De3")
    assert await submit_one(store) == 1
    await store.close()
    assert postgres.execute(url, "SELECT count(*) AS jobs FROM public.jobs") == [{"jobs": 0}]


def test_several_processes_may_make_the_tables_at_once() -> None:
    for _ in range(3):
        url, at_once = postgres.new_database(), threading.Barrier(4)

        def migrate(url: str = url, at_once: threading.Barrier = at_once) -> tuple[int, int]:
            at_once.wait(60)
            return migrate_store(url)

        with ThreadPoolExecutor(4) as threads:
            found = [each.result() for each in [threads.submit(migrate) for _ in range(4)]]
        assert {after for _, after in found} == {NEWEST}
        assert (0, NEWEST) in found


async def test_free_space_is_given_back_while_agents_work(url: str) -> None:
    store = open_store(url)
    await submit_one(store)
    assert compact_store(url).templates == 0
    await submit_one(store, "next")
    await store.close()


# What cannot be reached.


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:1"])
def test_a_server_that_is_not_there_is_named_without_its_password(host: str) -> None:
    words = refused(f"postgresql://me:{PASSWORD}@{host}/e3", DatabaseAway)
    assert f"postgresql://{host}/e3" in words
    assert "refused" in words


def test_a_host_that_is_not_there_is_named_without_its_password() -> None:
    assert "postgres://nowhere.invalid/e3" in refused(f"postgres://me:{PASSWORD}@nowhere.invalid/e3", DatabaseAway)


def test_an_address_that_is_none_is_refused_without_its_password() -> None:
    refused(f"postgresql://me:{PASSWORD}@127.0.0.1:port/e3", DatabaseUnusable)
    refused(f"postgresql://me:{PASSWORD}@127.0.0.1/e3?colour=blue", DatabaseUnusable)


def test_a_database_that_is_not_there_is_refused(url: str) -> None:
    assert 'database "none" does not exist' in refused(f"{url.rpartition('/')[0]}/none", DatabaseUnusable)


def test_without_the_package_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setitem(sys.modules, "comfyui_agent.store.postgres.driver", None)
    monkeypatch.delattr("comfyui_agent.store.postgres.driver")
    assert "pip install" in refused(url, DatabaseUnusable)


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A database that asks for a password, with its user and without the password."""
    postgres.skip_without_postgres()
    with postgres.server_of_its_own() as server:
        postgres.execute(server.url, f"CREATE ROLE me LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        postgres.execute(server.url, "CREATE DATABASE mine")
        rules = server.data / "pg_hba.conf"
        rules.write_text("host all me 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        postgres.execute(server.url, "SELECT pg_reload_conf()")
        yield with_user(server.database("mine"), "me")


@pytest.mark.parametrize("user", ["me", "me:wrong", "nobody:wrong"])
def test_a_wrong_password_is_refused_in_one_line(guarded: str, user: str) -> None:
    words = refused(with_user(guarded, user), DatabaseUnusable)
    assert "wrong" not in words
    assert ("password" if user.startswith("me") else "does not exist") in words


def test_a_password_may_be_in_the_url_or_in_a_file(
    guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_store(with_user(guarded, f"me:{PASSWORD}"))
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"*:*:*:me:{PASSWORD}\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    assert version_of(guarded) == (NEWEST, NEWEST)


def test_one_who_may_only_read_is_refused(url: str) -> None:
    migrate_store(url)
    name = f"reader_{url.rpartition('/')[2]}"
    postgres.execute(url, f"CREATE ROLE {name} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
    assert "permission denied" in refused(with_user(url, name), DatabaseUnusable)


# Several writers.


@pytest.fixture
async def mine(tmp_path: Path) -> AsyncIterator[PostgresDatabase]:
    made = PostgresDatabase(tmp_path)
    yield made
    await made.close()


async def note(store: Store, message: str) -> None:
    await store.run(ops.add_event, Event(EventName.SERVER_UP, message=message))


async def noted(store: Store, after: int = 0) -> list[str | None]:
    return [event.message for event in await store.run(ops.events_after, after)]


NOTE = "INSERT INTO events (at, event, message) VALUES (now(), 'server.up', %s)"


async def test_an_event_that_is_not_committed_yet_holds_back_later_ones(mine: PostgresDatabase) -> None:
    store = mine.open()
    await note(store, "first")
    with psycopg.connect(mine.url) as slow:
        slow.execute(NOTE, ["slow"])
        await note(store, "quick")
        assert await noted(store) == ["first"]
        newest = await store.run(ops.newest_event)
    assert await noted(store, newest) == ["slow", "quick"]


async def test_an_open_transaction_of_another_database_holds_nothing_back(mine: PostgresDatabase, url: str) -> None:
    store = mine.open()
    with psycopg.connect(url) as elsewhere:
        elsewhere.execute("CREATE TABLE theirs (id int)")
        await note(store, "here")
        assert await noted(store) == ["here"]


async def test_what_a_transaction_says_after_it_saw_another_comes_after_that(mine: PostgresDatabase) -> None:
    store = mine.open()
    with psycopg.connect(mine.url) as slow:
        slow.execute(NOTE, ["begun"])
        await note(store, "between")
        slow.execute(NOTE, ["ended"])
    assert await noted(store) == ["begun", "between", "ended"]


async def test_a_reader_that_follows_many_writers_sees_each_event_once_and_each_writer_in_order(
    mine: PostgresDatabase,
) -> None:
    reader, stores = mine.open(), [mine.open() for _ in range(4)]
    seen: list[tuple[str, int]] = []

    async def write(store: Store, name: str) -> None:
        for number in range(40):
            await note(store, f"{name} {number}")

    async def follow() -> None:
        last = 0
        while len(seen) < 160:
            for event in await reader.run(ops.events_after, last, 7):
                assert event.id is not None
                assert event.id > last
                last = event.id
                name, number = str(event.message).split()
                seen.append((name, int(number)))

    await asyncio.wait_for(asyncio.gather(follow(), *(write(each, f"w{n}") for n, each in enumerate(stores))), 60)
    assert len(set(seen)) == len(seen) == 160
    for name in {name for name, _ in seen}:
        assert [number for each, number in seen if each == name] == list(range(40))


async def test_a_database_that_was_restored_elsewhere_goes_on_with_higher_ids(url: str) -> None:
    """Where it is restored, transactions may have lower numbers than where it was."""
    migrate_store(url)
    postgres.execute(
        url, "INSERT INTO events (id, at, event, message) VALUES (1::bigint << 60, now(), 'server.up', 'old')"
    )
    store = open_store(url)
    await note(store, "new")
    assert await noted(store) == ["old", "new"]
    await store.close()


async def test_what_another_process_records_is_noticed_beside_own_changes(mine: PostgresDatabase) -> None:
    store, other = mine.open(), mine.open()
    told = asyncio.Event()
    store.on_change(told.set)
    await note(store, "own")
    await note(other, "other's")  # a transition: nobody is told of it
    await asyncio.wait_for(told.wait(), 10)


async def test_own_changes_are_no_news(mine: PostgresDatabase) -> None:
    store, other = mine.open(), mine.open()
    news = 0

    def count() -> None:
        nonlocal news
        news += 1

    store.on_change(count)
    told = asyncio.Event()
    other.on_change(told.set)
    await note(store, "own")
    await asyncio.wait_for(told.wait(), 10)  # the other has looked meanwhile
    assert news == 0


async def test_a_job_that_another_agent_is_about_to_take_is_left_to_it_and_the_next_one_is_leased(
    mine: PostgresDatabase,
) -> None:
    store = mine.open()
    names = ["first", "second", "third"]
    for name in names:
        await submit_one(store, name)
    await lease(store)  # the models of the server are known from now on
    async with await psycopg.AsyncConnection.connect(mine.url) as other:
        await other.execute("SELECT 1 FROM jobs WHERE config_name = 'second' FOR UPDATE")
        assert [leased.config_name for leased in await lease(store)] == ["third"]
        assert await lease(store) == []
    assert [leased.config_name for leased in await lease(store)] == ["second"]
