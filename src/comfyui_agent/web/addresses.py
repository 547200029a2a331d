"""Which screen stands at which address."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from starlette.routing import compile_path

from comfyui_agent.domain.ownership import ALL, Rights
from comfyui_agent.domain.tokens import Role
from comfyui_agent.web.context import Context
from comfyui_agent.web.pages import admin, batch, batches, book, books, job, new, overview, queue, reports, servers
from comfyui_agent.web.screens import Build, NoScreen, View

LONGEST = 2_000
MOST_PARAMETERS = 40


@dataclass(frozen=True)
class Address:
    """A kind of address, and what builds the screen there."""

    path: str
    build: Build
    role: Role = Role.READ
    asks: frozenset[str] = frozenset()
    """What may stand behind its question mark; anything else makes no other screen."""
    is_owned: bool = False
    """Whether it shows a thing that someone made, and what can be done with it."""


BATCH = frozenset({"page", "row", "column", "from", "x", "y", "pages", "status", "cursor", "compare"})
ADDRESSES = (
    Address("/", overview.build),
    Address("/queue", queue.build, asks=frozenset({*queue.FILTERS, "cursor"})),
    Address("/jobs/{name}", job.build, is_owned=True),
    Address("/batches", batches.build, asks=frozenset({"kind", "cursor"})),
    Address("/batches/{batch_id}", batch.build, asks=BATCH, is_owned=True),
    Address("/books", books.build, asks=frozenset({"cursor"})),
    Address("/books/{book_id}", book.build, asks=frozenset({"from"}), is_owned=True),
    Address("/servers", servers.build),
    Address("/reports", reports.build, asks=frozenset({"kind"})),
    Address("/new", new.build, Role.USER, frozenset({"kind", "workflow"})),
    Address("/admin", admin.build, Role.ADMIN, frozenset({"class", "cursor"})),
    Address("/admin/books/{book_id}", admin.build_book, Role.ADMIN, frozenset({"from"})),
)
PATTERNS = [(compile_path(address.path)[0], address) for address in ADDRESSES]


def find(path: str) -> tuple[Address, dict[str, str]]:
    """What stands at a path, and the names in it. NoScreen if nothing does."""
    for pattern, address in PATTERNS:
        match = pattern.match(path)
        if match is not None:
            return address, match.groupdict()
    raise NoScreen(f"there is no page {path[:200]}")


def view_of(context: Context, role: Role, page: str, rights: Rights = ALL) -> tuple[Address, View]:
    """Who looks at what, from an address as a browser shows it: a path, and what is behind its question mark."""
    path, _, query = page[:LONGEST].partition("?")
    path = unquote(path)
    address, names = find(path)
    try:
        said = parse_qsl(query, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise NoScreen("too much stands behind the question mark") from None
    asked = tuple(each for each in said if each[0] in address.asks)
    rights = rights if address.is_owned else ALL
    return address, View(context, role, path, names, asked, rights)
