"""A file that loses its beginning while it is fetched is never taken for a whole one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from comfyui_agent.comfy.content import FileKind
from comfyui_agent.comfy.downloads import _append, _finish


def test_a_file_that_someone_removed_while_it_was_written_is_noticed(tmp_path: Path) -> None:
    path, digest = tmp_path / "film.e3part", hashlib.sha256()
    _append(path, b"\x1aE\xdf\xa3" + b"x" * 1000, digest, 0)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        _finish(path, b"the rest", digest, 1012, FileKind("webm", "video"), "film.webm", 0)
