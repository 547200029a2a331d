"""Films, sounds and latents are files that a reader of their format understands, down to each frame."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from comfyui_agent.sim.engine.media import BLOCK, write_flac, write_latent, write_mp4, write_webm

CONTAINERS = {b"moov", b"trak", b"mdia", b"minf", b"dinf", b"stbl"}
MASTERS = {0x1A45DFA3, 0x18538067, 0x1549A966, 0x1654AE6B, 0xAE, 0xE0, 0x1F43B675}


def film(count: int, width: int = 64, height: int = 48) -> list[Image.Image]:
    """Frames of one colour each, no two of them alike."""
    return [Image.new("RGB", (width, height), f"hsl({360 * frame // count}, 80%, 50%)") for frame in range(count)]


def alike(first: Image.Image, second: Image.Image) -> bool:
    return sum(ImageStat.Stat(ImageChops.difference(first.convert("RGB"), second.convert("RGB"))).mean) / 3 < 6


def boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The boxes of an MP4 file, containers opened, as (name, payload)."""
    position = 0
    while position < len(data):
        size, name = struct.unpack_from(">I4s", data, position)
        assert 8 <= size <= len(data) - position, f"{name!r} is longer than what holds it"
        payload = data[position + 8 : position + size]
        yield name, payload
        if name in CONTAINERS:
            yield from boxes(payload)
        position += size


def elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a WebM file, masters opened, as (identifier, payload)."""
    position = 0
    while position < len(data):
        width = 9 - data[position].bit_length()
        identifier = int.from_bytes(data[position : position + width], "big")
        position += width
        length = 9 - data[position].bit_length()
        size = int.from_bytes(data[position : position + length], "big") & ~(1 << 7 * length)
        position += length
        assert size <= len(data) - position, f"{identifier:X} is longer than what holds it"
        payload = data[position : position + size]
        yield identifier, payload
        if identifier in MASTERS:
            yield from elements(payload)
        position += size


def as_webp(frame: bytes) -> Image.Image:
    """A VP8 key frame, put into the picture format that holds the same."""
    padded = frame + bytes(len(frame) % 2)
    body = b"WEBPVP8 " + struct.pack("<I", len(frame)) + padded
    picture = Image.open(io.BytesIO(b"RIFF" + struct.pack("<I", len(body)) + body))
    picture.load()
    return picture


@pytest.mark.parametrize(("count", "size"), [(1, (16, 16)), (5, (64, 48)), (30, (63, 33))])
def test_every_frame_of_an_mp4_is_where_its_tables_say(tmp_path: Path, count: int, size: tuple[int, int]) -> None:
    frames = film(count, *size)
    write_mp4(tmp_path / "film.mp4", frames, 24)
    data = (tmp_path / "film.mp4").read_bytes()
    found = dict(boxes(data))
    assert next(iter(found)) == b"ftyp"
    sizes = struct.unpack_from(f">{count}I", found[b"stsz"], 12)
    position = struct.unpack_from(">I", found[b"stco"], 8)[0]
    assert struct.unpack_from(">I", found[b"stsz"], 8)[0] == count
    for frame, length in zip(frames, sizes, strict=True):
        picture = Image.open(io.BytesIO(data[position : position + length]))
        assert picture.format == "JPEG"
        assert alike(picture, frame)
        position += length


@pytest.mark.parametrize("fps", [0.5, 12.5, 24, 29.97, 120])
def test_an_mp4_lasts_as_long_as_its_frames(tmp_path: Path, fps: float) -> None:
    write_mp4(tmp_path / "film.mp4", film(6), fps)
    found = dict(boxes((tmp_path / "film.mp4").read_bytes()))
    timescale, duration = struct.unpack_from(">II", found[b"mvhd"], 12)
    assert duration / timescale == pytest.approx(6 / fps, rel=0.01)
    count, step = struct.unpack_from(">II", found[b"stts"], 8)
    assert (count, step * count) == (6, duration)


@pytest.mark.parametrize(("count", "size"), [(1, (16, 16)), (5, (64, 48)), (30, (63, 33))])
def test_every_frame_of_a_webm_is_a_picture(tmp_path: Path, count: int, size: tuple[int, int]) -> None:
    frames = film(count, *size)
    write_webm(tmp_path / "film.webm", frames, 24)
    found = list(elements((tmp_path / "film.webm").read_bytes()))
    assert dict(found)[0x4282] == b"webm"
    assert dict(found)[0x86] == b"V_VP8"
    assert [int.from_bytes(dict(found)[name], "big") for name in (0xB0, 0xBA)] == list(size)
    blocks = [payload for identifier, payload in found if identifier == 0xA3]
    for frame, block in zip(frames, blocks, strict=True):
        assert block[0] == 0x81
        assert block[3] & 0x80, "not marked as a key frame"
        assert alike(as_webp(block[4:]), frame)


@pytest.mark.parametrize("fps", [0.01, 12.5, 29.97, 1000])
def test_the_frames_of_a_webm_follow_each_other_in_time(tmp_path: Path, fps: float) -> None:
    write_webm(tmp_path / "film.webm", film(6), fps)
    found = list(elements((tmp_path / "film.webm").read_bytes()))
    times = [int.from_bytes(payload, "big") for identifier, payload in found if identifier == 0xE7]
    assert times == [round(1000 * n / fps) for n in range(6)]
    assert struct.unpack(">d", dict(found)[0x4489])[0] == pytest.approx(6000 / fps)


@pytest.mark.parametrize(
    ("seconds", "rate", "channels"), [(1, 44100, 2), (0, 44100, 1), (2 * BLOCK / 8000, 8000, 1), (60, 48000, 2)]
)
def test_a_flac_file_says_how_long_it_is_and_what_it_decodes_to(
    tmp_path: Path, seconds: float, rate: int, channels: int
) -> None:
    write_flac(tmp_path / "sound.flac", seconds, rate, channels)
    data = (tmp_path / "sound.flac").read_bytes()
    assert data[:4] == b"fLaC"
    assert data[4:8] == b"\x80\x00\x00\x22"
    shape = int.from_bytes(data[18:26], "big")
    samples = max(1, int(seconds * rate))
    assert (shape >> 44, (shape >> 41 & 7) + 1, (shape >> 36 & 31) + 1) == (rate, channels, 16)
    assert shape & (1 << 36) - 1 == samples
    assert data[26:42] == hashlib.md5(bytes(samples * channels * 2)).digest()


def test_every_frame_of_a_flac_file_is_silence_and_passes_its_checksums(tmp_path: Path) -> None:
    frame_count = 200
    write_flac(tmp_path / "sound.flac", frame_count * BLOCK / 8000, 8000, 2)
    data = (tmp_path / "sound.flac").read_bytes()[42:]
    for number in range(frame_count):
        coded = bytes([number]) if number < 0x80 else chr(number).encode()
        header = b"\xff\xf8\x70\x18" + coded + struct.pack(">H", BLOCK - 1)
        frame = data[: len(header) + 9]
        assert frame[: len(header)] == header
        assert remainder(frame[: len(header) + 1], 8, 0x107) == 0
        assert frame[len(header) + 1 : -2] == bytes(6)
        assert remainder(frame, 16, 0x18005) == 0
        data = data[len(frame) :]
    assert data == b""


def remainder(data: bytes, bits: int, polynomial: int) -> int:
    """What long division leaves: 0 when the checksum at the end is right."""
    value = int.from_bytes(data, "big")
    for position in range(value.bit_length() - 1, bits - 1, -1):
        if value >> position & 1:
            value ^= polynomial << position - bits
    return value


def test_a_latent_is_a_safetensors_file_with_the_prompt_in_it(tmp_path: Path) -> None:
    write_latent(tmp_path / "x.latent", (2, 4, 6, 8), 5, {"prompt": "{}"})
    data = (tmp_path / "x.latent").read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8 : 8 + length])
    tensor = header["latent_tensor"]
    assert (tensor["dtype"], tensor["shape"]) == ("F32", [2, 4, 6, 8])
    assert tensor["data_offsets"] == [0, len(data) - 8 - length]
    assert tensor["data_offsets"][1] == 2 * 4 * 6 * 8 * 4
    assert header["__metadata__"] == {"prompt": "{}"}
    assert length % 8 == 0


def test_the_values_of_a_latent_follow_from_its_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_latent(tmp_path / name, (1, 4, 2, 2), seed, {})
    first, same, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == same
    assert first != other
