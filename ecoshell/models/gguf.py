"""The metadata of GGUF files, read without llama.cpp.

The layout follows `ggml/docs/gguf.md`, versions 2 and 3, little-endian. The package `gguf` is unsuitable: its reader
builds an array of all tokens before it returns the first value (8 s and 160 MB for the embedded model, against a
millisecond here), and it trusts the counts in damaged files.
"""

import math
import re
import struct
from pathlib import Path
from typing import BinaryIO

from ecoshell.errors import ModelBroken, ModelMissing
from ecoshell.models.hub_names import is_later_part, parts_of
from ecoshell.paths import is_special

MAGIC = b"GGUF"
FITTING_ADAPTER = "Name an adapter that was trained for this base, or the base it was trained for."

_PATH_FIX = "Give the path of a GGUF file: local:PATH.gguf"
_STRING, _ARRAY = 8, 9
_WHOLE = (4, 5, 10, 11)
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes by type
_MAX_ENTRIES = 64  # number of entries that are read; those needed precede the tokenizer
_MAX_TEXT = 1 << 16
_MAX_STRINGS = 1 << 22
_MAX_TENSORS = _MAX_METADATA = 1 << 18
_MAX_DIMENSIONS = 4
_MAX_BYTES = 1 << 40  # limits that no valid file exceeds
_SIZE_LABEL = re.compile(
    r"(?:(?P<experts>\d{1,6})x)?(?P<count>\d{1,6}(?:\.\d+)?)(?P<scale>[KMBT])(?:-.*)?"
)
_SCALES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
TRAINED_FOR = "ecoshell.trained_for"  # entry with the role that an adapter was trained for

Shape = tuple[int, ...]  # lengths of a tensor's dimensions, the fastest one first


def check_file(path: Path) -> None:
    """Raise ModelMissing or ModelBroken unless the path is a readable file with a GGUF header."""
    if is_special(path):
        raise ModelMissing(f"{path} is not a regular file.", fix=_PATH_FIX)
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except FileNotFoundError as error:
        raise ModelMissing(f"There is no file {path}.", fix=_PATH_FIX) from error
    except IsADirectoryError as error:
        fix = "Give the path of a GGUF file inside it."
        raise ModelMissing(f"{path} is a folder.", fix=fix) from error
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}."
        raise ModelMissing(text, fix="Check the file's permissions.") from error
    if magic != MAGIC:
        fix = "Download the GGUF version of the model."
        raise ModelBroken(f"{path} is not a GGUF file.", fix=fix)


def header(path: Path) -> dict[str, str]:
    """The strings and integers among the first metadata entries, as texts; reads a few kilobytes.

    Unreadable entries are skipped without an error.
    """
    texts: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            reader = _Reader(file)
            for _ in range(min(reader.entries, _MAX_ENTRIES)):
                key, kind = reader.text(), reader.number(4)
                if key.startswith("tokenizer."):
                    break
                if kind == _STRING:
                    texts[key] = reader.text()
                elif kind in _WHOLE:
                    texts[key] = str(reader.number(_SIZES[kind]))
                else:
                    reader.skip(kind)
    except (OSError, EOFError, ValueError):
        pass  # llama.cpp reports what is wrong when the file is loaded
    return texts


def parameters(path: Path) -> int | None:
    """Number of parameters, from the size label or else counted (0.3 s); None if unknown."""
    label = _SIZE_LABEL.fullmatch(header(path).get("general.size_label", ""))
    if label is None:
        return sum(map(math.prod, tensor_shapes(path).values())) or None
    return round(int(label["experts"] or 1) * float(label["count"]) * _SCALES[label["scale"]])


def size_of(path: Path) -> int:
    """Bytes of a model, including all present parts."""
    parts = (path.with_name(name) for name in parts_of(path.name))
    return sum(part.stat().st_size for part in parts if part.is_file())


def missing_parts(path: Path) -> list[Path]:
    """Missing parts of a split model, given its first part; llama.cpp expects them in the same folder."""
    return [part for name in parts_of(path.name) if not (part := path.with_name(name)).is_file()]


