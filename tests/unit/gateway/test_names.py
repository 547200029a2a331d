"""The history has the order in which prompts were executed, as far as one clock tells."""

from __future__ import annotations

from comfyui_agent.gateway.names import Listed, in_order


def listed(name: str, server: str | None, finished: int | None) -> Listed:
    messages = [] if finished is None else [["execution_success", {"timestamp": finished}]]
    return Listed({"prompt": [0, name], "status": {"messages": messages}}, server)


def test_prompts_of_one_server_stand_as_it_executed_them_and_servers_keep_their_places() -> None:
    stored = [listed("a", "one", 20), listed("x", "two", 5), listed("b", "one", 10), listed("y", "two", 7)]
    assert [each.entry["prompt"][1] for each in in_order(stored) if each.entry] == ["b", "x", "a", "y"]


def test_what_left_no_trace_and_what_has_no_time_come_first_of_their_server() -> None:
    stored = [listed("a", "one", 20), Listed(None, None), listed("b", "one", None)]
    assert [each.entry and each.entry["prompt"][1] for each in in_order(stored)] == ["b", None, "a"]
