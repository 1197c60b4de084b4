"""Downloads models from a hub and verifies them before they become visible.

`HF_ENDPOINT` sets a mirror of Hugging Face. A file is downloaded to `FILE.part`, which the next pull resumes, and which
is renamed once its SHA-256 matches the hub's.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ecoshell import __version__
from ecoshell.errors import EcoshellError, ModelBroken, ModelMissing, ModelUnavailable
from ecoshell.models import size_text
from ecoshell.models.gguf import MAGIC
from ecoshell.models.hub_names import HubName, model_of
from ecoshell.models.local_models import pulled_folder
from ecoshell.paths import NO_ROOM, make_private, remedy
from ecoshell.secrecy import environ

if TYPE_CHECKING:
    import httpx

UNFINISHED = ".part"
"""Suffix of incomplete files, which are never listed as models."""
_CHUNK = 1 << 18
_SPARE = 64 << 20
"""Bytes of disk space that stay free."""
_PATIENCE = 15.0
"""Seconds without data from the hub before a request fails."""
_MAX_ANSWER_BYTES = 1 << 23
_MAX_ANSWER_SECONDS = 60.0
"""Limits of answers that are not files."""
_IS_FILE = "is_file"
"""Marks requests for files."""
_SHA256 = re.compile("[0-9a-fA-F]{64}")
_FORBIDDEN_CHARACTERS = frozenset("\\:")
"""Characters that file names may not contain."""
_BUSY = frozenset({429, 500, 502, 503, 504})
"""Statuses after which a file is requested again."""
_TRIES = 4
"""Consecutive failures without progress after which a download fails."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository, as the hub describes it."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Pull:
    """The files of a download."""

    name: HubName
    revision: str
    files: tuple[HubFile, ...]
    """One file, or the parts in order."""
    licence: str
    """As stated by the repository; empty if it states none."""

    @property
    def size_bytes(self) -> int:
        """Total size."""
        return sum(file.size_bytes for file in self.files)


Progress = Callable[[HubFile, int], None]
"""Called with a file and its downloaded bytes."""


def default_endpoint() -> str:
    """The hub that `HF_ENDPOINT` names, or Hugging Face."""
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


