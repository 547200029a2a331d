"""The node pack goes into ComfyUI whole or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from comfyui_agent import __version__
from comfyui_agent.nodes import installer
from comfyui_agent.nodes.installer import Changed, Refused, WrongFolder, install
from comfyui_agent.nodes.pack_builder import build
from support.fake_package import FAKE, PACK, written
from support.workspaces import everything_in

POSIX = pytest.mark.skipif(os.name == "nt", reason="locks, links and kills as Linux and macOS have them")


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
    project_alone = target.with_name("e3_iterator.00000002.disabled")
    written(project_alone, {"pyproject.toml": '[project]\nname = "e3-iterator"\n', "a.py": ""})
    target.with_name("e3_iterator.00000003.disabled").mkdir()
    written(target.with_name("e3_iterator.00000004.disabled"), {"installed.json": "{"})
    written(target.with_name("e3_iterator.00000005.disabled"), {"mine.txt": "mine"})
    target.with_name("e3_iterator.00000006.disabled").write_text("mine", encoding="utf-8")
    assert install(comfyui, package=package).left_behind == ()
    assert sorted(path.name for path in target.parent.iterdir()) == [
        "e3_iterator",
        "e3_iterator.00000005.disabled",
        "e3_iterator.00000006.disabled",
        "e3_iterator.0000000g.disabled",
        "e3_iterator.disabled",
        "other",
    ]


@POSIX
def test_two_at_once_do_not_meet(package: Path, comfyui: Path, target: Path) -> None:
    with installer._alone_in(target.parent), pytest.raises(Refused, match="another e3 nodes install is at work"):
        install(comfyui, package=package)
    assert install(comfyui, package=package).is_changed


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


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(13, "in use")


def test_an_earlier_pack_that_cannot_be_removed_is_named_and_tried_again(
    package: Path, comfyui: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(comfyui, package=package)
    (package / "nodes/host.py").write_text("NEWER = 1\n", encoding="utf-8")
    with monkeypatch.context() as held:
        held.setattr(installer.shutil, "rmtree", refuse)
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
