"""What stands before the weights of a GGUF file, read without llama.cpp: for which kind of model it is, of what sizes.

The layout is that of `ggml/docs/gguf.md`, versions 2 and 3, little-endian.
"""

import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from ecoshell.errors import ModelBroken, ModelMissing
from ecoshell.models.gguf import FITTING_ADAPTER, MAGIC, check_file, unfit_adapter
from ecoshell.models.hub_names import is_later_part, parts_of

_STRING, _ARRAY = 8, 9
_WHOLE = (4, 5, 10, 11)
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value by its type."""
_MAX_ENTRIES = 64
"""What says what a file is stands before its tokenizer, among the first entries."""
_MAX_TEXT = 1 << 16
_MAX_STRINGS = 1 << 22
_MAX_TENSORS = _MAX_METADATA = 1 << 18
_MAX_DIMENSIONS = 4
_MAX_BYTES = 1 << 40
"""Bounds beyond which no file goes that is what it says it is."""
_SIZE_LABEL = re.compile(r"(?:(?P<experts>\d+)x)?(?P<count>\d+(?:\.\d+)?)(?P<scale>[KMBT])(?:-.*)?")
_SCALES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_LORA_A, _LORA_B = ".lora_a", ".lora_b"
_FLIPPED = "token_embd.weight"
"""The end of the name of a matrix whose two factors change places (llama.cpp, `llama-adapter.cpp`)."""

Shape = tuple[int, ...]
"""Lengths of a tensor's dimensions, the fastest one first."""


def header(path: Path) -> dict[str, str]:
    """The texts and whole numbers among the first entries of a file's metadata, as texts; reads some kilobytes.

    What cannot be read is left out, and nothing raised.
    """
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


def parameters(path: Path) -> int | None:
    """How many weights a model has: as its size label says, else counted (0.3 s); None where neither can be told."""
    label = _SIZE_LABEL.fullmatch(header(path).get("general.size_label", ""))
    if label is None:
        return sum(map(math.prod, tensor_shapes(path).values())) or None
    return round(int(label["experts"] or 1) * float(label["count"]) * _SCALES[label["scale"]])


def missing_parts(path: Path) -> list[Path]:
    """The files that a model in several parts lacks, by its first; llama.cpp finds them beside it by their names."""
    return [part for name in parts_of(path.name) if not (part := path.with_name(name)).is_file()]


def check_base(path: Path) -> None:
    """Raise ModelMissing or ModelBroken when the file is none of GGUF, an adapter, or a part that lacks others."""
    check_file(path)
    if absent := missing_parts(path):
        raise ModelMissing(
            f"{path} is one part of a model of {len(parts_of(path.name))}, and {absent[0].name} is not beside it.",
            fix="Pull the model again, which goes on where it stopped: ecoshell models pull OWNER/REPO:QUANT",
        )
    if is_later_part(path.name):
        raise ModelMissing(f"{path} is not the first part of its model.", fix=f"Name {parts_of(path.name)[0]}.")
    if is_adapter(path):
        raise ModelBroken(
            f"{path} is an adapter, not a model.",
            fix=f"Name the model it was trained for first: local:BASE.gguf+{path}",
        )


def check_adapter(path: Path, base: Path) -> None:
    """Raise ModelMissing or ModelBroken when the file is no LoRA adapter, or one for another model than this base.

    Reads what stands before the weights of both, so may block (0.1 s where the base has a large vocabulary).
    """
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
            fix=FITTING_ADAPTER,
        )
    if misfit := _misfit(tensor_shapes(path), tensor_shapes(base)):
        raise unfit_adapter(path, base, misfit)


