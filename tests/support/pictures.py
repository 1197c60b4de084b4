"""Small image files, written without a library."""

import struct
import zlib


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int = 64, height: int = 48) -> bytes:
    rows = b"".join(b"\0" + b"\x80" * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = _chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + data + _chunk(b"IEND", b"")


def gif(width: int = 64, height: int = 48) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0\x3b"


def jpeg(width: int = 64, height: int = 48) -> bytes:
    comment = b"\xff\xfe" + struct.pack(">H", 12) + b"0123456789"
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\0"
    return b"\xff\xd8" + comment + frame + b"\xff\xda\xff\xd9"


def webp(kind: bytes, width: int = 64, height: int = 48) -> bytes:
    body = {
        b"VP8 ": b"\0" * 6 + struct.pack("<HH", width, height),
        b"VP8L": b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14),
        b"VP8X": b"\0" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
    }[kind]
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk
