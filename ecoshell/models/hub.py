"""Bringing a model from a hub: found out about, downloaded, checked, and only then put where models are looked for.

huggingface_hub asks the hub and sends the token; `HF_ENDPOINT` names a mirror. Its own downloads begin anew each time
and check no more than the size, so the bytes are fetched here: into `FILE.part`, which the next pull goes on with, and
which gets its name once it has the SHA-256 that the hub says.
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ecoshell.errors import EcoshellError, ModelBroken, ModelMissing, ModelUnavailable
from ecoshell.models import size_text
from ecoshell.models.gguf import MAGIC, HubName, model_of
from ecoshell.models.local_models import pulled_folder
from ecoshell.paths import NO_ROOM, make_private, remedy
from ecoshell.secrecy import environ

if TYPE_CHECKING:
    import httpx

UNFINISHED = ".part"
"""Ends the name of a file that is not whole; no list and no name of a model ever means one."""
_CHUNK = 1 << 18
_SPARE = 64 << 20
"""Bytes of the disk that are left to others."""
_PATIENCE = 15.0
"""Seconds in which the hub must say something."""
_MOST_SAID, _LONGEST_SAID = 1 << 23, 60.0
"""Bytes and seconds of an answer that is no file."""
_WHOLE = "whole"
"""Marks the request for a file."""
_SHA256 = re.compile("[0-9a-fA-F]{64}")
_SIGNS = frozenset("\\:")
"""What no name of a file has."""
_TRIES = 4
"""Times in a row that a download may break without having brought anything."""


@dataclass(frozen=True, slots=True)
class BfclScore:
    """A result on the Berkeley Function Calling Leaderboard; versions are not comparable with one another."""

    version: int
    percent: float
    source: str
    """Address of the page that publishes the figure."""

    def __str__(self) -> str:
        return f"{self.percent:g} (v{self.version})"


@dataclass(frozen=True, slots=True)
class Recommended:
    """A model worth pulling; sizes in gigabytes, rounded."""

    name: HubName
    download: float
    memory: int
    """Memory of the machine's class that the file and a context of 8,192 tokens fit into."""
    licence: str
    bfcl: BfclScore | None

    @property
    def summary(self) -> str:
        """Size, memory and licence in a phrase."""
        return f"about {self.download:g} GB, runs in {self.memory:g} GB of memory, {self.licence}"


