"""The index of names: which jobs have three given letters in a row in their names.

The page server fills it in the order of ids, some time after the jobs. It may hold jobs that are gone or have another
name by now, so readers check the name itself.
"""

from __future__ import annotations

from comfyui_agent.store.cursors import FIRST_ID
from comfyui_agent.store.operation import query, transition
from comfyui_agent.store.port import Session
from comfyui_agent.store.store import Store

LETTERS = 3
LONGEST_PHRASE = 48


def indexed_up_to(session: Session) -> int:
    """The last id in the index. Newer jobs are looked at one by one."""
    row = session.one("names_indexed")
    if row is None or row["indexed"] is None or row["indexed"] > (row["given"] or 0):
        return FIRST_ID
    return int(row["indexed"])


@query
def is_behind(session: Session) -> bool:
    """Whether there are names to index."""
    row = session.one("names_indexed")
    return row is not None and row["newest"] is not None and row["newest"] > indexed_up_to(session)


@transition
def add_names(session: Session, most: int) -> int:
    """Index the next names. Returns how many."""
    after = indexed_up_to(session)
    if after == FIRST_ID:
        session.run("forget_names")
    following = session.one("last_of_next", after=after, most=most)
    if following is None or not following["names"]:
        return 0
    session.run("index_names", after=after, last=following["id"])
    session.run("note_indexed", last=following["id"])
    return int(following["names"])


async def index_names(store: Store, most: int = 2_000) -> int:
    """Index the names of new jobs. Returns how many."""
    return await store.run(add_names, most) if await store.run(is_behind) else 0


def phrase_of(text: str) -> str:
    """The query for a text of three letters or more. It finds every name with the text, and maybe others."""
    return '"' + text[:LONGEST_PHRASE].replace('"', '""') + '"'
