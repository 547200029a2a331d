"""A failure reads as what happened, to what, where, with the server's own traceback below."""

from __future__ import annotations

from comfyui_agent.domain.failures import Failure, FailureClass


def test_a_class_prints_as_users_see_it() -> None:
    assert str(FailureClass.OOM) == f"{FailureClass.OOM}" == "oom"


def test_the_trace_of_a_bare_failure_is_one_line() -> None:
    assert Failure(FailureClass.TIMEOUT, "it took too long").trace() == "timeout: it took too long"


def test_the_trace_of_a_full_failure_names_node_server_prompt_and_traceback() -> None:
    failure = Failure(
        FailureClass.EXECUTION,
        "boom",
        server="http://host:8188",
        prompt_id="abc",
        node_id="3",
        node_type="KSampler",
        exception_type="RuntimeError",
        traceback=('  File "nodes.py", line 1\n', "    explode()\n"),
        details=("first detail", "second detail"),
    )
    assert failure.trace().splitlines() == [
        "execution: boom at node 3 (KSampler)",
        "  first detail",
        "  second detail",
        "server http://host:8188, prompt abc",
        "Traceback (most recent call last):",
        '  File "nodes.py", line 1',
        "    explode()",
        "RuntimeError: boom",
    ]


def test_a_traceback_without_an_exception_type_ends_in_the_message() -> None:
    failure = Failure(FailureClass.EXECUTION, "boom", traceback=("line\n",))
    assert failure.trace().splitlines()[-1] == "boom"


def test_a_failure_that_knows_only_its_prompt_says_so() -> None:
    assert Failure(FailureClass.OUTPUT, "gone", prompt_id="abc").trace() == "output: gone\nprompt abc"
