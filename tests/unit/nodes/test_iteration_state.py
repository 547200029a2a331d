"""The manager knows which prompts belong together, completes each batch once, and forgets what is over."""

from __future__ import annotations

import gc
import json
import logging
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from comfyui_agent.nodes.core import cancellation, iteration_state
from comfyui_agent.nodes.core.batch_state import BatchState, GridOptions
from comfyui_agent.nodes.core.feeder import Feeding
from comfyui_agent.nodes.core.iteration_state import EXPIRY_SECONDS, IterationStateManager
from comfyui_agent.nodes.host import ComfyUI, Ending, MissingPiece, QueueSnapshot
from support.node_pack import iterating, parameter

T = TypeVar("T")
THREADS = 32
IMAGE = {"filename": "a_00001_.png", "subfolder": "E3/run", "type": "output"}
GRID = {"filename": "grid_00001_.png", "subfolder": "E3", "type": "output"}


class Quiet(ComfyUI):
    """A ComfyUI whose queue is empty and which nobody listens to."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def check(self) -> None:
        pass

    def next_number(self) -> float:
        return 7.0

    def queue(self) -> QueueSnapshot:
        return QueueSnapshot()

    def ending(self, prompt_id: str) -> Ending | None:  # noqa: ARG002
        return None

    def interrupt(self, prompt_ids: Any) -> list[str]:  # noqa: ARG002
        return []

    def input_folder(self) -> None:
        return None

    def send(self, event: str, data: Any, client_id: str | None = None) -> None:  # noqa: ARG002
        self.sent.append((event, json.loads(json.dumps(data))))


class Clock:
    def __init__(self) -> None:
        self.now = time.time() + 10.0

    def __call__(self) -> float:
        return self.now


class Unfed(IterationStateManager):
    """Registers batches and has none of them queued."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.quiet = Quiet()
        super().__init__(self.quiet, now)
        self.feedings: list[Feeding] = []
        self._feeder = types.SimpleNamespace(begin=self.feedings.append)  # type: ignore[assignment]

    def batch(self, total: int, name: str = "run", **prompt: Any) -> BatchState:
        """A batch of so many members, by way of a prompt."""
        body = request(f"1..{total}", name=name, **prompt)
        self.handle_prompt(body)
        found = self.find(self.of(body["prompt_id"])[0])
        assert found is not None
        return found

    def of(self, prompt_id: str) -> tuple[str, int]:
        owner = self.batch_of(prompt_id)
        assert owner is not None
        return owner

    @property
    def is_clean(self) -> bool:
        return not self._active_batches and not self._prompt_to_batch


def request(values: str = "1..3", **prompt: Any) -> dict[str, Any]:
    painter = {"class_type": "Colour", "inputs": {"colour": 0, "width": 4, "height": 4}}
    return {"prompt": iterating(parameter(values, "1.colour", "colour"), **{"grid": False, "n1": painter, **prompt})}


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
        start.wait(10)
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
    monkeypatch.setattr(cancellation, "STOP_SECONDS", 0.0)
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


class Model:
    """What a batch should be."""

    def __init__(self, batch: BatchState, at: float) -> None:
        self.batch = batch
        self.ids = list(batch.prompt_ids)
        self.total = batch.total
        self.done: set[int] = set()
        self.failed: set[int] = set()
        self.sign_at = at
        self.fired = 0
        self.state = ""
        self.is_cancelled = False

    @property
    def missing(self) -> int:
        return self.total - len(self.done) - len(self.failed)


class Batches(RuleBasedStateMachine):
    """Whatever happens to batches in whatever order, what is known of them is what happened."""

    MOST = 3
    PICK = st.integers(0, 10)
    INDEX = st.integers(-1, 4)

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(iteration_state, "MOST_ENDED", self.MOST)
        self.patches.setattr(cancellation, "STOP_SECONDS", -1.0)
        self.clock = Clock()
        self.manager = Unfed(self.clock)
        self.active: dict[str, Model] = {}
        self.ended: dict[str, Model] = {}
        self.gone: dict[str, Model] = {}

    def teardown(self) -> None:
        self.patches.undo()

    def any_of(self, pick: int) -> tuple[str, Model]:
        known = {**self.active, **self.ended, **self.gone}
        return list(known.items())[pick % len(known)]

    def over(self, batch_id: str, state: str) -> None:
        model = self.active.pop(batch_id)
        model.state = state
        model.sign_at = self.clock.now
        self.ended[batch_id] = model
        while len(self.ended) > self.MOST:
            oldest = next(iter(self.ended))
            self.gone[oldest] = self.ended.pop(oldest)

    @rule(total=st.integers(1, 4))
    def create(self, total: int) -> None:
        self.expire()
        batch = self.manager.batch(total)
        assert batch.batch_id not in {**self.active, **self.ended, **self.gone}
        self.active[batch.batch_id] = Model(batch, self.clock.now)

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK, index=INDEX)
    def register(self, pick: int, index: int) -> None:
        batch_id, model = self.any_of(pick)
        answer = self.manager.register_result(batch_id, index, [IMAGE], {})
        assert answer == self.counts(batch_id, model, index, model.done)

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK, index=INDEX)
    def fail(self, pick: int, index: int) -> None:
        batch_id, model = self.any_of(pick)
        answer = self.manager.register_failure(batch_id, index, "no")
        assert answer == self.counts(batch_id, model, index, model.failed)

    def counts(self, batch_id: str, model: Model, index: int, kind: set[int]) -> bool:
        """Note it in the model; whether it is the last that was missing."""
        is_new = index in range(model.total) and index not in model.done | model.failed
        if batch_id not in self.active or not is_new:
            return False
        kind.add(index)
        model.sign_at = self.clock.now
        model.fired += model.missing == 0
        return model.missing == 0

    @precondition(lambda self: self.active)
    @rule(pick=PICK)
    def finish(self, pick: int) -> None:
        """All that is missing comes, in one go."""
        batch_id, model = list(self.active.items())[pick % len(self.active)]
        for index in range(model.total):
            answer = self.manager.register_result(batch_id, index, [IMAGE], {})
            assert answer == self.counts(batch_id, model, index, model.done)
        assert model.fired == 1
        self.manager.end_if_over(batch_id)
        self.over(batch_id, "complete")

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK)
    def end_if_over(self, pick: int) -> None:
        batch_id, model = self.any_of(pick)
        self.manager.end_if_over(batch_id)
        if batch_id in self.active and model.missing == 0:
            self.over(batch_id, "complete")

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        batch_id, model = self.any_of(pick)
        answer = self.manager.cancel_batch(batch_id)
        assert (answer is None) == (batch_id in self.gone)
        if batch_id in self.active:
            model.is_cancelled = model.missing > 0
            self.over(batch_id, "cancelled" if model.missing else "complete")
        if answer is not None:
            assert answer.state == model.state

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK)
    def clean_up(self, pick: int) -> None:
        batch_id, model = self.any_of(pick)
        self.manager.cleanup_batch(batch_id)
        if batch_id in self.active:
            self.over(batch_id, "cancelled" if model.missing else "complete")

    @rule(seconds=st.sampled_from([1.0, EXPIRY_SECONDS / 2, EXPIRY_SECONDS - 1, EXPIRY_SECONDS + 1]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def expire(self) -> None:
        """A prompt without an iterator comes."""
        self.manager.handle_prompt({"prompt": {}})
        for batch_id, model in list(self.ended.items()):
            if self.clock.now - model.sign_at > EXPIRY_SECONDS:
                self.gone[batch_id] = self.ended.pop(batch_id)
        for batch_id, model in list(self.active.items()):
            if self.clock.now - model.sign_at > EXPIRY_SECONDS:
                self.over(batch_id, "expired")

    @precondition(lambda self: self.active or self.ended or self.gone)
    @rule(pick=PICK)
    def describe(self, pick: int) -> None:
        batch_id, model = self.any_of(pick)
        answer = self.manager.describe(batch_id)
        assert (answer is None) == (batch_id in self.gone)
        if answer is not None:
            assert answer["prompt_ids"] == model.ids
            assert set(answer["results"]) == {str(index) for index in model.done}
            assert [member["state"] for member in answer["members"]] == [
                "done" if index in model.done else "failed" if index in model.failed else self.otherwise(model)
                for index in range(model.total)
            ]

    def otherwise(self, model: Model) -> str:
        return "cancelled" if model.state else "pending"

    @invariant()
    def both_maps_hold_what_is_active(self) -> None:
        assert set(self.manager._active_batches) == set(self.active)
        assert self.manager._prompt_to_batch == {
            prompt_id: (batch_id, index)
            for batch_id, model in self.active.items()
            for index, prompt_id in enumerate(model.ids)
        }
        assert all(self.manager.is_active(batch_id) == (batch_id in self.active) for batch_id in {**self.ended})

    @invariant()
    def what_has_ended_is_bounded(self) -> None:
        assert list(self.manager._ended) == list(self.ended)
        assert len(self.ended) <= self.MOST
        assert set(self.manager._notified) <= {*self.active, *self.ended}

    @invariant()
    def summaries_are_the_model(self) -> None:
        answer = {each["batch_id"]: each for each in self.manager.summaries()}
        assert set(answer) == {*self.active, *self.ended}
        for batch_id, model in {**self.active, **self.ended}.items():
            summary = answer[batch_id]
            assert summary["completed_count"] == len(model.done)
            assert summary["failed"] == len(model.failed)
            assert summary["cancelled"] == model.is_cancelled
            assert summary["state"] == (model.state or ("collecting" if model.missing < model.total else "pending"))

    @invariant()
    def nothing_fires_twice_and_what_is_whole_has_fired(self) -> None:
        for model in {**self.active, **self.ended, **self.gone}.values():
            assert model.fired == (model.missing == 0)


def test_batches_follow_the_model_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "e3_iterator")
    run_state_machine_as_test(
        Batches,
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


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
    assert manager._notified == {}


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


def test_the_first_combination_is_in_the_prompt_itself_and_all_are_registered(manager: Unfed) -> None:
    body = request("5,6,7")
    assert manager.handle_prompt(body) is body
    batch_id, index = manager.of(body["prompt_id"])
    assert index == 0
    assert body["prompt"]["1"]["inputs"]["colour"] == 5
    marks = body["prompt"]["20"]["inputs"]
    assert marks["e3_batch"] == batch_id
    assert (marks["e3_index"], marks["e3_total"], marks["e3_values"]) == (0, 3, {"colour": 5})
    batch = manager.find(batch_id)
    assert batch is not None
    assert len(set(batch.prompt_ids)) == 3
    assert [manager.batch_of(prompt_id) for prompt_id in batch.prompt_ids] == [(batch_id, i) for i in range(3)]
    name, _, letters = batch_id.rpartition("_")
    assert name == "test"
    assert len(letters) == 8
    assert set(letters) <= set("0123456789abcdef")


def test_every_member_is_a_whole_copy_of_its_own(manager: Unfed) -> None:
    body = {**request("5,6,7"), "extra_data": {"extra_pnginfo": {"workflow": {"nodes": []}}}}
    untouched = json.dumps(body)
    manager.handle_prompt(body)
    (feeding,) = manager.feedings
    members = [feeding.member(index) for index in range(3)]
    assert [member["prompt"]["1"]["inputs"]["colour"] for member in members] == [5, 6, 7]
    assert members[0]["prompt"] == body["prompt"]
    before = [json.dumps(member) for member in (*members[1:], body)]
    spoiled = members[0]
    spoiled["prompt"]["1"]["inputs"]["colour"] = 99
    spoiled["prompt"]["101"]["inputs"].clear()
    spoiled["prompt"]["20"]["inputs"]["e3_values"]["colour"] = 99
    spoiled["extra_data"]["extra_pnginfo"]["workflow"]["nodes"].append(1)
    assert [json.dumps(member) for member in (*members[1:], body)] == before
    body["prompt"].clear()
    assert feeding.member(1) == members[1]
    assert json.dumps(feeding.request) == untouched, "the copies are made from what came"


@pytest.mark.parametrize(
    ("body", "number"), [({}, 7.0), ({"front": True}, -7.0), ({"front": False}, 7.0), ({"number": 2.5}, 2.5)]
)
def test_the_members_get_the_number_of_the_first(manager: Unfed, body: dict[str, Any], number: float) -> None:
    asked = {**request(), **body, "prompt_id": "mine"}
    manager.handle_prompt(asked)
    assert (asked["prompt_id"], manager.of("mine")[1]) == ("mine", 0), "an id that was given is kept"
    assert [feeding.number for feeding in manager.feedings] == [number]


def test_a_batch_that_cannot_be_made_gives_a_notice_and_leaves_the_prompt_unchanged(
    manager: Unfed, caplog: pytest.LogCaptureFixture
) -> None:
    painter = {"class_type": "Colour", "inputs": {"colour": 0, "width": 4, "height": 4}}
    axes = parameter("1..3", "1.colour", "colour"), parameter("1..4", "1.width", "width")
    body = {"prompt": iterating(*axes, mode="linear", grid=False, n1=painter)}
    before = json.dumps(body)
    assert manager.handle_prompt(body) is body
    assert json.dumps(body) == before
    assert manager.is_clean
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "colour has 3 values and width 4" in record.getMessage()
    assert manager.quiet.sent == [("e3.notice", {"message": record.getMessage()})]


@pytest.mark.parametrize("what", ["number", "nothing can be queued", "request"])
def test_what_cannot_be_begun_leaves_nothing_behind(
    manager: Unfed, monkeypatch: pytest.MonkeyPatch, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> None:
        raise MissingPiece("this ComfyUI has no queue")

    body = request()
    if what == "number":
        body["number"] = "no number"
    elif what == "request":
        body["extra_data"] = {"lock": threading.Lock()}  # what another handler may have left, and nobody can copy
    else:
        monkeypatch.setattr(manager.quiet, "check", missing)
    before = repr(body)
    assert manager.handle_prompt(body) is body
    assert repr(body) == before
    assert manager.is_clean
    assert any("runs once, as it is" in record.getMessage() for record in caplog.records)


def test_a_thread_that_cannot_start_costs_one_batch_and_not_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    manager = IterationStateManager(Quiet())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        body = request()
        assert manager.handle_prompt(body) is body
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))
    manager.handle_prompt(request())
    assert [thread.name for thread in started] == ["e3-iterator"]
    assert len(manager._active_batches) == 1, "a batch that nobody feeds is not under way"


WORDS = st.sampled_from(
    [
        "",
        "1",
        "20",
        "101",
        "param_1",
        "iterator",
        "WIIterator",
        "WIParameter",
        "WIGridCompositor",
        "Colour",
        "a,b",
        "1..3",
    ]
) | st.text(max_size=5)
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | WORDS
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=8
)


@st.composite
def spoiled_requests(draw: st.DrawFn) -> Any:
    """A request with an iterator in which anything may stand anywhere."""
    painter = {"class_type": "Colour", "inputs": {"colour": 0, "width": 4, "height": 4}}
    axes = parameter("1..3", "1.colour", "colour"), parameter("7,8", "1.width")
    body: dict[str, Any] = {"prompt": iterating(*axes, mode=draw(st.sampled_from(["matrix", "linear"])), n1=painter)}
    body |= draw(st.dictionaries(st.sampled_from(["number", "front", "prompt_id", "extra_data"]), ANYTHING, max_size=2))
    for _ in range(draw(st.integers(0, 3))):
        place: Any = body
        while isinstance(place, dict) and place:
            key = draw(st.sampled_from(list(place)))
            if not isinstance(place[key], dict) or draw(st.booleans()):
                place[key] = draw(ANYTHING)
                break
            place = place[key]
    return body


def is_on(node: Any) -> bool:
    if not isinstance(node, dict) or node.get("class_type") != "WIIterator":
        return False
    inputs = node.get("inputs")
    return not isinstance(inputs, dict) or inputs.get("enabled", True) in (True, "true", "True")


@settings(max_examples=80, deadline=None)
@given(st.one_of(ANYTHING, st.fixed_dictionaries({"prompt": ANYTHING}), spoiled_requests()))
def test_any_request_becomes_a_batch_or_is_returned_unchanged(body: Any) -> None:
    logging.getLogger("e3_iterator").setLevel(logging.CRITICAL)
    try:
        before = json.dumps(body)
        for manager in (IterationStateManager(ComfyUI()), Unfed()):
            assert manager.handle_prompt(body) is body
            prompt = body.get("prompt") if isinstance(body, dict) else None
            is_asked = isinstance(prompt, dict) and any(is_on(node) for node in prompt.values())
            if not is_asked or not manager.summaries():
                assert json.dumps(body) == before
                assert manager._prompt_to_batch == {}
            else:
                assert manager.batch_of(body["prompt_id"]) is not None
    finally:
        logging.getLogger("e3_iterator").setLevel(logging.NOTSET)


def test_a_prompt_nested_deeper_than_python_goes_comes_back(manager: Unfed) -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = [deep]
    for place in (["prompt", "1", "inputs", "colour"], ["extra_data"], ["prompt", "20", "inputs", "param_1"]):
        body = request()
        inner: Any = body
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = deep
        assert manager.handle_prompt(body) is body
        assert "e3_batch" not in body["prompt"]["20"]["inputs"]
        assert "prompt_id" not in body
    assert manager.is_clean
