"""The manager knows which prompts belong together, completes each batch once, and forgets what is over."""

from __future__ import annotations

import gc
import json
import random
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pytest

from comfyui_agent.nodes.core import iteration_state, member_endings
from comfyui_agent.nodes.core.batch_state import BatchState, GridOptions
from comfyui_agent.nodes.core.iteration_state import EXPIRY_SECONDS, IterationStateManager
from support.idle_manager import GRID, IMAGE, Clock, Quiet, Unfed, request

T = TypeVar("T")
THREADS = 32


@pytest.fixture
def manager() -> Unfed:
    return Unfed()


@pytest.fixture
def _quick_switches() -> Iterator[None]:
    """Threads are interrupted as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """What they give, begun at the same moment by as many threads."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], T]) -> T:
        start.wait(60)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def shared_out(works: list[Callable[[], T]]) -> list[T]:
    """What they give, worked off by 32 threads."""

    def some(offset: int) -> list[T]:
        return [work() for work in works[offset::THREADS]]

    return [given for part in at_once([partial(some, offset) for offset in range(THREADS)]) for given in part]


def test_there_is_one_instance_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[IterationStateManager] = []

    class Slow(IterationStateManager):
        def __init__(self) -> None:
            time.sleep(0.02)
            super().__init__(Quiet())
            made.append(self)

    monkeypatch.setattr(iteration_state, "_instance", None)
    got = at_once([Slow.instance] * THREADS)
    assert len(made) == 1
    assert all(each is made[0] for each in got)
    assert IterationStateManager.instance() is made[0]


@pytest.mark.usefixtures("_quick_switches")
@pytest.mark.parametrize("seed", range(3))
def test_threads_that_register_the_same_members_complete_the_batch_once(manager: Unfed, seed: int) -> None:
    batch = manager.batch(48)
    works: list[Callable[[], bool]] = []
    for index in range(48):
        works += [partial(manager.register_result, batch.batch_id, index, [IMAGE], {})] * 2
        works += [partial(manager.register_failure, batch.batch_id, index, "no")] * 2
    random.Random(seed).shuffle(works)
    assert shared_out(works).count(True) == 1
    assert not set(batch.results) & set(batch.failed)
    assert len(batch.results) + len(batch.failed) == 48
    assert batch.completed_count == len(batch.results)


@pytest.mark.usefixtures("_quick_switches")
@pytest.mark.parametrize("end", ["cancel_batch", "cleanup_batch"])
def test_a_batch_that_ends_meanwhile_completes_at_most_once(
    manager: Unfed, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_endings, "STOP_SECONDS", 0.0)
    batch = manager.batch(48)
    works: list[Callable[[], Any]] = [
        partial(manager.register_result, batch.batch_id, index, [IMAGE], {}) for index in range(48)
    ]
    works.insert(30, lambda: getattr(manager, end)(batch.batch_id))
    assert [each for each in shared_out(works) if each is True] in ([], [True])
    assert manager.is_clean
    counted = batch.completed_count
    assert not manager.register_result(batch.batch_id, 47, [IMAGE], {})
    assert batch.completed_count == counted == len(batch.results)


def test_an_index_that_comes_again_counts_once_and_adds_its_files(manager: Unfed) -> None:
    batch = manager.batch(2)
    other = {**IMAGE, "filename": "b_00001_.png"}
    assert not manager.register_result(batch.batch_id, 0, [IMAGE], {"first": True})
    assert not manager.register_result(batch.batch_id, 0, [IMAGE, other], {"first": False})
    assert batch.completed_count == 1
    assert batch.results == {0: {"images": [IMAGE, other], "metadata": {"first": True}}}
    assert manager.register_result(batch.batch_id, 1, [], {})


def test_unknown_members_and_batches_are_not_counted(manager: Unfed) -> None:
    batch = manager.batch(2)
    for index in (-1, 2, 10**12, "0", None, 0.0, [0]):
        assert not manager.register_result(batch.batch_id, index, [IMAGE], {})  # type: ignore[arg-type]
        assert not manager.register_failure(batch.batch_id, index, "no")  # type: ignore[arg-type]
    assert not manager.register_result("run_00000000", 0, [IMAGE], {})
    assert not manager.register_failure("run_00000000", 0, "no")
    assert (batch.results, batch.failed, batch.completed_count) == ({}, {}, 0)


class Tensor:
    """Stands for a picture in memory: it is not a truth value, and no text."""

    def __bool__(self) -> bool:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    "given",
    [
        lambda tensor: (tensor, {}),
        lambda tensor: ([tensor, IMAGE], {}),
        lambda tensor: ((tensor,), {}),
        lambda tensor: ([{**IMAGE, "pixels": tensor}], {}),
        lambda tensor: ([{"filename": tensor}], {}),
        lambda tensor: ([IMAGE], tensor),
        lambda tensor: ([IMAGE], {"picture": tensor}),
        lambda tensor: ([IMAGE], {"deep": [{"picture": tensor}]}),
    ],
    ids=["alone", "in a list", "in a tuple", "in a reference", "as a name", "as metadata", "in metadata", "deep"],
)
def test_no_picture_is_kept_in_memory(manager: Unfed, given: Callable[[Any], tuple[Any, Any]]) -> None:
    batch = manager.batch(2)
    tensor = Tensor()
    kept = weakref.ref(tensor)
    images, metadata = given(tensor)
    for _ in range(2):
        manager.register_result(batch.batch_id, 0, images, metadata)
    assert batch.completed_count == 1, "the member has ended, whatever it brought"
    json.dumps(manager.describe(batch.batch_id))
    del tensor, images, metadata, given
    gc.collect()
    assert kept() is None


