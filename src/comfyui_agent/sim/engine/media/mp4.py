"""MP4 from pictures: a film of JPEG frames in an ISO base media file."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

TIMESCALE = 90_000
JPEG_IN_MP4 = 0x6C
IDENTITY = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)


def write_mp4(path: Path, frames: Sequence[Image.Image], fps: float, quality: int = 85) -> None:
    """Write a Motion-JPEG film."""
    samples = [_jpeg(frame, quality) for frame in frames]
    width, height = frames[0].size
    kind = _box(b"ftyp", b"isom" + struct.pack(">I", 0x200) + b"isomiso2mp41")
    media = _box(b"mdat", b"".join(samples))
    first = len(kind) + 8
    path.write_bytes(kind + media + _movie(samples, first, round(TIMESCALE / fps), width, height))


def _movie(samples: list[bytes], first: int, step: int, width: int, height: int) -> bytes:
    length = step * len(samples)
    movie_header = struct.pack(">5I", 0, 0, 0, TIMESCALE, length) + struct.pack(">IHH", 0x10000, 0x100, 0) + bytes(8)
    movie = _box(b"mvhd", movie_header + IDENTITY + bytes(24) + struct.pack(">I", 2))
    track_header = struct.pack(">6I", 7, 0, 0, 1, 0, length) + bytes(16) + IDENTITY
    track = _box(b"tkhd", track_header + struct.pack(">II", width << 16, height << 16))
    media_header = _box(b"mdhd", struct.pack(">5IHH", 0, 0, 0, TIMESCALE, length, 0x55C4, 0))
    handler = _box(b"hdlr", bytes(8) + b"vide" + bytes(12) + b"E3 simulator\0")
    reference = _box(b"dinf", _box(b"dref", struct.pack(">II", 0, 1) + _box(b"url ", struct.pack(">I", 1))))
    table = _box(b"stbl", _sample_table(samples, first, step, width, height))
    information = _box(b"minf", _box(b"vmhd", struct.pack(">I", 1) + bytes(8)) + reference + table)
    return _box(b"moov", movie + _box(b"trak", track + _box(b"mdia", media_header + handler + information)))


def _sample_table(samples: list[bytes], first: int, step: int, width: int, height: int) -> bytes:
    entry = bytes(6) + struct.pack(">H", 1) + bytes(16) + struct.pack(">HH", width, height)
    entry += struct.pack(">IIIH", 0x480000, 0x480000, 0, 1) + bytes(32) + struct.pack(">Hh", 24, -1)
    entry += _box(b"esds", bytes(4) + _stream_descriptor())
    sizes = struct.pack(f">{len(samples)}I", *(len(sample) for sample in samples))
    return (
        _box(b"stsd", struct.pack(">II", 0, 1) + _box(b"mp4v", entry))
        + _box(b"stts", struct.pack(">4I", 0, 1, len(samples), step))
        + _box(b"stsc", struct.pack(">5I", 0, 1, 1, len(samples), 1))
        + _box(b"stsz", struct.pack(">3I", 0, 0, len(samples)) + sizes)
        + _box(b"stco", struct.pack(">3I", 0, 1, first))
    )


def _stream_descriptor() -> bytes:
    decoder = bytes([JPEG_IN_MP4, 0x11]) + bytes(3) + struct.pack(">II", 0, 0)
    body = struct.pack(">HB", 1, 0) + _descriptor(4, decoder) + _descriptor(6, b"\x02")
    return _descriptor(3, body)


def _descriptor(tag: int, payload: bytes) -> bytes:
    return bytes([tag, len(payload)]) + payload


def _box(name: bytes, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload) + 8) + name + payload


def _jpeg(frame: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    frame.convert("RGB").save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
