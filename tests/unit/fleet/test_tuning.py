"""The number of processes on a card, found by measuring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comfyui_agent.fleet.launch.tuning import GAIN, Sample, Step, Tuning

GIB = 1024**3
H200 = {1: 57.0, 2: 87.5, 3: 100.0, 4: 111.7, 5: 118.0, 6: 119.0, 7: 119.0, 8: 119.0}


class Card:
    """A card that renders so many pictures a minute with so many processes, looked at every two seconds."""

    def __init__(self, per_minute: dict[int, float], most: int = 8, waiting: int = 100_000, **facts: int) -> None:
        self.per_minute = per_minute
        self.tuning = Tuning("gpu0", most)
        self.facts = Sample(0.0, 1, True, 0, 0.0, waiting, 1.0, **facts)
        self.renders = 0.0
        self.tried: list[int] = []

    def look(self, **facts: object) -> Step | None:
        now = self.facts
        self.renders += self.per_minute[now.processes] / 60 * 2
        work = self.renders
        self.facts = replace(now, at=now.at + 2, renders=int(self.renders), work=work)
        step = self.tuning.see(replace(self.facts, **facts))  # type: ignore[arg-type]
        change = {Step.GROW: 1, Step.SHRINK: -1, None: 0}[step]
        self.facts = replace(self.facts, processes=self.facts.processes + change)
        if change:
            self.tried.append(self.facts.processes)
        return step

    def run(self, looks: int = 600) -> int:
        for _ in range(looks):
            self.look()
        return self.facts.processes


def test_processes_are_added_while_each_renders_a_tenth_more() -> None:
    card = Card(H200)
    assert card.run() == 4
    assert card.tried == [2, 3, 4, 5, 4]
    assert card.tuning.found.is_settled
    assert "5 processes: not worth it; 4 it is" in card.tuning.found.decision
    assert card.tuning.found.per_minute[4] == pytest.approx(111.7, rel=0.05)


def test_one_is_enough_where_a_second_brings_nothing() -> None:
    card = Card({1: 60.0, 2: 60.0 * (GAIN - 0.02), 3: 1.0})
    assert (card.run(), card.tried) == (1, [2, 1])


def test_no_more_than_there_are_slots() -> None:
    card = Card({number: 60.0 * number for number in range(1, 10)}, most=3)
    assert card.run() == 3


def test_memory_for_another_must_be_free() -> None:
    card = Card(H200, free_memory=10 * GIB, process_memory=8 * GIB)
    assert card.run() == 1
    assert "10.0 GB are free, and another takes 11.6 GB" in card.tuning.found.decision


def test_a_short_queue_is_not_worth_another() -> None:
    card = Card(H200, waiting=20)
    assert (card.run(), card.tuning.found.is_settled) == (1, False)
    card.facts = replace(card.facts, waiting=10_000)
    assert card.run() == 4


def test_out_of_memory_takes_one_away_and_it_stays_away() -> None:
    card = Card(H200)
    card.run(60)
    number = card.facts.processes
    assert number > 1
    assert card.look(oom_failures=1) is Step.SHRINK
    card.facts = replace(card.facts, oom_failures=1)
    assert card.run() == number - 1
    assert "ran out of memory" in card.tuning.found.decision or card.tuning.found.is_settled


def test_throughput_that_falls_takes_one_away() -> None:
    card = Card(H200)
    card.run()
    card.per_minute = {3: 100.0, 4: 50.0}
    assert card.run(100) == 3


def test_nothing_is_measured_while_a_process_waits_for_work() -> None:
    card = Card(H200)
    for _ in range(200):
        card.look(is_busy=False)
    assert (card.facts.processes, card.tuning.found.per_minute) == (1, {})


def test_other_work_is_measured_anew() -> None:
    card = Card(H200)
    card.run()
    card.look(is_idle=True, is_busy=False)
    assert (card.tuning.found.is_settled, card.tuning.found.per_minute) == (False, {})
    card.per_minute = {4: 100.0, 5: 150.0, 6: 151.0}
    assert card.run() == 5


def test_what_is_left_of_the_larger_number_does_not_blame_the_smaller_one() -> None:
    card = Card(H200)
    card.run(60)
    number = card.facts.processes
    for failures in (1, 2, 3):
        card.look(oom_failures=failures)
    card.facts = replace(card.facts, oom_failures=3)
    assert card.facts.processes == number - 1
    card.run(15)
    assert card.look(oom_failures=4) is Step.SHRINK


def test_a_process_that_does_not_start_is_done_without() -> None:
    card = Card(H200)
    while card.facts.processes < 3:
        card.look()
    assert card.look(is_busy=False, failure="port 8190 is taken") is Step.SHRINK
    assert card.run() == 2
    assert card.tuning.found.decision == "a process of 3 was given up: port 8190 is taken; 2 it is"


def test_one_process_that_does_not_start_is_still_wanted() -> None:
    card = Card(H200)
    assert card.look(is_busy=False, failure="it ended") is None


def test_another_agent_goes_on_from_what_was_found() -> None:
    card = Card(H200)
    while card.facts.processes < 5:
        card.look()
    card.tuning = Tuning("gpu0", 8, card.tuning.found)
    card.tried.clear()
    assert (card.run(), card.tried) == (4, [4])


def test_memory_is_noted_with_each_number() -> None:
    card = Card(H200, free_memory=80 * GIB, process_memory=4 * GIB)
    card.run()
    assert card.tuning.found.memory == dict.fromkeys(range(1, 6), 4 * GIB)


def test_what_hinders_is_told_until_it_is_gone() -> None:
    card = Card(H200, waiting=20)
    card.run()
    assert card.tuning.is_hindered
    card.facts = replace(card.facts, waiting=10_000)
    card.run()
    assert (card.tuning.is_hindered, card.tuning.found.is_settled) == (False, True)
