"""A prompt succeeded only if everything that is known about it says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.comfy.answers import HistoryEntry
from comfyui_agent.comfy.outcomes import LONGEST_MESSAGE, LONGEST_TRACEBACK, Failed, Outcome, PromptFacts, Succeeded
from comfyui_agent.comfy.outcomes import read_error as read_live_error
from comfyui_agent.comfy.outcomes import read_outcome as judge
from comfyui_agent.comfy.rejections import read_node_errors
from comfyui_agent.domain.failures import FailureClass
from support.any_json import ANY_JSON

GRAPH = {
    "1": {"class_type": "EmptyImage", "inputs": {}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
}
IMAGE = {"filename": "x_00001_.png", "subfolder": "", "type": "output"}
START = ["execution_start", {"timestamp": 1_000_000}]
CACHED = ["execution_cached", {"nodes": ["1"], "timestamp": 1_000_100}]
SUCCESS = ["execution_success", {"timestamp": 1_002_500}]


def entry(
    *messages: Any, status: str = "success", completed: bool = True, outputs: Any = None, executed: Any = ("2",)
) -> HistoryEntry:
    document = {
        "prompt": [0, "id", GRAPH, {}, list(executed)],
        "outputs": {"2": {"images": [IMAGE]}} if outputs is None else outputs,
        "status": {"status_str": status, "completed": completed, "messages": [START, CACHED, *messages]},
    }
    read = HistoryEntry.read("id", {"id": document})
    assert read is not None
    return read


def failure_class(outcome: Outcome) -> FailureClass:
    assert isinstance(outcome, Failed)
    return outcome.failure.kind


def error(**data: Any) -> list[Any]:
    return ["execution_error", {"node_id": "2", "node_type": "SaveImage", **data}]


def test_a_success_tells_its_results_its_cache_and_its_time() -> None:
    outcome = judge(entry(SUCCESS), PromptFacts())
    assert isinstance(outcome, Succeeded)
    assert [file.filename for file in outcome.results.files] == ["x_00001_.png"]
    assert outcome.cached_nodes == {"1"}
    assert outcome.is_cached
    assert outcome.seconds == 2.5


@pytest.mark.parametrize("status", ["success", "error", "", "teleported"])
def test_an_error_as_the_last_word_is_a_failure_whatever_the_status(status: str) -> None:
    """A dependency cycle found at run time has the status of a success."""
    last = error(exception_message="Dependency cycle detected\n", exception_type="graph.DependencyCycleError")
    outcome = judge(entry(last, status=status), PromptFacts())
    assert failure_class(outcome) is FailureClass.EXECUTION
    assert isinstance(outcome, Failed)
    assert outcome.failure.message == "Dependency cycle detected"
    assert outcome.failure.node_id == "2"
    assert not outcome.partial.is_empty


def test_the_last_known_ending_counts_and_later_unknown_messages_do_not() -> None:
    outcome = judge(entry(SUCCESS, ["execution_applauded", {}], ["cleanup", {"ok": False}]), PromptFacts())
    assert isinstance(outcome, Succeeded)


def test_a_status_of_error_is_not_a_success_though_the_last_message_is() -> None:
    assert failure_class(judge(entry(SUCCESS, status="error"), PromptFacts())) is FailureClass.EXECUTION


def test_an_unknown_status_with_a_message_of_success_is_a_success() -> None:
    assert isinstance(judge(entry(SUCCESS, status="completed_2"), PromptFacts()), Succeeded)


def test_without_an_ending_a_completed_success_is_believed() -> None:
    assert isinstance(judge(entry(), PromptFacts()), Succeeded)


def test_without_an_ending_anything_else_is_a_failure() -> None:
    for status, completed in [("success", False), ("error", False), ("error", True), ("", True), ("cancelled", True)]:
        outcome = judge(entry(status=status, completed=completed), PromptFacts())
        assert failure_class(outcome) is FailureClass.EXECUTION, (status, completed)


def test_an_interruption_that_was_asked_for_is_a_cancellation() -> None:
    last = ["execution_interrupted", {"node_id": "1", "node_type": "EmptyImage"}]
    known = PromptFacts(cancel_requested=True)
    assert failure_class(judge(entry(last, status="error"), known)) is FailureClass.CANCELLED


def test_an_interruption_by_a_stranger_is_an_interruption() -> None:
    last = ["execution_interrupted", {"node_id": "1", "node_type": "EmptyImage"}]
    outcome = judge(entry(last, status="error"), PromptFacts())
    assert failure_class(outcome) is FailureClass.INTERRUPTED
    assert isinstance(outcome, Failed)
    assert (outcome.failure.node_id, outcome.failure.node_type) == ("1", "EmptyImage")


def test_a_save_node_without_a_file_is_an_output_failure_that_names_it() -> None:
    outcome = judge(entry(SUCCESS, outputs={"1": {"text": ["hi"]}}), PromptFacts())
    assert failure_class(outcome) is FailureClass.OUTPUT
    assert isinstance(outcome, Failed)
    assert "node 2 (SaveImage) left no result" in outcome.failure.message


def test_a_blocker_heard_over_the_websocket_is_the_reason_for_a_missing_output() -> None:
    heard = ({"node_id": "2", "exception_message": "blocked:\nno face found"},)
    outcome = judge(entry(SUCCESS, outputs={}), PromptFacts(heard_errors=heard))
    assert failure_class(outcome) is FailureClass.OUTPUT
    assert isinstance(outcome, Failed)
    assert "(blocked: no face found)" in outcome.failure.message


def test_an_error_heard_over_the_websocket_alone_does_not_undo_a_success() -> None:
    heard = ({"node_id": "7", "exception_message": "blocked"},)
    assert isinstance(judge(entry(SUCCESS), PromptFacts(heard_errors=heard)), Succeeded)


def test_expected_nodes_must_leave_a_result() -> None:
    assert isinstance(judge(entry(SUCCESS), PromptFacts(expected=frozenset({"2"}))), Succeeded)
    outcome = judge(entry(SUCCESS), PromptFacts(expected=frozenset({"2", "1"})))
    assert failure_class(outcome) is FailureClass.OUTPUT


def test_a_prompt_from_which_nothing_is_expected_may_leave_nothing() -> None:
    outcome = judge(entry(SUCCESS, outputs={}), PromptFacts(expected=frozenset()))
    assert isinstance(outcome, Succeeded)


def test_a_prompt_that_left_nothing_at_all_is_an_output_failure() -> None:
    assert failure_class(judge(entry(SUCCESS, outputs={}, executed=()), PromptFacts())) is FailureClass.OUTPUT


def test_countless_missing_outputs_are_counted_not_listed() -> None:
    expected = frozenset(str(n) for n in range(10_000))
    outcome = judge(entry(SUCCESS), PromptFacts(expected=expected))
    assert isinstance(outcome, Failed)
    assert len(outcome.failure.message) < 500
    assert "more" in outcome.failure.message


def test_outputs_that_the_server_dropped_are_no_success() -> None:
    for received, kind in [("a.safetensors", FailureClass.MISSING), ("euler", FailureClass.INVALID)]:
        problem = {"type": "value_not_in_list", "message": "Not in list", "extra_info": {"received_value": received}}
        errors = read_node_errors({"4": {"class_type": "Loader", "errors": [problem]}})
        outcome = judge(entry(SUCCESS), PromptFacts(node_errors=errors))
        assert failure_class(outcome) is kind, (received, kind)
        assert isinstance(outcome, Failed), (received, kind)
        assert outcome.failure.details == ("node 4 (Loader): Not in list",), (received, kind)


def test_outputs_found_to_be_dropped_without_the_answer_are_no_success() -> None:
    outcome = judge(entry(SUCCESS), PromptFacts(dropped=frozenset({"2"})))
    assert failure_class(outcome) is FailureClass.INVALID


def test_running_out_of_memory_is_known_in_every_spelling() -> None:
    for exception_type, message in [
        ("torch.OutOfMemoryError", "Allocation on device 0 would exceed allowed memory."),
        ("torch.cuda.OutOfMemoryError", "anything"),
        ("RuntimeError", "CUDA out of memory. Tried to allocate 20.00 MiB"),
        ("RuntimeError", "CUDA error: out of memory"),
        ("RuntimeError", "HIP out of memory. Tried to allocate 2 GiB"),
        ("RuntimeError", "MPS backend out of memory (MPS allocated: 17 GB)"),
        ("RuntimeError", "XPU out of memory"),
        ("RuntimeError", "Native API failed: UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory: you tried"),
        ("RuntimeError", "Could not allocate tensor. There is not enough GPU video memory available!"),
        ("MemoryError", ""),
        ("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 3.00 GiB for an array"),
        ("", "Allocation on device \nThis error means you ran out of memory on your GPU."),
    ]:
        last = error(exception_type=exception_type, exception_message=message)
        assert failure_class(judge(entry(last, status="error"), PromptFacts())) is FailureClass.OOM, (
            exception_type,
            message,
        )


def test_other_errors_are_not_out_of_memory() -> None:
    for message in ["file not found", "memory", "allocated", "shape mismatch"]:
        last = error(exception_type="ValueError", exception_message=message)
        assert failure_class(judge(entry(last, status="error"), PromptFacts())) is FailureClass.EXECUTION, message


def test_a_huge_traceback_keeps_its_end() -> None:
    lines = [f"line {n}\n" for n in range(50_000)]
    failure = read_live_error({"traceback": lines, "exception_message": "m" * 100_000})
    assert len("".join(failure.traceback)) <= LONGEST_TRACEBACK + 2
    assert "".join(failure.traceback).endswith("line 49999\n")
    assert len(failure.message) <= LONGEST_MESSAGE


def test_countless_empty_lines_of_traceback_are_not_kept() -> None:
    assert read_live_error({"traceback": [""] * 100_000}).traceback == ()


def test_an_error_without_a_reason_says_so() -> None:
    for data in [{}, {"traceback": "text"}, {"traceback": [None, 5]}, {"exception_message": 5, "node_id": ["x"]}]:
        assert read_live_error(data).message == "the server names no reason", data


@given(
    st.lists(st.tuples(st.sampled_from(["execution_error", "execution_interrupted", "x"]), ANY_JSON), max_size=3),
    ANY_JSON,
)
def test_entries_of_any_shape_end_in_an_outcome_that_can_be_written_down(messages: Any, outputs: Any) -> None:
    read = entry(*map(list, messages), outputs=outputs if isinstance(outputs, dict) else {})
    outcome = judge(read, PromptFacts())
    if isinstance(outcome, Failed):
        assert outcome.failure.trace().encode()
        assert "\0" not in outcome.failure.trace()
