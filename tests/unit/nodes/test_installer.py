"""The node pack is made of this package, needs nothing of it, and goes into ComfyUI whole or not at all."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent import __version__
from comfyui_agent.nodes import installer, pack_builder
from comfyui_agent.nodes.installer import Changed, Refused, WrongFolder, install
from comfyui_agent.nodes.pack_builder import build
from support.workspaces import everything_in

POSIX = pytest.mark.skipif(os.name == "nt", reason="locks, links and kills as Linux and macOS have them")

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


def written(folder: Path, files: dict[str, str]) -> Path:
    for place, text in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every sync, which takes no time here, and every rename, in their order."""
    seen: list[str] = []
    rename = Path.rename
    monkeypatch.setattr(os, "fsync", lambda _: seen.append("sync"))

    def renamed(path: Path, other: Path) -> Path:
        seen.append(f"rename to {other.name}")
        return rename(path, other)

    monkeypatch.setattr(Path, "rename", renamed)
    return seen


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


# What the pack is made of.


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
    assert pack["shared/domain/values.py"].startswith(b"from .suggestions import ONE\n")
    assert pack["shared/pictures/labels.py"].startswith(b"from ..domain.texts import TEN\n")


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


# The pack as it is.


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


# Where it goes.


def test_everything_is_on_record(package: Path, comfyui: Path, target: Path) -> None:
    done = install(comfyui, package=package)
    assert (done.path, done.version, done.files) == (target, __version__, len(PACK))
    assert (done.is_changed, done.is_replaced, done.left_behind) == (True, False, ())
    found = everything_in(target)
    record = json.loads((target / "installed.json").read_bytes())
    assert (record["name"], record["version"]) == ("e3-iterator", __version__)
    assert record["files"] == {path: found[path][1] for path in PACK}
    assert {path for path in found if (target / path).is_file()} == {*PACK, "installed.json"}
    assert [path.name for path in target.parent.iterdir()] == ["e3_iterator"]
    again = install(comfyui, package=package)
    assert (again.is_changed, again.is_replaced, again.files) == (False, False, len(PACK))
    assert everything_in(target) == found
    (target / "host.py").unlink()
    assert install(comfyui, package=package).is_replaced
    assert everything_in(target).keys() == found.keys()


