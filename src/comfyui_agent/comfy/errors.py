"""What can go wrong with one server.

    ComfyError
    ├── ServerLost            the server could not be asked: nothing is known about the prompt
    │   ├── Unreachable       no connection could be made; nothing was sent
    │   ├── ConnectionCut     the connection broke while a question or its answer was under way
    │   └── AnswerTimeout     it took longer than the limit
    ├── ProtocolError         it answered something that no ComfyUI answers
    │   ├── AnswerTooLarge
    │   ├── RedirectRefused
    │   └── NotComfyUI        the address belongs to something else, or it wants a login
    │       └── NoSuchRoute   it has nothing at that path (404)
    ├── PromptRejected        it read the prompt and will not run it
    ├── NotAccepted           it does not know the prompt: the post was lost on the way
    ├── AcceptanceUnknown     the post was sent, and nobody can tell yet whether it arrived
    ├── Unreadable            the prompt has ended, and its history makes no sense
    ├── UploadRefused         it will not take a file
    ├── ClientClosed          nobody watches the prompt any more; it may still run
    └── OutputProblem         a result is missing, empty, cut short or unreadable

Messages name the server without its secrets. `kind` is the failure class that an error stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from comfyui_agent.domain.failures import Failure, FailureClass

E = TypeVar("E", bound="ComfyError")


class ComfyError(Exception):
    """Something went wrong with a server."""

    kind = FailureClass.SERVER_LOST

    def __init__(self, message: str, *, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return "\n".join((self.message, *(f"  {detail}" for detail in self.details)))

    def failure(self, server: str = "", prompt_id: str = "") -> Failure:
        return Failure(self.kind, self.message, server=server, prompt_id=prompt_id, details=self.details)

    def cleaned(self: E, clean: Callable[[str], str]) -> E:
        """The same error with each of its texts passed through `clean`."""
        self.message = clean(self.message)
        self.details = tuple(clean(detail) for detail in self.details)
        return self


class ServerLost(ComfyError):
    """The server could not be asked."""


class Unreachable(ServerLost):
    """No connection could be made; nothing was sent."""


class ConnectionCut(ServerLost):
    """The connection broke while a question or its answer was under way."""


class AnswerTimeout(ServerLost):
    """An answer took longer than the limit."""


class ProtocolError(ComfyError):
    """The server answered something that no ComfyUI answers."""


class AnswerTooLarge(ProtocolError):
    """An answer was larger than the limit; the rest of it was not read."""


class RedirectRefused(ProtocolError):
    """The server pointed elsewhere; prompts and secrets are not carried along."""


class NotComfyUI(ProtocolError):
    """The address belongs to something else, or it wants a login."""


class NoSuchRoute(NotComfyUI):
    """The server has nothing at that path."""


class NotAccepted(ComfyError):
    """The server does not know the prompt: the post was lost on the way."""


class AcceptanceUnknown(ComfyError):
    """The post was sent, and nobody can tell yet whether it arrived: look the id up, do not post it again."""


class PromptRejected(ComfyError):
    """The server read the prompt and will not run it."""

    kind = FailureClass.INVALID

    def __init__(
        self,
        message: str,
        *,
        kind: FailureClass = FailureClass.INVALID,
        error_type: str = "",
        node_id: str = "",
        node_type: str = "",
        details: tuple[str, ...] = (),
        by_choice: bool = False,
        choice: tuple[str, str, str] | None = None,
    ) -> None:
        super().__init__(message, details=details)
        self.kind = kind
        self.by_choice = by_choice
        self.choice = choice
        """The first value that is not offered: the class of its node, its input and the value."""
        self.error_type = error_type
        self.node_id = node_id
        self.node_type = node_type

    def failure(self, server: str = "", prompt_id: str = "") -> Failure:
        return Failure(
            self.kind,
            self.message,
            server=server,
            prompt_id=prompt_id,
            node_id=self.node_id,
            node_type=self.node_type,
            exception_type=self.error_type,
            details=self.details,
            by_choice=self.by_choice,
        )


class ClientClosed(ComfyError):
    """The client was closed while a prompt was watched: how it ends is not known here."""


class Unreadable(ComfyError):
    """The prompt has ended, and the server's account of it makes no sense."""

    kind = FailureClass.OUTPUT


class UploadRefused(ComfyError):
    """The server will not take a file: too large, or badly named."""

    kind = FailureClass.INVALID


class OutputProblem(ComfyError):
    """A result is missing, empty, cut short or unreadable."""

    kind = FailureClass.OUTPUT
