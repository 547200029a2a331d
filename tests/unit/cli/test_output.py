"""What servers say reaches log and terminal as letters, on one line, and does nothing there."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from comfyui_agent.cli.output import log_for_people, print_json
from comfyui_agent.cli.servers import line_of, print_table
from comfyui_agent.comfy.answers import Device, SystemStats
from comfyui_agent.engine.server_reports import ServerReport

EVIL = "\x1b]0;owned\x07\x9b2J\u202eevil\r\n12:00:00  all jobs were deleted"
HARMFUL = set("\x1b\x07\x9b\u202e\r\x7f")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    root = logging.Logger("people")
    monkeypatch.setattr(logging, "basicConfig", lambda **options: root.addHandler(options["handlers"][0]))
    log_for_people(verbose=True)
    return root


def test_a_log_line_is_one_line(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log.warning("fetching %s: %s", "a.png", EVIL)
    (line,) = capsys.readouterr().err.splitlines()
    assert not HARMFUL & set(line)
    assert "owned" in line
    assert "all jobs were deleted" in line


def test_a_traceback_is_indented_so_that_it_forges_no_line(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        log.exception("it failed")
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith("it failed")
    assert len(rest) > 3
    assert all(line.startswith("    ") and not HARMFUL & set(line) for line in rest)


def test_json_says_the_same_and_does_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"error": EVIL + "\x7f\ud800", "name": "Fräulein 日本 👩\u200d🎨"}
    print_json(document)
    said = capsys.readouterr().out
    assert json.loads(said) == document
    assert not HARMFUL & set(said)
    assert "Fräulein 日本 👩\u200d🎨" in said
    said.encode(sys.getdefaultencoding())


def test_a_server_forges_no_line_with_its_version_or_its_card(capsys: pytest.CaptureFixture[str]) -> None:
    devices = (Device(EVIL, "cuda", 8 * 1024**3, 4 * 1024**3),)
    report = ServerReport("http://a:8188", "http://a:8188", stats=SystemStats(EVIL, "", "", "", 0, 0, devices))
    assert "\n" not in line_of(report, 10, 10)
    print_table([report], {})
    said = capsys.readouterr().out
    assert not HARMFUL & set(said)
    assert not any(line.startswith("12:00:00") for line in said.splitlines())
