"""Secrets that wait in the database: sealed with a key that lies in a private file of the workspace."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class CannotOpen(Exception):
    """Sealed secrets are not for the key of this workspace."""


class SecretBox:
    """Seals and opens secrets with the key in a file, which is made when it is first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def seal(self, secrets: Mapping[str, Any]) -> str:
        from cryptography.fernet import Fernet

        if not self._path.exists():
            self._make_key(Fernet.generate_key())
        return Fernet(self._path.read_bytes()).encrypt(json.dumps(dict(secrets)).encode()).decode()

    def open(self, sealed: str) -> dict[str, Any]:
        """CannotOpen if they were sealed with another key."""
        from cryptography.fernet import Fernet, InvalidToken

        try:
            opened: dict[str, Any] = json.loads(Fernet(self._path.read_bytes()).decrypt(sealed.encode()))
        except (InvalidToken, OSError, ValueError):
            raise CannotOpen(f"{self._path.name} is not the key that they were sealed with") from None
        return opened

    def _make_key(self, key: bytes) -> None:
        """Write a key whole. Another process may have been quicker: then its key counts."""
        self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._path.parent, prefix=".", suffix=".key") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(file.name, self._path)
