"""What the store returns: leases, open attempts, counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from comfyui_agent.domain.jobs import GATEWAY, AttemptId, JobId
from comfyui_agent.domain.prompts import PromptId
from comfyui_agent.domain.retry_policy import Tally


@dataclass(frozen=True)
class Lease:
    """The right to change a job, until its fence goes up."""

    job_id: JobId
    fence: int
    attempt_id: AttemptId
    sent: str | None = field(default=None, compare=False)
    """What was filled in for the server, as JSON. The next write about the run stores it."""
    entry: str | None = field(default=None, compare=False)
    """What the server's history said, as JSON, for a client of the gateway. It is stored with the end of the run."""


@dataclass(frozen=True)
class Leased:
    """A job to run or a run to take over, with all that its prompt needs."""

    lease: Lease
    config_name: str
    job_type: str
    workflow_id: str
    template_hash: str | None
    inputs: str | None
    server: str
    prompt_id: PromptId
    tally: Tally
    last_failure: str | None = None
    file_path: str | None = None
    output_node: str | None = None
    timeout_seconds: float | None = None
    avoids: frozenset[str] = frozenset()
    source: str | None = None
    digest: str | None = None
    pictures: str | None = None
    batch_id: str | None = None
    is_taken_over: bool = False
    previous_worker: str | None = None
    running_seconds: float | None = None
    needs: str | None = None
    take: int | None = None
    """The number of the result that it makes; None: the first."""

    @property
    def is_posted(self) -> bool:
        """Whether a client of ComfyUI posted it at the gateway."""
        return self.source == GATEWAY

    @property
    def job_file(self) -> str | None:
        """The file that it came from."""
        return None if self.is_posted else self.source

    @property
    def is_suspect(self) -> bool:
        """Whether a server died while the job ran. It runs alone then."""
        return self.tally.strikes > 0


@dataclass(frozen=True)
class OpenAttempt:
    """A run without an outcome, and the state of its job. Its prompt may be at the server."""

    attempt_id: AttemptId
    job_id: JobId
    server: str
    prompt_id: PromptId
    worker: str | None
    fence: int
    status: str | None
    """None if the job was deleted."""
    has_expired: bool
    attempt_worker: str | None
    batch_id: str | None = None
    is_reserved: bool = False
    is_lost: bool = False
    """Its server stopped answering, and the job waits for that one or another."""
    is_worker_dead: bool = False
    is_attempt_worker_dead: bool = False
    """The worker that began or last took over the run is dead."""

    @property
    def is_wanted(self) -> bool:
        """Whether its result still counts. Otherwise the prompt is taken back."""
        return self.status in ("pending", "processing")


@dataclass(frozen=True)
class Window:
    """What one server may be given: at most `size` prompts over all agents together."""

    server: str
    size: int
    is_only: bool = False
    """There is no other server, so jobs that avoid this one may run on it."""
    batch_id: str | None = None
    one_page: bool = False
    """At most one page of each book at a time, over all servers."""


@dataclass(frozen=True)
class Digest:
    """What a result was when it was published. None: it is older than digests."""

    sha256: str | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Holder:
    """What a caller's own key stands for."""

    kind: str
    """job, batch or book"""
    id: str
    name: str
    digest: str | None
    """Of the request that made it; only jobs have one."""


@dataclass(frozen=True)
class Counts:
    """How many jobs are in each state."""

    pending: int = 0
    processing: int = 0
    done: int = 0
    failed: int = 0
    attention: int = 0

    @property
    def total(self) -> int:
        return self.pending + self.processing + self.done + self.failed

    @property
    def is_idle(self) -> bool:
        return not self.pending and not self.processing


@dataclass(frozen=True)
class Compacted:
    """The size of a database before and after, in bytes, and how many unused templates were removed."""

    bytes_before: int
    bytes_after: int
    templates: int
