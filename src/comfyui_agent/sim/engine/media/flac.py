"""FLAC sound: silence, in frames that say so with one sample a channel. Every decoder reads it."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

BLOCK = 4096
SAMPLE_BITS = 16
SILENCE = b"\x00" + bytes(SAMPLE_BITS // 8)


def write_flac(path: Path, seconds: float, rate: int, channels: int) -> None:
    """Write silence of a length; never fewer than one sample."""
    total = max(1, int(seconds * rate))
    frames = bytearray()
    digest = hashlib.md5(usedforsecurity=False)
    for number, start in enumerate(range(0, total, BLOCK)):
        length = min(total - start, BLOCK)
        digest.update(bytes(length * channels * SAMPLE_BITS // 8))
        frames += _frame(number, length, channels)
    shape = rate << 44 | (channels - 1) << 41 | (SAMPLE_BITS - 1) << 36 | total
    info = struct.pack(">HH", BLOCK, BLOCK) + bytes(6) + shape.to_bytes(8, "big") + digest.digest()
    path.write_bytes(b"fLaC" + struct.pack(">I", 0x80000000 | len(info)) + info + frames)


def _frame(number: int, length: int, channels: int) -> bytes:
    header = bytes([0xFF, 0xF8, 0x70, (channels - 1) << 4 | 0x08]) + _coded_number(number)
    header += struct.pack(">H", length - 1)
    header += bytes([_crc(header, 8, 0x07)])
    body = header + SILENCE * channels
    return body + struct.pack(">H", _crc(body, 16, 0x8005))


def _coded_number(number: int) -> bytes:
    """A number as UTF-8 writes code points, up to 36 bits."""
    if number < 0x80:
        return bytes([number])
    parts = []
    first_room = 0x3F
    while number > first_room:
        parts.append(0x80 | number & 0x3F)
        number >>= 6
        first_room >>= 1
    return bytes([(0xFF ^ (first_room << 1 | 1)) | number, *reversed(parts)])


def _crc(data: bytes, bits: int, polynomial: int) -> int:
    value = 0
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            is_high = value >> (bits - 1)
            value = (value << 1 ^ polynomial * is_high) & ((1 << bits) - 1)
    return value
