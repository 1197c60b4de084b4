"""Names of local models, and the GGUF files on this machine.

Names are `embedded`, `embedded-base`, `local:BASE.gguf`, the first or the last with `+ADAPTER.gguf`, and `hf:…`. Files
are searched in the user's models folder and, read-only, in those of other programs: Hugging Face's hub cache
(`HF_HUB_CACHE`, `HF_HOME`), LM Studio, llama.cpp's cache (`LLAMA_CACHE`), and Ollama's blobs (`OLLAMA_MODELS`).
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ecoshell.errors import EcoshellError, ModelMissing, UsageError
from ecoshell.models.embedded import BASE, embedded_adapter, embedded_path
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.gguf import MAGIC, header, missing_parts, size_of
from ecoshell.models.hub_names import HUB, HubName, hub_name, is_later_part, model_of, quant_of
from ecoshell.paths import expanded, user_paths

LOCAL = "local:"
_PLUS = "+"
_ADAPTED = re.compile(rf"({EMBEDDED}|{LOCAL}.*?\.(?i:gguf))\+(.*)", re.DOTALL)

OWN_FOLDER = "models folder"
_OLLAMA_MODEL = "application/vnd.ollama.image.model"  # media type of the GGUF file's layer
_OLLAMA_LIBRARY = ("registry.ollama.ai", "library")  # default host and owner, omitted in names
_OLLAMA_SERVICE_FOLDER = Path("/usr/share/ollama/.ollama/models")
_MAX_MANIFEST_BYTES = 1 << 20
_NO_CHAT = """
bert nomic-bert nomic-bert-moe jina-bert-v2 t5encoder clip wavtokenizer-dec
"""
"""Architectures that cannot chat: embeddings and vision projectors."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model in a GGUF file; unknown is None."""

    path: Path  # the file, or the first of its parts
    place: str  # the program that has it, and its name there: `hub cache`, `Ollama: qwen3:4b`
    hub: HubName | None = None  # its name on a hub, if known
    size_bytes: int | None = None
    context: int | None = None  # tokens of the context it was trained with
    missing: tuple[Path, ...] = ()  # missing parts


