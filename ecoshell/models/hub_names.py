"""Names of models on a hub, `hf:OWNER/REPO:QUANT`, and the GGUF files that they select."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from ecoshell.errors import ModelMissing, UsageError

HUB = "hf:"
_PREFIX = re.compile(r"(?:hf:|(?:https?://)?(?:huggingface\.co|hf\.co)/)", re.IGNORECASE)
_NAME = re.compile(r"([\w.-]+)/([\w.-]+?)(?::([\w./ -]+))?/?", re.ASCII)
_PART = re.compile(r"-(\d{5})-of-(?!0{5})(\d{5})(?=\.gguf$)", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-_.])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP\d\w*|BF16|FP?(?:16|32)))(?=(?:-\d{5}-of-\d{5})?\.gguf$)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"(?:^|[-_.])(?:mmproj|imatrix)(?:[-_.]|$)", re.IGNORECASE)
"""Files that are not models: vision projectors and importance matrices."""
_USUAL = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0")  # defaults, the best first
_EXAMPLE = "OWNER/REPO or OWNER/REPO:QUANT, such as bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M"


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository and optionally one of its quantisations or files; `str` gives the model's name."""

    repo: str  # OWNER/REPO
    quant: str = ""

    def __str__(self) -> str:
        return f"{HUB}{self.short}"

    @property
    def short(self) -> str:
        """The name for `ecoshell models pull`."""
        return f"{self.repo}:{self.quant}" if self.quant else self.repo


def hub_name(text: str) -> HubName:
    """Parse a name or the pasted URL of a repository; raises UsageError."""
    name = _PREFIX.sub("", text.strip(), count=1)
    parts = _NAME.fullmatch(name)
    if parts is None or {parts[1], parts[2]} & {".", ".."}:
        raise UsageError(f"{text!r} names no repository.", fix=f"Give {_EXAMPLE}.")
    return HubName(f"{parts[1]}/{parts[2]}", (parts[3] or "").strip())


def quant_of(file: str) -> str:
    """The quantisation in a file's name, in capitals, or an empty text."""
    match = _QUANT.search(file)
    return match[1].upper() if match else ""


def parts_of(file: str) -> tuple[str, ...]:
    """The names of all parts of a split model, from the name of one part; for other models the name itself."""
    match = _PART.search(file)
    if match is None:
        return (file,)
    start, count = file[: match.start()], int(match[2])
    return tuple(f"{start}-{number:05d}-of-{match[2]}.gguf" for number in range(1, count + 1))


def is_later_part(file: str) -> bool:
    """Whether the file is a part of a split model other than the first."""
    match = _PART.search(file)
    return match is not None and int(match[1]) != 1


def model_of(name: HubName, files: Iterable[str]) -> tuple[str, ...]:
    """The model's file or parts that a name selects among a repository's files.

    Raises ModelMissing without a match and UsageError if the name is ambiguous; both list the available names.
    """
    gguf_files = sorted({file for file in files if file.lower().endswith(".gguf")})
    models = [file for file in gguf_files if not is_later_part(file) and not _is_no_model(file)]
    complete = [file for file in models if set(parts_of(file)) <= set(gguf_files)]
    if not models:
        fix = "Look for a repository of the same model whose name ends in -GGUF."
        raise ModelMissing(f"{name.repo} has no GGUF file.", fix=fix)
    if not complete:
        text = f"{name.repo} has only some parts of its model."
        raise ModelMissing(text, fix="Choose another repository.")
    quant = name.quant.lower()
    if quant:
        by_file = [file for file in complete if quant in _names_of(file)]
        matching = by_file or [file for file in complete if quant_of(file).lower() == quant]
        if not matching:
            gguf_files = sorted({quant_of(file) or PurePosixPath(file).name for file in complete})
            first = next((quant for quant in _USUAL if quant in gguf_files), gguf_files[0])
            text = f"{name.repo} has no {name.quant}. Available: {_some(gguf_files)}."
            raise ModelMissing(text, fix=f"Use {HubName(name.repo, first).short}")
    else:
        usual = ([file for file in complete if quant_of(file) == quant] for quant in _USUAL)
        matching = next(filter(None, usual), complete)
    # Parts count as one file.
    kinds = {_PART.sub("", PurePosixPath(file).name).lower() for file in matching}
    if len(kinds) > 1:
        raise UsageError(
            f"{name.short} could be any of {len(kinds)} files: {_some(sorted(matching))}.",
            fix=f"Name the file: {name.repo}:{PurePosixPath(matching[0]).name}",
        )
    return min(map(parts_of, matching), key=len)


def _names_of(file: str) -> tuple[str, str]:
    return file.lower(), PurePosixPath(file).name.lower()


def _is_no_model(file: str) -> bool:
    return _NO_MODEL.search(PurePosixPath(file).name) is not None


def _some(names: list[str]) -> str:
    listing = ", ".join(names[:12])
    return f"{listing} and {len(names) - 12} more" if len(names) > 12 else listing
