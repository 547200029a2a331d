"""A server goes on with the models it has loaded, within bounds: priority wins, and nobody is overtaken for long."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.routing import Choice, Decline, Head, choose, stay_for

MOST_EVENTS = 20_000


@dataclass(frozen=True)
class Work:
    """A job of the simulated queue. `comes_back`: after so many seconds it is to be run a second time."""

    arrives: int
    priority: int
    needs: int
    comes_back: int | None = None


@dataclass(frozen=True)
class Machine:
    """A server: the model sets it has, how many prompts it is given, how long it renders and loads."""

    sets: frozenset[str]
    window: int
    render: int
    load: int


@dataclass(frozen=True)
class World:
    """Everything that is drawn. `sets[n]` is the model set of needs `n`; `worth` answers whether loading pays."""

    stay: int
    sets: tuple[str, ...]
    machines: tuple[Machine, ...]
    jobs: tuple[Work, ...]
    worth: tuple[bool, ...] = (True,)


@dataclass
class State:
    """The models that a server has loaded, and its open runs."""

    model_set: str | None = None
    line: list[tuple[int, int]] = field(default_factory=list)
    """Job and when it ends, in the order of the prompts."""


class Queue:
    """Servers and jobs over simulated time. Leases are made as in `store/leases.py`, and each is judged."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = 0
        self.states = [State() for _ in world.machines]
        self.arriving = {job_id: job.arrives for job_id, job in enumerate(world.jobs)}
        self.waiting: set[int] = set()
        self.runs = dict.fromkeys(self.arriving, 0)
        self.overtaken_at: dict[int, int] = {}
        self.passed_over: dict[int, int] = {}
        """When a job that was the oldest of its priority for a server was first not given to it."""
        self.answers: Iterator[bool] = cycle(world.worth)

    def work_off(self) -> None:
        for _ in range(MOST_EVENTS):
            self._pass_time()
            if not self.waiting and not self.arriving and not any(state.line for state in self.states):
                return
            for server in sorted(range(len(self.states)), key=lambda each: len(self.states[each].line)):
                self._lease(server)
        raise AssertionError(f"never ended: {sorted(self.waiting)}")

    def _pass_time(self) -> None:
        """Go to the next arrival or end; servers ask for work every second besides."""
        moments = [*self.arriving.values(), *(state.line[0][1] for state in self.states if state.line)]
        self.now = min([*moments, self.now + 1] if self.waiting else moments, default=self.now)
        for job_id in [each for each, at in self.arriving.items() if at <= self.now]:
            del self.arriving[job_id]
            self.waiting.add(job_id)
        for state in self.states:
            while state.line and state.line[0][1] <= self.now:
                self._end(state.line.pop(0)[0])

    def _end(self, job_id: int) -> None:
        comes_back = self.world.jobs[job_id].comes_back
        if comes_back is not None and self.runs[job_id] == 1:
            self.arriving[job_id] = self.now + comes_back

    def _set_of(self, job_id: int) -> str:
        return self.world.sets[self.world.jobs[job_id].needs]

    def _eligible(self, server: int) -> list[int]:
        return [each for each in sorted(self.waiting) if self._set_of(each) in self.world.machines[server].sets]

    def _lease(self, server: int) -> None:
        jobs, machine, state = self.world.jobs, self.world.machines[server], self.states[server]
        while len(state.line) < machine.window:
            eligible = self._eligible(server)
            if not eligible:
                return
            priority = min(jobs[each].priority for each in eligible)
            heads = {jobs[each].needs: each for each in reversed(eligible) if jobs[each].priority == priority}
            choice = self._choose(server, [self._head(each) for each in heads.values()])
            assert choice is not None, "there are jobs for it"
            if choice.oldest is not None:
                self.overtaken_at.setdefault(choice.oldest, self.now)
            if isinstance(choice, Decline):
                self._judge_pass_over(min(heads.values()))
                return
            for job_id in self._chosen(eligible, priority, choice)[: machine.window - len(state.line)]:
                self._judge(server, job_id)
                self._take(server, job_id, choice)

    def _choose(self, server: int, heads: list[Head]) -> Choice | Decline | None:
        state = self.states[server]
        elsewhere = frozenset(
            each.model_set for each in self.states if each is not state and each.line and each.model_set is not None
        )
        stay = self.world.stay
        return choose(heads, state.model_set, stay, lambda: elsewhere, lambda _: next(self.answers))

    def _head(self, job_id: int) -> Head:
        seconds = self.now - self.overtaken_at.get(job_id, self.now)
        return Head(job_id, str(self.world.jobs[job_id].needs), self._set_of(job_id), seconds)

    def _chosen(self, eligible: list[int], priority: int, choice: Choice) -> list[int]:
        jobs = self.world.jobs
        return [
            each
            for each in eligible
            if jobs[each].priority == priority and str(jobs[each].needs) == choice.needs
            if choice.below is None or each < choice.below
        ]

    def _take(self, server: int, job_id: int, choice: Choice) -> None:
        machine, state = self.world.machines[server], self.states[server]
        begins = max([self.now, *(end for _, end in state.line)])
        load = machine.load if state.model_set != choice.model_set else 0
        state.model_set = choice.model_set
        state.line.append((job_id, begins + load + machine.render))
        self.waiting.discard(job_id)
        self.runs[job_id] += 1
        self.overtaken_at.pop(job_id, None)
        self.passed_over.pop(job_id, None)

    def _judge(self, server: int, job_id: int) -> None:
        """Whether a server may have this job now."""
        jobs = self.world.jobs
        eligible = self._eligible(server)
        assert jobs[job_id].priority == min(jobs[each].priority for each in eligible), "priority wins"
        oldest = min(each for each in eligible if jobs[each].priority == jobs[job_id].priority)
        if oldest != job_id:
            assert self.world.stay > 0, "strictly by id"
            self._judge_pass_over(oldest)

    def _judge_pass_over(self, oldest: int) -> None:
        """The oldest job that a server could have is not given to it: in all, not for longer than one may stay."""
        since = self.passed_over.setdefault(oldest, self.now)
        assert self.now - since <= self.world.stay, f"job {oldest} was passed over since {since}, it is {self.now}"


