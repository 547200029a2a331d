"""The metrics log: each event once, in order, whatever happens to its writer."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from comfyui_agent.domain.events import Event
from comfyui_agent.events.bus import Bus
from comfyui_agent.events.log import TAIL, MetricsLog, append, end_last_line


def event(number: int, **facts: object) -> Event:
    return Event("job.done", "2026-01-01 00:00:00.000", number, job_id=number, **facts)  # type: ignore[arg-type]


def ids(path: Path) -> list[int]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "infra" / "metrics.ndjson"


def opened(path: Path, **limits: int) -> MetricsLog:
    log = MetricsLog(path, **limits)
    assert log.try_open()
    return log


def test_a_line_says_what_applies_and_nothing_else(path: Path) -> None:
    log = opened(path)
    log.write([event(1, config_name="k.yaml", duration_sec=1.5)])
    assert json.loads(path.read_text()) == {
        "timestamp": "2026-01-01 00:00:00.000",
        "event": "job.done",
        "id": 1,
        "job_id": 1,
        "config_name": "k.yaml",
        "duration_sec": 1.5,
    }


def test_one_process_writes_and_the_next_goes_on_where_it_ended(path: Path) -> None:
    first, second = opened(path), MetricsLog(path)
    assert not second.try_open()
    first.write([event(1), event(2)])
    first.close()
    assert second.try_open()
    assert second.last_id == 2
    second.write([event(2), event(3)])
    assert ids(path) == [1, 2, 3]


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_line_that_a_killed_writer_left_half_is_written_again(path: Path, cut: int) -> None:
    log = opened(path)
    log.write([event(1), event(2)])
    log.close()
    path.write_bytes(path.read_bytes()[:-cut])
    again = opened(path)
    assert again.last_id == 1
    again.write([event(1), event(2), event(3)])
    assert ids(path) == [1, 2, 3]


def test_it_is_rotated_by_size_and_loses_nothing_that_is_kept(path: Path) -> None:
    log = opened(path, largest=400, kept=3)
    for number in range(1, 31):
        log.write([event(number)])
    files = [path.with_name(f"{path.name}.{number}") for number in (3, 2, 1)] + [path]
    kept = [number for file in files if file.exists() for number in ids(file)]
    assert kept == list(range(kept[0], 31))
    assert all(file.stat().st_size < 600 for file in files if file.exists())
    assert not path.with_name(f"{path.name}.4").exists()


def test_after_a_rotation_the_next_writer_still_knows_where_to_go_on(path: Path) -> None:
    log = opened(path, largest=10)
    log.write([event(7)])
    log.close()
    assert not path.exists()
    assert opened(path).last_id == 7


def test_texts_that_are_no_unicode_do_not_break_it(path: Path) -> None:
    log = opened(path)
    log.write([event(1, message="\ud800 broken")])
    assert ids(path) == [1]


def test_a_subscriber_that_fails_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bus, heard = Bus(), []

    def broken(_: Event) -> None:
        raise ValueError("no")

    bus.subscribe(broken)
    end = bus.subscribe(heard.append)
    bus.tell(event(1))
    end()
    bus.tell(event(2))
    assert [each.id for each in heard] == [1]
    assert "a subscriber failed" in caplog.text


def test_a_full_disk_leaves_no_half_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(path)
    log.write([event(1)])
    real = os.write

    def write_a_little(handle: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", fail)
        return real(handle, data[:7])

    def fail(_handle: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write_a_little)
    with pytest.raises(OSError, match="No space"):
        log.write([event(2)])
    monkeypatch.setattr(os, "write", real)
    log.write([event(2), event(3)])
    assert ids(path) == [1, 2, 3]


def test_events_of_another_database_are_counted_anew(path: Path) -> None:
    first = MetricsLog(path, "one")
    assert first.try_open()
    first.write([event(1), event(2)])
    first.close()
    for source, last in (("one", 2), ("two", 0)):
        log = MetricsLog(path, source)
        assert log.try_open()
        assert log.last_id == last
        log.close()


def test_lines_that_others_add_have_no_number_and_hide_none(path: Path) -> None:
    log = opened(path)
    log.write([event(1), event(2)])
    for number in range(3000):
        append(path, {"timestamp": "2026-01-01 00:00:00.000", "event": "job.done", "load_test": f"{number:0200}"})
    log.write([event(3)])
    append(path, {"event": "job.done", "message": "Füchse \ud800 🦊"})
    log.close()
    assert path.stat().st_size > 5 * TAIL
    again = opened(path)
    assert again.last_id == 3
    again.write([event(2), event(3), event(4)])
    again.close()
    for number in range(1000):  # nothing but foreign lines at the end, for many blocks
        append(path, {"event": "job.done", "load_test": f"{number:0300}"})
    last = opened(path)
    assert last.last_id == 4
    last.write([event(number) for number in range(1, 6)])
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    assert [line["id"] for line in lines if "id" in line] == [1, 2, 3, 4, 5]
    assert sum("load_test" in line for line in lines) == 4000


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_wherever_a_block_ends_the_last_event_is_found(path: Path, blocks: int) -> None:
    log = opened(path)
    log.write([event(1), event(2)])
    log.close()
    events = path.read_bytes()
    for cut in range(0, len(events) // 2 + 3, 3):
        missing = blocks * TAIL - cut  # so that a block begins within the last event
        filler = (b"{}" + b" " * 97 + b"\n") * (missing // 100) + b"\n" * (missing % 100)
        path.write_bytes(events + filler)
        assert opened_and_closed(path) == 2, cut


def test_a_foreign_line_longer_than_a_block_hides_no_event(path: Path) -> None:
    log = opened(path)
    log.write([event(1), event(2)])
    log.close()
    append(path, {"event": "job.done", "message": "x" * (3 * TAIL)})
    assert opened_and_closed(path) == 2


def test_an_event_longer_than_a_block_is_not_written_twice(path: Path) -> None:
    log = opened(path)
    log.write([event(1), event(2, message="x" * (2 * TAIL))])
    log.close()
    assert opened_and_closed(path) == 2


@pytest.mark.parametrize("line", ["[" * 100_000, '{"id": Infinity}', '{"id": null}', '{"id": "x"}', "5", "\x00", "{}"])
def test_a_foreign_line_of_any_kind_keeps_no_agent_from_its_log(path: Path, line: str) -> None:
    log = opened(path)
    log.write([event(1), event(2)])
    log.close()
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    assert opened_and_closed(path) == 2


def test_a_line_added_after_a_writer_was_killed_stands_for_itself(path: Path) -> None:
    log = opened(path)
    log.write([event(1), event(2)])
    log.close()
    path.write_bytes(path.read_bytes()[:-5])
    end_last_line(path)
    append(path, {"event": "job.done", "load_test": "a"})
    assert json.loads(path.read_text().splitlines()[-1]) == {"event": "job.done", "load_test": "a"}


def test_many_add_lines_at_once_and_none_is_torn(path: Path) -> None:
    log = opened(path)

    def add(name: int) -> None:
        for number in range(100):
            append(path, {"load_test": name, "number": number, "message": "x" * 500})

    threads = [threading.Thread(target=add, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 101):
        log.write([event(number)])
    for thread in threads:
        thread.join()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["id"] for line in lines if "id" in line] == list(range(1, 101))
    assert len(lines) == 500


def opened_and_closed(path: Path) -> int:
    log = opened(path)
    log.close()
    return log.last_id