class Hub:
    """A hub or mirror; methods block, and raise ModelMissing, ModelUnavailable and ModelBroken."""

    def __init__(self, folder: Path, *, endpoint: str | None = None, pause: float = 1.0) -> None:
        """`folder` is the user's models folder, `pause` the seconds before a broken download is resumed."""
        self._folder = folder
        self._endpoint = (endpoint or default_endpoint()).rstrip("/")
        self._pause = pause

    def find(self, name: HubName) -> Pull:
        """Look a name up without downloading anything."""
        url = f"{self._endpoint}/api/models/{quote(name.repo)}?blobs=true"
        with self._translated_errors(name), self._opened(url, {}) as response:
            info: Any = json.loads(response.read())
            described: dict[str, Any] = {file["rfilename"]: file for file in info["siblings"] or ()}
            files = tuple(
                _described(name, chosen, described[chosen]) for chosen in model_of(name, described)
            )
            card: Any = info.get("cardData")
            licence: object = card.get("license") if card else None
            revision: object = info.get("sha")
            return Pull(
                name,
                revision if isinstance(revision, str) else "main",
                files,
                licence if isinstance(licence, str) else "",
            )

    def pull(self, pull: Pull, progress: Progress) -> Path:
        """Download and verify missing files; returns the model's file or first part.

        Partial files of failed or interrupted downloads are kept and resumed the next time.
        """
        folder = pulled_folder(pull.name, self._folder)
        try:
            for file in pull.files:
                make_private((folder / file.name).parent)
            need = 0
            for file in pull.files:
                present = max(_size(folder / file.name), _size(folder / f"{file.name}{UNFINISHED}"))
                need += max(0, file.size_bytes - present)
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
            lock = target.with_name(f".{target.name}.lock")
            with self._translated_errors(pull.name, part), _exclusive(pull.name, lock):
                if _size(target) != file.size_bytes or _sha256(target) != file.sha256:
                    self._fetch(pull, file, part, progress)
                    part.replace(target)
                    _note(part).unlink(missing_ok=True)
        return folder / pull.files[0].name

    def _fetch(self, pull: Pull, file: HubFile, part: Path, progress: Progress) -> None:
        """Download one file; broken connections are retried while there is progress.

        Raises ModelBroken, and deletes the file, if it does not match the hub's SHA-256 or is not a GGUF file.
        """
        from httpx import HTTPStatusError, TransportError

        try:
            part_sha256 = _note(part).read_text()
        except (OSError, ValueError):
            part_sha256 = ""
        if part_sha256 != file.sha256 or _size(part) > file.size_bytes:  # a part of another version
            part.unlink(missing_ok=True)
            _note(part).write_text(file.sha256)
        failures, largest = 0, _size(part)
        while (size := _size(part)) < file.size_bytes:
            try:
                self._stream(pull, file, part, progress)
            except (TransportError, HTTPStatusError) as error:
                if isinstance(error, HTTPStatusError) and error.response.status_code not in _BUSY:
                    raise
                failures = (
                    0 if _size(part) > largest else failures + 1
                )  # without ranges every try starts at 0
                largest = max(largest, _size(part))
                if failures >= _TRIES:
                    raise
                time.sleep(self._pause * 2**failures)
            else:
                if _size(part) <= size:
                    raise TransportError("the hub ended the file too early")
        with part.open("rb") as opened:
            magic = opened.read(len(MAGIC))
            os.fsync(
                opened.fileno()
            )  # a power failure must not leave an empty file under the final name
        error = None
        if _sha256(part) != file.sha256:
            error = self._wrong(file)
        elif magic != MAGIC:
            message = f"{file.name} is not a GGUF file."
            error = ModelBroken(message, kept="Nothing was kept.", fix="Choose another repository.")
        if error is not None:
            part.unlink()
            _note(part).unlink(missing_ok=True)
            raise error

    def _stream(self, pull: Pull, file: HubFile, part: Path, progress: Progress) -> None:
        """Request the rest of a file; servers without ranges send all of it again."""
        from httpx import TransportError

        path = f"{quote(pull.name.repo)}/resolve/{quote(pull.revision, safe='')}/{quote(file.name)}"
        downloaded = _size(part)
        headers = {"Range": f"bytes={downloaded}-"} if downloaded else {}
        with self._opened(f"{self._endpoint}/{path}", headers, is_file=True) as response:
            mode = "ab" if downloaded and response.status_code == 206 else "wb"
            length = str(file.size_bytes)
            if (
                downloaded
                and mode == "wb"
                and response.headers.get("Content-Length", length) != length
            ):
                raise TransportError("the hub sent other content than the file")
            with part.open(mode) as out:
                for chunk in response.iter_bytes(_CHUNK):
                    if out.tell() + len(chunk) > file.size_bytes:
                        out.truncate(0)
                        raise self._wrong(file)
                    out.write(chunk)
                    progress(file, out.tell())

    @contextmanager
    def _opened(
        self, url: str, headers: Mapping[str, str], *, is_file: bool = False
    ) -> "Generator[httpx.Response]":
        """Send a request; only answers that are files may have any size."""
        import httpx

        if environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
            raise httpx.ConnectError("HF_HUB_OFFLINE is set")
        token = _token()
        own = {"Accept-Encoding": "identity", "User-Agent": f"ecoshell/{__version__}"}
        own |= {"Authorization": f"Bearer {token}"} if token else {}
        client = httpx.Client(
            headers=own,
            timeout=_PATIENCE,
            follow_redirects=True,
            event_hooks={"response": [_bound_answer]},
        )
        extensions = {_IS_FILE: True} if is_file else {}
        with client, client.stream("GET", url, headers=headers, extensions=extensions) as response:
            response.raise_for_status()
            yield response

    def _wrong(self, file: HubFile) -> ModelBroken:
        return ModelBroken(
            f"{file.name} does not match the SHA-256 stated by {self._endpoint}.",
            kept="The file was deleted.",
            fix="Pull it again. If that fails, the mirror changes files: try another one (HF_ENDPOINT).",
        )

    @contextmanager
    def _translated_errors(self, name: HubName, part: Path | None = None) -> Generator[None]:
        """Translate errors of the hub, the connection and the disk to errors that say what to do."""
        import httpx

        try:
            yield
        except EcoshellError:
            raise
        except httpx.HTTPStatusError as error:
            raise self._refused(name, error.response, _partial_text(part)) from error
        except httpx.HTTPError as error:
            reason = str(error).strip().rstrip(".") or type(error).__name__
            partial = _partial_text(part)
            raise ModelUnavailable(
                f"The download failed: {reason}."
                if partial
                else f"{self._endpoint} cannot be reached: {reason}.",
                kept=partial,
                fix="Pull it again to resume." if partial else "Check the network and HF_ENDPOINT.",
                billed=False,
            ) from error
        except OSError as error:
            full = error.errno in NO_ROOM
            raise ModelMissing(
                f"{name.short} could not be written: {error.strerror or error}.",
                kept=_partial_text(part),
                fix=f"{'Free some space' if full else f'Check the permissions of {self._folder}'} and pull it again.",
            ) from error
        except (
            *(ValueError, LookupError, TypeError, AttributeError, RecursionError),
            httpx.InvalidURL,
        ) as error:
            raise ModelUnavailable(
                f"{self._endpoint} does not answer like a hub.",
                fix="Check HF_ENDPOINT.",
                billed=False,
            ) from error

    def _refused(self, name: HubName, response: "httpx.Response", partial: str) -> EcoshellError:
        """The error for an HTTP status."""
        status, code = response.status_code, response.headers.get("X-Error-Code", "")
        gated = code == "GatedRepo"
        if code == "RepoNotFound":
            return ModelMissing(
                f"The repository {name.repo} does not exist at {self._endpoint}, or it is private.",
                fix="Check the name; for a private repository set a token: export HF_TOKEN=…",
                billed=False,
            )
        if gated or status in (401, 403):
            return ModelMissing(
                f"The hub refuses {name.repo} (status {status}): it {'is' if gated else 'may be'} gated.",
                fix=f"Accept its terms at {self._endpoint}/{name.repo}, then set a token of your account:"
                " export HF_TOKEN=…, or hf auth login.",
                billed=False,
            )
        if status == 404:
            return ModelMissing(
                f"{name.short} is not at {self._endpoint}.", fix="Check the name.", billed=False
            )
        return ModelUnavailable(
            f"{self._endpoint} answered with status {status}.",
            kept=partial,
            fix="Pull it again later.",
            billed=False,
        )


