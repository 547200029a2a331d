"""What holds for every page: one file, nothing from outside, hostile texts stay texts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from unit.lab.pages.made import (
    EVIL,
    Parsed,
    chaos_page,
    chaos_report,
    compare_page,
    comparison,
    load_page,
    load_report,
    poisoned,
    profile_page,
    profile_report,
    scenario,
)

Maker = Callable[[dict[str, Any]], str]


def profile_of_one(report: dict[str, Any]) -> str:
    return profile_page([report])


def profile_of_two(report: dict[str, Any]) -> str:
    return profile_page([report, report])


def load_with_scenario() -> dict[str, Any]:
    return load_report(scenario=scenario("comfyui-crash", "passed", 40.0), recovery_sec=40.0)


PAGES = {
    "load": (load_page, load_report),
    "load with a scenario": (load_page, load_with_scenario),
    "compare": (compare_page, comparison),
    "profile": (profile_of_one, profile_report),
    "profiles": (profile_of_two, profile_report),
    "chaos": (chaos_page, chaos_report),
}
every_page = pytest.mark.parametrize(("make", "report"), PAGES.values(), ids=PAGES)


@every_page
def test_a_page_needs_nothing_from_outside_and_runs_nothing(make: Maker, report: Callable[[], Any]) -> None:
    text = make(report())
    page = Parsed(text)
    assert not {tag for tag, _ in page.elements} & {"script", "link", "img", "iframe", "object", "base", "form", "use"}
    attributes = [name for _, found in page.elements for name in found]
    assert not {"src", "href", "style", "xlink:href", "action"} & set(attributes)
    assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"url\(|@import|@font-face", text)


@every_page
def test_the_policy_allows_this_style_and_nothing_else(make: Maker, report: Callable[[], Any]) -> None:
    page = Parsed(make(report()))
    (policy,) = [found["content"] for found in page.named("meta") if found.get("http-equiv")]
    (style,) = page.said("style")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


@every_page
def test_hostile_texts_stay_texts(make: Maker, report: Callable[[], Any]) -> None:
    calm, evil = Parsed(make(report())), Parsed(make(poisoned(report())))
    assert {tag for tag, _ in evil.elements} <= {tag for tag, _ in calm.elements}
    assert not [found for _, found in evil.elements if any(name.startswith("on") for name in found)]
    assert EVIL in "".join(evil.texts)
    assert "<!--" not in make(poisoned(report()))


@every_page
def test_each_plot_states_its_finding_and_says_what_it_shows(make: Maker, report: Callable[[], Any]) -> None:
    text = make(report())
    figures = re.findall(r"<figure>.*?</figure>", text, re.DOTALL)
    assert figures
    for found in map(Parsed, figures):
        (title,) = found.said("h3")
        plots = found.named("svg", "plot")
        assert [plot["aria-label"] for plot in plots] == [title] if plots else found.named("div", "lanes")
        assert found.said("p")[0].endswith(".")
        assert any("(" in label for label in found.said("text", "axis"))


def test_pages_follow_the_system_and_are_light_on_paper() -> None:
    (style,) = Parsed(load_page(load_report())).said("style")
    assert "@media screen and (prefers-color-scheme: dark)" in style
    assert "@page { size: A4" in style
    assert re.search(r"figure \{[^}]*break-inside: avoid", style)


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(one), light(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_texts_can_be_read_in_light_and_dark() -> None:
    (style,) = Parsed(load_page(load_report())).said("style")
    themes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in re.findall(r":root \{[^}]*\}", style)[:2]]
    for theme in themes:
        for colour in ("text", "quiet", "accent", "attention"):
            assert contrast(theme[colour], theme["ground"]) >= 4.5
            assert contrast(theme[colour], theme["panel"]) >= 4.5


def test_the_environment_is_folded_at_the_end_without_its_samples() -> None:
    page = Parsed(load_page(load_report(), "load_1.json"))
    assert len(page.named("details")) == 1
    assert "open" not in page.named("details")[0]
    assert "a fast one" in page.said("td")
    assert not any("gpu trace" in name for name in page.said("th"))
    assert "All numbers of this page are in load_1.json, beside it." in page.whole


def test_texts_that_cannot_be_written_are_shown_all_the_same() -> None:
    report = load_report()
    report["environment"]["workflow"]["name"] = "half \ud83d\x00\x1b[2J" + "x" * 100_000
    text = load_page(report)
    assert text.encode("utf-8")
    assert "half \\ud83d\\x00\\x1b[2J" in text
    assert len(Parsed(text).said("h1")[0]) < 3_000
