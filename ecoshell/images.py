"""Images: accepted by their first bytes, measured without decoding them, and counted in tokens."""

import base64
import os
import shlex
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from ecoshell.errors import ToolError
from ecoshell.messages import Attachment, Image, Message

MAX_IMAGES = 20
"""Images of one request; the newest are sent."""
MAX_BYTES = 5_000_000
"""Bytes of one image; providers refuse larger ones."""
MAX_SIDE = 8_000
"""Pixels of one side; providers refuse more."""
_MAX_REQUEST_CHARACTERS = 24_000_000
"""Base64 characters of all images of one request."""
_HEAD_BYTES = 16
"""Bytes needed to detect the media type."""
_EXTENSIONS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_MAX_PATH_CHARACTERS = 4_096
_PNG = b"\x89PNG\r\n\x1a\n"
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG segments that contain the size of the image."""

# -- reading


def read_image(file: BinaryIO, name: str) -> Image | None:
    """Return the image in an open file, or None for other content; raises ToolError if it is damaged or too large.

    Only the first bytes of a refused file are read.
    """
    head = file.read(_HEAD_BYTES)
    if not media_type(head):
        return None
    size = os.fstat(file.fileno()).st_size
    data = b"" if size > MAX_BYTES else head + file.read(MAX_BYTES + 1 - len(head))
    if len(data) > MAX_BYTES or not data:
        raise _too_large(name, f"{max(size, len(data)):,} bytes")
    return image_of(data, name)


def open_image(path: Path) -> Image:
    """Return the image in a file that the user named; raises ToolError, also for other content."""
    try:
        if not path.is_file():
            raise ToolError(f"{path} is not a file.")
        with path.open("rb") as file:
            image = read_image(file, path.name)
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror or error}.") from error
    if image is None:
        raise ToolError(f"{path.name} is not a PNG, JPEG, GIF or WebP image.")
    return image


def image_of(data: bytes, name: str) -> Image:
    """Return an image from its bytes; raises ToolError if providers would refuse it."""
    kind = media_type(data)
    if not kind:
        raise ToolError(f"{name} is not a PNG, JPEG, GIF or WebP image.")
    if len(data) > MAX_BYTES:
        raise _too_large(name, f"{len(data):,} bytes")
    size = _pixels(data, kind)
    if size is None or not _is_complete(data, kind):
        raise ToolError(f"{name} is damaged or cut off.")
    width, height = size
    if not width or not height:
        raise ToolError(f"{name} is empty: it has {width}×{height} pixels.")
    if max(size) > MAX_SIDE:
        raise ToolError(
            f"{name} has {width}×{height} pixels; an image may have {MAX_SIDE:,} on each side."
        )
    return Image(name, kind, base64.b64encode(data).decode(), width, height)


def image_of_base64(text: str, name: str) -> Image:
    """Return the image in a base64 string; raises ToolError."""
    if len(text) > MAX_BYTES * 4 // 3 + 4:
        raise _too_large(name, f"about {len(text) * 3 // 4:,} bytes")
    try:
        return image_of(base64.b64decode(text, validate=True), name)
    except ValueError as error:
        raise ToolError(f"{name} is damaged: {error}.") from error


def _too_large(name: str, size: str) -> ToolError:
    return ToolError(f"{name} has {size}; an image may have {MAX_BYTES:,}.")


def media_type(head: bytes) -> str:
    """Return the media type of an image that starts with these bytes; empty for other content."""
    if head.startswith(_PNG):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else ""


def _is_complete(data: bytes, kind: str) -> bool:
    match kind:
        case "image/png":
            return b"IEND" in data[-64:]
        case "image/jpeg":
            return b"\xff\xd9" in data[2:]
        case "image/webp":
            return len(data) >= struct.unpack("<I", data[4:8])[0] + 8
        case _:
            return True


def _pixels(data: bytes, kind: str) -> tuple[int, int] | None:
    """Return width and height from the header; None if it is damaged."""
    try:
        match kind:
            case "image/png":
                return struct.unpack(">II", data[16:24]) if data[12:16] == b"IHDR" else None
            case "image/gif":
                return struct.unpack("<HH", data[6:10])
            case "image/webp":
                return _webp_pixels(data)
            case _:
                return _jpeg_pixels(data)
    except (struct.error, IndexError):
        return None


def _webp_pixels(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack("<I", data[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
            return (width, height) if len(data) >= 30 else None
        case _:
            return None


def _jpeg_pixels(data: bytes) -> tuple[int, int] | None:
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker in _FRAME_MARKERS:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return None


def attached(image: Image) -> Attachment:
    """Return the image as an attachment of a question."""
    return Attachment(image.name, label(image), image)


def must_be_image(name: str) -> bool:
    """Whether a file of this name is an image or damaged."""
    return name.lower().endswith(_EXTENSIONS)


def pasted_paths(text: str) -> list[Path]:
    """Return the image files with absolute paths in a text, as terminals paste them: quoted, escaped or as URLs."""
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    return [path for word in words if (path := _image_path(word)) is not None]


def only_paths(text: str) -> list[Path]:
    """Return the image files in a text that contains nothing else; otherwise none."""
    paths = pasted_paths(text)
    return paths if paths and len(paths) == len(shlex.split(text)) else []


def _image_path(word: str) -> Path | None:
    if not must_be_image(word) or len(word) > _MAX_PATH_CHARACTERS:
        return None
    path = Path(unquote(urlsplit(word).path) if word.startswith("file://") else word)
    try:
        path = path.expanduser()
        return path if path.is_absolute() and path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None


# -- in messages


def label(image: Image) -> str:
    """Return the text form of an image: `[image photo.png 640×480]`."""
    return f"[image {image.name} {image.width}×{image.height}]"


def without_images(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages without their images; the text keeps the label of each."""
    return tuple(replace(message, images=()) if message.images else message for message in messages)


