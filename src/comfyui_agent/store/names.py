"""The index of names: which jobs have three letters in a row in their names.

It is filled behind the jobs, by whoever serves the page, in the order of ids. It may hold jobs that are gone or have
another name by now: whoever finds a job in it looks at the name itself.
"""

from __future__ import annotations

from comfyui_agent.store.cursors import FIRST_ID
from comfyui_agent.store.operation import query, transition
from comfyui_agent.store.port import Session
from comfyui_agent.store.store import Store

LETTERS = 3
LONGEST_PHRASE = 48


def indexed_up_to(session: Session) -> int:
    """The last id that the index knows; those behind it are to be looked at one by one."""
    row = session.one("names_indexed")
    if row is None or row["indexed"] is None or row["indexed"] > (row["given"] or 0):
        return FIRST_ID
    return int(row["indexed"])


@query
def is_behind(session: Session) -> bool:
    """Whether there are names to put in."""
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
    """Index the names of newer jobs, if there are any. Returns how many."""
    return await store.run(add_names, most) if await store.run(is_behind) else 0


def phrase_of(text: str) -> str:
    """What to ask the index for a text of three letters or more. Every name with the text in it answers; others may."""
    return '"' + text[:LONGEST_PHRASE].replace('"', '""') + '"'
