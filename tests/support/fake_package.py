"""A small package in the form of E3, from which a node pack is built."""

from __future__ import annotations

from pathlib import Path

STATE = '''"""Ümlauts before an import; nothing of comfyui_agent."""
from __future__ import annotations

import json
from comfyui_agent.domain.values import (  # the text goes on
    double,
)
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comfyui_agent.domain.kinds import Kind

def total(kind: Kind | None = None) -> int:
    from comfyui_agent.pictures.labels import drawn

    return double(drawn() + 1)
'''
FAKE = {
    "__init__.py": "",
    "nodes/__init__.py": "from comfyui_agent.nodes.core.state import total\n",
    "nodes/host.py": "from comfyui_agent.nodes.core.state import double\n",
    "nodes/core/__init__.py": "",
    "nodes/core/state.py": STATE,
    "nodes/installer.py": "import comfyui_agent.store\n",
    "nodes/pyproject.toml": '[project]\nname = "e3-iterator"\n',
    "nodes/README.md": "# The pack\n",
    "nodes/notes.txt": "not for ComfyUI",
    "nodes/web/e3.js": "export {};\n",
    "nodes/web/.cache": "",
    "nodes/web/docs/WIIterator.md": "# Help\n",
    "nodes/example_workflows/one.json": "{}",
    "nodes/example_workflows/api/one.json": "{}",
    "nodes/__pycache__/host.cpython-311.pyc": "compiled",
    "domain/__init__.py": "from comfyui_agent.domain.unused import NOTHING\n",
    "domain/values.py": "from comfyui_agent.domain.suggestions import ONE\n\ndef double(n):\n    return 2 * n * ONE\n",
    "domain/suggestions.py": "ONE = 1\n",
    "domain/kinds.py": "class Kind: ...\n",
    "domain/unused.py": "NOTHING = None\n",
    "pictures/__init__.py": "",
    "pictures/labels.py": "from comfyui_agent.domain.texts import TEN\n\ndef drawn():\n    return TEN\n",
    "pictures/grid_page.css": "",
    "domain/texts.py": "TEN = 10\n",
    "store/__init__.py": "",
    "store/store.py": "",
}
PACK = [
    "LICENSE",
    "README.md",
    "__init__.py",
    "core/__init__.py",
    "core/state.py",
    "example_workflows/api/one.json",
    "example_workflows/one.json",
    "host.py",
    "pyproject.toml",
    "shared/__init__.py",
    "shared/domain/__init__.py",
    "shared/domain/kinds.py",
    "shared/domain/suggestions.py",
    "shared/domain/texts.py",
    "shared/domain/values.py",
    "shared/pictures/__init__.py",
    "shared/pictures/labels.py",
    "web/docs/WIIterator.md",
    "web/e3.js",
]


def written(folder: Path, files: dict[str, str]) -> Path:
    for place, text in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
