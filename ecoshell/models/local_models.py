"""Local models: what their names stand for, and the GGUF files on this machine.

Names are `embedded`, `embedded-base`, `local:BASE.gguf`, the first or the last with `+ADAPTER.gguf`, and `hf:…`. Files
are the user's own, and those that other programs keep: Hugging Face's hub cache (`HF_HUB_CACHE`, `HF_HOME`), LM
Studio's folders, llama.cpp's cache (`LLAMA_CACHE`), and Ollama's blobs, which its manifests name (`OLLAMA_MODELS`).
Nothing is written there.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ecoshell.errors import EcoshellError, ModelMissing, UsageError
from ecoshell.models.embedded import BASE, embedded_adapter, embedded_path
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.gguf import (
    HUB,
    MAGIC,
    HubName,
    header,
    hub_name,
    is_later_part,
    missing_parts,
    model_of,
    quant_of,
    size_of,
)
from ecoshell.paths import expanded, user_paths

LOCAL = "local:"
_PLUS = "+"
_ADAPTED = re.compile(rf"({EMBEDDED}|{LOCAL}.*?\.(?i:gguf))\+(.*)", re.DOTALL)

OWN = "models folder"
_OLLAMA_MODEL = "application/vnd.ollama.image.model"
"""The kind of a manifest's layer that is a GGUF file."""
_OLLAMA_LIBRARY = ("registry.ollama.ai", "library")
"""Where the manifests of models stand whose names begin with no host and no owner."""
_LARGEST_MANIFEST = 1 << 20
_NO_CHAT = frozenset({"bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "t5encoder", "clip", "wavtokenizer-dec"})
"""Architectures of files that stand beside models one can talk with: embeddings, and the eyes of one that sees."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model in a GGUF file; unknown is None."""

    path: Path
    """The file, or the first of its parts."""
    place: str
    """Whose it is, and what it is called there: `hub cache`, `Ollama: qwen3:4b`."""
    hub: HubName | None = None
    """What it is called on a hub, where its place says so."""
    size_bytes: int | None = None
    context: int | None = None
    """The context it was trained with, in tokens."""
    missing: tuple[Path, ...] = ()
    """Parts that are not there."""


# -- names


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of a local model; whether they exist is not said."""

    base: Path
    adapter: Path | None = None


def is_local(name: str) -> bool:
    """Whether the name is of a model that runs in this process."""
    return is_embedded(name) or name.startswith((LOCAL, HUB))


def local_name(file: ModelFile) -> str:
    """What a model is called that is in a file."""
    return str(file.hub) if file.hub and not file.missing else f"{LOCAL}{file.path}"


def is_embedded(name: str) -> bool:
    """Whether the name is of the embedded model, with an adapter or without."""
    return name in (EMBEDDED, BASE) or name.startswith(EMBEDDED + _PLUS)


def name_parts(name: str) -> tuple[str, str]:
    """A model's name and the file of its adapter, as the name reads; empty where it has none. No file is looked for."""
    parts = _ADAPTED.fullmatch(name)
    return (parts[1], parts[2]) if parts and parts[2] else (name, "")


def local_files(name: str, folder: Path | None = None) -> LocalFiles | None:
    """The files a name stands for, None where it is no local model's; raises ModelMissing and UsageError.

    What `hf:OWNER/REPO:QUANT` stands for is looked for in the folder that it is pulled to (None is the user's), and in
    the hub's cache. The base ends at the first `.gguf+`; a `+` elsewhere belongs to a file's name.
    """
    if name in (EMBEDDED, BASE):
        return LocalFiles(embedded_path(), embedded_adapter() if name == EMBEDDED else None)
    if name.startswith(HUB):
        return LocalFiles(hub_file(hub_name(name), folder or user_paths().models_folder))
    if not is_local(name):
        return None
    if name.endswith(_PLUS) and _ADAPTED.fullmatch(name):
        raise UsageError(f"{name} names no adapter after the +.", fix=f"Write {name}ADAPTER.gguf, or leave the + out.")
    model, adapter = name_parts(name)
    base = embedded_path() if model == EMBEDDED else expanded(model.removeprefix(LOCAL))
    return LocalFiles(base, expanded(adapter) if adapter else None)


# -- places


def model_files(folder: Path, environ: Mapping[str, str] | None = None) -> list[ModelFile]:
    """The models there are, each once, those below the user's own folder first; reads some kilobytes of each file."""
    environ = os.environ if environ is None else environ
    found: dict[Path, ModelFile] = {}
    for place in (_own(folder), _hub_cache(environ), _other_caches(environ), _ollama(environ)):
        for path, name, hub in place:
            real = path.resolve()
            if real not in found and (model := _model(path, name, hub)):
                found[real] = model
    return list(found.values())


def hub_file(name: HubName, folder: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The file of a model that was pulled, here or by a program that uses the hub's cache.

    Raises ModelMissing, which says how to pull it, and UsageError where the name could mean several files.
    """
    environ = os.environ if environ is None else environ
    cached = _hub_folder(environ) / f"models--{name.repo.replace('/', '--')}"
    for root in (pulled_folder(name, folder), *_snapshots(cached)):
        try:
            return root / _first(name, root)
        except ModelMissing:
            continue
    raise ModelMissing(
        f"{name} is not on this machine.", fix=f"Bring it here with: ecoshell models pull {name.short}", billed=False
    )


def pulled_folder(name: HubName, folder: Path) -> Path:
    """Where the files of a repository are put, below the user's own folder."""
    return folder.joinpath(*name.repo.split("/"))


_Found = Iterator[tuple[Path, str, HubName | None]]


def _model(path: Path, place: str, hub: HubName | None) -> ModelFile | None:
    """What is known of a file; None where it is no model that one can talk with."""
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return None
        size = size_of(path)
    except OSError:
        return None
    facts = header(path)
    architecture = facts.get("general.architecture", "")
    if facts.get("general.type", "model") in ("adapter", "mmproj") or architecture in _NO_CHAT:
        return None
    context = facts.get(f"{architecture}.context_length")
    return ModelFile(path, place, hub, size, int(context) if context else None, tuple(missing_parts(path)))


def _own(folder: Path) -> _Found:
    for file in _gguf_below(folder):
        inside = file.relative_to(folder).parts
        root = folder.joinpath(*inside[:2])
        yield file, OWN, _hub_name("/".join(inside[:2]), file, root) if len(inside) > 2 else None


def _hub_cache(environ: Mapping[str, str]) -> _Found:
    for repo in _listed(_hub_folder(environ)):
        kind, _, rest = repo.name.partition("--")
        owner, _, name = rest.partition("--")
        if kind == "models" and name:
            for at, snapshot in enumerate(_snapshots(repo)):
                for file in _gguf_below(snapshot):
                    yield file, "hub cache", _hub_name(f"{owner}/{name}", file, snapshot) if at == 0 else None


def _hub_name(repo: str, file: Path, root: Path) -> HubName | None:
    """What a file below a repository's folder is called on the hub; None where the name would mean another one."""
    name = HubName(repo, quant_of(file.name) or file.name)
    try:
        return name if root / _first(name, root) == file else None
    except EcoshellError:
        return None


def _first(name: HubName, root: Path) -> str:
    return model_of(name, (file.relative_to(root).as_posix() for file in _files_below(root)))[0]


def _other_caches(environ: Mapping[str, str]) -> _Found:
    """Of LM Studio, and then of llama.cpp."""
    home = _home(environ)
    homes = [home / ".lmstudio", home / ".cache" / "lm-studio"]
    if told := _text(home / ".lmstudio-home-pointer").strip():  # where the person moved it to
        homes.insert(0, Path(told))
    if told := environ.get("LLAMA_CACHE"):
        cache = Path(told)
    elif sys.platform == "darwin":
        cache = home / "Library" / "Caches" / "llama.cpp"
    else:
        cache = _cache_home(environ) / "llama.cpp"
    for folder, place in (*((one / "models", "LM Studio") for one in homes), (cache, "llama.cpp")):
        for file in _gguf_below(folder):
            yield file, place, None


def _ollama(environ: Mapping[str, str]) -> _Found:
    own = Path(told) if (told := environ.get("OLLAMA_MODELS")) else _home(environ) / ".ollama" / "models"
    for folder in dict.fromkeys((own, Path("/usr/share/ollama/.ollama/models"))):  # the service has a home of its own
        manifests = folder / "manifests"
        for manifest in _files_below(manifests):
            try:
                layers = json.loads(_text(manifest))["layers"]
                digests = [layer["digest"] for layer in layers if layer["mediaType"] == _OLLAMA_MODEL]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            digest = digests[0] if digests else None
            if not isinstance(digest, str) or not digest.startswith("sha256:"):
                continue
            if not digest.removeprefix("sha256:").isalnum():
                continue
            *before, name, tag = manifest.relative_to(manifests).parts  # as Ollama says it: without its own library
            for usual in _OLLAMA_LIBRARY:
                if before and before[0] == usual:
                    before = before[1:]
            yield folder / "blobs" / digest.replace(":", "-"), f"Ollama: {'/'.join((*before, f'{name}:{tag}'))}", None


def _hub_folder(environ: Mapping[str, str]) -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if told := environ.get(variable):
            return expanded(told)
    home = environ.get("HF_HOME")
    return (expanded(home) if home else _cache_home(environ) / "huggingface") / "hub"


def _snapshots(repo: Path) -> list[Path]:
    """The revisions of a cached repository, the one that `main` was last seen at first."""
    main = _text(repo / "refs" / "main").strip()
    return sorted(_listed(repo / "snapshots"), key=lambda folder: (folder.name != main, folder.name))


def _cache_home(environ: Mapping[str, str]) -> Path:
    told = environ.get("XDG_CACHE_HOME")
    return Path(told) if told else _home(environ) / ".cache"


def _home(environ: Mapping[str, str]) -> Path:
    told = environ.get("HOME") or environ.get("USERPROFILE")
    return Path(told) if told else Path.home()


def _gguf_below(folder: Path) -> Iterator[Path]:
    return (file for file in _files_below(folder) if file.suffix.lower() == ".gguf" and not is_later_part(file.name))


def _files_below(folder: Path) -> Iterator[Path]:
    """The files below a folder in the order of their names; none where it cannot be read."""
    for at, folders, files in os.walk(folder):
        folders.sort()
        paths = (Path(at, name) for name in sorted(files))
        yield from (path for path in paths if os.path.isfile(path))  # noqa: PTH113 - pathlib raises where it may not look


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if one.is_dir())
    except OSError:
        return []


def _text(file: Path) -> str:
    """The beginning of a small text file; empty where there is none."""
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST_MANIFEST).decode("utf-8", "replace")
    except OSError:
        return ""