_CARD = "https://huggingface.co/"
_APACHE = "Apache-2.0"
RECOMMENDED = (
    Recommended(
        HubName("unsloth/Qwen3.5-2B-GGUF", "Q4_K_M"), 1.3, 2, _APACHE, BfclScore(4, 43.6, f"{_CARD}Qwen/Qwen3.5-2B")
    ),
    Recommended(
        HubName("ibm-granite/granite-4.1-3b-GGUF", "Q4_K_M"),
        2.1,
        4,
        _APACHE,
        BfclScore(3, 60.8, f"{_CARD}ibm-granite/granite-4.1-3b"),
    ),
    Recommended(
        HubName("unsloth/Qwen3-4B-Instruct-2507-GGUF", "Q4_K_M"),
        2.5,
        4,
        _APACHE,
        BfclScore(3, 61.9, f"{_CARD}Qwen/Qwen3-4B-Instruct-2507"),
    ),
    Recommended(
        HubName("unsloth/Qwen3.5-4B-GGUF", "Q4_K_M"), 2.7, 4, _APACHE, BfclScore(4, 50.3, f"{_CARD}Qwen/Qwen3.5-4B")
    ),
    Recommended(
        HubName("ibm-granite/granite-4.1-8b-GGUF", "Q4_K_M"),
        5.3,
        8,
        _APACHE,
        BfclScore(3, 68.3, f"{_CARD}ibm-granite/granite-4.1-8b"),
    ),
    Recommended(
        HubName("unsloth/Qwen3.5-9B-GGUF", "Q4_K_M"), 5.7, 8, _APACHE, BfclScore(4, 66.1, f"{_CARD}Qwen/Qwen3.5-9B")
    ),
)
"""Models with their own format for tool calls, ordered by size."""
SUGGESTED = RECOMMENDED[2]
"""The one that a first run suggests: it answers without reasoning first, and its cache can be cut back."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository, as the hub describes it."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Pull:
    """What a pull would bring."""

    name: HubName
    revision: str
    files: tuple[HubFile, ...]
    """One, or the parts in their order."""
    licence: str
    """As the repository names it; empty where it names none."""

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(file.size_bytes for file in self.files)


Progress = Callable[[HubFile, int], None]
"""Told which file is at how many bytes."""


class Hub:
    """The hub, or a mirror of it; its methods block, and raise ModelMissing, ModelUnavailable and ModelBroken."""

    def __init__(self, folder: Path, *, endpoint: str | None = None, pause: float = 1.0) -> None:
        """`folder` is the user's own for models; `pause` are the seconds before a broken download is taken up again."""
        self._folder = folder
        self._endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        self._pause = pause

    def find(self, name: HubName) -> Pull:
        """What the hub has under this name; nothing is downloaded."""
        from huggingface_hub import HfApi, constants  # httpx and more come with it

        constants.HF_HUB_DISABLE_TELEMETRY = True  # else it looks who runs it, by a list that it asks its hub for
        with self._told(name):
            api = HfApi(endpoint=self._endpoint, token=environ.get("HF_TOKEN"))
            info: Any = api.model_info(name.repo, files_metadata=True, timeout=_PATIENCE)
            described: dict[str, Any] = {file.rfilename: file for file in info.siblings or ()}
            files: list[HubFile] = []
            for chosen in model_of(name, described):
                one, path = described[chosen], PurePosixPath(chosen)
                if one.lfs is None or not one.lfs.sha256 or not one.size:
                    raise ModelBroken(
                        f"The hub names no SHA-256 for {chosen} of {name.repo}, so it could not be checked.",
                        fix="Choose another repository, or ask without HF_ENDPOINT, should a mirror leave it out.",
                    )
                if type(one.size) is not int or one.size < 0 or not _SHA256.fullmatch(one.lfs.sha256):
                    raise ValueError("no size, or no SHA-256")
                outside = path.is_absolute() or ".." in path.parts
                if outside or not chosen.isprintable() or not _SIGNS.isdisjoint(chosen):
                    message = f"{name.repo} has a file with the name {chosen!r}."
                    raise ModelBroken(message, fix="Choose another repository.")
                files.append(HubFile(chosen, one.size, one.lfs.sha256.lower()))
            licence: object = info.card_data.get("license") if info.card_data else None
            return Pull(name, info.sha or "main", tuple(files), licence if isinstance(licence, str) else "")

    def pull(self, pull: Pull, progress: Progress) -> Path:
        """Download what is not there yet, check it, and give the model's file, the first of its parts.

        What is there of a file is kept when a download breaks or is interrupted, and gone on with the next time.
        """
        from huggingface_hub.utils import WeakFileLock

        folder = pulled_folder(pull.name, self._folder)
        try:
            for file in pull.files:
                make_private((folder / file.name).parent)
            need = 0
            for file in pull.files:
                there = max(_size(folder / file.name), _size(folder / f"{file.name}{UNFINISHED}"))
                need += max(0, file.size_bytes - there)
            free = shutil.disk_usage(folder).free
        except OSError as error:
            fix = remedy(error, "Check the folder and its permissions.")
            raise ModelMissing(f"{folder} cannot be written: {error.strerror}.", fix=fix) from error
        if need and need + _SPARE > free:
            raise ModelMissing(
                f"Not enough space for {pull.name.short}: "
                f"{size_text(need)} to download, {size_text(free)} free in {folder}.",
                fix="Free some space, or choose a smaller file: OWNER/REPO:QUANT.",
            )
        for file in pull.files:
            target = folder / file.name
            part = target.with_name(target.name + UNFINISHED)
            lock = WeakFileLock(target.with_name(f".{target.name}.lock"), timeout=0.5)  # keeps other pulls of it out
            with self._told(pull.name, part), lock:
                if _size(target) != file.size_bytes or _sha256(target) != file.sha256:
                    self._fetch(pull, file, part, progress)
                    part.replace(target)
                    _note(part).unlink(missing_ok=True)
        return folder / pull.files[0].name

    def _fetch(self, pull: Pull, file: HubFile, part: Path, progress: Progress) -> None:
        """Download one file; a line that breaks is taken up again as long as that brings something.

        Raises ModelBroken, and keeps nothing, unless the file is what the hub says it is, and a GGUF file.
        """
        from httpx import TransportError

        try:
            begun = _note(part).read_text()
        except (OSError, ValueError):
            begun = ""
        if begun != file.sha256 or _size(part) > file.size_bytes:  # it is of another version of the file
            part.unlink(missing_ok=True)
            _note(part).write_text(file.sha256)
        failed, most = 0, _size(part)
        while (before := _size(part)) < file.size_bytes:
            try:
                self._stream(pull, file, part, progress)
            except TransportError:
                failed = 0 if _size(part) > most else failed + 1  # without ranges it begins anew each time
                most = max(most, _size(part))
                if failed >= _TRIES:
                    raise
                time.sleep(self._pause * 2**failed)
            else:
                if _size(part) <= before:
                    raise TransportError("the hub ends the file before its end")
        with part.open("rb") as opened:
            magic = opened.read(len(MAGIC))
            os.fsync(opened.fileno())  # a machine that stops now must not leave a name without its bytes
        error = None
        if _sha256(part) != file.sha256:
            error = self._wrong(file)
        elif magic != MAGIC:
            message = f"{file.name} is no GGUF file."
            error = ModelBroken(message, kept="Nothing was kept.", fix="Choose another repository.")
        if error is not None:
            part.unlink()
            _note(part).unlink(missing_ok=True)
            raise error

    def _stream(self, pull: Pull, file: HubFile, part: Path, progress: Progress) -> None:
        """One request, which begins where the file ends; a server that takes no ranges sends all of it again."""
        from httpx import TransportError
        from huggingface_hub import hf_hub_url

        tools: Any = import_module("huggingface_hub.utils")  # which has types in part
        url = hf_hub_url(pull.name.repo, file.name, revision=pull.revision, endpoint=self._endpoint)
        headers = {**tools.build_hf_headers(token=environ.get("HF_TOKEN")), "Accept-Encoding": "identity"}
        if there := _size(part):
            headers["Range"] = f"bytes={there}-"
        ask = tools.http_stream_backoff(
            *("GET", url),
            **{"headers": headers, "timeout": _PATIENCE, "extensions": {_WHOLE: True}},
            **{"retry_on_exceptions": (), "base_wait_time": self._pause},
        )
        response: httpx.Response
        with ask as response:
            tools.hf_raise_for_status(response)
            mode = "ab" if there and response.status_code == 206 else "wb"
            whole = str(file.size_bytes)
            if there and mode == "wb" and response.headers.get("Content-Length", whole) != whole:
                raise TransportError("the hub answers with something else than the file")
            with part.open(mode) as out:
                for chunk in response.iter_bytes(_CHUNK):
                    if out.tell() + len(chunk) > file.size_bytes:
                        out.truncate(0)
                        raise self._wrong(file)
                    out.write(chunk)
                    progress(file, out.tell())

    def _wrong(self, file: HubFile) -> ModelBroken:
        return ModelBroken(
            f"{file.name} is not the file that {self._endpoint} describes: its SHA-256 is another one.",
            kept="Nothing of it was kept.",
            fix="Pull it again; if that does not help, the mirror changes files: try another one (HF_ENDPOINT).",
        )

    @contextmanager
    def _told(self, name: HubName, part: Path | None = None) -> Generator[None]:
        """What goes wrong with the hub, the line and the disk, in words that say what to do."""
        import httpx
        from filelock import Timeout  # comes with huggingface_hub
        from huggingface_hub import errors

        try:
            _bound_answers()
            yield
        except EcoshellError:
            raise
        except Timeout as error:
            raise ModelUnavailable(
                f"{name.short} is being pulled already.", fix="Wait for the other pull, or stop it.", billed=False
            ) from error
        except errors.HfHubHTTPError as error:
            raise self._refused(name, error, _kept(part)) from error
        except (errors.OfflineModeIsEnabled, httpx.HTTPError) as error:
            offline = isinstance(error, errors.OfflineModeIsEnabled)
            reason = "HF_HUB_OFFLINE is set" if offline else str(error).strip().rstrip(".") or type(error).__name__
            kept = _kept(part)
            raise ModelUnavailable(
                f"The download broke off: {reason}." if kept else f"{self._endpoint} cannot be reached: {reason}.",
                kept=kept,
                fix="Pull it again, which goes on from there." if kept else "Check the network, and HF_ENDPOINT.",
                billed=False,
            ) from error
        except OSError as error:
            full = error.errno in NO_ROOM
            raise ModelMissing(
                f"{name.short} could not be written: {error.strerror or error}.",
                kept=_kept(part),
                fix=f"{'Free some space' if full else f'Check the permissions of {self._folder}'} and pull it again.",
            ) from error
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:  # of huggingface_hub, too
            raise ModelUnavailable(
                f"{self._endpoint} does not answer as a hub does.", fix="Check HF_ENDPOINT.", billed=False
            ) from error

    def _refused(self, name: HubName, error: Any, kept: str) -> EcoshellError:
        """What a status that is no success means."""
        from huggingface_hub import errors

        status: int = error.response.status_code
        gated = isinstance(error, errors.GatedRepoError)
        if isinstance(error, errors.RepositoryNotFoundError) and not gated:
            return ModelMissing(
                f"There is no repository {name.repo} at {self._endpoint}, or it is private.",
                fix="Check the name; for a private one give a token: export HF_TOKEN=…",
                billed=False,
            )
        if gated or status in (401, 403):
            return ModelMissing(
                f"The hub refuses {name.repo} (status {status}): it {'is' if gated else 'may be'} gated.",
                fix=f"Accept its terms at {self._endpoint}/{name.repo}, then give a token of your account:"
                " export HF_TOKEN=…, or hf auth login.",
                billed=False,
            )
        if status == 404:
            return ModelMissing(f"{name.short} is not at {self._endpoint}.", fix="Check the name.", billed=False)
        return ModelUnavailable(
            f"{self._endpoint} answered with status {status}.", kept=kept, fix="Pull it again later.", billed=False
        )


