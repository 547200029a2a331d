"""Why a run gave no result. The class of a failure decides what happens next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from comfyui_agent.domain.texts import TextEnum


class FailureClass(TextEnum):
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


@dataclass(frozen=True)
class Failure:
    """One failure, with all that a person needs to understand it. Its texts hold no secrets."""

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
    """The prompt has a choice that the server does not offer, so the server will reject it again."""

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
        """The text of `error_trace`: what happened, where, and the server's traceback."""
        head = f"{self.kind}: {self.message}"
        if self.node_id:
            head += f" at node {self.node_id} ({self.node_type})"
        where = [f"server {self.server}" if self.server else "", f"prompt {self.prompt_id}" if self.prompt_id else ""]
        lines = [head, *(f"  {detail}" for detail in self.details)]
        if any(where):
            lines.append(", ".join(filter(None, where)))
        if self.traceback:
            lines += ["Traceback (most recent call last):", "".join(self.traceback).rstrip()]
            lines.append(f"{self.exception_type}: {self.message}" if self.exception_type else self.message)
        return "\n".join(lines)
