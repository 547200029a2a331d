"""What can go wrong with one server.

    ComfyError
    ├── ServerLost            the server could not be asked, so nothing is known about the prompt
    │   ├── Unreachable       no connection could be made, and nothing was sent
    │   ├── ConnectionCut     the connection broke during a request or its answer
    │   └── AnswerTimeout     the answer took longer than the limit
    ├── ProtocolError         the answer is not one of ComfyUI
    │   ├── AnswerTooLarge
    │   ├── RedirectRefused
    │   └── NotComfyUI        another program answers, or it requires a login
    │       └── NoSuchRoute   it has nothing at that path (404)
    ├── PromptRejected        the server read the prompt and will not run it
    ├── NotAccepted           the server does not know the prompt, because the post was lost
    ├── AcceptanceUnknown     the post was sent, and nobody knows yet whether it arrived
    ├── Unreadable            the prompt ended, and its history makes no sense
    ├── UploadRefused         the server does not take a file
    ├── ClientClosed          the client was closed; the prompt may still run
    └── OutputProblem         a result is missing, empty, cut short or unreadable

Messages name the server without its secrets. `kind` is the failure class of an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from comfyui_agent.domain.failures import Failure, FailureClass


class ComfyError(Exception):
    """A request to a server failed."""

    kind = FailureClass.SERVER_LOST

    def __init__(self, message: str, *, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return "\n".join((self.message, *(f"  {detail}" for detail in self.details)))

    def failure(self, server: str = "", prompt_id: str = "") -> Failure:
        return Failure(self.kind, self.message, server=server, prompt_id=prompt_id, details=self.details)


class ServerLost(ComfyError):
    """The server could not be asked."""


class Unreachable(ServerLost):
    """No connection could be made, and nothing was sent."""


class ConnectionCut(ServerLost):
    """The connection broke during a request or its answer."""


class AnswerTimeout(ServerLost):
    """An answer took longer than the limit."""


class ProtocolError(ComfyError):
    """The answer is not one of ComfyUI."""


class AnswerTooLarge(ProtocolError):
    """An answer was larger than the limit. The rest was not read."""


class RedirectRefused(ProtocolError):
    """The server redirected. Prompts and secrets are not sent elsewhere."""


class NotComfyUI(ProtocolError):
    """Another program answers, or it requires a login."""


class NoSuchRoute(NotComfyUI):
    """The server has nothing at that path."""


class NotAccepted(ComfyError):
    """The server does not know the prompt, because the post was lost."""


class AcceptanceUnknown(ComfyError):
    """The post was sent, and nobody knows yet whether it arrived. Look the id up, do not post it again."""


class PromptRejected(ComfyError):
    """The server read the prompt and will not run it.

    `choice`: class, input and value that it does not offer first. `answer`: `error` and `node_errors` in its own words.
    """

    kind = FailureClass.INVALID

    def __init__(
        self,
        message: str,
        facts: Failure | None = None,
        choice: tuple[str, str, str] | None = None,
        answer: Mapping[str, Any] | None = None,
    ) -> None:
        self.facts = facts or Failure(self.kind, message)
        super().__init__(message, details=self.facts.details)
        self.kind = self.facts.kind
        self.choice = choice
        self.answer = answer

    def failure(self, server: str = "", prompt_id: str = "") -> Failure:
        return replace(self.facts, server=server, prompt_id=prompt_id)


class ClientClosed(ComfyError):
    """The client was closed while a prompt was watched. The prompt may still run."""


class Unreadable(ComfyError):
    """The prompt ended, and its history makes no sense."""

    kind = FailureClass.OUTPUT


class UploadRefused(ComfyError):
    """The server does not take a file, because of its size or name."""

    kind = FailureClass.INVALID


class OutputProblem(ComfyError):
    """A result is missing, empty, cut short or unreadable."""

    kind = FailureClass.OUTPUT
