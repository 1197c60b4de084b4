"""`bench tasks --workers ray://…` with a Ray cluster of one machine, as `ray start --head` makes it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_play import SAID, task, timeless, written

pytest.importorskip("ray", reason="needs Ray")
pytest.importorskip("grpc", reason="needs Ray's client")

MAIN = "import sys; from ecoshell.cli import main; sys.exit(main())"


class Cluster:
    """Its address, and the environment in which it was started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"ray://127.0.0.1:{port}"
        patient = {"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "600"}
        self.environment = {**os.environ, **patient, "TMPDIR": str(folder), "ECOSHELL_HOME": str(folder / "home")}
        options = f"--head --port=0 --num-cpus=2 --ray-client-server-port={port} --temp-dir={folder} --block"
        more = "--include-dashboard=false --disable-usage-stats"
        self.command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options.split(), *more.split()]
        self.log = folder / "head.log"
        self.start()
        end = time.monotonic() + 600
        while "Ray runtime started" not in self.log.read_text():
            assert time.monotonic() < end, self.log.read_text()
            if self.head.poll() is not None:  # Ray gives a node half a minute to begin, however busy the machine is
                self.start()
            time.sleep(0.2)

    def start(self) -> None:
        with self.log.open("wb") as log:
            self.head = subprocess.Popen(
                self.command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def bench(self, tasks: list[Any], *arguments: str, program: str = MAIN) -> subprocess.CompletedProcess[str]:
        suite = written(self.folder / "suite.jsonl", *tasks)
        model = f"script:{written(self.folder / 'model.jsonl', *SAID)}"
        given = ("bench", "tasks", "--suite", str(suite), "--model", model, "--registration", "names", "--json")
        return subprocess.run(
            [sys.executable, "-c", program, *given, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,
        )

    def lose(self) -> None:
        """As if the power went."""
        os.killpg(self.head.pid, signal.SIGKILL)

    def end(self) -> None:
        self.head.send_signal(signal.SIGTERM)
        self.head.wait(600)
        shutil.rmtree(self.folder, ignore_errors=True)


def begun() -> Cluster:
    return Cluster(Path(tempfile.mkdtemp(prefix="r", dir="/tmp")))  # sockets have short names


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = begun()
    yield made
    made.end()


def test_a_cluster_comes_to_what_one_worker_does_also_where_one_of_its_own_is_killed(cluster: Cluster) -> None:
    log = cluster.folder / "log"
    once = f'echo x >> {log}; [ "$(wc -l < {log})" -gt 1 ] || kill -9 $PPID'
    tasks = [task("c"), task("a", setup=once), task("d", setup="exit 3"), task("b", check={"answer_lacks": ["1204"]})]
    log.write_text("x\n" * 2)
    alone = cluster.bench(tasks, "--baseline")
    log.unlink()
    out, events = cluster.folder / "out.jsonl", cluster.folder / "events"
    found = cluster.bench(tasks, "--baseline", "--workers", cluster.address, "--out", str(out), "--events", str(events))
    assert found.returncode == 0, found.stderr
    assert timeless(json.loads(found.stdout)) == timeless(json.loads(alone.stdout))
    assert len(log.read_text().splitlines()) == 3  # once more for the plain loop
    assert len(out.read_text().splitlines()) == 9
    assert len(list(events.iterdir())) == 6


def test_a_cluster_of_other_versions_is_refused_with_both(cluster: Cluster) -> None:
    ray = cluster.bench(
        [task("a")], "--workers", cluster.address, program=f"import ray; ray.__version__ = '1.2'; {MAIN}"
    )
    assert ray.returncode == 2
    assert "Version mismatch" in ray.stderr
    assert "Use the cluster's versions of Ray and Python" in ray.stderr
    assert "Traceback" not in ray.stderr
    other = f"import ecoshell; ecoshell.__version__ = '99.0'; {MAIN}"
    shell = cluster.bench([task("a")], "--workers", cluster.address, program=other)
    assert shell.returncode == 2
    assert "not 99.0" in shell.stderr
    assert "Install ecoshell 99.0" in shell.stderr


def test_a_cluster_that_is_not_there_is_said_with_how_it_is_started(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    told = cluster.bench([task("a")], "--workers", f"ray://127.0.0.1:{closed}")
    assert told.returncode == 2
    assert "There is no Ray cluster at ray://127.0.0.1" in told.stderr
    assert "ray start --head" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_cluster_that_is_lost_in_mid_run_is_told_with_how_to_go_on_and_what_was_played_stays() -> None:
    lost = begun()
    out = lost.folder / "out.jsonl"
    pulled = threading.Thread(target=lambda: (written_lines(out, 2), lost.lose()))
    pulled.start()
    told = lost.bench(
        [task("one"), task("slow", setup="sleep 50; sleep 50")], "--workers", lost.address, "--out", str(out)
    )
    pulled.join()
    assert told.returncode == 1
    assert "The cluster is gone" in told.stderr
    assert "What was played is kept." in told.stderr
    assert "--resume goes on" in told.stderr
    assert "Traceback" not in told.stderr
    assert len(out.read_text().splitlines()) == 2
    shutil.rmtree(lost.folder, ignore_errors=True)


def written_lines(path: Path, count: int) -> None:
    """Wait until a file has so many lines."""
    while not path.exists() or len(path.read_text().splitlines()) < count:
        time.sleep(0.1)
