"""The results of a prompt: files of any kind and texts, as its nodes list them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from comfyui_agent.comfy import shapes
from comfyui_agent.domain.prompts import natural_order

TEXTS = ("text", "string")


@dataclass(frozen=True)
class ResultFile:
    """A file at the server. Its names are good for asking the server, not for naming local files."""

    node_id: str
    filename: str
    subfolder: str
    folder_type: str

    @property
    def query(self) -> dict[str, str]:
        return {"filename": self.filename, "subfolder": self.subfolder, "type": self.folder_type}


@dataclass(frozen=True)
class Results:
    """Files and texts, by node id in natural order, then as the node lists them."""

    files: tuple[ResultFile, ...] = ()
    texts: tuple[str, ...] = ()

    @classmethod
    def read(cls, outputs: Mapping[str, Any]) -> Results:
        """Take what is understood and ignore the rest, because nodes may list anything."""
        files: dict[tuple[str, ...], ResultFile] = {}
        texts = []
        for node_id in natural_order(key for key in outputs if isinstance(key, str)):
            for key, item in _items(outputs[node_id]):
                file = _file(node_id, item)
                if file is not None:
                    files.setdefault(tuple(file.query.values()), file)
                elif key in TEXTS and isinstance(item, str):
                    texts.append(shapes.optional_text(item))
        return cls(tuple(files.values()), tuple(texts))

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.texts

    @property
    def kept(self) -> tuple[ResultFile, ...]:
        """The files of type `output`, or the temporary ones if there are no others."""
        lasting = tuple(file for file in self.files if file.folder_type == "output")
        return lasting or self.files


def nodes_with_results(outputs: Mapping[str, Any]) -> set[str]:
    return {node_id for node_id in outputs if not Results.read({node_id: outputs[node_id]}).is_empty}


def _items(shown: Any) -> Iterator[tuple[str, Any]]:
    for key, value in shapes.optional_object(shown).items():
        if key != "animated":
            for item in value if isinstance(value, list) else [value]:
                yield str(key), item


def _file(node_id: str, item: Any) -> ResultFile | None:
    if not isinstance(item, dict):
        return None
    file = ResultFile(node_id, item.get("filename", ""), item.get("subfolder", ""), item.get("type", "output"))
    if not file.filename or not all(isinstance(name, str) and _can_be_sent(name) for name in file.query.values()):
        return None
    return file


def _can_be_sent(text: str) -> bool:
    """Whether a text can be encoded. JSON may hold lone surrogates."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)