def within_limits(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with the newest images, as many as one request may have."""
    sizes = [len(image.data) for message in messages for image in message.images]
    if len(sizes) <= MAX_IMAGES and sum(sizes) <= _MAX_REQUEST_CHARACTERS:
        return messages
    count, room = 0, _MAX_REQUEST_CHARACTERS
    newest_first: list[Message] = []
    for message in reversed(messages):
        images: list[Image] = []
        for image in reversed(message.images):
            count, room = count + 1, room - len(image.data)
            images[:0] = [image] if count <= MAX_IMAGES and room >= 0 else []
        newest_first.append(replace(message, images=tuple(images)) if message.images else message)
    return newest_first[::-1]


def images_in(messages: Sequence[Message]) -> Iterator[Image]:
    """Iterate over all images of the messages."""
    return (image for message in messages for image in message.images)


# -- counting

_PIXELS_PER_TOKEN = 750
_MIN_TOKENS = 85
"""Tokens of the smallest image (OpenAI)."""
_MAX_TOKENS = 4_784
"""Tokens of the largest image, after the provider has reduced it (Anthropic)."""
_PATCH_SIDE = 28
"""Side in pixels of the area that Qwen and Anthropic count as one token."""
_TILE_SIDE = 256
"""Side in pixels of Gemini's smallest tile."""
_TILE_TOKENS = 258
_MIN_BOUND = 2_400
_MAX_BOUND = 16_384
_GPT_4O_MINI_BOUND = 48_500
"""GPT-4o mini counts 33 times as many: 2,833 tokens, and 5,667 for each of up to eight tiles."""


def image_tokens(image: Image) -> int:
    """Estimate the tokens of an image as Anthropic counts them."""
    return min(_MAX_TOKENS, max(_MIN_TOKENS, image.width * image.height // _PIXELS_PER_TOKEN))


def image_bound(image: Image, model: str = "") -> int:
    """Return the maximum tokens of an image, for any provider."""
    if "4o-mini" in model:
        return _GPT_4O_MINI_BOUND
    patches = 2 * -(-image.width // _PATCH_SIDE) * -(-image.height // _PATCH_SIDE)
    tiles = _TILE_TOKENS * -(-image.width // _TILE_SIDE) * -(-image.height // _TILE_SIDE)
    return min(_MAX_BOUND, max(_MIN_BOUND, patches, tiles))