def drawn_world(chance: Random) -> World:
    """Some servers of which one has everything, and jobs of several sets and priorities that arrive over time."""
    names = "abcd"[: chance.randint(1, 4)]
    sets = (*names, *chance.choices(names, k=chance.randint(0, 2)))

    def machine(has: Collection[str]) -> Machine:
        return Machine(frozenset(has), chance.randint(1, 3), chance.randint(1, 6), chance.randint(0, 4))

    some = [machine(chance.sample(names, chance.randint(1, len(names)))) for _ in range(chance.randint(0, 3))]
    until = chance.choice([5, 40, 80])
    jobs = [
        Work(
            chance.randint(0, until),
            chance.randrange(3),
            chance.randrange(len(sets)),
            chance.choice([None, None, chance.randint(0, 20)]),
        )
        for _ in range(chance.randint(1, 60))
    ]
    return World(
        chance.choice([0, 1, 3, 8]),
        sets,
        (*some, machine(names)),
        tuple(sorted(jobs, key=lambda job: job.arrives)),
        tuple(chance.choices([True, False], k=5)),
    )


def one_server(*jobs: Work, window: int = 1, render: int = 1) -> World:
    return World(5, ("a", "b", "c"), (Machine(frozenset("abc"), window, render, 0),), jobs)


A_MINUTE_OF_A = [Work(second, 1, 0) for second in range(60)]


@given(st.integers(0, 2**32).map(Random).map(drawn_world))
@example(one_server(Work(0, 1, 0), Work(0, 1, 1), *A_MINUTE_OF_A, window=2, render=10))  # overtaken within one lease
@example(one_server(*A_MINUTE_OF_A[:2], Work(1, 1, 1), *A_MINUTE_OF_A[2:5], Work(5, 0, 2), *A_MINUTE_OF_A[5:]))
@settings(max_examples=200, deadline=None)
def test_priority_wins_and_the_oldest_is_overtaken_only_for_a_while(world: World) -> None:
    queue = Queue(world)
    queue.work_off()
    assert all(queue.runs[job_id] == 1 + (job.comes_back is not None) for job_id, job in enumerate(world.jobs))


OLDEST, LOADED = Head(1, "one", "a"), Head(2, "two", "b")


def test_a_server_goes_on_with_what_it_has_loaded() -> None:
    assert choose([LOADED, OLDEST], "b", 120) == Choice("two", "b", oldest=1)
    assert choose([LOADED, replace(OLDEST, overtaken_seconds=120)], "b", 120) == Choice("one", "a", below=2)
    assert choose([LOADED, OLDEST], "b", 0) == Choice("one", "a", below=2), "strictly by id"


def test_an_idle_server_takes_the_oldest_models_that_no_other_is_busy_with() -> None:
    assert choose([OLDEST, LOADED], "c", 120, lambda: {"c"}) == Choice("one", "a", below=2)
    assert choose([OLDEST, LOADED], "c", 120, lambda: {"a"}) == Choice("two", "b", oldest=1)
    assert choose([OLDEST, LOADED], "c", 120, lambda: {"a", "b"}) == Choice("one", "a", below=2)


def test_a_server_waits_if_loading_does_not_pay() -> None:
    assert choose([OLDEST], "c", 120, lambda: {"a"}, lambda _: False) == Decline(1)
    assert choose([], "c", 120) is None


def test_a_set_that_loads_quickly_is_stayed_with_for_less_long() -> None:
    assert [stay_for(120, seconds) for seconds in (None, 60.0, 1.0, 0.0)] == [120, 120, 50, 0]
