"""The gateways that are running: one small file each, which names the session but no token."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from ecoshell.budget.entries import alive
from ecoshell.paths import Paths, make_private, replacement

_PREFIX, _SUFFIX = "gateway-", ".json"


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that is running."""

    pid: int
    session: str
    port: int
    command: str
    """The program that it was started for; empty for a server."""


@contextmanager
def registered(paths: Paths, gateway: RunningGateway) -> Generator[None]:
    """List a gateway as running."""
    make_private(paths.run_folder)
    file = paths.run_folder / f"{_PREFIX}{gateway.pid}-{gateway.port}{_SUFFIX}"
    with replacement(file) as opened:
        opened.write(json.dumps(asdict(gateway)).encode())
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def running_gateways(paths: Paths) -> list[RunningGateway]:
    """Return the running gateways, and remove the files of those that were killed."""
    gateways: list[RunningGateway] = []
    for file in sorted(paths.run_folder.glob(f"{_PREFIX}*{_SUFFIX}")):
        with suppress(OSError, ValueError, TypeError):
            gateway = RunningGateway(**json.loads(file.read_bytes()))
            if gateway.pid != os.getpid() and not alive(gateway.pid):
                file.unlink(missing_ok=True)
            else:
                gateways.append(gateway)
    return gateways
