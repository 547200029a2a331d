"""Small writers of real, playable films, sounds and latents. No codec library is needed to simulate a save node."""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import struct
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

TIMESCALE = 90_000
JPEG_IN_MP4 = 0x6C
IDENTITY = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
BLOCK = 4096
SAMPLE_BITS = 16
SILENCE = b"\x00" + bytes(SAMPLE_BITS // 8)


def write_mp4(path: Path, frames: Sequence[Image.Image], fps: float) -> None:
    """Write a film of JPEG frames in an ISO base media file."""
    samples = [_encoded(frame, "JPEG", quality=85) for frame in frames]
    kind = _box(b"ftyp", b"isom" + struct.pack(">I", 0x200) + b"isomiso2mp41")
    media = _box(b"mdat", b"".join(samples))
    path.write_bytes(kind + media + _movie(samples, len(kind) + 8, round(TIMESCALE / fps), *frames[0].size))


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
    decoder = _descriptor(4, bytes([JPEG_IN_MP4, 0x11]) + bytes(11))
    stream = _descriptor(3, struct.pack(">HB", 1, 0) + decoder + _descriptor(6, b"\x02"))
    entry = bytes(6) + struct.pack(">H", 1) + bytes(16) + struct.pack(">HH", width, height)
    entry += struct.pack(">IIIH", 0x480000, 0x480000, 0, 1) + bytes(32) + struct.pack(">Hh", 24, -1)
    entry += _box(b"esds", bytes(4) + stream)
    sizes = struct.pack(f">{len(samples)}I", *(len(sample) for sample in samples))
    return (
        _box(b"stsd", struct.pack(">II", 0, 1) + _box(b"mp4v", entry))
        + _box(b"stts", struct.pack(">4I", 0, 1, len(samples), step))
        + _box(b"stsc", struct.pack(">5I", 0, 1, 1, len(samples), 1))
        + _box(b"stsz", struct.pack(">3I", 0, 0, len(samples)) + sizes)
        + _box(b"stco", struct.pack(">3I", 0, 1, first))
    )


def _descriptor(tag: int, payload: bytes) -> bytes:
    return bytes([tag, len(payload)]) + payload


def _box(name: bytes, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload) + 8) + name + payload


def write_webm(path: Path, frames: Sequence[Image.Image], fps: float) -> None:
    """Write a VP8 film. A lossy WebP picture is a VP8 key frame, so key frames need a container only."""
    width, height = frames[0].size
    step = 1000 / fps
    versions = _uint(0x4286, 1) + _uint(0x42F7, 1) + _uint(0x42F2, 4) + _uint(0x42F3, 8)
    header = _element(0x1A45DFA3, versions + _element(0x4282, b"webm") + _uint(0x4287, 2) + _uint(0x4285, 2))
    writer = _element(0x4D80, b"E3 simulator") + _element(0x5741, b"E3 simulator")
    duration = _element(0x4489, struct.pack(">d", step * len(frames)))
    information = _element(0x1549A966, _uint(0x2AD7B1, 1_000_000) + duration + writer)
    picture = _element(0xE0, _uint(0xB0, width) + _uint(0xBA, height))
    track = _element(0xAE, _uint(0xD7, 1) + _uint(0x73C5, 1) + _uint(0x83, 1) + _element(0x86, b"V_VP8") + picture)
    clusters = b"".join(_cluster(round(number * step), frame) for number, frame in enumerate(frames))
    path.write_bytes(header + _element(0x18538067, information + _element(0x1654AE6B, track) + clusters))


def _cluster(milliseconds: int, frame: Image.Image) -> bytes:
    name, size = 12, 16  # positions in a WebP file with one chunk
    webp = _encoded(frame, "WEBP", quality=70, method=0)
    assert webp[name:size] == b"VP8 ", "Pillow wrote a WebP picture without a VP8 frame"
    vp8 = webp[size + 4 : size + 4 + struct.unpack_from("<I", webp, size)[0]]
    block = b"\x81" + struct.pack(">hB", 0, 0x80) + vp8
    return _element(0x1F43B675, _uint(0xE7, milliseconds) + _element(0xA3, block))


def _element(identifier: int, payload: bytes) -> bytes:
    name = identifier.to_bytes((identifier.bit_length() + 7) // 8, "big")
    return name + (len(payload) | 1 << 56).to_bytes(8, "big") + payload


def _uint(identifier: int, value: int) -> bytes:
    return _element(identifier, value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big"))


def _encoded(frame: Image.Image, form: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    frame.convert("RGB").save(buffer, form, **options)
    return buffer.getvalue()


def write_flac(path: Path, seconds: float, rate: int, channels: int) -> None:
    """Write silence, at least one sample, in frames of one constant sample a channel."""
    total = max(1, int(seconds * rate))
    frames = bytearray()
    digest = hashlib.md5(usedforsecurity=False)
    for number, start in enumerate(range(0, total, BLOCK)):
        length = min(total - start, BLOCK)
        digest.update(bytes(length * channels * SAMPLE_BITS // 8))
        frames += _flac_frame(number, length, channels)
    shape = rate << 44 | (channels - 1) << 41 | (SAMPLE_BITS - 1) << 36 | total
    info = struct.pack(">HH", BLOCK, BLOCK) + bytes(6) + shape.to_bytes(8, "big") + digest.digest()
    path.write_bytes(b"fLaC" + struct.pack(">I", 0x80000000 | len(info)) + info + frames)


def _flac_frame(number: int, length: int, channels: int) -> bytes:
    header = bytes([0xFF, 0xF8, 0x70, (channels - 1) << 4 | 0x08])
    header += chr(number).encode("utf-8", "surrogatepass") + struct.pack(">H", length - 1)
    header += bytes([_crc(header, 8, 0x07)])
    body = header + SILENCE * channels
    return body + struct.pack(">H", _crc(body, 16, 0x8005))


def _crc(data: bytes, bits: int, polynomial: int) -> int:
    value = 0
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            is_high = value >> (bits - 1)
            value = (value << 1 ^ polynomial * is_high) & ((1 << bits) - 1)
    return value


def write_latent(path: Path, shape: tuple[int, ...], seed: int, metadata: dict[str, str]) -> None:
    """Write a safetensors file with one float32 tensor whose values follow from a seed."""
    count = math.prod(shape)
    dice = random.Random(seed)
    header = {
        "__metadata__": metadata,
        "latent_format_version_0": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
        "latent_tensor": {"dtype": "F32", "shape": list(shape), "data_offsets": [0, 4 * count]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = struct.pack(f"<{count}f", *(dice.uniform(-1, 1) for _ in range(count)))
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)