def test_a_newer_pack_takes_the_place_of_an_earlier_one(
    package: Path, comfyui: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(comfyui, package=package)
    (package / "nodes/host.py").write_text("NEWER = 1\n", encoding="utf-8")
    (target / "host.py").write_text("NEWER = 1\n", encoding="utf-8")  # a change that the new pack has too
    (package / "nodes/web/e3.js").unlink()
    monkeypatch.setattr(installer, "__version__", "9.9.9")
    done = install(comfyui, package=package)
    assert (done.is_changed, done.is_replaced, done.version) == (True, True, "9.9.9")
    assert json.loads((target / "installed.json").read_bytes())["version"] == "9.9.9"
    assert (target / "host.py").read_bytes() == b"NEWER = 1\n"
    assert not (target / "web/e3.js").exists()
    assert [path.name for path in target.parent.iterdir()] == ["e3_iterator"]


def test_what_programs_leave_in_it_is_nobodys_work(package: Path, comfyui: Path, target: Path) -> None:
    install(comfyui, package=package)
    left = {"__pycache__/host.cpython-39.pyc.1": "", "core/__pycache__/a.pyc": "", "b.pyc": "", "web/.DS_Store": ""}
    written(target, left)
    assert not install(comfyui, package=package).is_changed
    (package / "nodes/host.py").write_text("NEWER = 1\n", encoding="utf-8")
    assert install(comfyui, package=package).is_replaced


@POSIX
def test_work_of_people_in_it_is_kept_unless_they_say_so(package: Path, comfyui: Path, target: Path) -> None:
    install(comfyui, package=package)
    written(target, {"host.py": "mine", "web/more.js": "mine", "notes/a.txt": "mine"})
    (target / "core" / "linked").symlink_to(comfyui)
    (package / "nodes/host.py").write_text("NEWER = 1\n", encoding="utf-8")
    before = everything_in(comfyui)
    with pytest.raises(Changed, match=r"4 files were changed or added .* --force") as refused:
        install(comfyui, package=package)
    assert refused.value.files == ["core/linked", "host.py", "notes/a.txt", "web/more.js"]
    assert everything_in(comfyui) == before
    assert install(comfyui, package=package, force=True).is_replaced
    assert (target / "host.py").read_bytes() == b"NEWER = 1\n"
    assert not (target / "notes").exists()
    assert [path.name for path in target.parent.iterdir()] == ["e3_iterator"]


@pytest.mark.parametrize("record", [None, "{", '{"name": "other", "files": {}}', '{"name": "e3-iterator"}', "[]"])
def test_without_its_record_a_pack_of_ours_is_replaced_only_if_nothing_is_lost(
    package: Path, comfyui: Path, target: Path, record: str | None
) -> None:
    install(comfyui, package=package)
    (target / "installed.json").unlink()
    if record is not None:
        (target / "installed.json").write_text(record, encoding="utf-8")
    (target / "host.py").write_text("of another version", encoding="utf-8")
    with pytest.raises(Changed) as refused:
        install(comfyui, package=package)
    assert refused.value.files == ["host.py"]
    assert install(comfyui, package=package, force=True).is_replaced
    assert json.loads((target / "installed.json").read_bytes())["version"] == __version__


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("project", [None, '[project]\nname = "other"\n', b"\xff\xfe"])
def test_a_folder_of_somebody_else_is_left_alone(
    package: Path, comfyui: Path, target: Path, project: str | bytes | None, force: bool
) -> None:
    written(target, {"__init__.py": "mine", "installed.json": '{"name": "other", "version": "1", "files": {}}'})
    if project is not None:
        (target / "pyproject.toml").write_bytes(project if isinstance(project, bytes) else project.encode())
    before = everything_in(comfyui)
    with pytest.raises(Refused, match=r"e3_iterator was not made by E3: move it out of custom_nodes"):
        install(comfyui, package=package, force=force)
    assert everything_in(comfyui) == before


def test_a_file_of_that_name_is_not_replaced(package: Path, comfyui: Path, target: Path) -> None:
    target.write_text("mine", encoding="utf-8")
    with pytest.raises(Refused, match=r"e3_iterator is a file: move it away"):
        install(comfyui, package=package, force=True)
    assert target.read_text(encoding="utf-8") == "mine"


@POSIX
@pytest.mark.parametrize("force", [False, True])
def test_a_link_is_not_followed(package: Path, comfyui: Path, target: Path, tmp_path: Path, force: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "custom_nodes").mkdir(parents=True)
    install(elsewhere, package=package)
    target.symlink_to(elsewhere / "custom_nodes/e3_iterator")
    (package / "nodes/host.py").write_text("NEWER = 1\n", encoding="utf-8")
    before = everything_in(elsewhere)
    with pytest.raises(Refused, match=r"e3_iterator is a link: remove it"):
        install(comfyui, package=package, force=force)
    assert everything_in(elsewhere) == before
    assert target.is_symlink()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nowhere", "there is no folder {given}: give ComfyUI's own"),
        ("main.py", "{given} is a file: give ComfyUI's folder"),
        ("ComfyUI/custom_nodes", "give the folder above custom_nodes, {root}/ComfyUI"),
        ("ComfyUI/custom_nodes/other/deep", "give the folder above custom_nodes, {root}/ComfyUI"),
        (".", "{given} is the folder above ComfyUI's: give {root}/ComfyUI"),
        ("night", "{given} has no folder custom_nodes: give ComfyUI's folder"),
    ],
)
def test_another_folder_is_refused_with_the_one_to_give(package: Path, tmp_path: Path, given: str, says: str) -> None:
    root = written(
        tmp_path / "root", {"main.py": "", "night/custom_nodes": "", "ComfyUI/custom_nodes/other/deep/x": ""}
    )
    before = everything_in(root)
    with pytest.raises(WrongFolder, match=re.escape(says.format(given=root / given, root=root))):
        install(root / given, package=package)
    assert everything_in(root) == before


# Whole or not at all.


@POSIX
def test_every_file_is_on_disk_before_the_pack_gets_its_name(
    package: Path, comfyui: Path, target: Path, steps: list[str]
) -> None:
    install(comfyui, package=package)
    assert steps == ["sync"] * len([*PACK, "installed.json"]) + ["rename to e3_iterator"]


def test_leftovers_of_runs_that_were_killed_go_and_nothing_else_does(
    package: Path, comfyui: Path, target: Path
) -> None:
    install(comfyui, package=package)
    for name in ("e3_iterator.00000001.disabled", "e3_iterator.disabled", "e3_iterator.0000000g.disabled", "other"):
        shutil.copytree(target, target.with_name(name))
    target.with_name("e3_iterator.00000002.disabled").mkdir()
    target.with_name("e3_iterator.00000006.disabled").write_text("mine", encoding="utf-8")
    assert install(comfyui, package=package).left_behind == ()
    assert sorted(path.name for path in target.parent.iterdir()) == [
        "e3_iterator",
        "e3_iterator.00000006.disabled",
        "e3_iterator.0000000g.disabled",
        "e3_iterator.disabled",
        "other",
    ]


