"""The files of the node pack: this folder, and the modules of other packages that it imports, with relative imports
because ComfyUI loads the pack under an odd name."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import metadata
from pathlib import Path, PurePosixPath

PACKAGE = Path(__file__).parents[1]
DISTRIBUTION = "e3-comfyui-agent"
FOLDERS = {"nodes": ".", "domain": "shared/domain", "pictures": "shared/pictures"}
"""Package → its folder in the pack. Modules of other packages do not go into it."""
LEFT_OUT = ("pack_builder.py", "installer.py")
WHOLE_FOLDERS = ("web", "example_workflows")
OTHER_FILES = ("declarations.json", "pyproject.toml", "README.md")
IMPORT = re.compile(r"^( *)from comfyui_agent\.([\w.]+) import\b", re.MULTILINE)


def build(package: Path = PACKAGE) -> dict[str, bytes]:
    """The content of every file of the pack by its path in it. The same package gives the same bytes."""
    files: dict[str, bytes] = {}
    modules: list[PurePosixPath] = []
    for path in (package / "nodes").rglob("*"):
        source = PurePosixPath(path.relative_to(package).as_posix())
        if not path.is_file() or not _belongs(source.relative_to("nodes")):
            continue
        if source.suffix == ".py":
            modules.append(source)
        else:
            files[_place(source).as_posix()] = path.read_bytes()
    while modules:
        module = modules.pop()
        place = _place(module)
        if place.as_posix() not in files:
            text = (package / module).read_bytes().decode()
            modules += [_source(match[2]) for match in IMPORT.finditer(text)]
            files[place.as_posix()] = _with_relative_imports(text, place).encode()
    for folder in {above for path in files for above in PurePosixPath(path).parents if above.parts[:1] == ("shared",)}:
        files[f"{folder}/__init__.py"] = b'"""Modules that E3 and its nodes in ComfyUI share."""\n'
    with suppress(metadata.PackageNotFoundError):
        licence = metadata.distribution(DISTRIBUTION).read_text("licenses/LICENSE")
        files.update({"LICENSE": licence.encode()} if licence else {})
    return dict(sorted(files.items()))


def _belongs(path: PurePosixPath) -> bool:
    if path.name in LEFT_OUT or any(part.startswith(".") or part == "__pycache__" for part in path.parts):
        return False
    return path.parts[0] in WHOLE_FOLDERS or path.suffix == ".py" or path.as_posix() in OTHER_FILES


def _source(module: str) -> PurePosixPath:
    return PurePosixPath(*module.split(".")).with_suffix(".py")


def _place(source: PurePosixPath) -> PurePosixPath:
    return PurePosixPath(FOLDERS[source.parts[0]], *source.parts[1:])


def _with_relative_imports(text: str, importer: PurePosixPath) -> str:
    root = "." * len(importer.parts)

    def rewrite(match: re.Match[str]) -> str:
        return f"{match[1]}from {root}{'.'.join(_place(_source(match[2])).with_suffix('').parts)} import"

    return IMPORT.sub(rewrite, text)
