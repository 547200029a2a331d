"""What goes wrong when a program talks to E3.

RemoteError
├── Unreachable      no answer, however often it was tried
├── Refused          E3 answered why not
│   └── IdTaken      something was made with this external_id before: `made` names it
├── NotReady         the time to wait is up
└── DamagedResult    the bytes of a result are not those that E3 recorded
"""

from __future__ import annotations

from comfyui_agent.web.api.models import Made, ProblemShown


class RemoteError(Exception):
    """E3 did not do what was asked for; the message says why."""


class Unreachable(RemoteError):
    """No answer. What makes something may have arrived: ask again with the same key or external_id, it is made once."""


class Refused(RemoteError):
    """What E3 answered. `problem.type` is for programs, `problem.remedy` says what to do."""

    def __init__(self, problem: ProblemShown) -> None:
        super().__init__(" ".join(filter(None, (f"{problem.detail}.", problem.remedy))))
        self.problem = problem

    @property
    def status(self) -> int:
        return self.problem.status


class IdTaken(Refused):
    """Something else of this token has the external_id."""

    @property
    def made(self) -> Made | None:
        return self.problem.made


class NotReady(RemoteError, TimeoutError):
    """It has not ended within the time. Nothing is lost: wait again."""


class DamagedResult(RemoteError):
    """A result came with other bytes than E3 recorded."""
