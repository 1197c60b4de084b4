"""What images and names providers accept."""

import base64
import binascii

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
IMAGE_TOKENS = 258
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def sniffed_type(data: bytes) -> str | None:
    """The media type that the bytes themselves say."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for beginning, kind in _BEGINNINGS if data.startswith(beginning)), None)


def decoded(data: str) -> bytes | None:
    """The bytes of base64 text; None if it is not base64."""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        return None


def data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 text of a data URL."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    return head[len("data:") : -len(";base64")], data
