"""Why a server will not run a prompt: `missing` if another server may have what this one lacks, else `invalid`."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from comfyui_agent.comfy.rejections import MOST_PROBLEMS, read_node_errors, read_rejection
from comfyui_agent.domain.failures import FailureClass
from support.any_json import ANY_JSON

SERVER = "http://host:8188"
NODE_ERRORS = [
    "required_input_missing",
    "bad_linked_input",
    "return_type_mismatch",
    "invalid_input_type",
    "value_smaller_than_min",
    "value_bigger_than_max",
    "value_not_in_list",
    "custom_validation_failed",
    "exception_during_validation",
    "exception_during_inner_validation",
    "dependency_cycle",
]


def node_error(kind: str, received: Any = 5, details: str = "steps") -> dict[str, Any]:
    error = {"type": kind, "message": "Bad value", "details": details, "extra_info": {"received_value": received}}
    return {"errors": [error], "dependent_outputs": ["9"], "class_type": "KSampler"}


def rejected(error: Any, node_errors: Any = None) -> dict[str, Any]:
    return {"error": error, "node_errors": node_errors or {}}


def test_every_kind_of_node_error_is_invalid_and_names_its_node() -> None:
    for kind in NODE_ERRORS:
        error = {
            "type": "prompt_outputs_failed_validation",
            "message": "Prompt outputs failed validation",
            "details": "",
        }
        rejection = read_rejection(SERVER, rejected(error, {"3": node_error(kind)}))
        assert rejection.kind is FailureClass.INVALID, kind
        assert (rejection.facts.node_id, rejection.facts.node_type) == ("3", "KSampler"), kind
        assert rejection.facts.exception_type == "prompt_outputs_failed_validation", kind
        assert rejection.details == ("node 3 (KSampler): Bad value: steps",), kind
        assert rejection.message == f"{SERVER} rejected the prompt: Bad value: steps", kind


def test_every_kind_of_prompt_error_is_invalid() -> None:
    for kind in ["no_prompt", "prompt_no_outputs", "invalid_prompt", "invalid_prompt_id"]:
        rejection = read_rejection(
            SERVER, rejected({"type": kind, "message": "No", "details": "why", "extra_info": {}})
        )
        assert rejection.kind is FailureClass.INVALID, kind
        assert rejection.details == ("why",), kind


def test_a_node_that_is_not_installed_is_missing() -> None:
    for error in [
        {
            "type": "invalid_prompt",
            "message": "Cannot execute because node FancyNode does not exist.",
            "details": "Node ID '#7'",
        },
        {
            "type": "missing_node_type",
            "message": "Node 'Fancy' not found. The custom node may not be installed.",
            "details": "Node ID '#7'",
            "extra_info": {"node_id": "7", "class_type": "FancyNode", "node_title": "Fancy"},
        },
    ]:
        rejection = read_rejection(SERVER, rejected(error))
        assert rejection.kind is FailureClass.MISSING, error
        assert rejection.facts.node_id == "7", error


def test_a_model_that_is_not_there_is_missing() -> None:
    for name in ["sdxl.safetensors", "sub/dir\\X.CKPT", "lora.pt", "unet.gguf"]:
        error = {"type": "prompt_outputs_failed_validation", "message": "Failed"}
        errors = {"3": node_error("value_not_in_list", name)}
        assert read_rejection(SERVER, rejected(error, errors)).kind is FailureClass.MISSING, name


def test_another_value_that_is_not_in_a_list_is_invalid() -> None:
    for received in ["euler_x", None, 5, ["a.safetensors"], "safetensors"]:
        errors = {"3": node_error("value_not_in_list", received)}
        rejection = read_rejection(SERVER, rejected({}, errors))
        assert (rejection.kind, rejection.facts.by_choice, rejection.failure().by_choice) == (
            FailureClass.INVALID,
            True,
            True,
        ), received
        errors["4"] = node_error("required_input_missing")
        assert not read_rejection(SERVER, rejected({}, errors)).facts.by_choice, "it is not the choice alone"


def test_a_missing_model_besides_another_mistake_is_invalid() -> None:
    errors = {"3": node_error("value_not_in_list", "a.ckpt"), "4": node_error("value_bigger_than_max")}
    assert read_rejection(SERVER, rejected({}, errors)).kind is FailureClass.INVALID


def test_a_rejection_without_a_reason_says_so() -> None:
    for document in [None, 5, "text", [], {}, {"error": None}, {"error": []}, {"error": {"type": 5}}]:
        rejection = read_rejection(SERVER, document)
        assert rejection.kind is FailureClass.INVALID, document
        assert rejection.message == f"{SERVER} rejected the prompt: no reason given", document


def test_a_reason_that_is_a_text_is_shown() -> None:
    assert read_rejection(SERVER, {"error": "not today"}).message.endswith("not today")


def test_a_node_error_of_any_shape_still_counts() -> None:
    for entry in [None, [], "x", {}, {"errors": []}, {"errors": "x"}, {"errors": [None]}]:
        (problem,) = read_node_errors({"4": entry})
        assert problem.node_id == "4", entry
        assert problem.line() == "node 4 (): the server names no reason", entry


def test_no_node_errors_are_no_problems() -> None:
    for document in [None, [], "x", 5, {}]:
        assert read_node_errors(document) == (), document


def test_countless_and_endless_problems_are_cut() -> None:
    many = {str(n): node_error("bad_linked_input", details="z" * 100_000) for n in range(2 * MOST_PROBLEMS)}
    problems = read_node_errors(many)
    assert len(problems) == MOST_PROBLEMS
    assert all(len(problem.line()) < 1_000 for problem in problems)


@given(ANY_JSON)
def test_any_answer_reads_as_a_rejection_in_one_line(document: Any) -> None:
    rejection = read_rejection(SERVER, document)
    for line in (rejection.message, *rejection.details):
        assert line.isprintable()
