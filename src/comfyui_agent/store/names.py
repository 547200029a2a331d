"""The index of names: which jobs have three letters in a row in their names.

It is filled behind the jobs, by whoever serves the page, in the order of ids. It may hold jobs that are gone or have
another name by now: whoever finds a job in it looks at the name itself.
"""

from __future__ import annotations

from comfyui_agent.store.cursors import FIRST_ID
from comfyui_agent.store.port import Session

LETTERS = 3
LONGEST_PHRASE = 48


def indexed_up_to(session: Session) -> int:
    """The last id that the index knows; those behind it are to be looked at one by one."""
    row = session.one("names_indexed")
    if row is None or row["indexed"] is None or row["indexed"] > (row["given"] or 0):
        return FIRST_ID
    return int(row["indexed"])


def is_behind(session: Session) -> bool:
    """Whether there are names to put in."""
    row = session.one("names_indexed")
    return row is not None and row["newest"] is not None and row["newest"] > indexed_up_to(session)


def index_names(session: Session, most: int) -> int:
    """Put the next names in; how many."""
    after = indexed_up_to(session)
    if after == FIRST_ID:
        session.run("forget_names")
    following = session.one("last_of_next", after=after, most=most)
    if following is None or not following["names"]:
        return 0
    session.run("index_names", after=after, last=following["id"])
    session.run("note_indexed", last=following["id"])
    return int(following["names"])


def phrase_of(text: str) -> str:
    """What to ask the index for a text of three letters or more. Every name with the text in it answers; others may."""
    return '"' + text[:LONGEST_PHRASE].replace('"', '""') + '"'