def tensor_shapes(path: Path) -> dict[str, Shape]:
    """The shapes of a file's tensors by their names; empty where it cannot be read or is one part of several."""
    shapes: dict[str, Shape] = {}
    try:
        with path.open("rb") as file:
            tensors, entries = _counts(file)
            if not any(_passes_split(file) for _ in range(entries)):
                for _ in range(tensors):
                    name = _text(file)
                    shapes[name] = _shape(file)
    except (OSError, EOFError, ValueError):
        return {}  # llama.cpp says what is wrong with such a file, if anybody loads it
    return shapes


def _misfit(adapter: Mapping[str, Shape], base: Mapping[str, Shape]) -> str:
    """Where an adapter's matrices are not of the base's sizes; empty where they are, or the base's are not known."""
    pairs = [(name.removesuffix(_LORA_A), shape) for name, shape in adapter.items() if name.endswith(_LORA_A)]
    for name, a in pairs if base else []:
        b = adapter.get(name + _LORA_B, ())
        if len(a) < 2 or len(b) < 2:
            continue
        if name not in base:
            return f"it changes {name}, which is not there"
        made = (b[1], a[1]) if name.endswith(_FLIPPED) else (a[0], b[1])
        if made != base[name][:2]:
            return f"it changes {name} as if that were {_sizes(made)}, and it is {_sizes(base[name])}"
    return ""


def _sizes(shape: Shape) -> str:
    return " × ".join(map(str, shape))


def _read_into(texts: dict[str, str], file: BinaryIO) -> None:
    _, entries = _counts(file)
    for _ in range(min(entries, _MAX_ENTRIES)):
        key, kind = _text(file), _number(file, 4)
        if key.startswith("tokenizer."):
            return
        if kind == _STRING:
            texts[key] = _text(file)
        elif kind in _WHOLE:
            texts[key] = str(_number(file, _SIZES[kind]))
        else:
            _skip(file, kind)


def _counts(file: BinaryIO) -> tuple[int, int]:
    """How many tensors and entries of metadata the file says it has, read from its beginning."""
    magic, version, tensors, entries = struct.unpack("<4sIQQ", _bytes(file, 24))
    if magic != MAGIC or version not in (2, 3) or tensors > _MAX_TENSORS or entries > _MAX_METADATA:
        raise ValueError(f"version {version} with {tensors} tensors and {entries} entries")
    return tensors, entries


def _passes_split(file: BinaryIO) -> bool:
    """Go past one entry of the metadata; whether it says that the file is one part of several."""
    key, kind = _text(file), _number(file, 4)
    if key == "split.count" and kind in _SIZES:
        return _number(file, _SIZES[kind]) > 1
    _skip(file, kind)
    return False


def _shape(file: BinaryIO) -> Shape:
    """One tensor's shape; its type and place are passed over."""
    dimensions = _number(file, 4)
    if dimensions > _MAX_DIMENSIONS:
        raise ValueError(f"a tensor of {dimensions} dimensions")
    shape = struct.unpack(f"<{dimensions}Q", _bytes(file, 8 * dimensions))
    _bytes(file, 12)
    return shape


def _skip(file: BinaryIO, kind: int) -> None:
    """Go past one value."""
    if kind == _STRING:
        _skip_texts(file, 1)
    elif kind != _ARRAY:
        _skip_values(file, kind, 1)
    else:
        kind, length = _number(file, 4), _number(file, 8)
        if kind == _STRING:
            _skip_texts(file, length)
        else:
            _skip_values(file, kind, length)


def _skip_texts(file: BinaryIO, count: int) -> None:
    """Go past texts, which are as many as a vocabulary has tokens: nothing is made of them."""
    if count > _MAX_STRINGS:
        raise ValueError(f"{count} texts")
    for _ in range(count):
        length = int.from_bytes(file.read(8), "little")
        if length > _MAX_TEXT:
            raise ValueError(f"a text of {length} bytes")
        file.seek(length, 1)


def _skip_values(file: BinaryIO, kind: int, count: int) -> None:
    if kind not in _SIZES or count > _MAX_BYTES:
        raise ValueError(f"{count} values of type {kind}")
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
