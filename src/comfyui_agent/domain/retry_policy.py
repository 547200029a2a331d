"""What happens after a failure: the class decides, the limits bound it. Pure: no clock, no dice of its own."""

from __future__ import annotations

from dataclasses import dataclass

from comfyui_agent.domain.failures import FailureClass

CHARGED = frozenset({FailureClass.OOM, FailureClass.EXECUTION, FailureClass.TIMEOUT, FailureClass.OUTPUT})
REJECTED = frozenset({FailureClass.INVALID, FailureClass.MISSING})
RETRIES_AFTER_REJECTION = 1
JITTER = 0.2


@dataclass(frozen=True)
class RetryPolicy:
    """The limits of one configuration: `retry_limit`, `retry_backoff_seconds`, `poison_limit`."""

    retry_limit: int = 2
    backoff_seconds: tuple[float, ...] = (15.0, 45.0, 90.0)
    poison_limit: int = 3

    def backoff(self, retries_attempted: int, chance: float) -> float:
        """Seconds to wait before the next try; `chance` in 0..1 spreads them by a fifth to either side."""
        if not self.backoff_seconds:
            return 0.0
        base = self.backoff_seconds[min(retries_attempted, len(self.backoff_seconds) - 1)]
        return base * (1.0 - JITTER + 2 * JITTER * chance)

    @property
    def longest_backoff(self) -> float:
        """No job waits longer than this; one that seems to was noted by another clock."""
        return max(self.backoff_seconds, default=0.0) * (1.0 + JITTER) + 1.0


@dataclass(frozen=True)
class Tally:
    """What a job has used up so far. `retry_limit` is its own, where it has one."""

    retries_attempted: int = 0
    strikes: int = 0
    retry_limit: int | None = None


@dataclass(frozen=True)
class Retry:
    """Render it again after a while. Only a charged retry counts against the limit; a strike leads to `poison`."""

    after_seconds: float
    charged: bool
    strike: bool = False


@dataclass(frozen=True)
class GiveUp:
    """The job has failed for good, as this class. A person has to change something if it `needs_regeneration`."""

    kind: FailureClass
    needs_regeneration: bool = False


Decision = Retry | GiveUp


def decide(
    kind: FailureClass, tally: Tally, policy: RetryPolicy, *, suspect: bool, chance: float, by_choice: bool = False
) -> Decision:
    """What to do after a run ended in a failure.

    `suspect` tells whether the prompt was being executed when its server was lost: only then may it be the reason.
    `by_choice` that it was rejected for a choice that its server does not offer: it would be again.
    """
    limit = policy.retry_limit if tally.retry_limit is None else tally.retry_limit
    wait = policy.backoff(tally.retries_attempted, chance)
    if kind in CHARGED:
        return Retry(wait, charged=True) if tally.retries_attempted < limit else GiveUp(kind)
    if kind in REJECTED:
        allowed = 0 if by_choice and kind is FailureClass.INVALID else min(limit, RETRIES_AFTER_REJECTION)
        return Retry(wait, charged=True) if tally.retries_attempted < allowed else GiveUp(kind, needs_regeneration=True)
    if kind is FailureClass.INTERRUPTED:
        return Retry(0.0, charged=False)
    if kind is FailureClass.SERVER_LOST:
        if not suspect:
            return Retry(0.0, charged=False)
        if tally.strikes + 1 >= policy.poison_limit:
            return GiveUp(FailureClass.POISON)
        return Retry(0.0, charged=False, strike=True)
    return GiveUp(kind)
