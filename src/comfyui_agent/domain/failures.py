"""Why a run did not give a result. The class of a failure decides what happens next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum


class FailureClass(str, Enum):
    """The classes that users see in the database, in events and in reports."""

    INVALID = "invalid"
    MISSING = "missing"
    OOM = "oom"
    EXECUTION = "execution"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    SERVER_LOST = "server_lost"
    OUTPUT = "output"
    CANCELLED = "cancelled"
    POISON = "poison"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Failure:
    """One failure, with all that a person needs to understand it. Texts never hold a secret."""

    kind: FailureClass
    message: str
    server: str = ""
    prompt_id: str = ""
    node_id: str = ""
    node_type: str = ""
    exception_type: str = ""
    traceback: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    by_choice: bool = False
    """The server does not offer a choice that was made: the same prompt is rejected there every time."""

    def cleaned(self, clean: Callable[[str], str]) -> Failure:
        """The same failure with each text that a server wrote passed through `clean`."""
        return replace(
            self,
            message=clean(self.message),
            node_id=clean(self.node_id),
            node_type=clean(self.node_type),
            exception_type=clean(self.exception_type),
            traceback=tuple(clean(line) for line in self.traceback),
            details=tuple(clean(detail) for detail in self.details),
        )

    def trace(self) -> str:
        """A text for `error_trace`: what happened, where, and the server's own traceback below it."""
        place = f"node {self.node_id} ({self.node_type})" if self.node_id else ""
        head = f"{self.kind}: {self.message}" + (f" at {place}" if place else "")
        where = [f"server {self.server}" if self.server else "", f"prompt {self.prompt_id}" if self.prompt_id else ""]
        lines = [head, *(f"  {detail}" for detail in self.details)]
        lines += [", ".join(part for part in where if part)] if any(where) else []
        if self.traceback:
            lines += ["Traceback (most recent call last):", "".join(self.traceback).rstrip()]
            lines.append(f"{self.exception_type}: {self.message}" if self.exception_type else self.message)
        return "\n".join(lines)