def _described(name: HubName, chosen: str, file: Any) -> HubFile:
    """Return one file of a description; raises ModelBroken if it cannot be downloaded safely."""
    lfs, size, path = file.get("lfs"), file.get("size"), PurePosixPath(chosen)
    if not lfs or not lfs["sha256"] or not size:
        raise ModelBroken(
            f"The hub states no SHA-256 for {chosen} of {name.repo}, so it could not be verified.",
            fix="Choose another repository, or unset HF_ENDPOINT in case the mirror omits it.",
        )
    if type(size) is not int or size < 0 or not _SHA256.fullmatch(lfs["sha256"]):
        raise ValueError("no size, or no SHA-256")
    outside = path.is_absolute() or ".." in path.parts
    if outside or not chosen.isprintable() or not _FORBIDDEN_CHARACTERS.isdisjoint(chosen):
        message = f"{name.repo} has a file with the name {chosen!r}."
        raise ModelBroken(message, fix="Choose another repository.")
    return HubFile(chosen, size, lfs["sha256"].lower())


@contextmanager
def _exclusive(name: HubName, file: Path) -> Generator[None]:
    """Exclude other pulls of a file; raises ModelUnavailable during one."""
    with file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ModelUnavailable(
                f"{name.short} is being pulled already.",
                fix="Wait for the other pull, or stop it.",
                billed=False,
            ) from error
        yield


def _token() -> str:
    """Return the token of the environment or of `hf auth login`; empty without any."""
    if token := environ.get("HF_TOKEN", "").strip():
        return token
    home = environ.get("HF_HOME") or Path(
        environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    file = Path(environ.get("HF_TOKEN_PATH") or Path(home, "token"))
    try:
        return file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError, RuntimeError):
        return ""


def _bound_answer(response: "httpx.Response") -> None:
    """Limit the bytes and seconds of an answer, except of files, whose size `_stream` checks."""
    import httpx

    class Bounded(httpx.SyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            remaining, deadline = _MAX_ANSWER_BYTES, time.monotonic() + _MAX_ANSWER_SECONDS
            for piece in self._stream:
                remaining -= len(piece)
                if remaining < 0 or time.monotonic() > deadline:
                    raise httpx.DecodingError("the answer does not end")
                yield piece

        def close(self) -> None:
            self._stream.close()

    if not (response.is_success and _IS_FILE in response.request.extensions):
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise httpx.DecodingError("the answer is compressed although that was not requested")
        response.stream = Bounded(response.stream)


def _partial_text(part: Path | None) -> str:
    """A sentence about a partial file, or an empty text."""
    return (
        f"The part downloaded so far is kept ({size_text(_size(part))})."
        if part and _size(part)
        else ""
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _note(part: Path) -> Path:
    """The file with the SHA-256 of the version that a part belongs to; parts of other versions are not resumed."""
    return part.with_name(f"{part.name}.sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
