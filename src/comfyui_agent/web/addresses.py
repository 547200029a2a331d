"""The addresses of the pages, and who may see them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from starlette.routing import compile_path

from comfyui_agent.domain.ownership import ALL, Rights
from comfyui_agent.domain.tokens import Role
from comfyui_agent.web.context import Context
from comfyui_agent.web.pages import admin, batch, batches, book, job, new, overview, queue, reports, servers
from comfyui_agent.web.screens import Build, NoScreen, View

LONGEST = 2_000
MOST_PARAMETERS = 40


@dataclass(frozen=True)
class Address:
    """A path and the function that builds its screen."""

    path: str
    build: Build
    role: Role = Role.READ
    parameters: frozenset[str] = frozenset()
    """The query parameters that the screen depends on. Others are dropped, so that they make no other view."""
    is_owned: bool = False
    """Whether the screen shows one thing that someone made, and so depends on the viewer's rights."""


BATCH = frozenset({"page", "row", "column", "from", "x", "y", "pages", "status", "cursor", "compare"})
ADDRESSES = (
    Address("/", overview.build),
    Address("/queue", queue.build, parameters=frozenset({*queue.FILTERS, "cursor"})),
    Address("/jobs/{name}", job.build, is_owned=True),
    Address("/batches", batches.build, parameters=frozenset({"kind", "cursor"})),
    Address("/batches/{batch_id}", batch.build, parameters=BATCH, is_owned=True),
    Address("/books", batches.build_books, parameters=frozenset({"cursor"})),
    Address("/books/{book_id}", book.build, parameters=frozenset({"from"}), is_owned=True),
    Address("/servers", servers.build),
    Address("/reports", reports.build, parameters=frozenset({"kind"})),
    Address("/new", new.build, Role.USER, frozenset({"kind", "workflow"})),
    Address("/admin", admin.build, Role.ADMIN, frozenset({"class", "cursor"})),
    Address("/admin/books/{book_id}", admin.build_book, Role.ADMIN, frozenset({"from"})),
)
PATTERNS = [(compile_path(address.path)[0], address) for address in ADDRESSES]


def find(path: str) -> tuple[Address, dict[str, str]]:
    """Return the address of a path and its path parameters. NoScreen if there is none."""
    for pattern, address in PATTERNS:
        match = pattern.match(path)
        if match is not None:
            return address, match.groupdict()
    raise NoScreen(f"there is no page {path[:200]}")


def view_of(context: Context, role: Role, page: str, rights: Rights = ALL) -> tuple[Address, View]:
    """Make the view for an address as a browser shows it, with its query."""
    path, _, query = page[:LONGEST].partition("?")
    path = unquote(path)
    address, names = find(path)
    try:
        parameters = parse_qsl(query, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise NoScreen("too much stands behind the question mark") from None
    known = tuple(each for each in parameters if each[0] in address.parameters)
    return address, View(context, role, path, names, known, rights if address.is_owned else ALL)
