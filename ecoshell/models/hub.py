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
from collections.abc import Callable, Generator, Mapping
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
from ecoshell.models.local_models import hub_home, pulled_folder
from ecoshell.paths import NO_ROOM, make_private, remedy
from ecoshell.secrecy import environ

if TYPE_CHECKING:
    import httpx

_UNFINISHED = ".part"  # suffix of incomplete files, which are never listed as models
_CHUNK = 1 << 18
_SPARE = 64 << 20  # bytes of disk space that stay free
_PATIENCE = 15.0  # seconds without data from the hub before a request fails
_MAX_DESCRIPTION_BYTES = 1 << 23
_SHA256 = re.compile("[0-9a-fA-F]{64}")
_FORBIDDEN_CHARACTERS = frozenset("\\:")
_BUSY = frozenset({429, 500, 502, 503, 504})  # statuses after which a file is requested again
_TRIES = 4  # consecutive failures without progress after which a download fails


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
    files: tuple[HubFile, ...]  # one file, or the parts in order
    licence: str  # as stated by the repository; empty if it states none

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


Progress = Callable[[HubFile, int], None]  # called with a file and its downloaded bytes


def default_endpoint() -> str:
    """The hub that `HF_ENDPOINT` names, or Hugging Face."""
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


class Hub:
    """A hub or mirror; methods block, and raise ModelMissing, ModelUnavailable and ModelBroken."""

    def __init__(self, folder: Path, *, pause: float = 1.0) -> None:
        """`folder` is the user's models folder, `pause` the seconds before a broken download is resumed."""
        self._folder = folder
        self._endpoint = default_endpoint().rstrip("/")
        self._pause = pause

    def find(self, name: HubName) -> Pull:
        """Look a name up without downloading anything."""
        url = f"{self._endpoint}/api/models/{quote(name.repo)}?blobs=true"
        description = bytearray()
        with self._translated_errors(name), self._opened(url) as response:
            for piece in response.iter_bytes():
                description += piece
                if len(description) > _MAX_DESCRIPTION_BYTES:
                    raise ValueError("the description does not end")
            info: Any = json.loads(description)
            described: dict[str, Any] = {file["rfilename"]: file for file in info["siblings"] or ()}
            chosen = model_of(name, described)
            files = tuple(_described(name, file, described[file]) for file in chosen)
            card: Any = info.get("cardData")
            licence: object = card.get("license") if card else None
            revision: object = info.get("sha")
            return Pull(
                name,
                revision if isinstance(revision, str) else "main",
                files,
                licence if isinstance(licence, str) else "",
            )

    def pull(
        self, pull: Pull, progress: Progress, on_retry: Callable[[], None] = lambda: None
    ) -> Path:
        """Download and verify missing files; returns the model's file or first part.

        `on_retry` is called before the pause after which an interrupted download is tried again.
        Partial files of failed or interrupted downloads are kept and resumed the next time.
        """
        folder = pulled_folder(pull.name, self._folder)
        try:
            for file in pull.files:
                make_private((folder / file.name).parent)
            need = 0
            for file in pull.files:
                present = max(
                    _size(folder / file.name), _size(folder / f"{file.name}{_UNFINISHED}")
                )
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
            part = target.with_name(target.name + _UNFINISHED)
            lock = target.with_name(f".{target.name}.lock")
            with self._translated_errors(pull.name, part), _exclusive(pull.name, lock):
                if _size(target) != file.size_bytes or _sha256(target) != file.sha256:
                    self._fetch(pull, file, part, progress, on_retry)
                    part.replace(target)
        return folder / pull.files[0].name

    def _fetch(
        self,
        pull: Pull,
        file: HubFile,
        part: Path,
        progress: Progress,
        on_retry: Callable[[], None],
    ) -> None:
        """Download one file; broken connections are retried while there is progress.

        Raises ModelBroken, and deletes the file, if it does not match the hub's SHA-256 or is not a GGUF file.
        """
        from httpx import HTTPStatusError, TransportError

        failures, largest = 0, _size(part)
        while True:
            try:
                self._stream(pull, file, part, progress)
                break
            except (TransportError, HTTPStatusError) as error:
                if isinstance(error, HTTPStatusError) and error.response.status_code not in _BUSY:
                    raise
                failures = 0 if _size(part) > largest else failures + 1
                largest = max(largest, _size(part))
                if failures == _TRIES:
                    raise
                on_retry()
                time.sleep(self._pause * 2**failures)
        with part.open("rb") as opened:
            magic = opened.read(len(MAGIC))
            # A power failure must not leave an empty file under the final name.
            os.fsync(opened.fileno())
        if _sha256(part) != file.sha256:
            raise self._wrong(file, part)
        if magic != MAGIC:
            part.unlink()
            message = f"{file.name} is not a GGUF file."
            raise ModelBroken(message, kept="Nothing was kept.", fix="Choose another repository.")

    def _stream(self, pull: Pull, file: HubFile, part: Path, progress: Progress) -> None:
        """Request the rest of a file; servers without ranges send all of it again."""
        from httpx import TransportError

        downloaded = _size(part)
        if downloaded >= file.size_bytes:
            return
        path = f"{quote(pull.name.repo)}/resolve/{quote(pull.revision, safe='')}/{quote(file.name)}"
        headers = {"Range": f"bytes={downloaded}-"} if downloaded else {}
        with self._opened(f"{self._endpoint}/{path}", headers) as response:
            resumes = downloaded > 0 and response.status_code == 206
            length = response.headers.get("Content-Length")
            if downloaded and not resumes and length not in (None, str(file.size_bytes)):
                raise TransportError("the hub sent other content than the file")
            with part.open("ab" if resumes else "wb") as out:
                for chunk in response.iter_bytes(_CHUNK):
                    if out.tell() + len(chunk) > file.size_bytes:
                        raise self._wrong(file, part)
                    out.write(chunk)
                    progress(file, out.tell())
                if out.tell() < file.size_bytes:
                    raise TransportError("the hub ended the file too early")

    @contextmanager
    def _opened(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> "Generator[httpx.Response]":
        """Send a request and yield the response, whose body is read by the caller."""
        import httpx

        if environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
            raise httpx.ConnectError("HF_HUB_OFFLINE is set")
        sent = {"Accept-Encoding": "identity", "User-Agent": f"ecoshell/{__version__}"}
        sent |= headers or {}
        if token := _token():
            sent["Authorization"] = f"Bearer {token}"
        options: dict[str, Any] = {"timeout": _PATIENCE, "follow_redirects": True}
        with httpx.stream("GET", url, headers=sent, **options) as response:
            response.raise_for_status()
            yield response

    def _wrong(self, file: HubFile, part: Path) -> ModelBroken:
        """Delete a file of other content; returns the error."""
        part.unlink()
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
            text, fix = f"{self._endpoint} cannot be reached", "Check the network and HF_ENDPOINT."
            if partial := _partial_text(part):
                text, fix = "The download failed", "Pull it again to resume."
            raise ModelUnavailable(
                f"{text}: {reason}.", kept=partial, fix=fix, billed=False
            ) from error
        except OSError as error:
            full = error.errno in NO_ROOM
            room = "Free some space" if full else f"Check the permissions of {self._folder}"
            raise ModelMissing(
                f"{name.short} could not be written: {error.strerror or error}.",
                kept=_partial_text(part),
                fix=f"{room} and pull it again.",
            ) from error
        except (
            *(ValueError, LookupError, TypeError, AttributeError, RecursionError),
            httpx.InvalidURL,
        ) as error:
            text = f"{self._endpoint} does not answer like a hub."
            raise ModelUnavailable(text, fix="Check HF_ENDPOINT.", billed=False) from error

    def _refused(self, name: HubName, response: "httpx.Response", partial: str) -> EcoshellError:
        status, code = response.status_code, response.headers.get("X-Error-Code", "")
        if code != "GatedRepo" and status not in (401, 403, 404):
            return ModelUnavailable(
                f"{self._endpoint} answered with status {status}.",
                kept=partial,
                fix="Pull it again later.",
                billed=False,
            )
        if code == "RepoNotFound":
            text = (
                f"The repository {name.repo} does not exist at {self._endpoint}, or it is private."
            )
            fix = "Check the name; for a private repository set a token: export HF_TOKEN=…"
        elif status == 404:
            text, fix = f"{name.short} is not at {self._endpoint}.", "Check the name."
        else:
            gated = "is" if code == "GatedRepo" else "may be"
            text = f"The hub refuses {name.repo} (status {status}): it {gated} gated."
            fix = (
                f"Accept its terms at {self._endpoint}/{name.repo}, then set a token of your account:"
                " export HF_TOKEN=…, or hf auth login."
            )
        return ModelMissing(text, fix=fix, billed=False)


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
    file = Path(environ.get("HF_TOKEN_PATH") or hub_home() / "token")
    try:
        return file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError, RuntimeError):
        return ""


def _partial_text(part: Path | None) -> str:
    """A sentence about a partial file, or an empty text."""
    size = _size(part) if part else 0
    return f"The part downloaded so far is kept ({size_text(size)})." if size else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
