"""Choices that no server offers are found before anything is queued; what cannot be known is let through."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.binding import Places, Recipe, Unbindable
from comfyui_agent.domain.jobs import Template
from comfyui_agent.engine.intake import choices as choices_module
from comfyui_agent.engine.intake.choices import Choices, checking

GRAPH = {
    "1": {"class_type": "Loader", "inputs": {"ckpt_name": "auto"}},
    "4": {"class_type": "LoadImage", "inputs": {"image": "x.png"}},
    "5": {"class_type": "KSampler", "inputs": {"sampler_name": "euler", "mode": "a", "seed": 1, "model": ["1", 0]}},
}
WORKFLOW = Workflow(
    Recipe("wf", "wf.json", inputs={"sampler": ("5.sampler_name",)}), Template.of(GRAPH), GRAPH, Places(GRAPH)
)
SAMPLERS = ["euler", "dpmpp_2m", "heun"]


def node(name: str, **inputs: Any) -> dict[str, Any]:
    return {"name": name, "input": {"required": inputs}}


def server(samplers: Any = SAMPLERS, **others: Any) -> dict[str, dict[str, Any]]:
    return {
        "KSampler": node("KSampler", sampler_name=[samplers, {}], seed=["INT", {"max": 5}], **others),
        "Loader": node("Loader", ckpt_name=[["dream.safetensors"], {}]),
        "LoadImage": node("LoadImage", image=[["x.png"], {}]),
    }


class Fleet:
    """Servers that answer at once, or not at all."""

    def __init__(self, *answers: Mapping[str, Mapping[str, Any]] | None) -> None:
        self.answers = {f"http://{number}": answer for number, answer in enumerate(answers)}
        self.asked: list[tuple[str, list[str]]] = []

    async def ask(self, url: str, classes: Collection[str]) -> Mapping[str, Mapping[str, Any]] | None:
        self.asked.append((url, sorted(classes)))
        answer = self.answers[url]
        return None if answer is None else {name: answer[name] for name in classes if name in answer}

    @property
    def choices(self) -> Choices:
        return Choices(lambda: list(self.answers), self.ask)


def problems(fleet: Fleet, **values: Any) -> dict[str, str]:
    return fleet.choices.problems(
        WORKFLOW, {name.replace("_", ".", 1).lstrip("n"): value for name, value in values.items()}
    )


def test_a_wrong_choice_names_the_nearest() -> None:
    assert problems(Fleet(server()), n5_sampler_name="eulr") == {
        "5.sampler_name": "5.sampler_name: 'eulr' is not one of the server's choices; did you mean euler?"
    }
    assert problems(Fleet(server()), n5_sampler_name="heun") == {}


def test_one_server_that_offers_it_is_enough_and_one_that_is_silent_says_nothing() -> None:
    assert problems(Fleet(server(), server(["eulr"])), n5_sampler_name="eulr") == {}
    assert list(problems(Fleet(None, server()), n5_sampler_name="eulr")) == ["5.sampler_name"]
    assert problems(Fleet(None, None), n5_sampler_name="eulr") == {}
    assert problems(Fleet(), n5_sampler_name="eulr") == {}


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("1.ckpt_name", "auto", {}),
        ("1.ckpt_name", "missing.safetensors", {}),
        ("4.image", "castle.png", {}),
        ("4.image", "castle", {}),
        ("5.sampler_name", ["1", 0], {}),
        ("5.sampler_name", None, {}),
        ("5.seed", 9, {}),
        ("5.mode", "b", {"mode": ["COMBO", {"remote": {"route": "/x"}}]}),
        ("5.mode", "b", {"mode": [[], {}]}),
        ("5.mode", "b", {"mode": ["COMFY_DYNAMICCOMBO_V3", {"options": [{"key": "a"}]}]}),
        ("5.mode", "b", {"mode": [["a"], {"image_upload": True}]}),
        ("5.mode", "sub/b", {"mode": [["a"], {}]}),
        ("5.mode", "b [output]", {"mode": [["a"], {}]}),
        ("5.mode", ["b"], {"mode": ["COMBO", {"options": ["a"], "multiselect": True}]}),
    ],
)
def test_what_cannot_be_known_is_let_through(place: str, value: Any, said: dict[str, Any]) -> None:
    assert Fleet(server(**said)).choices.problems(WORKFLOW, {place: value}) == {}


def test_a_model_without_its_ending_is_a_wrong_choice() -> None:
    [words] = problems(Fleet(server()), n1_ckpt_name="dream").values()
    assert words.endswith("'dream' is not one of the server's choices; there are dream.safetensors")


def test_choices_that_are_no_texts_count_by_what_is_written() -> None:
    fleet = Fleet(server(mode=["COMBO", {"options": [1, 2, True]}]))
    assert fleet.choices.problems(WORKFLOW, {"5.mode": 2}) == {}
    assert "5.mode" in fleet.choices.problems(WORKFLOW, {"5.mode": 3})


def test_a_server_is_asked_once_for_many_jobs_and_one_that_is_silent_not_again_at_once() -> None:
    fleet = Fleet(server(), None)
    choices = fleet.choices
    for _ in range(3):
        choices.problems(WORKFLOW, {"5.sampler_name": "euler"})
    assert sorted(fleet.asked) == [("http://0", ["KSampler"]), ("http://1", ["KSampler"])]


def test_a_server_that_takes_its_time_is_not_waited_for_and_counts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices_module, "PATIENCE", 0.01)
    may_answer, has_answered = threading.Event(), threading.Event()

    async def slow(url: str, classes: Collection[str]) -> Mapping[str, Mapping[str, Any]]:
        may_answer.wait(60)
        try:
            return {name: server()[name] for name in classes}
        finally:
            has_answered.set()

    choices = Choices(lambda: ["http://0"], slow)
    assert choices.problems(WORKFLOW, {"5.sampler_name": "eulr"}) == {}
    may_answer.set()
    assert has_answered.wait(60)
    monkeypatch.setattr(choices_module, "PATIENCE", 10.0)
    for thread in threading.enumerate():
        if thread.name.startswith("Thread-") and thread.daemon:
            thread.join(10)
    assert "5.sampler_name" in choices.problems(WORKFLOW, {"5.sampler_name": "eulr"})


def test_wrong_pictures_and_wrong_choices_are_reported_together() -> None:
    def keep(*_: Any) -> dict[str, str]:
        raise Unbindable({"image": "there is no file"})

    with pytest.raises(Unbindable) as refused:
        checking(keep, Fleet(server()).choices)(WORKFLOW, {"5.sampler_name": "eulr", "4.image": "no/such.png"})
    assert list(refused.value.problems) == ["sampler", "image"]
    assert checking(lambda *_: {"4.image": "kept"}, Fleet(server()).choices)(WORKFLOW, {}) == {"4.image": "kept"}


def test_what_servers_offer_is_known_for_those_that_answered() -> None:
    fleet = Fleet(server(), None, {})
    offers = fleet.choices.offers(["Loader", "Nowhere"])
    assert offers == {"http://0": {"Loader": {"ckpt_name": frozenset({"dream.safetensors"})}}, "http://2": {}}
