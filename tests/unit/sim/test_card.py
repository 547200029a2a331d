"""Simulators on one card: each is slower while others render, and has what memory the others leave."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfyui_agent.sim.engine.card import BYTES_PER_PIXEL, GIB, Card, Member, OutOfMemoryError, VideoMemory
from comfyui_agent.sim.engine.pace import RenderPace
from comfyui_agent.sim.settings import Duration, SimSettings
from support.simulation import MovedTime

Join = Callable[..., Card]
MEASURED = (57, 87.5, 100, 112)
"""Images a minute of an H200 with one to four processes."""


@pytest.fixture
def join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Join]:
    """Places on cards whose files are in the folder of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    joined: list[Card] = []

    def begin(name: str = "h200") -> Card:
        joined.append(Card(name))
        return joined[-1]

    yield begin
    for card in joined:
        card.close()


def test_those_on_a_card_see_what_the_others_do(join: Join) -> None:
    first, second, elsewhere = join(), join(), join("other")
    second.update(is_rendering=True)
    second.update(taken=7)
    assert first.others() == [Member(is_rendering=True, taken=7)]
    assert second.others() == [Member(is_rendering=False, taken=0)]
    assert elsewhere.others() == Card().others() == []
    second.close()
    assert first.others() == []


def test_what_a_dead_process_left_behind_does_not_count_and_goes(join: Join, tmp_path: Path) -> None:
    card = join()
    (mine,) = tmp_path.rglob("*.member")
    mine.with_name("7-dead.member").write_bytes(mine.read_bytes())
    assert card.others() == []
    assert list(tmp_path.rglob("*.member")) == [mine]


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", ".hidden"])
def test_a_name_that_is_no_name_of_a_folder_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a card"):
        Card(name)


def test_a_card_renders_about_as_much_as_was_measured(join: Join) -> None:
    cards: list[Card] = []
    for processes, images in enumerate(MEASURED, start=1):
        cards.append(join())
        cards[-1].update(is_rendering=True)
        assert processes / cards[0].slowdown == pytest.approx(images / MEASURED[0], rel=0.05)


def test_a_render_follows_those_that_come_and_go_step_by_step(join: Join) -> None:
    other = join()
    renders = iter([False, True, True, False])
    settings = SimSettings(render_seconds=Duration.parse("4"))
    pace = RenderPace(settings, random.Random(1), join())
    seen = []

    def next_step() -> None:
        seen.append(other.others()[0].is_rendering)
        other.update(is_rendering=next(renders))

    pace.interrupted = time = MovedTime(next_step)
    pace.start_prompt(1, lambda *_: None)
    pace.work(4, None)
    assert time.waits == [1, 1, 1.35, 1.35]
    assert seen == [True] * 4
    assert other.others() == [Member()], "it renders no more"


def test_a_model_loads_at_full_speed_and_slows_nobody(join: Join) -> None:
    other = join()
    other.update(is_rendering=True)
    pace = RenderPace(SimSettings(model_load_seconds=Duration.parse("3")), random.Random(1), join())
    pace.interrupted = time = MovedTime(lambda: seen.extend(other.others()))
    seen: list[Member] = []
    pace.load_model("ink")
    assert (time.waits, seen) == ([3], [Member()])


def test_models_and_work_of_others_are_not_free(join: Join) -> None:
    first, second = VideoMemory(12, card=join()), VideoMemory(12, 1.0, card=join())
    assert (first.free, second.free) == (11 * GIB, 11 * GIB)
    first.reserve("ink", GIB // BYTES_PER_PIXEL)
    assert second.free / GIB == pytest.approx(6)
    first.release()
    second.let_go()
    assert first.free == second.free == 8 * GIB
    second.reserve("ink", 0)
    assert first.free + first.taken == 8 * GIB, "what it has when it unloads everything"


def test_what_others_took_is_missing_until_they_unload_it(join: Join) -> None:
    first, second = VideoMemory(10, card=join()), VideoMemory(10, card=join())
    first.reserve("ink", 0)
    first.reserve("oil", 0)
    with pytest.raises(OutOfMemoryError, match=r"Device limit +: 10.00 GiB\nFree \(according to CUDA\): 0.00 GiB"):
        second.reserve("pen", 0)
    assert (second.taken, first.loaded) == (0, ["ink", "oil"]), "nobody unloads the models of others"
    first.keep_only({"ink"})
    second.reserve("pen", 0)


def test_the_own_models_make_room_where_others_took_it(join: Join) -> None:
    first, second = VideoMemory(12, card=join()), VideoMemory(12, card=join())
    for name in ("ink", "oil"):
        first.reserve(name, 0)
    second.reserve("pen", 0)
    first.reserve("wax", 0)
    assert (first.loaded, second.loaded) == (["oil", "wax"], ["pen"])
