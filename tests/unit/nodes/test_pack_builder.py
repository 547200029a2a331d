"""The node pack is built from this package and needs nothing of it."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent import __version__
from comfyui_agent.nodes import installer, pack_builder
from comfyui_agent.nodes.installer import install
from comfyui_agent.nodes.pack_builder import build
from support.fake_package import FAKE, PACK, STATE, written

LOAD = """
import importlib, importlib.util, json, os, pkgutil, sys
from unittest import mock

sys.modules["comfyui_agent"] = None  # importing it fails, wherever it is installed
sys.dont_write_bytecode = True
folder = sys.argv[1]
name = folder.replace(".", "_x_")
spec = importlib.util.spec_from_file_location(name, os.path.join(folder, "__init__.py"))
pack = importlib.util.module_from_spec(spec)
sys.modules[name] = pack
spec.loader.exec_module(pack)
for shipped in ("PIL", "numpy", "torch", "aiohttp"):
    try:
        importlib.import_module(shipped)
    except ModuleNotFoundError:
        sys.modules[shipped] = mock.MagicMock()
modules = [importlib.import_module(found.name) for found in pkgutil.walk_packages([folder], name + ".")]
print(json.dumps({"modules": len(modules), "nodes": sorted(getattr(pack, "NODE_CLASS_MAPPINGS", {})),
                  "total": pack.total() if hasattr(pack, "total") else None}))
"""
"""What ComfyUI does with the folder; then every module in it, with stand-ins for what ComfyUI ships."""


def loaded(folder: Path, python: str = sys.executable) -> dict[str, Any]:
    answer = subprocess.run(
        [python, "-I", "-W", "error", "-c", LOAD, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return written(tmp_path / "package", FAKE)


@pytest.fixture
def comfyui(tmp_path: Path) -> Path:
    """A folder with dots in its name, as versions of programs have them."""
    folder = tmp_path / "ComfyUI-0.7.0"
    (folder / "custom_nodes").mkdir(parents=True)
    return folder


@pytest.fixture
def target(comfyui: Path) -> Path:
    return comfyui / "custom_nodes" / "e3_iterator"


def test_the_pack_is_the_nodes_and_those_shared_modules_that_they_import(package: Path) -> None:
    assert list(build(package)) == PACK


def test_an_installed_pack_runs_without_e3(package: Path, comfyui: Path, target: Path) -> None:
    install(comfyui, package=package)
    assert loaded(target) == {"modules": 11, "nodes": [], "total": 22}


def test_imports_become_relative_and_nothing_else_changes(package: Path) -> None:
    pack = build(package)
    assert pack["__init__.py"] == b"from .core.state import total\n"
    changed = STATE.replace("from comfyui_agent.domain.", "from ..shared.domain.")
    assert pack["core/state.py"].decode() == changed.replace("from comfyui_agent.pictures.", "from ..shared.pictures.")
    assert pack["shared/domain/values.py"].startswith(b"from ...shared.domain.suggestions import ONE\n")
    assert pack["shared/pictures/labels.py"].startswith(b"from ...shared.domain.texts import TEN\n")


@pytest.mark.parametrize("module", ["store.store", "nodes.nowhere"])
def test_an_import_that_cannot_go_along_stops_the_build(package: Path, comfyui: Path, module: str) -> None:
    (package / "nodes/host.py").write_text(f"from comfyui_agent.{module} import x\n", encoding="utf-8")
    with pytest.raises((KeyError, FileNotFoundError)):
        install(comfyui, package=package)
    assert list((comfyui / "custom_nodes").iterdir()) == []


def test_the_licence_goes_along_where_e3_is_installed_with_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert b"Permission is hereby granted" in build(package)["LICENSE"]
    monkeypatch.setattr(pack_builder, "DISTRIBUTION", "nothing-of-that-name")
    assert "LICENSE" not in build(package)


@pytest.fixture(scope="module")
def pack() -> dict[str, bytes]:
    return build()


def test_the_pack_has_the_version_of_e3_and_needs_nothing(pack: dict[str, bytes]) -> None:
    project = pack["pyproject.toml"].decode()
    assert f'\nversion = "{__version__}"\n' in project
    assert f'\nname = "{installer.NAME}"\n' in project
    assert "\ndependencies = []\n" in project


def test_no_module_of_the_pack_imports_e3(pack: dict[str, bytes]) -> None:
    for path, text in pack.items():
        for node in ast.walk(ast.parse(text)) if path.endswith(".py") else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "comfyui_agent" for name in names), path


def test_the_pack_has_its_nodes_its_page_and_its_examples(pack: dict[str, bytes]) -> None:
    assert {"__init__.py", "core/iteration_state.py", "README.md", "web/e3_iterator.js", "LICENSE"} <= set(pack)
    assert any(re.fullmatch(r"example_workflows/[^/]+\.json", path) for path in pack)
    assert any(re.fullmatch(r"example_workflows/api/[^/]+\.json", path) for path in pack)
    assert not {"installer.py", "installed.json"} & set(pack)


def is_there(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("python", [sys.executable, "python3.9"], ids=["this", "3.9"])
def test_the_pack_imports_as_comfyui_imports_it(
    pack: dict[str, bytes], python: str, comfyui: Path, target: Path
) -> None:
    if shutil.which(python) is None or not is_there(python):
        pytest.skip(f"there is no {python}")
    install(comfyui)
    found = loaded(target, python)
    assert found["nodes"] == ["WIGridCompositor", "WIIterator", "WIParameter", "WISaveImage"]
    assert found["modules"] == len([path for path in pack if path.endswith(".py")]) - 1
