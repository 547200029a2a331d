"""`book.yaml`: the file of a book."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, FailFast, Field

from comfyui_agent.config.documents import Document
from comfyui_agent.config.settings import Priority
from comfyui_agent.config.validation import check

MOST_PAGES = 100_000
BOOK_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PageSaid(_Part):
    """What is different about one page."""

    inputs: dict[str, Any] = Field(default={}, description="a mapping of names to values, such as prompt: a knight")
    workflow: str = Field(default="", description="a workflow of this workspace, or the path of a template")


class BookFile(_Part):
    book_id: Annotated[str, Field(min_length=1, max_length=100, pattern=BOOK_ID)] | None = Field(
        default=None, description="letters, digits, dots, dashes and underscores, such as winter_tales"
    )
    title: str = Field(default="", max_length=500, description="a title in quotes")
    workflow: str = Field(default="", description="a workflow of this workspace, or the path of a template")
    inputs: dict[str, Any] = Field(default={}, description="a mapping of names to values for all pages")
    pages: Annotated[tuple[PageSaid, ...], Field(min_length=1, max_length=MOST_PAGES), FailFast()] = Field(
        description="a list of pages, each with inputs: below it"
    )
    priority: Priority | None = Field(default=None, description="a whole number; lower runs earlier, such as 50")


class SaidBook(Protocol):
    """A book from a file or a request, and where each part of it stands."""

    @property
    def said(self) -> BookFile: ...

    def where(self, path: tuple[Any, ...]) -> str: ...


class BookText(Document):
    """The content of a book file. Complaints if it is wrong."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "lines such as title: and pages:", "title:, workflow: and pages:")
        given = self.given
        if isinstance(given.get("pages"), list):  # an empty page takes everything from the book
            given["pages"] = [{} if page is None else page for page in given["pages"]]
        self.said = check(BookFile, given, self.where)
