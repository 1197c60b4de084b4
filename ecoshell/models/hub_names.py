"""Names of models on a hub: `hf:OWNER/REPO:QUANT`, and which of a repository's GGUF files such a name means."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from ecoshell.errors import ModelMissing, UsageError

HUB = "hf:"
_PREFIX = re.compile(r"(?:hf:|(?:https?://)?(?:huggingface\.co|hf\.co)/)", re.IGNORECASE)
_NAME = re.compile(r"([\w.-]+)/([\w.-]+?)(?::([\w./ -]+))?/?", re.ASCII)
_PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-_.])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP\d\w*|BF16|FP?(?:16|32)))(?=(?:-\d{5}-of-\d{5})?\.gguf$)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"(?:^|[-_.])(?:mmproj|imatrix)(?:[-_.]|$)", re.IGNORECASE)
"""Files beside a model: the eyes of one that sees, and what a quantisation was made with."""
_USUAL = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0")
"""What is taken where no quantisation is named, the first that is there: small, and hardly worse than the original."""
_EXAMPLE = "OWNER/REPO or OWNER/REPO:QUANT, such as bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M"


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
    fitting = _fitting(name, whole)
    kinds = {_without_part(file).lower() for file in fitting}
    if len(kinds) > 1:
        raise UsageError(
            f"{name.short} could be any of {len(kinds)} files: {_some(sorted(fitting))}.",
            fix=f"Name the file: {name.repo}:{PurePosixPath(fitting[0]).name}",
        )
    return min(map(parts_of, fitting), key=len)


def _fitting(name: HubName, models: list[str]) -> list[str]:
    wanted = name.quant.lower()
    if wanted:
        named = [file for file in models if wanted in (file.lower(), PurePosixPath(file).name.lower())]
        found = named or [file for file in models if quant_of(file).lower() == wanted]
        if not found:
            there = sorted({quant_of(file) or PurePosixPath(file).name for file in models})
            first = next((quant for quant in _USUAL if quant in there), there[0])
            raise ModelMissing(
                f"{name.repo} has no {name.quant}; there is {_some(there)}.",
                fix=f"Take {HubName(name.repo, first).short}",
            )
        return found
    for quant in _USUAL:
        if found := [file for file in models if quant_of(file) == quant]:
            return found
    return models


def _without_part(file: str) -> str:
    """The name that all parts, and the whole, have in common."""
    return _PART.sub("", PurePosixPath(file).name)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown
