"""Why a job runs where it does, or why it waits: for the command line, the API and the page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from comfyui_agent.comfy.address import address_of, name_of
from comfyui_agent.domain.jobs import Attempt, Job
from comfyui_agent.domain.needs import load_times, missing_everywhere
from comfyui_agent.domain.routing import stay_for
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted, parsed
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.store import operations as ops
from comfyui_agent.store.needs import Ahead, LoadedSet
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.intake import Intake
from comfyui_agent.usecases.servers import UNSEEN, look_at_servers

HOLDS = {
    "backoff": "it was tried and runs again after a pause",
    "paused": "its batch is paused",
    "filling": "its batch is still being put together",
    "turn": "pages of its book run one after the other",
    "burst": "it is for a later burst",
}


@dataclass(frozen=True)
class Candidate:
    """A server, and what it means to a job that waits. `lacks` is null if the server did not say what it has."""

    url: str
    state: str
    lacks: tuple[str, ...] | None = None
    goes_on: str = ""
    """With which models it goes on while the job waits, and for how long."""
    explanation: str = ""


@dataclass(frozen=True)
class Whereabouts:
    """Why a job runs where it does, or why it waits: a sentence, and every server for a job that may run."""

    sentence: str
    servers: tuple[Candidate, ...] = ()


async def find_whereabouts(
    store: Store, intake: Intake, job: Job, look: Callable[[], Awaitable[Sequence[ServerReport]]] | None = None
) -> Whereabouts:
    """Explain where a job is. Servers are looked at, and asked what they have, only for a job that may run."""
    if job.status is not JobStatus.PENDING or job.waits_for_server or job.hold or job.reserved:
        return Whereabouts(explain_place(job, await store.run(ops.list_attempts, job.id)))
    known = next(iter(await store.run(ops.find_needs, {job.needs or ""})), None)
    offers = await intake.offers(known.classes) if known else {}
    sets, loads = await store.run(ops.server_sets), load_times(await store.run(ops.timings))
    limit = intake.workspace.settings.routing.stay_seconds
    ahead, servers = await store.run(ops.jobs_ahead, job), []
    configured = {address_of(url) for url in server_urls(intake.workspace)}
    reports = await (look() if look else look_at_servers(store, intake.workspace))
    for report in (each for each in reports if each.url in configured):
        loaded, capacity = sets.get(report.url, UNSEEN), report.stats.capacity if report.stats else None
        found = known.lacks(offers[report.url], capacity) if known and report.url in offers else None
        model_set = loaded.model_set or ""
        stay_seconds = stay_for(limit, loads.get((model_set, report.url)))
        is_next = ahead.overtaken_seconds is None or known is None or known.model_set == model_set
        left = 0.0 if is_next else stay_seconds - (ahead.overtaken_seconds or 0.0)
        goes_on = f"{report.name} goes on with {loaded.names} for at most {left:.0f} s more"
        explanation = _explain_server(job, report, found, loaded, stay_seconds)
        servers.append(
            Candidate(report.url, report.state, found, goes_on if loaded.names and left > 0 else "", explanation)
        )
    return Whereabouts(explain_waiting(job, servers, ahead), tuple(servers))


def _explain_server(
    job: Job, report: ServerReport, lacking: Sequence[str] | None, loaded: LoadedSet, stay_seconds: float
) -> str:
    has = "has not said what it has" if lacking is None else f"lacks {', '.join(lacking)}" if lacking else "can run it"
    parts = [report.error or report.state, has]
    if report.url in (job.avoids or "").split():
        parts.append("the job failed there before")
    if loaded.names:
        parts.append(f"has {loaded.names} loaded since {(loaded.since or '')[11:19]} UTC")
        parts += [] if lacking else [f"an older job is overtaken there for at most {stay_seconds:.0f} s"]
    if report.stats:
        parts.append(f"{report.running} running, {report.pending} waiting")
    return "; ".join(parts)


def explain_waiting(job: Job, servers: Sequence[Candidate], ahead: Ahead) -> str:
    """Why a job that may run waits: what counts most comes first."""
    missing = missing_everywhere({each.url: each.lacks or () for each in servers})
    if missing:
        return f"waits: {missing}. It fails when it is its turn, unless one has it by then"
    working = [each for each in servers if not each.lacks and each.state == "up"]
    if not working:
        able = ", ".join(f"{name_of(each.url)} is {each.state}" for each in servers if not each.lacks)
        return f"waits: no server that can run it takes work ({able or 'none is known'})"
    if ahead.earlier:
        span = f"{ahead.first}" if ahead.first == ahead.last else f"{ahead.first} to {ahead.last}"
        return f"waits behind {counted(ahead.earlier, 'job')} of priority {span}"
    if goes_on := next((each.goes_on for each in working if each.goes_on), ""):
        return f"waits: {goes_on}, then it is the turn of this job"
    if ahead.older:
        return f"waits behind {counted(ahead.older, 'older job')} of priority {job.priority}"
    return f"is next: waits until {' or '.join(name_of(each.url) for each in working)} has room"


def explain_place(job: Job, attempts: Sequence[Attempt]) -> str:
    """Where a job is or was, or what holds it back."""
    last = attempts[-1] if attempts else None
    at = f" at {name_of(last.server)}" if last and last.server else ""
    loads = {None: "", 0: "; its models were loaded already", 1: "; models had to be loaded for it"}
    loading = loads.get(last.is_load, "") if last else ""
    match job.status:
        case JobStatus.PENDING if job.waits_for_server:
            return job.waiting_words
        case JobStatus.PENDING if job.hold is None:
            return f"waits for the agent of its burst {job.batch_id}: others leave it alone"
        case JobStatus.PENDING:
            until = f", not before {job.next_attempt_at[:19]} UTC" if job.next_attempt_at else ""
            return f"waits: {HOLDS.get(job.hold or '', f'it is held ({job.hold})')}{until}"
        case JobStatus.PROCESSING:
            return f"is{at} since {(job.start_time or '')[:19]} UTC{loading}"
        case JobStatus.DONE:
            return f"ran{at}{f' in {job.duration:.1f} s' if job.duration is not None else ''}{loading}"
        case JobStatus.FAILED:
            error, first = parsed(last.error) if last else None, (job.error_trace or "").partition("\n")[0]
            why = error.get("message") if isinstance(error, dict) else first
            ended = f"{'was cancelled' if job.is_cancelled else 'failed'}{at or ' before it ran'}"
            return f"{ended}: {why}" if why else ended
