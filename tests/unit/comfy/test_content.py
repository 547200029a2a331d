"""A file is told by its bytes, and one that is empty, cut short or no file of its kind is kept out."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import warnings
import zlib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageSequence

from comfyui_agent.comfy import content
from comfyui_agent.comfy.content import HEAD, FileKind, check_whole, recognise
from comfyui_agent.comfy.errors import OutputProblem


def picture(kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image = Image.effect_noise((64, 48), 80).convert("RGB")
    frames = [Image.effect_noise((64, 48), 80).convert("RGB") for _ in range(2)] if kind in ("GIF", "WEBP") else []
    many = {"save_all": True, "append_images": frames} if frames else {}
    image.save(buffer, kind, **many, **options)
    return buffer.getvalue()


def box(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", 8 + len(body)) + name + body


def riff(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + kind + body


def tensors(size: int = 64) -> bytes:
    header = json.dumps({"latent": {"dtype": "F32", "shape": [16], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


WHOLE: dict[str, bytes] = {
    "a.png": picture("PNG"),
    "a.jpg": picture("JPEG"),
    "a.gif": picture("GIF"),
    "a.webp": picture("WEBP"),
    "a.mp4": box(b"ftyp", b"isom0000") + box(b"moov", bytes(40)) + box(b"mdat", bytes(400)),
    "a.mov": box(b"ftyp", b"qt  0000") + box(b"mdat", bytes(400)) + box(b"moov", bytes(40)),
    "a.wav": riff(b"WAVE", b"fmt " + bytes(100)),
    "a.avi": riff(b"AVI ", bytes(100)),
    "a.glb": b"glTF" + struct.pack("<II", 2, 112) + bytes(100),
    "a.latent": tensors(),
    "a.safetensors": tensors(),
}
UNMARKED: dict[str, bytes] = {
    "a.webm": b"\x1a\x45\xdf\xa3" + b"\x42\x82\x84webm" + bytes(50),
    "a.mkv": b"\x1a\x45\xdf\xa3" + bytes(50),
    "a.ogg": b"OggS" + bytes(50),
    "a.opus": b"OggS" + bytes(24) + b"OpusHead" + bytes(20),
    "a.flac": b"fLaC" + bytes(50),
    "a.mp3": b"ID3" + bytes(50),
    "a.txt": b"hello",
    "a.obj": b"v 0 0 0\n",
    "a.svg": b"<svg/>",
    "noname": b"whatever",
}


def check(folder: Path, name: str, data: bytes) -> FileKind:
    path = folder / "staged"
    path.write_bytes(data)
    kind = recognise(data[:HEAD], name)
    check_whole(path, kind, name)
    return kind


def test_a_whole_file_passes_under_its_own_extension(tmp_path: Path) -> None:
    found = {name: check(tmp_path, name, data).extension for name, data in (WHOLE | UNMARKED).items()}
    assert found == {name: name.rpartition(".")[2] if "." in name else "bin" for name in WHOLE | UNMARKED}


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    for name in WHOLE | UNMARKED:
        with pytest.raises(OutputProblem) as caught:
            pytest.fail(f"an empty {name} passes as {check(tmp_path, name, b'')}")
        assert "is empty" in str(caught.value), name


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    for name, kept in product(WHOLE, (0.1, 0.5, 0.9)):
        cut = WHOLE[name][: int(len(WHOLE[name]) * kept)]
        with pytest.raises(OutputProblem):
            pytest.fail(f"{kept} of {name} passes as {check(tmp_path, name, cut)}")


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "a.gif"])
def test_a_file_without_its_last_bytes_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputProblem):
        check(tmp_path, name, WHOLE[name][:-9])


@pytest.mark.parametrize(
    "name", ["a.png", "A.PNG", "a.jpeg", "a.jpg", "a.webp", "a.gif", "a.mp4", "a.webm", "a.mkv", "a.wav", "a.flac"]
)
def test_an_html_page_is_no_picture_film_or_sound(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputProblem):
        check(tmp_path, name, b"<!doctype html><html><body>404 not found</body></html>")


@pytest.mark.parametrize(("name", "extension"), [("a.png", "jpg"), ("a.jpg", "webp"), ("a.bin", "png"), ("a", "gif")])
def test_a_picture_under_another_name_is_told_by_its_bytes(tmp_path: Path, name: str, extension: str) -> None:
    assert check(tmp_path, name, WHOLE[f"a.{extension}"]) == FileKind(extension, "image")


def test_an_extension_that_is_none_becomes_bin() -> None:
    for name in ["a.../../x", "a.p/ng", "a.", "a." + "x" * 50, "a.\0", "a.é"]:
        assert recognise(b"????????", name).extension == "bin", name


def test_a_program_dressed_as_a_picture_is_not_run(tmp_path: Path) -> None:
    """PostScript whose ninth byte spells WEBP would be handed to an interpreter by a reader that tries all formats."""
    with pytest.raises(OutputProblem, match="is not a picture"):
        check(tmp_path, "a.webp", b"%!PS-Ado" + b"WEBP" + b"\n%%BoundingBox: 0 0 9 9\nshowpage\n")


def test_a_picture_of_huge_dimensions_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_decoding(self: Image.Image) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", no_decoding)
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(1_000))), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
    assert check(tmp_path, "a.png", data).extension == "png"


def test_of_countless_frames_only_some_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [Image.effect_noise((8, 8), 80) for _ in range(40)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    asked_for = []

    class Counted(ImageSequence.Iterator):
        def __next__(self) -> Image.Image:
            asked_for.append(1)
            return super().__next__()

    monkeypatch.setattr(content.ImageSequence, "Iterator", Counted)
    monkeypatch.setattr(content, "MOST_PIXELS_IN_ALL", 5 * 64)
    check(tmp_path, "a.gif", buffer.getvalue())
    assert len(asked_for) == 5


def test_countless_boxes_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MOST_BOXES", 100)
    with pytest.raises(OutputProblem):
        check(tmp_path, "a.mp4", box(b"ftyp", b"isom") + box(b"moov", b"") + box(b"free", b"") * 1_000)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2) + b"[]" + bytes(8),
        struct.pack("<Q", 4) + b"null",
        struct.pack("<Q", 9) + b'{"a":NaN}',
        struct.pack("<Q", 30_000) + b"[" * 30_000,
        b"short",
    ],
    ids=["huge_header", "list", "null", "nan", "deep", "short"],
)
def test_tensors_that_are_none_are_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(OutputProblem):
        check(tmp_path, "a.latent", data)


def test_a_huge_header_of_tensors_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "LARGEST_TENSOR_HEADER", 10)
    with pytest.raises(OutputProblem):
        check(tmp_path, "a.latent", tensors())


def test_a_message_is_one_line_and_tells_no_path_of_ours(tmp_path: Path) -> None:
    with pytest.raises(OutputProblem) as caught:
        check(tmp_path, "a\nb.png", WHOLE["a.png"][:30])
    assert caught.value.message.isprintable()
    assert str(tmp_path) not in caught.value.message


@given(data=st.data(), name=st.sampled_from(list(WHOLE)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
def test_a_damaged_file_is_refused_or_read_and_never_a_crash(tmp_path: Path, data: st.DataObject, name: str) -> None:
    damaged = bytearray(WHOLE[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(damaged) - 1, 200)))
        damaged[at] = data.draw(st.integers(0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(OutputProblem):
            check(tmp_path, name, bytes(damaged))