# -- names


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of a local model, which may not exist."""

    base: Path
    adapter: Path | None = None


def is_local(name: str) -> bool:
    """Whether this names a model that runs in this process."""
    return is_embedded(name) or name.startswith((LOCAL, HUB))


def local_name(file: ModelFile) -> str:
    """The name of the model in a file."""
    return str(file.hub) if file.hub and not file.missing else f"{LOCAL}{file.path}"


def is_embedded(name: str) -> bool:
    """Whether this names the embedded model, with or without an adapter."""
    return name in (EMBEDDED, BASE) or name.startswith(EMBEDDED + _PLUS)


def name_parts(name: str) -> tuple[str, str]:
    """Split a name into the model and its adapter file, which may be empty; no files are accessed."""
    parts = _ADAPTED.fullmatch(name)
    return (parts[1], parts[2]) if parts and parts[2] else (name, "")


def local_files(name: str, folder: Path | None = None) -> LocalFiles | None:
    """The files of a local model, or None for other names; raises ModelMissing and UsageError.

    `hf:OWNER/REPO:QUANT` is searched in the models folder (None is the user's) and in the hub cache. The base ends at
    the first `.gguf+`; a `+` elsewhere belongs to a file's name.
    """
    if name in (EMBEDDED, BASE):
        return LocalFiles(embedded_path(), embedded_adapter() if name == EMBEDDED else None)
    if name.startswith(HUB):
        return LocalFiles(hub_file(hub_name(name), folder or user_paths().models_folder))
    if not is_local(name):
        return None
    if name.endswith(_PLUS) and _ADAPTED.fullmatch(name):
        fix = f"Write {name}ADAPTER.gguf, or omit the +."
        raise UsageError(f"{name} names no adapter after the +.", fix=fix)
    model, adapter = name_parts(name)
    base = embedded_path() if model == EMBEDDED else expanded(model.removeprefix(LOCAL))
    return LocalFiles(base, expanded(adapter) if adapter else None)


# -- places


def model_files(folder: Path) -> list[ModelFile]:
    """All models, each once, those in the user's folder first; reads a few kilobytes of each file."""
    models: dict[Path, ModelFile] = {}
    for place in (_own(folder), _hub_cache(), _other_caches(), _ollama()):
        for path, name, hub in place:
            real = path.resolve()
            if real not in models and (model := _model(path, name, hub)):
                models[real] = model
    return list(models.values())


def hub_file(name: HubName, folder: Path) -> Path:
    """The file of a pulled model, in the models folder or the hub cache.

    Raises ModelMissing, which says how to pull it, and UsageError for an ambiguous name.
    """
    cached = _hub_folder() / f"models--{name.repo.replace('/', '--')}"
    for root in (pulled_folder(name, folder), *_snapshots(cached)):
        try:
            return root / _first(name, root)
        except ModelMissing:
            continue
    fix = f"Download it with: ecoshell models pull {name.short}"
    raise ModelMissing(f"{name} is not on this machine.", fix=fix, billed=False)


def pulled_folder(name: HubName, folder: Path) -> Path:
    """The folder of a repository's files below the models folder."""
    return folder.joinpath(*name.repo.split("/"))


_Candidates = Iterator[tuple[Path, str, HubName | None]]


def _model(path: Path, place: str, hub: HubName | None) -> ModelFile | None:
    """The model in a file; None if it is not a chat model."""
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return None
        size = size_of(path)
    except OSError:
        return None
    facts = header(path)
    architecture = facts.get("general.architecture", "")
    is_part = facts.get("general.type", "model") in ("adapter", "mmproj")
    if is_part or architecture in _NO_CHAT.split():
        return None
    context = facts.get(f"{architecture}.context_length")
    tokens = int(context) if context else None
    return ModelFile(path, place, hub, size, tokens, tuple(missing_parts(path)))


def _own(folder: Path) -> _Candidates:
    for file in _gguf_below(folder):
        inside = file.relative_to(folder).parts
        root, repo = folder.joinpath(*inside[:2]), "/".join(inside[:2])
        yield file, OWN_FOLDER, _hub_name(repo, file, root) if len(inside) > 2 else None


def _hub_cache() -> _Candidates:
    for repo in _listed(_hub_folder()):
        kind, _, repository = repo.name.partition("--")
        owner, _, name = repository.partition("--")
        if kind == "models" and name:
            for index, snapshot in enumerate(_snapshots(repo)):
                for file in _gguf_below(snapshot):
                    hub = _hub_name(f"{owner}/{name}", file, snapshot) if index == 0 else None
                    yield file, "hub cache", hub


def _hub_name(repo: str, file: Path, root: Path) -> HubName | None:
    """The hub name of a file in a repository's folder; None if that name selects another file."""
    name = HubName(repo, quant_of(file.name) or file.name)
    try:
        return name if root / _first(name, root) == file else None
    except EcoshellError:
        return None


def _first(name: HubName, root: Path) -> str:
    return model_of(name, (file.relative_to(root).as_posix() for file in _files_below(root)))[0]


def _other_caches() -> _Candidates:
    """Files of LM Studio and llama.cpp."""
    home = Path.home()
    homes = [home / ".lmstudio", home / ".cache" / "lm-studio"]
    if configured := _text(home / ".lmstudio-home-pointer").strip():  # a moved folder
        homes.insert(0, Path(configured))
    caches = home / "Library" / "Caches" if sys.platform == "darwin" else _cache_home()
    cache = Path(os.environ.get("LLAMA_CACHE") or caches / "llama.cpp")
    places = [*((base / "models", "LM Studio") for base in homes), (cache, "llama.cpp")]
    for folder, place in places:
        for file in _gguf_below(folder):
            yield file, place, None


def _ollama() -> _Candidates:
    user_folder = Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models")
    for folder in dict.fromkeys((user_folder, _OLLAMA_SERVICE_FOLDER)):
        manifests = folder / "manifests"
        for manifest in _files_below(manifests):
            try:
                layers = json.loads(_text(manifest))["layers"]
                models = (layer for layer in layers if layer["mediaType"] == _OLLAMA_MODEL)
                digest = next((layer["digest"] for layer in models), None)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if not isinstance(digest, str) or not re.fullmatch(r"sha256:[^\W_]+", digest):
                continue
            # Ollama omits the default host and owner.
            *owner_path, name, tag = manifest.relative_to(manifests).parts
            for default in _OLLAMA_LIBRARY:
                if owner_path and owner_path[0] == default:
                    owner_path = owner_path[1:]
            model = "/".join((*owner_path, f"{name}:{tag}"))
            yield folder / "blobs" / digest.replace(":", "-"), f"Ollama: {model}", None


def _hub_folder() -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if configured := os.environ.get(variable):
            return expanded(configured)
    return hub_home() / "hub"


def hub_home() -> Path:
    """The folder in which Hugging Face's programs keep their cache and token."""
    home = os.environ.get("HF_HOME")
    return expanded(home) if home else _cache_home() / "huggingface"


def _snapshots(repo: Path) -> list[Path]:
    """The revisions of a cached repository, the last known `main` first."""
    main = _text(repo / "refs" / "main").strip()
    revisions = _listed(repo / "snapshots")
    return sorted(revisions, key=lambda folder: (folder.name != main, folder.name))


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _gguf_below(folder: Path) -> Iterator[Path]:
    files = (file for file in _files_below(folder) if file.suffix.lower() == ".gguf")
    return (file for file in files if not is_later_part(file.name))


def _files_below(folder: Path) -> Iterator[Path]:
    """The files below a folder, sorted by name; none if it is unreadable."""
    for parent, folders, files in os.walk(folder):
        folders.sort()
        paths = (Path(parent, name) for name in sorted(files))
        yield from (path for path in paths if os.path.isfile(path))  # noqa: PTH113 - pathlib raises without permission


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir())
    except OSError:
        return []


def _text(file: Path) -> str:
    """The text of a small file; empty if it is unreadable."""
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_MANIFEST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
