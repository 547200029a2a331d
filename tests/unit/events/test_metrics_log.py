"""The metrics log: each event once, in order, whatever happens to its writer."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from comfyui_agent.domain.events import Event
from comfyui_agent.events.bus import Bus
from comfyui_agent.events.log import MetricsLog


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
