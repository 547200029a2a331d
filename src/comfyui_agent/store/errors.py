"""Errors of the store.

    StoreError
    ├── LeaseLost            the job is no longer this worker's: nothing was changed
    ├── FileTaken            a result's path belongs to another job, or to a grid
    ├── BatchTaken           a batch, or a job in it, would have a name that is taken
    ├── DatabaseAway         locked by another program, or not reachable: try again
    ├── DatabaseFull         no room on its disk, or the disk fails: nothing was changed, try again
    ├── DatabaseUnusable     read-only, corrupt, too new or of another program: a person has to do something
    │   └── UnfinishedCopy   `e3 db copy` into it was broken off
    ├── BackupRefused        the file of a backup is there already
    ├── CopyRefused          a database cannot be copied as things are now
    └── StoreClosed

Messages are for people: what happened, to which file, what to do.
"""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """Something went wrong in the store."""


class LeaseLost(StoreError):
    """The job is no longer this worker's: nothing was changed."""


class FileTaken(StoreError):
    """A result's path belongs to another job, or to a grid."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(f"{path} belongs to {holder}: give this one another file_path, a burst another --output-dir")
        self.path = path


class BatchTaken(StoreError):
    """A batch, or a job in it, would have a name that is taken."""


class DatabaseAway(StoreError):
    """Locked by another program, or not reachable: try again."""


class DatabaseFull(StoreError):
    """No room on its disk, or the disk fails: nothing was changed, try again."""


class DatabaseUnusable(StoreError):
    """Read-only, corrupt, too new or of another program: a person has to do something."""


class UnfinishedCopy(DatabaseUnusable):
    """`e3 db copy` into it was broken off."""

    def __init__(self, name: object) -> None:
        super().__init__(f"{name} is an unfinished copy: run the same e3 db copy again, or remove it")


class BackupRefused(StoreError):
    """The file of a backup is there already."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"{file} is there already: name another file, or replace a backup with --force")


class CopyRefused(StoreError):
    """A database cannot be copied as things are now."""


class StoreClosed(StoreError):
    """The store was closed before the work was done."""