@pytest.mark.parametrize("moment", [1, 2])
def test_a_rename_that_fails_leaves_what_was_there(
    package: Path, comfyui: Path, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(comfyui, package=package)
    (package / "nodes/host.py").write_text("NEWER = 1\n", encoding="utf-8")
    before = everything_in(comfyui)
    rename, calls = Path.rename, []

    def failing(path: Path, other: Path) -> Path:
        calls.append(path)
        if len(calls) == moment:
            raise PermissionError(13, "in use", str(path))
        return rename(path, other)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(PermissionError):
        install(comfyui, package=package)
    assert everything_in(comfyui) == before


def test_an_earlier_pack_that_cannot_be_removed_is_named_and_tried_again(
    package: Path, comfyui: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(comfyui, package=package)
    (package / "nodes/host.py").write_text("NEWER = 1\n", encoding="utf-8")
    with monkeypatch.context() as held:
        held.setattr(installer.shutil, "rmtree", lambda *_, **__: installer._raise(PermissionError(13, "in use")))
        (left,) = install(comfyui, package=package).left_behind
    assert re.fullmatch(r"e3_iterator\.[0-9a-f]{8}\.disabled", left.name)
    assert (target / "host.py").read_bytes() == b"NEWER = 1\n"
    assert install(comfyui, package=package).left_behind == ()
    assert [path.name for path in target.parent.iterdir()] == ["e3_iterator"]


KILLING = """
import json, os, shutil, signal, sys
from pathlib import Path
from comfyui_agent.nodes import installer, pack_builder

base, earlier, newer = (Path(each) for each in sys.argv[1:4])
custom_nodes = base / "custom_nodes"
target = custom_nodes / "e3_iterator"
DIGESTS = {
    name: {path: installer.hashlib.sha256(text).hexdigest() for path, text in installer.build(package).items()}
    for name, package in (("earlier", earlier), ("newer", newer))
}
CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir"}
os.fsync = lambda handle: None  # slow, and a kill loses nothing that was written


def is_change(event, arguments):
    # builtins.open says how, os.open does not
    return event in CHANGES or (event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wxa"))


def install_and_die(moment):
    child = os.fork()
    if child == 0:
        seen = [0]
        def watch(event, arguments):
            if is_change(event, arguments):
                seen[0] += 1
                if seen[0] == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(watch)
        installer.install(base, package=newer)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def state(folder):
    if not folder.is_dir():
        return "nothing"
    present = installer._digests(folder)
    for name, digests in DIGESTS.items():
        if present == digests and (installer._read_record(folder) or {}).get("files") == digests:
            return name
    return "half"


def outcome(moment):
    for path in list(custom_nodes.iterdir()):
        shutil.rmtree(path)
    if sys.argv[4] == "earlier":
        installer.install(base, package=earlier)
    is_killed = install_and_die(moment)
    then = state(target)
    beside = sorted(state(path) for path in custom_nodes.iterdir() if path != target)
    names_are_skipped = all(path.name.endswith(".disabled") for path in custom_nodes.iterdir() if path != target)
    installer.install(base, package=newer)
    after = [path.name + " " + state(path) for path in custom_nodes.iterdir()]
    return {"killed": is_killed, "then": then, "beside": beside, "skipped": names_are_skipped, "after": after}


found = [outcome(1)]
while found[-1]["killed"]:
    found.append(outcome(len(found) + 1))
print(json.dumps(found))
"""
"""Installs over what is there, killed at its first change to the disk, at its second, and so on until it is through."""


@POSIX
@pytest.mark.parametrize("start", ["nothing", "earlier"])
def test_killed_at_any_change_to_the_disk_the_next_run_puts_it_right(comfyui: Path, tmp_path: Path, start: str) -> None:
    few = ("nodes/__init__.py", "nodes/pyproject.toml", "nodes/web/e3.js", "domain/values.py", "domain/suggestions.py")
    small = {place: FAKE[place] for place in few} | {
        "nodes/__init__.py": "from comfyui_agent.domain.values import double\n"
    }
    earlier = written(tmp_path / "earlier", small | {"nodes/gone.py": ""})
    newer = written(tmp_path / "newer", small | {"nodes/web/e3.js": "newer", "nodes/core/newer.py": ""})
    answer = subprocess.run(
        [sys.executable, "-c", KILLING, str(comfyui), str(earlier), str(newer), start],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    *killed, through = json.loads(answer.stdout)
    assert len(killed) > len(build(newer))
    assert (through["then"], through["beside"]) == ("newer", [])
    assert all(each["skipped"] for each in killed)
    assert {tuple(each["after"]) for each in killed} == {("e3_iterator newer",)}
    places = ["earlier", "nothing", "newer"]
    at_target = [places.index(each["then"]) for each in killed]
    assert at_target == sorted(at_target)
    assert at_target[0] == places.index(start)
    if start == "earlier":
        (between,) = [each for each in killed if each["then"] == "nothing"]
        assert between["beside"] == ["earlier", "newer"]
