"""Which job a server gets next among those of one priority: what its models are loaded for, the oldest, or none.

A server goes on with the models that it has loaded. The oldest job that it could run is overtaken so for at most
`routing.stay_seconds`, less where loading is quick. An idle server takes the oldest models that no other is busy with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

LOADING_SHARE = 50
"""A server stays with its models until loading them was worth it: this many times as long as loading took."""


@dataclass(frozen=True)
class Head:
    """The first waiting job with certain needs, in one priority."""

    job_id: int
    needs: str
    model_set: str = ""
    overtaken_seconds: float = 0.0
    """How long ago a later job was first preferred to it."""


@dataclass(frozen=True)
class Choice:
    """Jobs of these needs are next. With `below`, only those with a smaller id."""

    needs: str
    model_set: str
    below: int | None = None
    oldest: int | None = None
    """The oldest job that they overtake."""


@dataclass(frozen=True)
class Decline:
    """The server waits: others are through with this work before it has loaded the models.

    With no `oldest`, it waits only until somebody knows what the jobs need.
    """

    oldest: int | None


Routed = Choice | Decline | None
"""None: the server can run none of the jobs."""


def choose(
    heads: Sequence[Head],
    loaded: str | None,
    stay_seconds: float,
    busy_elsewhere: Callable[[], Collection[str]] = frozenset,
    is_worth_loading: Callable[[Head], bool | None] = lambda _: None,
) -> Routed:
    """Choose among the heads that this server can run. None if there are none.

    `loaded`: the model set that it has. `busy_elsewhere`: model sets that other servers work on.
    `is_worth_loading`: None if nobody can say.
    """
    if not heads:
        return None
    ordered = sorted(heads, key=lambda head: head.job_id)
    oldest = ordered[0]
    if stay_seconds <= 0:
        return Choice(oldest.needs, oldest.model_set, ordered[1].job_id if len(ordered) > 1 else None)
    chosen: Head | None = oldest
    if oldest.overtaken_seconds < stay_seconds:
        chosen = _preferred(ordered, loaded, busy_elsewhere, is_worth_loading)
    if chosen is None:
        return Decline(oldest.job_id)
    # What is taken behind the oldest may overtake others: that is a choice of its own, and is noted.
    later = [head.job_id for head in ordered[1:] if chosen is oldest or head.model_set == chosen.model_set]
    return Choice(
        chosen.needs,
        chosen.model_set,
        below=min((job_id for job_id in later if job_id > chosen.job_id), default=None),
        oldest=None if chosen is oldest else oldest.job_id,
    )


def _preferred(
    ordered: Sequence[Head],
    loaded: str | None,
    busy_elsewhere: Callable[[], Collection[str]],
    is_worth_loading: Callable[[Head], bool | None],
) -> Head | None:
    own = next((head for head in ordered if head.model_set == loaded), None)
    if own is not None and len({head.model_set for head in ordered}) == 1:
        return own
    busy = busy_elsewhere()
    free = [head for head in ordered if head.model_set not in busy and head.model_set != loaded]
    if own is not None:
        # Two servers on one set while nobody works on another: this one changes, if there is enough of the other.
        return next((head for head in free if loaded in busy and is_worth_loading(head)), own)
    return free[0] if free else next((head for head in ordered if is_worth_loading(head) is not False), None)


def stay_for(limit: float, load_seconds: float | None) -> float:
    """How long a set is stayed with while older jobs wait. A set that loads at once is not worth any of it."""
    return limit if load_seconds is None else min(limit, LOADING_SHARE * load_seconds)
