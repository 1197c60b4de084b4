"""GGUF files: what they are called on a hub, and what stands before their weights, read without llama.cpp.

Names are `hf:OWNER/REPO:QUANT`. The layout is that of `ggml/docs/gguf.md`, versions 2 and 3, little-endian. The package
`gguf` is no help here: its reader makes an array of every token before it gives the first value (8 s and 160 MB for the
embedded model, where this takes a millisecond), and counts in a damaged file as far as that says.
"""

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ecoshell.errors import ModelBroken, ModelMissing, UsageError
from ecoshell.paths import is_special

MAGIC = b"GGUF"
FITTING_ADAPTER = "Name an adapter that was trained for this base, or the base it was trained for."

HUB = "hf:"
_PREFIX = re.compile(r"(?:hf:|(?:https?://)?(?:huggingface\.co|hf\.co)/)", re.IGNORECASE)
_NAME = re.compile(r"([\w.-]+)/([\w.-]+?)(?::([\w./ -]+))?/?", re.ASCII)
_PART = re.compile(r"-(\d{5})-of-(?!0{5})(\d{5})(?=\.gguf$)", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-_.])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP\d\w*|BF16|FP?(?:16|32)))(?=(?:-\d{5}-of-\d{5})?\.gguf$)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"(?:^|[-_.])(?:mmproj|imatrix)(?:[-_.]|$)", re.IGNORECASE)
"""Files beside a model: the eyes of one that sees, and what a quantisation was made with."""
_USUAL = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0")
"""What is taken where no quantisation is named, the first that is there: small, and hardly worse than the original."""
_EXAMPLE = "OWNER/REPO or OWNER/REPO:QUANT, such as bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M"

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
_SIZE_LABEL = re.compile(r"(?:(?P<experts>\d{1,6})x)?(?P<count>\d{1,6}(?:\.\d+)?)(?P<scale>[KMBT])(?:-.*)?")
_SCALES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
TRAINED_FOR = "ecoshell.trained_for"
"""The entry in which an adapter that `ecoshell train` made says for which role."""
_LORA_A, _LORA_B = ".lora_a", ".lora_b"
_FLIPPED = "token_embd.weight"
"""The end of the name of a matrix whose two factors change places (llama.cpp, `llama-adapter.cpp`)."""

Shape = tuple[int, ...]
"""Lengths of a tensor's dimensions, the fastest one first."""


# -- names


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository and, where it is named, a quantisation or a file of it; written out it is a model's name."""

    repo: str
    """OWNER/REPO."""
    quant: str = ""

    def __str__(self) -> str:
        return f"{HUB}{self.short}"

    @property
    def short(self) -> str:
        """The name as `ecoshell models pull` takes it."""
        return f"{self.repo}:{self.quant}" if self.quant else self.repo


def hub_name(text: str) -> HubName:
    """What a name or a pasted address of a repository means; raises UsageError."""
    rest = _PREFIX.sub("", text.strip(), count=1)
    parts = _NAME.fullmatch(rest)
    if parts is None or {parts[1], parts[2]} & {".", ".."}:
        raise UsageError(f"{text!r} names no repository.", fix=f"Give {_EXAMPLE}.")
    return HubName(f"{parts[1]}/{parts[2]}", (parts[3] or "").strip())


def quant_of(file: str) -> str:
    """The quantisation in a file's name, in capitals; empty where there is none."""
    found = _QUANT.search(file)
    return found[1].upper() if found else ""


def parts_of(file: str) -> tuple[str, ...]:
    """The files that a model in several parts has, by the name of one of them; of a whole model the file alone."""
    found = _PART.search(file)
    if found is None:
        return (file,)
    count = int(found[2])
    return tuple(f"{file[: found.start()]}-{number:05d}-of-{found[2]}.gguf" for number in range(1, count + 1))


def is_later_part(file: str) -> bool:
    """Whether the file goes on where another one ends."""
    found = _PART.search(file)
    return found is not None and int(found[1]) != 1


def model_of(name: HubName, files: Iterable[str]) -> tuple[str, ...]:
    """The file, or the parts of the model, that a name means among a repository's files.

    Raises ModelMissing where there is none, UsageError where it could be several, both with the names there are.
    """
    there = sorted({file for file in files if file.lower().endswith(".gguf")})
    models = [file for file in there if not is_later_part(file) and not _NO_MODEL.search(PurePosixPath(file).name)]
    whole = [file for file in models if set(parts_of(file)) <= set(there)]
    if not models:
        raise ModelMissing(
            f"{name.repo} has no GGUF file.",
            fix="Look for a repository of the same model whose name ends in -GGUF; others cannot be run here.",
        )
    if not whole:
        raise ModelMissing(f"{name.repo} has only some parts of its model.", fix="Choose another repository.")
    wanted = name.quant.lower()
    if wanted:
        named = [file for file in whole if wanted in (file.lower(), PurePosixPath(file).name.lower())]
        fitting = named or [file for file in whole if quant_of(file).lower() == wanted]
        if not fitting:
            there = sorted({quant_of(file) or PurePosixPath(file).name for file in whole})
            first = next((quant for quant in _USUAL if quant in there), there[0])
            raise ModelMissing(
                f"{name.repo} has no {name.quant}; there is {_some(there)}.",
                fix=f"Take {HubName(name.repo, first).short}",
            )
    else:
        usual = ([file for file in whole if quant_of(file) == quant] for quant in _USUAL)
        fitting = next(filter(None, usual), whole)
    kinds = {_PART.sub("", PurePosixPath(file).name).lower() for file in fitting}  # all parts are of one, as the whole
    if len(kinds) > 1:
        raise UsageError(
            f"{name.short} could be any of {len(kinds)} files: {_some(sorted(fitting))}.",
            fix=f"Name the file: {name.repo}:{PurePosixPath(fitting[0]).name}",
        )
    return min(map(parts_of, fitting), key=len)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown


# -- what a file is


def check_file(path: Path) -> None:
    """Raise ModelMissing or ModelBroken unless the path is a readable file that starts as a GGUF file does."""
    if is_special(path):
        raise ModelMissing(f"{path} is not a regular file.", fix="Give the path of a GGUF file: local:PATH.gguf")
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except FileNotFoundError as error:
        raise ModelMissing(f"There is no file {path}.", fix="Give the path of a GGUF file: local:PATH.gguf") from error
    except IsADirectoryError as error:
        raise ModelMissing(f"{path} is a folder.", fix="Give the path of a GGUF file inside it.") from error
    except OSError as error:
        raise ModelMissing(f"{path} cannot be read: {error.strerror}.", fix="Check the file's permissions.") from error
    if magic != MAGIC:
        raise ModelBroken(f"{path} is not a GGUF file.", fix="Download the GGUF version of the model.")


def header(path: Path) -> dict[str, str]:
    """The texts and whole numbers among the first entries of a file's metadata, as texts; reads some kilobytes.

    What cannot be read is left out, and nothing raised.
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
        pass  # llama.cpp says what is wrong with such a file, if anybody loads it
    return texts


def parameters(path: Path) -> int | None:
    """How many weights a model has: as its size label says, else counted (0.3 s); None where neither can be told."""
    label = _SIZE_LABEL.fullmatch(header(path).get("general.size_label", ""))
    if label is None:
        return sum(map(math.prod, tensor_shapes(path).values())) or None
    return round(int(label["experts"] or 1) * float(label["count"]) * _SCALES[label["scale"]])


def size_of(path: Path) -> int:
    """Bytes of a model: of all its parts that are there, where it is split."""
    parts = (path.with_name(name) for name in parts_of(path.name))
    return sum(part.stat().st_size for part in parts if part.is_file())


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
    if header(path).get("general.type") == "adapter":
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
    adapted, known = tensor_shapes(path), tensor_shapes(base)
    firsts = [(name.removesuffix(_LORA_A), shape) for name, shape in adapted.items() if name.endswith(_LORA_A)]
    for name, a in firsts if known else []:
        b = adapted.get(name + _LORA_B, ())
        if len(a) < 2 or len(b) < 2:
            continue
        if name not in known:
            raise unfit_adapter(path, base, f"it changes {name}, which is not there")
        made, there = (b[1], a[1]) if name.endswith(_FLIPPED) else (a[0], b[1]), known[name]
        if made != there[:2]:
            sizes = [" × ".join(map(str, shape)) for shape in (made, there)]
            raise unfit_adapter(path, base, f"it changes {name} as if that were {sizes[0]}, and it is {sizes[1]}")


def tensor_shapes(path: Path) -> dict[str, Shape]:
    """The shapes of a file's tensors by their names; empty where it cannot be read or is one part of several."""
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
                reader.take(12)  # its type and place
    except (OSError, EOFError, ValueError):
        return {}  # llama.cpp says what is wrong with such a file, if anybody loads it
    return shapes


def unfit_adapter(path: Path, base: Path, reason: str) -> ModelBroken:
    """The error for an adapter of another base."""
    return ModelBroken(f"The adapter {path} does not fit {base}: {reason}.", fix=FITTING_ADAPTER)


class _Reader:
    """Reads a file from its beginning; raises EOFError where it ends, and ValueError for what no file has."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        magic, version, self.tensors, self.entries = struct.unpack("<4sIQQ", self.take(24))
        if magic != MAGIC or version not in (2, 3) or self.tensors > _MAX_TENSORS or self.entries > _MAX_METADATA:
            raise ValueError(f"version {version} with {self.tensors} tensors and {self.entries} entries")

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def text(self) -> str:
        length = self.number(8)
        if length > _MAX_TEXT:
            raise ValueError(f"a text of {length} bytes")
        return self.take(length).decode("utf-8", "replace")

    def skip(self, kind: int) -> None:
        """Go past one value; nothing is made of a vocabulary's texts."""
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
