"""A small hub on loopback that speaks Hugging Face's protocol, and misbehaves where a test asks for it.

It serves `/api/models/OWNER/REPO` and `/OWNER/REPO/resolve/REV/FILE`; the latter redirects large files to another
address with a signed query, as the hub does to its storage, and takes ranges there.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repo:
    """A repository, and how it misbehaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    licence: str = "apache-2.0"
    gated: bool = False
    """Given only to those who send the token `good`."""
    private: bool = False
    said: dict[str, str] = field(default_factory=dict)
    """SHA-256 that is told in the place of the right one, by file."""
    unsaid: bool = False
    """Whether no SHA-256 is told at all."""
    cuts: int = 0
    """How many of the next downloads end in the middle of what they should send."""
    shares: tuple[int, ...] = (2,)
    """By how much what they should send is divided, in turn."""
    stall: threading.Event | None = None
    """Waited for in the middle of each download."""
    ranges: bool = True
    page: bytes = b""
    """What every download is answered with, as if it were the file."""
    status: int = 0
    """What every download is answered with; 0 is as it should be."""


class HubServer:
    """The server and its record."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.odd: Iterable[bytes] = ()
        """What is said of every repository, in the place of what it is, with `packed` as its encoding."""
        self.packed = ""
        self.asked: list[tuple[str, str, str]] = []
        """Method, path and Range of each request, in order."""
        self.tokens: list[tuple[str, str]] = []
        """Path and Authorization of each request that had one."""
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def storage(self) -> str:
        """The same server under another host's name."""
        return f"http://localhost:{self._server.server_port}"

    @property
    def ranges(self) -> list[str]:
        """The ranges that bytes were asked for by, in order; empty for the whole."""
        return [range_ for _, path, range_ in self.asked if path.startswith("/storage/")]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def hub_server() -> Iterator[HubServer]:
    server = HubServer()
    try:
        yield server
    finally:
        server.close()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: object) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.hub.asked.append((self.command, path, self.headers.get("range", "")))
        if token := self.headers.get("authorization"):
            self.hub.tokens.append((path, token))
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+?)(?:/revision/[^/]+)?", path):
            self._describe(found[1])
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(found[1], found[3])
        elif path.startswith("/storage/") and parse_qs(parts.query).get("signed") == ["yes"]:
            owner, name, file = path.removeprefix("/storage/").split("/", 2)
            self._send(self.hub.repos[f"{owner}/{name}"], file)
        else:
            self._say(404, {})

    def _describe(self, name: str) -> None:
        if self.hub.odd:
            self.send_response(200)
            if self.hub.packed:
                self.send_header("Content-Encoding", self.hub.packed)
            self.send_header("Connection", "close")
            self.end_headers()
            with suppress(OSError):
                for piece in self.hub.odd:
                    self.wfile.write(piece)
            self.close_connection = True
            return
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and self.headers.get("authorization") != "Bearer good"):
            self._say(401, {"error": "Invalid username or password."}, {"X-Error-Code": "RepoNotFound"})
            return
        siblings = [
            {
                "rfilename": file,
                "size": len(data),
                "blobId": "0" * 40,
                **({} if repo.unsaid or not file.endswith(".gguf") else {"lfs": self._lfs(repo, file)}),
            }
            for file, data in repo.files.items()
        ]
        self._say(
            200,
            {
                "_id": "1",
                "id": name,
                "modelId": name,
                "sha": COMMIT,
                "private": repo.private,
                "gated": "manual" if repo.gated else False,
                "tags": ["gguf", f"license:{repo.licence}"],
                "cardData": {"license": repo.licence},
                "siblings": siblings,
            },
        )

    def _lfs(self, repo: Repo, file: str) -> dict[str, object]:
        right = hashlib.sha256(repo.files[file]).hexdigest()
        return {"sha256": repo.said.get(file, right), "size": len(repo.files[file]), "pointerSize": 135}

    def _resolve(self, name: str, file: str) -> None:
        repo = self.hub.repos.get(name)
        if repo is None or file not in repo.files:
            self._say(404, {}, {"X-Error-Code": "EntryNotFound" if repo else "RepoNotFound"})
        elif repo.gated and self.headers.get("authorization") != "Bearer good":
            self._say(401, {"error": "Access to this model is restricted."}, {"X-Error-Code": "GatedRepo"})
        else:
            self.send_response(302)
            self.send_header("Location", f"{self.hub.storage}/storage/{name}/{file}?signed=yes")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("X-Linked-Size", str(len(repo.files[file])))
            self.send_header("X-Linked-ETag", f'"{hashlib.sha256(repo.files[file]).hexdigest()}"')
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _send(self, repo: Repo, file: str) -> None:
        if repo.status:
            self._say(repo.status, {})
            return
        data, start = repo.page or repo.files[file], 0
        ranges = repo.ranges and not repo.page
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", "")) if ranges else None
        if found:
            start = int(found[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        rest = data[start:]
        if repo.stall is not None:
            self.wfile.write(rest[: len(rest) // 2])
            self.wfile.flush()
            repo.stall.wait()
            rest = rest[len(rest) // 2 :]
        if repo.cuts:
            repo.cuts -= 1
            self.wfile.write(rest[: len(rest) // repo.shares[repo.cuts % len(repo.shares)]])
            self.wfile.flush()
            self.connection.close()
            self.close_connection = True
        else:
            self.wfile.write(rest)

    def _say(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
