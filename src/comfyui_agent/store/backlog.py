"""What is left to do and by whom, for forecasts. Its cost does not grow with the number of jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.forecast import Backlog, Running, Waiting, WorkingServer
from comfyui_agent.store.job_queries import count_jobs
from comfyui_agent.store.needs import timings
from comfyui_agent.store.operation import query
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import record
from comfyui_agent.store.server_states import servers_out_of_work

COUNTED, GROUPS, HELD, ENDS = 10_000, 500, 500, 64
JUST_NOW = 10.0


@query
def read_backlog(session: Session, servers: Collection[str], batch: Batch | None = None) -> Backlog:
    """The whole queue, or that and which of it is a batch. `servers` count if none is at work."""
    ago = {row["server"]: row["ago"] for row in session.rows("newest_ends", most=ENDS)}
    names = {server for server, seconds in ago.items() if seconds < JUST_NOW}
    running, last = [], {}
    for row in session.rows("runs_at_servers"):
        server = row["server"]
        elapsed = 0.0 if server in last else min(row["age"], ago.get(server, row["age"]))
        running.append(record(Running, row, elapsed=elapsed, is_asked=batch is None or row["batch_id"] == batch.id))
        last[server] = row
    sets = {row["server"]: row for row in session.rows("sets_of_servers")}
    names = (names | last.keys() or set(servers)) - {each.server for each in servers_out_of_work(session)}
    at_work = {name: record(WorkingServer, {**sets.get(name, {}), **last.get(name, {})}) for name in sorted(names)}
    return Backlog(_waiting(session, batch), running, at_work, timings(session))


def _waiting(session: Session, batch: Batch | None) -> list[Waiting]:
    found = _groups(session, "waiting_by_needs", None)
    if batch is not None:
        members = _groups(session, "members_by_needs", batch)
        own = {(each.priority, each.needs): each.jobs for each in members}
        last = max((each.last for each in members), default=0)
        for each in found:
            mine = own.get((each.priority, each.needs), 0)
            keys = {"priority": each.priority, "needs": each.needs, "below": last + 1}
            jobs, ahead = each.jobs - mine, session.value("count_before", **keys, most=COUNTED) - mine
            if ahead + mine == COUNTED:
                ahead = jobs * (min(last, each.last) - each.first) // max(1, each.last - each.first)
            ahead = max(0, min(jobs, ahead))
            if ahead > 0:
                members.append(replace(each, is_asked=False, jobs=ahead, last=max(each.first, min(each.last, last))))
            if jobs > ahead:
                behind = max(each.first, min(each.last, last + 1))
                members.append(replace(each, is_asked=False, jobs=jobs - ahead, first=behind))
        found = members
    held = session.rows("held_jobs", most=HELD)
    return found + [
        record(Waiting, row, is_asked=batch is None or row["batch_id"] == batch.id, after=row["after"]) for row in held
    ]


def _groups(session: Session, name: str, batch: Batch | None) -> list[Waiting]:
    """Jobs beyond those that were counted are shared out by the ranges of ids."""
    named: dict[str, Any] = {"batch_id": batch.id} if batch else {}
    found = [record(Waiting, row) for row in session.rows(name, most=COUNTED, most_groups=GROUPS, **named)]
    large = [each for each in found if each.jobs == COUNTED] or (found if len(found) == GROUPS else [])
    if not large:
        return found
    pending = batch.pending if batch else count_jobs(session).pending - session.value("count_held")
    unseen, ids = max(0, pending - sum(each.jobs for each in found)), sum(each.last - each.first + 1 for each in large)
    more = {each: unseen * (each.last - each.first + 1) // ids for each in large}
    return [replace(each, jobs=each.jobs + more.get(each, 0)) for each in found]