def test_expiry_counts_from_the_last_result_and_is_looked_at_with_each_prompt() -> None:
    clock = Clock()
    manager = Unfed(clock)
    batch = manager.batch(3)
    clock.now += EXPIRY_SECONDS - 1
    manager.handle_prompt({})
    manager.register_result(batch.batch_id, 0, [IMAGE], {})
    clock.now += EXPIRY_SECONDS
    manager.handle_prompt("not even a request")
    assert batch.state == "collecting", "3600 s have passed, not more"
    clock.now += 0.5
    assert batch.state == "collecting", "no prompt has come"
    manager.handle_prompt({"prompt": {}})
    assert batch.state == "expired"
    assert "3600" in batch.reason
    assert manager.is_clean
    assert manager.find(batch.batch_id) is batch
    assert ("e3.batch", batch.summary()) in manager.quiet.sent
    clock.now += EXPIRY_SECONDS + 1
    manager.handle_prompt({})
    assert manager.find(batch.batch_id) is None


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The batches of which a grid was made, in place of making one."""
    made: list[str] = []

    def save_grid(batch: BatchState, node_id: str, host: Any) -> list[dict[str, str]]:
        made.append(batch.batch_id)
        time.sleep(0.02)  # so that others ask meanwhile
        if batch.batch_name == "broken":
            raise OSError("no space left on device")
        return [GRID]

    module = types.ModuleType("comfyui_agent.nodes.core.batch_grid")
    module.save_grid = save_grid  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


@pytest.mark.usefixtures("_quick_switches")
def test_a_grid_is_made_once(manager: Unfed, saved: list[str]) -> None:
    batch = manager.batch(2, grid=True)
    manager.register_result(batch.batch_id, 0, [IMAGE], {})
    assert manager.grid_for(batch.batch_id, "40", GridOptions()) is None, "one is missing"
    manager.register_failure(batch.batch_id, 1, "no")
    given = at_once([lambda: manager.grid_for(batch.batch_id, "40", GridOptions())] * THREADS)
    assert [each for each in given if each is not None] == [[GRID]]
    assert saved == [batch.batch_id]
    manager.end_if_over(batch.batch_id)
    assert batch.state == "complete"
    assert batch.summary()["grid"] == GRID
    assert manager.is_clean


def test_a_batch_ends_when_all_its_grids_are_made(manager: Unfed, saved: list[str]) -> None:
    second = {"class_type": "WIGridCompositor", "inputs": {"images": ["1", 0], "iterator": ["20", 0]}}
    body = request("1..2", grid=True)
    body["prompt"]["41"] = second
    manager.handle_prompt(body)
    batch_id, _ = manager.of(body["prompt_id"])
    for index in range(2):
        manager.register_result(batch_id, index, [IMAGE], {})
    for node_id in ("40", "41"):
        manager.end_if_over(batch_id)
        assert manager.is_active(batch_id), "a grid is missing"
        manager.grid_for(batch_id, node_id, GridOptions())
    manager.end_if_over(batch_id)
    assert not manager.is_active(batch_id)
    assert saved == [batch_id] * 2


def test_a_batch_whose_grid_cannot_be_made_ends_without_it(manager: Unfed, saved: list[str]) -> None:
    batch = manager.batch(1, name="broken", grid=True)
    manager.register_result(batch.batch_id, 0, [IMAGE], {})
    assert manager.grid_for(batch.batch_id, "40", GridOptions()) == ()
    manager.end_if_over(batch.batch_id)
    assert (batch.state, batch.summary()["grid"]) == ("complete", None)
    assert batch.reason == "the grid could not be made: OSError, see ComfyUI's log"
    assert saved == [batch.batch_id]
    assert manager.is_clean


def test_a_cancelled_batch_has_no_grid(manager: Unfed, saved: list[str]) -> None:
    batch = manager.batch(1, grid=True)
    manager.register_result(batch.batch_id, 0, [IMAGE], {})
    batch.cancelled = True
    assert manager.grid_for(batch.batch_id, "40", GridOptions()) is None
    assert saved == []


def test_a_grid_node_sees_a_failure_that_nobody_has_seen_yet(manager: Unfed, saved: list[str]) -> None:
    batch = manager.batch(2, grid=True)
    batch.queued = 2
    manager.register_result(batch.batch_id, 1, [IMAGE], {})
    assert manager.grid_for(batch.batch_id, "40", GridOptions()) == [GRID]
    assert list(batch.failed) == [0]
    assert saved == [batch.batch_id]


def test_pages_get_a_summary_only_when_it_has_changed(manager: Unfed) -> None:
    batch = manager.batch(2)
    for _ in range(3):
        manager.notify(batch)
    manager.register_result(batch.batch_id, 0, [IMAGE], {})
    manager.notify(batch)
    manager.notify(batch)
    assert [data["completed_count"] for event, data in manager.quiet.sent if event == "e3.batch"] == [0, 1]
