"""The first metadata of a GGUF file, read without llama.cpp: what is in the file, and for which kind of model.

The layout is that of `ggml/docs/gguf.md`, versions 2 and 3, little-endian.
"""

import struct
from pathlib import Path
from typing import BinaryIO

from ecoshell.errors import ModelBroken
from ecoshell.models.gguf import MAGIC, check_file

_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value by its type."""
_MAX_ENTRIES = 64
"""What says what a file is stands before its tokenizer, among the first entries."""
_MAX_TEXT = 1 << 16


def header(path: Path) -> dict[str, str]:
    """The texts among the first entries of a file's metadata; what cannot be read is left out, and nothing raised."""
    texts: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            _read_into(texts, file)
    except (OSError, EOFError, ValueError):
        pass  # llama.cpp says what is wrong with such a file, if anybody loads it
    return texts


def is_adapter(path: Path) -> bool:
    """Whether the file is an adapter and not a model."""
    return header(path).get("general.type") == "adapter"


def model_files(folder: Path) -> list[Path]:
    """The GGUF files below a folder that are models: adapters are named behind one, and are none themselves."""
    return [file for file in sorted(folder.glob("**/*.gguf")) if file.is_file() and not is_adapter(file)]


def check_base(path: Path) -> None:
    """Raise ModelMissing or ModelBroken when the file is none of GGUF, or an adapter."""
    check_file(path)
    if is_adapter(path):
        raise ModelBroken(
            f"{path} is an adapter, not a model.",
            fix=f"Name the model it was trained for first: local:BASE.gguf+{path}",
        )


def check_adapter(path: Path, base: Path) -> None:
    """Raise ModelMissing or ModelBroken when the file is no LoRA adapter, or one for another kind of model."""
    check_file(path)
    own, wanted = header(path), header(base).get("general.architecture")
    kind = own.get("adapter.type", "lora") if own.get("general.type") == "adapter" else ""
    if kind != "lora":
        raise ModelBroken(
            f"{path} is not a LoRA adapter{f' but one of type {kind}' if kind else ''}.",
            fix="Name a LoRA adapter in GGUF form after the +.",
        )
    given = own.get("general.architecture")
    if given != wanted and given and wanted:
        raise ModelBroken(
            f"The adapter {path} is for models of architecture {given}; {base} is of architecture {wanted}.",
            fix="Name an adapter that was trained for this base, or the base it was trained for.",
        )


def _read_into(texts: dict[str, str], file: BinaryIO) -> None:
    magic, version, _, entries = struct.unpack("<4sIQQ", _bytes(file, 24))
    if magic != MAGIC or version not in (2, 3):
        return
    for _ in range(min(entries, _MAX_ENTRIES)):
        key, kind = _text(file), _number(file, 4)
        if key.startswith("tokenizer."):
            return
        if kind == _STRING:
            texts[key] = _text(file)
        elif kind == _ARRAY:
            _skip_array(file)
        else:
            _skip_values(file, kind, 1)


def _skip_array(file: BinaryIO) -> None:
    kind, length = _number(file, 4), _number(file, 8)
    if kind != _STRING:
        _skip_values(file, kind, length)
        return
    for _ in range(length):
        _text(file)


def _skip_values(file: BinaryIO, kind: int, count: int) -> None:
    if kind not in _SIZES:
        raise ValueError(f"a value of type {kind}")
    file.seek(_SIZES[kind] * count, 1)


def _text(file: BinaryIO) -> str:
    length = _number(file, 8)
    if length > _MAX_TEXT:
        raise ValueError(f"a text of {length} bytes")
    return _bytes(file, length).decode("utf-8", "replace")


def _number(file: BinaryIO, size: int) -> int:
    return int.from_bytes(_bytes(file, size), "little")


def _bytes(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) < length:
        raise EOFError
    return data