def check_base(path: Path) -> None:
    """Raise ModelMissing or ModelBroken if the file is not a complete base model in GGUF format."""
    check_file(path)
    if absent := missing_parts(path):
        parts = f"{path} is one of {len(parts_of(path.name))} parts of a model"
        raise ModelMissing(
            f"{parts}; {absent[0].name} is missing.",
            fix="Resume the download with: ecoshell models pull OWNER/REPO:QUANT",
        )
    if is_later_part(path.name):
        fix = f"Name {parts_of(path.name)[0]}."
        raise ModelMissing(f"{path} is not the first part of its model.", fix=fix)
    if header(path).get("general.type") == "adapter":
        fix = f"Name the model it was trained for first: local:BASE.gguf+{path}"
        raise ModelBroken(f"{path} is an adapter, not a model.", fix=fix)


def check_adapter(path: Path, base: Path) -> None:
    """Raise ModelMissing or ModelBroken if the file is not a LoRA adapter for this base's architecture."""
    check_file(path)
    adapter_header, expected = header(path), header(base).get("general.architecture")
    is_adapter = adapter_header.get("general.type") == "adapter"
    kind = adapter_header.get("adapter.type", "lora") if is_adapter else ""
    if kind != "lora":
        other = f" but one of type {kind}" if kind else ""
        text = f"{path} is not a LoRA adapter{other}."
        raise ModelBroken(text, fix="Name a LoRA adapter in GGUF form after the +.")
    architecture = adapter_header.get("general.architecture")
    if architecture != expected and architecture and expected:
        text = f"The adapter {path} is for models of architecture {architecture}"
        raise ModelBroken(f"{text}; {base} is of architecture {expected}.", fix=FITTING_ADAPTER)


def tensor_shapes(path: Path) -> dict[str, Shape]:
    """The shapes of a file's tensors by name; empty if the file is unreadable or one of several parts."""
    shapes: dict[str, Shape] = {}
    try:
        with path.open("rb") as file:
            reader = _Reader(file)
            for _ in range(reader.entries):
                key, kind = reader.text(), reader.number(4)
                if key != "split.count" or kind not in _SIZES:
                    reader.skip(kind)
                elif reader.number(_SIZES[kind]) > 1:
                    return {}
            for _ in range(reader.tensors):
                name, dimensions = reader.text(), reader.number(4)
                if dimensions > _MAX_DIMENSIONS:
                    raise ValueError(f"a tensor of {dimensions} dimensions")
                shapes[name] = struct.unpack(f"<{dimensions}Q", reader.take(8 * dimensions))
                reader.take(12)  # type and offset
    except (OSError, EOFError, ValueError):
        return {}  # llama.cpp reports what is wrong when the file is loaded
    return shapes


class _Reader:
    """Reads a file sequentially; raises EOFError at its end, and ValueError for implausible values."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        magic, version, self.tensors, self.entries = struct.unpack("<4sIQQ", self.take(24))
        is_supported = magic == MAGIC and version in (2, 3)
        if not is_supported or self.tensors > _MAX_TENSORS or self.entries > _MAX_METADATA:
            counts = f"{self.tensors} tensors and {self.entries} entries"
            raise ValueError(f"version {version} with {counts}")

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def text(self) -> str:
        length = self.number(8)
        if length > _MAX_TEXT:
            raise ValueError(f"a text of {length} bytes")
        return self.take(length).decode("utf-8", "replace")

    def skip(self, kind: int) -> None:
        """Skip one value without building objects from a vocabulary's texts."""
        count = 1
        if kind == _ARRAY:
            kind, count = self.number(4), self.number(8)
        if kind in _SIZES and count <= _MAX_BYTES:
            self._file.seek(_SIZES[kind] * count, 1)
        elif kind == _STRING and count <= _MAX_STRINGS:
            for _ in range(count):
                length = int.from_bytes(self._file.read(8), "little")
                if length > _MAX_TEXT:
                    raise ValueError(f"a text of {length} bytes")
                self._file.seek(length, 1)
        else:
            raise ValueError(f"{count} values of type {kind}")

    def take(self, length: int) -> bytes:
        data = self._file.read(length)
        if len(data) < length:
            raise EOFError
        return data
