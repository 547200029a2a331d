"""Pictures are read and saved as ComfyUI does it, and only in its folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.nodes.host import (
    ComfyUI,
    pictures_of,
)
from support.comfyui_inside import ComfyUIInside, comfyui_inside


@pytest.fixture
def host() -> ComfyUI:
    return ComfyUI()


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[ComfyUIInside]:
    with comfyui_inside(tmp_path) as comfyui:
        yield comfyui


def picture(size: tuple[int, int] = (4, 3), colour: str = "red") -> Image.Image:
    return Image.new("RGB", size, colour)


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_reference_is_a_file_of_its_folder(inside: ComfyUIInside, host: ComfyUI) -> None:
    output, temp = inside.folders["output"].resolve(), inside.folders["temp"].resolve()
    assert host.file_of({"filename": "a.png", "subfolder": "x/y", "type": "output"}) == output / "x/y/a.png"
    assert host.file_of({"filename": "a.png", "subfolder": "", "type": "temp"}) == temp / "a.png"


@pytest.mark.parametrize(
    "image",
    [
        {"filename": "../input/a.png", "subfolder": "", "type": "output"},
        {"filename": "a.png", "subfolder": "../../..", "type": "output"},
        {"filename": "a.png", "subfolder": "../output2", "type": "output"},
        {"filename": "/etc/passwd", "subfolder": "", "type": "output"},
        {"filename": "passwd", "subfolder": "/etc", "type": "temp"},
        {"filename": "", "subfolder": "", "type": "output"},
        {"filename": ".", "subfolder": ".", "type": "output"},
        {"filename": "a\0b", "subfolder": "", "type": "output"},
        {"filename": "link/passwd", "subfolder": "", "type": "output"},
        {"filename": "a.png", "subfolder": "", "type": "input"},
        {"filename": "a.png", "subfolder": ""},
        {"filename": 5, "subfolder": "", "type": "output"},
        {},
    ],
)
def test_a_reference_that_leads_elsewhere_means_no_file(
    inside: ComfyUIInside, host: ComfyUI, image: dict[str, Any]
) -> None:
    (inside.folders["output"] / "link").symlink_to("/etc")
    assert host.file_of(image) is None


def test_a_picture_is_saved_as_comfyui_does_it(inside: ComfyUIInside, host: ComfyUI) -> None:
    texts = {"prompt": {"1": {"a": "ü"}}, "workflow": {"nodes": []}}
    first = host.save(picture(), "E3/%width%x%height%", "output", texts)
    second = host.save(picture(), "E3/%width%x%height%", "output", {})
    assert first == {"filename": "4x3_00001_.png", "subfolder": "E3", "type": "output"}
    assert second == {"filename": "4x3_00002_.png", "subfolder": "E3", "type": "output"}
    assert files_in(inside.folders["output"]) == ["E3/4x3_00001_.png", "E3/4x3_00002_.png"]
    file = host.file_of(first)
    assert file is not None
    with Image.open(file) as saved:
        assert (saved.format, saved.mode, saved.size, saved.getpixel((0, 0))) == ("PNG", "RGB", (4, 3), (255, 0, 0))
        assert {key: json.loads(text) for key, text in saved.info.items()} == texts
    with Image.open(inside.folders["output"] / "E3/4x3_00002_.png") as saved:
        assert saved.info == {}


def test_a_picture_that_cannot_be_written_leaves_nothing(inside: ComfyUIInside, host: ComfyUI) -> None:
    class Full(Image.Image):
        size = (4, 3)

        def save(self, fp: Any, *_: Any, **__: Any) -> None:
            Path(fp).write_bytes(b"\x89PNG")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        host.save(Full(), "E3/a", "output", {})
    assert files_in(inside.folders["output"]) == []


@pytest.mark.parametrize("prefix", ["../a", "E3/../../a", "/etc/a"])
def test_nothing_is_written_outside_of_the_folder(inside: ComfyUIInside, host: ComfyUI, prefix: str) -> None:
    with pytest.raises(Exception, match="outside the output folder"):
        host.save(picture(), prefix, "output", {})
    assert files_in(inside.folders["output"].parent) == []


@pytest.mark.parametrize(("shape", "mode"), [((3, 4, 3), "RGB"), ((3, 4, 4), "RGBA"), ((3, 4, 1), "L"), ((3, 4), "L")])
def test_comfyuis_pictures_become_those_of_pillow(shape: tuple[int, ...], mode: str) -> None:
    numpy = pytest.importorskip("numpy")

    class Tensor:
        """As much of a tensor as counts."""

        def __init__(self, value: float) -> None:
            self._value = value

        def cpu(self) -> Tensor:
            return self

        def numpy(self) -> Any:
            return numpy.full(shape, self._value, dtype=numpy.float32)

    bright, dark, half = pictures_of([Tensor(1.5), Tensor(-0.5), Tensor(0.5)])
    assert (bright.mode, bright.size) == (mode, (4, 3))
    bands = len(bright.getbands())
    pixels = [each.getpixel((0, 0)) for each in (bright, dark, half)]
    assert pixels == [value if bands == 1 else (value,) * bands for value in (255, 0, 127)]
