"""What happens after a failure: the class decides within the limits."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import assert_never

from comfyui_agent.domain.failures import FailureClass

RETRIES_AFTER_REJECTION = 1
JITTER = 0.2


@dataclass(frozen=True)
class RetryPolicy:
    """The limits of one configuration: `retry_limit`, `retry_backoff_seconds`, `poison_limit`."""

    retry_limit: int = 2
    backoff_seconds: tuple[float, ...] = (15.0, 45.0, 90.0)
    poison_limit: int = 3

    def backoff(self, retries_attempted: int, chance: float) -> float:
        """Seconds to wait before the next attempt. `chance` in 0..1 spreads them by a fifth to either side."""
        if not self.backoff_seconds:
            return 0.0
        base = self.backoff_seconds[min(retries_attempted, len(self.backoff_seconds) - 1)]
        return base * (1.0 - JITTER + 2 * JITTER * chance)

    @property
    def longest_backoff(self) -> float:
        """No job waits longer than this, unless the clock was changed."""
        return max(self.backoff_seconds, default=0.0) * (1.0 + JITTER) + 1.0


@dataclass(frozen=True)
class Tally:
    """What a job has used up so far. `retry_limit` is its own limit, if it has one."""

    retries_attempted: int = 0
    strikes: int = 0
    retry_limit: int | None = None


@dataclass(frozen=True)
class Retry:
    """Render it again. A charged retry counts against the limit, a strike raises the crash count."""

    after_seconds: float
    charged: bool
    strike: bool = False


@dataclass(frozen=True)
class GiveUp:
    """The job failed for good. If it `needs_regeneration`, a person has to change it first."""

    kind: FailureClass
    needs_regeneration: bool = False


Decision = Retry | GiveUp


def decide(
    kind: FailureClass, tally: Tally, policy: RetryPolicy, *, suspect: bool, chance: float, by_choice: bool = False
) -> Decision:
    """What to do after a run failed.

    `suspect`: the prompt was being executed when its server was lost, so it may be the cause. `by_choice`: the server
    rejected a choice that it does not offer, so it would reject it again.
    """
    limit = policy.retry_limit if tally.retry_limit is None else tally.retry_limit
    wait = policy.backoff(tally.retries_attempted, chance)
    match kind:
        case FailureClass.OOM | FailureClass.EXECUTION | FailureClass.TIMEOUT | FailureClass.OUTPUT:
            return Retry(wait, charged=True) if tally.retries_attempted < limit else GiveUp(kind)
        case FailureClass.INVALID | FailureClass.MISSING:
            is_final = by_choice and kind is FailureClass.INVALID
            if not is_final and tally.retries_attempted < min(limit, RETRIES_AFTER_REJECTION):
                return Retry(wait, charged=True)
            return GiveUp(kind, needs_regeneration=True)
        case FailureClass.INTERRUPTED:
            return Retry(0.0, charged=False)
        case FailureClass.SERVER_LOST:
            if suspect and tally.strikes + 1 >= policy.poison_limit:
                return GiveUp(FailureClass.POISON)
            return Retry(0.0, charged=False, strike=suspect)
        case FailureClass.CANCELLED | FailureClass.POISON:
            return GiveUp(kind)
        case _:
            assert_never(kind)