def _bound_answers() -> None:
    """Have whatever the hub says end, in bytes and in time; of a file, `_stream` knows where that is."""
    import httpx

    class Bounded(httpx.SyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            left, until = _MOST_SAID, time.monotonic() + _LONGEST_SAID
            for piece in self._stream:
                left -= len(piece)
                if left < 0 or time.monotonic() > until:
                    raise httpx.DecodingError("what it says does not end")
                yield piece

        def close(self) -> None:
            self._stream.close()

    def bound(response: httpx.Response) -> None:
        if not (response.is_success and _WHOLE in response.request.extensions):
            if response.headers.get("Content-Encoding", "identity") != "identity":  # which may unpack to anything
                raise httpx.DecodingError("it packs what it says, which it was not asked to")
            response.stream = Bounded(response.stream)

    session: httpx.Client = import_module("huggingface_hub.utils").get_session()
    session.headers["Accept-Encoding"] = "identity"
    session.event_hooks = {**session.event_hooks, "response": [bound]}


def _kept(part: Path | None) -> str:
    """What is there of a file that is not whole, in words; empty where nothing is."""
    return f"What came so far is kept ({size_text(_size(part))})." if part and _size(part) else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _note(part: Path) -> Path:
    """Where it stands which version of a file a part is of: one of another is not gone on with."""
    return part.with_name(f"{part.name}.sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
