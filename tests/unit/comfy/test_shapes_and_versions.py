"""JSON that may be anything is read into the asked-for type, or the error says where it was not found."""

from __future__ import annotations

import pytest

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.answers import HistoryEntry, Message, QueueView, SystemStats
from comfyui_agent.comfy.cancellation import can_interrupt_one
from comfyui_agent.comfy.errors import ProtocolError

HUGE = 10**400


def test_what_is_no_finite_number_is_refused() -> None:
    for value in [None, True, "5", [], {}, float("nan"), float("inf"), HUGE, -HUGE]:
        with pytest.raises(ProtocolError, match=r"^a size should be a"):
            shapes.number(value, "a size")
        assert shapes.optional_number(value) is None, value


def test_numbers_are_read() -> None:
    assert shapes.number(3, "") == 3.0


def test_an_error_names_what_was_found() -> None:
    for value, named in [(None, "null"), (True, "a boolean"), (1, "a number"), ("x", "a text"), ([], "a list")]:
        with pytest.raises(ProtocolError, match=f"^the queue should be an object, not {named}$"):
            shapes.expect(dict, value, "the queue")


def test_what_is_shown_is_one_line_and_not_too_long() -> None:
    assert shapes.shown("a\n\tb \0\ud800\x1b[31mc") == "a b [31mc"
    assert len(shapes.shown("x" * 1_000_000)) == 200
    assert shapes.shown(None) == ""


def test_the_waiting_are_in_the_order_in_which_they_will_run() -> None:
    item = [[3, "c"], [1, "b"], [1, "a"], [-1, "d"]]
    queue = {"queue_running": [], "queue_pending": [[*each, {}, {"client_id": "me"}, []] for each in item]}
    view = QueueView.read(queue)
    assert [prompt.prompt_id for prompt in view.pending] == ["d", "a", "b", "c"]
    assert view.pending[0].client_id == "me"


def test_a_queue_item_of_another_shape_is_an_error() -> None:
    for item in [
        None,
        [],
        [1, "a", {}],
        ["x", "a", {}, {}],
        [1, 5, {}, {}],
        [HUGE, "a", {}, {}],
        [float("nan"), "a", {}, {}],
    ]:
        with pytest.raises(ProtocolError):
            QueueView.read({"queue_running": [item], "queue_pending": []})


def test_a_queue_item_of_a_later_version_may_have_more_parts() -> None:
    item = [1, "a", {}, None, [], {}, "more"]
    assert QueueView.read({"queue_running": [item], "queue_pending": [], "more": 1}).running[0].prompt_id == "a"


def test_history_of_another_prompt_is_no_history_of_this_one() -> None:
    assert HistoryEntry.read("a", {"b": {}}) is None


def test_messages_of_another_shape_are_skipped() -> None:
    messages = [None, [], ["x"], [5, {}], ["y", []], ["execution_success", {"timestamp": HUGE}]]
    document = {"a": {"prompt": [], "outputs": {}, "status": {"messages": messages}}}
    entry = HistoryEntry.read("a", document)
    assert entry is not None
    assert [message.event for message in entry.messages] == ["execution_success"]
    assert entry.messages[0].timestamp is None


def test_a_timestamp_is_in_seconds() -> None:
    assert Message("x", {"timestamp": 1500}).timestamp == 1.5


def test_stats_of_another_shape_are_an_error() -> None:
    for document in [
        {},
        {"system": {}},
        {"system": [], "devices": []},
        {"system": {"ram_free": "much"}, "devices": []},
        {"system": {"ram_free": HUGE}, "devices": []},
        {"system": {}, "devices": [None]},
        {"system": {}, "devices": [{"vram_total": 1}]},
        {"system": {}, "devices": [{"vram_total": float("nan"), "vram_free": 1}]},
    ]:
        with pytest.raises(ProtocolError):
            SystemStats.read(document)


def test_free_memory_is_that_of_all_devices_or_of_the_machine() -> None:
    device = {"vram_total": 10, "vram_free": 4}
    system = {"ram_free": 99}
    assert SystemStats.read({"system": system, "devices": [device, device]}).free_memory == 8
    assert SystemStats.read({"system": system, "devices": []}).free_memory == 99


def test_a_version_tells_whether_one_prompt_can_be_interrupted() -> None:
    for text, can in [
        ("0.7.0", True),
        ("0.3.57", True),
        ("0.3.56", False),
        ("v0.3.57-12-gabcdef", True),
        ("0.19", True),
        ("0.10.0", True),
        ("1.0", True),
        ("0.3", False),
        ("", False),
        ("unknown", False),
        ("9" * 5_000 + ".1", False),
    ]:
        assert can_interrupt_one(text) is can, (text, can)
