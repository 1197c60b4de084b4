"""A small hub on loopback that speaks Hugging Face's protocol, and misbehaves on request.

It serves `/api/models/OWNER/REPO` and `/OWNER/REPO/resolve/REV/FILE`; the latter redirects large files to another
address with a signed query, as the hub does for its storage, and accepts ranges there.
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
    """A repository with its files and faults."""

    files: dict[str, bytes] = field(default_factory=dict)
    licence: str = "apache-2.0"
    gated: bool = False
    """Downloads need the token `good`."""
    private: bool = False
    wrong_hashes: dict[str, str] = field(default_factory=dict)
    """False SHA-256 values by file."""
    has_hashes: bool = True
    cuts: int = 0
    """How many of the next downloads break off early."""
    shares: tuple[int, ...] = (2,)
    """Divisors of the size at which downloads break off, in turn."""
    stall: threading.Event | None = None
    """Event that each download waits for half-way."""
    ranges: bool = True
    page: bytes = b""
    """Content sent instead of every file."""
    status: int = 0
    """Status of every download; 0 means the correct one."""


class HubServer:
    """The server and its recorded requests."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.odd: Iterable[bytes] = ()
        """Raw description sent for every repository."""
        self.asked: list[tuple[str, str, str]] = []
        """Method, path and Range of each request, in order."""
        self.tokens: list[tuple[str, str]] = []
        """Path and Authorization of each request that had one."""
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def storage(self) -> str:
        """The same server under another host name."""
        return f"http://localhost:{self._server.server_port}"

    @property
    def ranges(self) -> list[str]:
        """The requested ranges, in order; empty for a whole file."""
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
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+?)(?:/revision/[^/]+)?", path):
            self._describe(match[1])
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(match[1], match[3])
        elif path.startswith("/storage/") and parse_qs(parts.query).get("signed") == ["yes"]:
            owner, name, file = path.removeprefix("/storage/").split("/", 2)
            self._send(self.hub.repos[f"{owner}/{name}"], file)
        else:
            self._say(404, {})

    def _describe(self, name: str) -> None:
        if self.hub.odd:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            with suppress(OSError):
                for piece in self.hub.odd:
                    self.wfile.write(piece)
            self.close_connection = True
            return
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and self.headers.get("authorization") != "Bearer good"):
            self._say(
                401, {"error": "Invalid username or password."}, {"X-Error-Code": "RepoNotFound"}
            )
            return
        siblings = [
            {
                "rfilename": file,
                "size": len(data),
                "blobId": "0" * 40,
                **(
                    {"lfs": self._lfs(repo, file)}
                    if repo.has_hashes and file.endswith(".gguf")
                    else {}
                ),
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
        digest = hashlib.sha256(repo.files[file]).hexdigest()
        return {
            "sha256": repo.wrong_hashes.get(file, digest),
            "size": len(repo.files[file]),
            "pointerSize": 135,
        }

    def _resolve(self, name: str, file: str) -> None:
        repo = self.hub.repos.get(name)
        if repo is None or file not in repo.files:
            self._say(404, {}, {"X-Error-Code": "EntryNotFound" if repo else "RepoNotFound"})
        elif repo.gated and self.headers.get("authorization") != "Bearer good":
            self._say(
                401, {"error": "Access to this model is restricted."}, {"X-Error-Code": "GatedRepo"}
            )
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
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", "")) if ranges else None
        if match:
            start = int(match[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        content = data[start:]
        if repo.stall is not None:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            repo.stall.wait()
            content = content[len(content) // 2 :]
        if repo.cuts:
            repo.cuts -= 1
            self.wfile.write(content[: len(content) // repo.shares[repo.cuts % len(repo.shares)]])
            self.wfile.flush()
            self.connection.close()
            self.close_connection = True
        else:
            self.wfile.write(content)

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
