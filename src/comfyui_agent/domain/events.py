"""Events, as they stand in the metrics log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.texts import TextEnum


class EventName(TextEnum):
    """The names that scripts and dashboards rely on."""

    JOB_SUBMITTED = "job.submitted"
    JOB_STARTED = "job.started"
    JOB_DONE = "job.done"
    JOB_FAILED = "job.failed"
    JOB_RETRY = "job.retry"
    JOB_CANCELLED = "job.cancelled"
    JOB_FILE_REPEATED = "job.file_repeated"
    BATCH_CREATED = "batch.created"
    BATCH_COMPLETED = "batch.completed"
    BATCH_CANCELLED = "batch.cancelled"
    BATCH_EXPIRED = "batch.expired"
    BOOK_PAGE_FAILED = "book.page.failed"
    BOOK_PAGE_RETRY = "book.page.retry"
    SERVER_UP = "server.up"
    SERVER_DOWN = "server.down"
    SERVER_DRAINED = "server.drained"
    SERVER_STARTED = "server.started"
    SERVER_RESTARTED = "server.restarted"
    SERVER_TUNED = "server.tuned"
    DATABASE_PRUNED = "database.pruned"
    LOAD_STARTED = "load.started"
    LOAD_ENDED = "load.ended"
    ALERT_SERVER = "alert.server"
    ALERT_MEMORY = "alert.memory"
    ALERT_DISK = "alert.disk"
    ALERT_FILE = "alert.file"
    ALERT_DATABASE = "alert.database"
    ALERT_POISON = "alert.poison"
    ALERT_GRID = "alert.grid"
    ALERT_NOTIFY = "alert.notify"
    ALERT_WEBHOOK = "alert.webhook"
    AUDIT_JOB_SUBMIT = "audit.job.submit"
    AUDIT_INPUT_UPLOAD = "audit.input.upload"
    AUDIT_JOB_TAKE = "audit.job.take"
    AUDIT_JOB_RETRY = "audit.job.retry"
    AUDIT_JOB_CANCEL = "audit.job.cancel"
    AUDIT_JOB_PRIORITY = "audit.job.priority"
    AUDIT_JOB_DISMISS = "audit.job.dismiss"
    AUDIT_JOB_RATE = "audit.job.rate"
    AUDIT_JOB_DELETE = "audit.job.delete"
    AUDIT_BATCH_CREATE = "audit.batch.create"
    AUDIT_BATCH_RETRY = "audit.batch.retry"
    AUDIT_BATCH_CANCEL = "audit.batch.cancel"
    AUDIT_BATCH_PAUSE = "audit.batch.pause"
    AUDIT_BATCH_RESUME = "audit.batch.resume"
    AUDIT_BATCH_GRID = "audit.batch.grid"
    AUDIT_BOOK_CREATE = "audit.book.create"
    AUDIT_BOOK_REGENERATE = "audit.book.regenerate"
    AUDIT_WORKFLOW_IMPORT = "audit.workflow.import"
    AUDIT_SERVER_PAUSE = "audit.server.pause"
    AUDIT_SERVER_DRAIN = "audit.server.drain"
    AUDIT_SERVER_RESUME = "audit.server.resume"
    AUDIT_SERVER_RESTART = "audit.server.restart"
    AUDIT_SERVER_UP = "audit.server.up"
    AUDIT_SERVER_STOP = "audit.server.stop"
    AUDIT_TOKEN_CREATE = "audit.token.create"  # noqa: S105 - a name
    AUDIT_TOKEN_REVOKE = "audit.token.revoke"  # noqa: S105 - a name
    AUDIT_TOKEN_OPEN = "audit.token.open"  # noqa: S105 - a name
    AUDIT_LOGIN = "audit.login"
    AUDIT_LOGIN_FAILED = "audit.login.failed"
    AUDIT_LOGOUT = "audit.logout"
    AUDIT_NOTIFY_TEST = "audit.notify.test"
    AUDIT_WEBHOOK_CREATE = "audit.webhook.create"
    AUDIT_WEBHOOK_REMOVE = "audit.webhook.remove"
    AUDIT_WEBHOOK_REPEAT = "audit.webhook.repeat"
    AUDIT_WEBHOOK_TEST = "audit.webhook.test"
    AUDIT_DATABASE_RECOVER = "audit.db.recover"
    AUDIT_DATABASE_PRUNE = "audit.db.prune"


AUDIT = "audit."


@dataclass(frozen=True)
class Event:
    """One thing that happened. `id` counts up in the order of commits. It is 0 before the event is recorded."""

    name: str
    timestamp: str = ""
    id: int = 0
    job_id: int | None = None
    config_name: str | None = None
    batch_id: str | None = None
    book_id: str | None = None
    page: int | None = None
    prompt_id: str | None = None
    server: str | None = None
    failure_class: str | None = None
    duration_sec: float | None = None
    wait_sec: float | None = None
    message: str | None = None
    actor: str | None = None
    """Who asked for it: `token 3 (studio)`, `this machine`, `cli (alice)`."""
    address: str | None = None
    workflow_id: str | None = None
    """For metrics. It is not in the log."""

    @property
    def is_audit(self) -> bool:
        """Whether only admins may see it."""
        return self.name.startswith(AUDIT)

    def as_json(self) -> dict[str, Any]:
        """One line of the log, without the facts that are None."""
        facts = {key: value for key, value in vars(self).items() if value is not None and key != "workflow_id"}
        name = facts.pop("name")
        return {"timestamp": facts.pop("timestamp"), "event": name, **facts}
