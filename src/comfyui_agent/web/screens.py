"""A screen of the web page: a sentence on top, and parts that live, each rendered once for everyone who looks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from comfyui_agent.domain.ownership import ALL, Rights
from comfyui_agent.domain.tokens import Role

if TYPE_CHECKING:
    from comfyui_agent.web.context import Context


class NoScreen(Exception):
    """There is nothing to show at this address: what was not found, and where to look instead."""


@dataclass(frozen=True)
class View:
    """Who looks at what: all that a screen may depend on, so that equal views share what is rendered."""

    context: Context = field(compare=False, hash=False)
    role: Role
    path: str
    """Such as `/batches/knights_1a2b3c4d`."""
    names: Mapping[str, str] = field(compare=False, hash=False)
    """What stands in the path, by name: `{"batch_id": "knights_1a2b3c4d"}`."""
    query: tuple[tuple[str, str], ...] = ()
    rights: Rights = ALL
    """What they may change, where the screen shows one thing; lists show the same to all of a role."""

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    @property
    def can_change(self) -> bool:
        """Whether they may do more than look."""
        return self.role.includes(Role.USER)

    def asked(self, name: str, default: str = "") -> str:
        """The last value of a query parameter."""
        return next((value for key, value in reversed(self.query) if key == name), default)


@dataclass(frozen=True)
class Fragment:
    """A part that lives. Its template renders one element whose `id` is the fragment's.

    Where `key` is given and the same as the last time, the part is taken as unchanged and not rendered again.
    """

    id: str
    template: str
    values: Mapping[str, Any]
    key: Hashable | None = None


@dataclass(frozen=True)
class Screen:
    """What a template of a whole page is given, and the fragments in it, by id."""

    template: str
    title: str
    sentence: str
    """How it stands, in one line; it is the fragment `sentence` on every page."""
    fragments: tuple[Fragment, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """What does not change while someone looks."""
    section: str = ""
    """Which entry of the menu it belongs to."""


Build: TypeAlias = Callable[[View], Awaitable[Screen]]
"""Gathers a screen. NoScreen if there is none."""
