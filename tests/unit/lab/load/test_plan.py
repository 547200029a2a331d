"""Plans: options as people type them, and one line where they do not fit."""

from __future__ import annotations

import pytest

from comfyui_agent.lab.load.plan import FEWEST_JOBS, BadPlan, LoadPlan, Mode, read_levels, read_rates
from comfyui_agent.lab.payloads import Payload

PAGE = Payload.of("page", {"1": {"class_type": "X", "inputs": {}}})


def plan(mode: Mode = Mode.CLOSED, *levels: float, **changes: object) -> LoadPlan:
    return LoadPlan(("http://x",), (PAGE,), mode, levels or (1.0,), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("4", (4,)),
        (" 4 ", (4,)),
        ("1,2,4,8", (1, 2, 4, 8)),
        ("1..8", (1, 2, 3, 4, 5, 6, 7, 8)),
        ("2..8:2", (2, 4, 6, 8)),
    ],
)
def test_levels_are_written_like_the_values_of_sweeps(text: str, levels: tuple[int, ...]) -> None:
    assert read_levels(text, "--concurrency", whole=True) == levels


def test_what_is_no_level_is_one_line_that_names_the_option() -> None:
    texts = [
        *("", " ", "0", "-1", "1.5", "x", "nan", "inf", "1e9", "4,2", "2,2", "0..3", "1..1000", "@levels.txt"),
        *("random:3", "1..", "1,,2", "9" * 5000, "1;2", "1 2", "٣٣٣٣٣٣٣٣٣", "true"),
    ]
    for text in texts:
        with pytest.raises(BadPlan) as caught:
            pytest.fail(f"{text!r} is {read_levels(text, '--concurrency', whole=True)}")
        assert "--concurrency: " in str(caught.value), text
        assert "\n" not in str(caught.value), text


@pytest.mark.parametrize(
    ("text", "per_minute"),
    [
        ("20", (20.0,)),
        ("20/min", (20.0,)),
        ("0.5/s", (30.0,)),
        ("10..30:10", (10.0, 20.0, 30.0)),
        ("1,2/s", (60.0, 120.0)),
        ("0.1..0.3:0.1/s", (6.0, 12.0, 18.0)),
    ],
)
def test_rates_are_prompts_a_minute(text: str, per_minute: tuple[float, ...]) -> None:
    assert read_rates(text) == pytest.approx(per_minute)


@pytest.mark.parametrize("text", ["", "/min", "20/h", "20/", "20/min/min", "0", "-5/s", "inf", "nan/s", "x/min"])
def test_what_is_no_rate_is_one_line(text: str) -> None:
    with pytest.raises(BadPlan, match="--rate: "):
        read_rates(text)


def test_how_many_prompts_a_level_sends() -> None:
    assert plan(jobs=7).jobs_of(4) == 7
    assert plan().jobs_of(1) == FEWEST_JOBS
    assert [plan(Mode.CLOSED, 1.0, 16.0).jobs_of(level) for level in (1, 16)] == [80, 80]
    assert plan(Mode.OPEN, 90.0).jobs_of(90.0) == 90
    assert plan(duration=5.0).jobs_of(4) is None
    assert plan(duration=5.0, jobs=3).jobs_of(4) == 3
    assert plan(Mode.BOOKS, 5.0, pages=12).jobs_of(5) == 60


def test_every_run_has_seeds_of_its_own_unless_they_are_asked_for() -> None:
    assert plan().seed != plan().seed
    assert plan(seed=5).as_json()["seed"] == 5


def test_the_parameters_are_reported_as_they_were_used() -> None:
    told = plan(Mode.CLOSED, 1.0, 2.0, jobs=3, seed=1).as_json()
    assert told == {
        "mode": "closed",
        "levels": [1, 2],
        "jobs": 3,
        "duration": None,
        "timeout": 420.0,
        "warmup": 1,
        "same_seeds": False,
        "seed": 1,
    }
    assert plan(Mode.OPEN, 7.5).as_json()["levels"] == [7.5]
    assert plan(Mode.OPEN, 7.5).as_json()["arrivals"] == "poisson"
    assert plan(Mode.OPEN, 7.5, even_arrivals=True).as_json()["arrivals"] == "even"
    assert plan(Mode.BOOKS, 2.0, pages=3).as_json()["pages"] == 3
