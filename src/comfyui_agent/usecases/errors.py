"""Why a use case was refused.

    UseCaseError
    ├── NotFound          what is named is not there
    ├── NotAllowed        it is not theirs to change
    ├── NotPossible       not as things are now
    │   ├── NameTaken         there is a job of this name
    │   └── ExternalIdTaken   there is something with this key of the caller
    └── Invalid           what was asked for is wrong, key by key
        └── TooLarge      it is more than may be asked for at once

Nothing was changed when one of them is raised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from comfyui_agent.config.validation import Complaint, Complaints
from comfyui_agent.store.records import Holder


class UseCaseError(Exception):
    """`message` says what is wrong. `remedy` is a sentence that says what to do, or empty.

    `str()` is one line for a person who types commands; it may name the command that helps.
    """

    def __init__(self, message: str, remedy: str = "", *, line: str = "") -> None:
        super().__init__(line or message)
        self.message = message
        self.remedy = remedy


class NotFound(UseCaseError):
    """What is named is not there."""


class NotAllowed(UseCaseError):
    """It is not theirs to change."""


class NotPossible(UseCaseError):
    """It cannot be done as things are now."""


class NameTaken(NotPossible):
    """There is a job, batch or book of this name."""


class ExternalIdTaken(NotPossible):
    """There is something with this key of the caller: `holder`."""

    def __init__(self, external_id: str, holder: Holder) -> None:
        remedy = "It is what you asked for before, or give this one another external_id."
        super().__init__(f"external_id {external_id} is taken by the {holder.kind} {holder.name}", remedy)
        self.holder = holder


class Invalid(UseCaseError):
    """What was asked for is wrong. `found` has every mistake, with its key."""

    def __init__(self, message: str, remedy: str = "", *, line: str = "", found: Sequence[Complaint] = ()) -> None:
        super().__init__(message, remedy, line=line)
        self.found = tuple(found)

    @classmethod
    def of(cls, complaints: Complaints) -> Invalid:
        """All that is wrong with a file or a request."""
        first = complaints.found[0]
        message = f"{first.key}: {first.message}" if first.key else first.message
        return cls(message, line=str(first), found=complaints.found)

    @classmethod
    def of_problems(cls, problems: Mapping[str, str]) -> Invalid:
        """Inputs that cannot be used, and why."""
        return cls.of(Complaints([Complaint("", f"inputs.{name}", message) for name, message in problems.items()]))

    @classmethod
    def of_key(cls, key: str, message: str, remedy: str) -> Invalid:
        """One key that is wrong; the message names it."""
        return cls(message, remedy, found=[Complaint("", key, message)])


class TooLarge(Invalid):
    """It is more than may be asked for at once."""
