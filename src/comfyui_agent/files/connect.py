"""Opening the place where files are kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from comfyui_agent.domain.locations import Location
from comfyui_agent.files.folder import Folder
from comfyui_agent.files.port import BadLocation, Files


def open_files(location: Location, name: str = "") -> Files:
    """The files at a location; with a name, those to which it belongs. BadLocation if that cannot be."""
    return _open(location) if location.url and location.has(name) else Folder(location.folder)


def existing_files(files: Files, names: Sequence[str]) -> list[str]:
    return [name for name in names if files.exists(name)]


def missing_files(location: Location, names: Sequence[str]) -> list[str]:
    """Those of recorded names whose files are not there. FilesAway, BadLocation."""
    here = [name for name in names if location.has(name)]
    others = Folder(location.folder).missing([name for name in names if not location.has(name)])
    return [*open_files(location).missing(here), *others]


@lru_cache(16)
def _open(location: Location) -> Files:
    try:
        from comfyui_agent.files.objects import ObjectFiles
    except ImportError as error:
        if error.name != "obstore":
            raise
        words = "needs the package obstore: pip install 'e3-comfyui-agent[objects]'"
        raise BadLocation(f"{location.url} {words}") from None
    return ObjectFiles(location)
