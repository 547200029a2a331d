"""The model of a page: a view asks for a screen, and a screen has a sentence and live fragments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode

from comfyui_agent.domain.tokens import ALL, Rights, Role

if TYPE_CHECKING:
    from comfyui_agent.web.context import Context


class NoScreen(Exception):
    """There is nothing at this address. The message says what was not found and where to look instead."""


@dataclass(frozen=True)
class View:
    """Who looks at which address. Equal views share one rendering, so that a screen may depend on nothing else."""

    context: Context = field(compare=False, hash=False)
    role: Role
    path: str
    """Such as `/batches/knights_1a2b3c4d`."""
    names: Mapping[str, str] = field(compare=False, hash=False)
    """The path parameters: `{"batch_id": "knights_1a2b3c4d"}`."""
    query: tuple[tuple[str, str], ...] = ()
    rights: Rights = ALL
    """What the viewer may change. Lists ignore it and show the same to everyone of a role."""

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    @property
    def can_change(self) -> bool:
        return self.role.includes(Role.USER)

    def asked(self, name: str, default: str = "") -> str:
        """The last value of a query parameter."""
        return next((value for key, value in reversed(self.query) if key == name), default)

    def number(self, name: str, default: int, most: int) -> int:
        """A query parameter as a whole number from 0 to `most`, or the default if it is none."""
        value = self.asked(name)
        if not value.isascii() or not value.isdigit() or len(value) > 9:
            return default
        return min(int(value), most)

    def link(self, **changes: str | int | None) -> str:
        """The address of this view with some query parameters changed. None removes one."""
        kept = {key: value for key, value in self.query if key not in changes}
        kept |= {key: str(value) for key, value in changes.items() if value is not None}
        query = urlencode(kept, safe=",")
        return quote(self.path) + (f"?{query}" if query else "")


@dataclass(frozen=True)
class Fragment:
    """A live part of a page. Its template renders one element with the fragment's `id`.

    The template of `job-facts` is `job_facts.html` unless another is named. A fragment whose `key` is the same as the
    last time is not rendered again.
    """

    id: str
    values: Mapping[str, Any]
    key: Hashable | None = None
    template: str = ""


@dataclass(frozen=True)
class Screen:
    """A page: its template, title and live fragments."""

    template: str
    title: str
    sentence: str
    """The state in one line. It is the fragment `sentence` of every page."""
    fragments: tuple[Fragment, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of the template that do not change while the page is open."""
    section: str = ""
    """The entry of the menu that is marked."""


Build: TypeAlias = Callable[[View], Awaitable[Screen]]
"""Builds the screen of a view. Raises NoScreen if there is none."""
