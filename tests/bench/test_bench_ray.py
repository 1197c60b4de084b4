"""`bench tasks --workers ray://…` with a Ray cluster on this machine, started by `ray start --head`."""

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
from bench_play import SAME_ANSWERS, task, without_seconds, written

pytest.importorskip("ray", reason="needs Ray")
pytest.importorskip("grpc", reason="needs Ray's client")

MAIN = "import sys; from ecoshell.cli import main; sys.exit(main())"


class Cluster:
    """A running Ray head node, its address and its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"ray://127.0.0.1:{port}"
        patient = {"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "600"}
        self.environment = {
            **os.environ,
            **patient,
            "TMPDIR": str(folder),
            "ECOSHELL_HOME": str(folder / "home"),
        }
        options = f"--head --port=0 --num-cpus=2 --ray-client-server-port={port} --temp-dir={folder} --block"
        more = "--include-dashboard=false --disable-usage-stats"
        self.command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            *options.split(),
            *more.split(),
        ]
        self.log = folder / "head.log"
        self.start()
        end = time.monotonic() + 600
        while "Ray runtime started" not in self.log.read_text():
            assert time.monotonic() < end, self.log.read_text()
            if (
                self.head.poll() is not None
            ):  # Ray gives up after half a minute, which a busy machine may exceed
                self.start()
            time.sleep(0.2)

    def start(self) -> None:
        with self.log.open("wb") as log:
            self.head = subprocess.Popen(
                self.command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def bench(
        self, tasks: list[Any], *arguments: str, program: str = MAIN
    ) -> subprocess.CompletedProcess[str]:
        suite = written(self.folder / "suite.jsonl", *tasks)
        model = f"script:{written(self.folder / 'model.jsonl', *SAME_ANSWERS)}"
        command = (
            "bench",
            "tasks",
            "--suite",
            str(suite),
            "--model",
            model,
            "--registration",
            "names",
            "--json",
        )
        return subprocess.run(
            [sys.executable, "-c", program, *command, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,
        )

    def kill(self) -> None:
        """Kill all processes of the node at once, like a power failure."""
        os.killpg(self.head.pid, signal.SIGKILL)

    def end(self) -> None:
        self.head.send_signal(signal.SIGTERM)
        self.head.wait(600)
        shutil.rmtree(self.folder, ignore_errors=True)


def start_cluster() -> Cluster:
    return Cluster(Path(tempfile.mkdtemp(prefix="r", dir="/tmp")))  # paths of sockets must be short


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = start_cluster()
    yield cluster
    cluster.end()


def test_cluster_gives_the_rows_of_one_worker_even_if_an_actor_is_killed(cluster: Cluster) -> None:
    log = cluster.folder / "log"
    once = f'echo x >> {log}; [ "$(wc -l < {log})" -gt 1 ] || kill -9 $PPID'
    tasks = [
        task("c"),
        task("a", setup=once),
        task("d", setup="exit 3"),
        task("b", check={"answer_lacks": ["1204"]}),
    ]
    log.write_text("x\n" * 2)
    expected = cluster.bench(tasks, "--baseline")
    log.unlink()
    out, events = cluster.folder / "out.jsonl", cluster.folder / "events"
    finished = cluster.bench(
        tasks,
        "--baseline",
        "--workers",
        cluster.address,
        "--out",
        str(out),
        "--events",
        str(events),
    )
    assert finished.returncode == 0, finished.stderr
    assert without_seconds(json.loads(finished.stdout)) == without_seconds(
        json.loads(expected.stdout)
    )
    assert len(log.read_text().splitlines()) == 3  # once more for the plain loop
    assert len(out.read_text().splitlines()) == 9
    assert len(list(events.iterdir())) == 6


def test_cluster_with_other_versions_is_refused(cluster: Cluster) -> None:
    ray = cluster.bench(
        [task("a")],
        "--workers",
        cluster.address,
        program=f"import ray; ray.__version__ = '1.2'; {MAIN}",
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


def test_missing_cluster_is_reported_with_the_start_command(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    process = cluster.bench([task("a")], "--workers", f"ray://127.0.0.1:{closed}")
    assert process.returncode == 2
    assert "There is no Ray cluster at ray://127.0.0.1" in process.stderr
    assert "ray start --head" in process.stderr
    assert "Traceback" not in process.stderr


def test_cluster_lost_during_a_run_is_reported_and_results_are_kept() -> None:
    cluster = start_cluster()
    out = cluster.folder / "out.jsonl"
    killer = threading.Thread(target=lambda: (wait_for_lines(out, 2), cluster.kill()))
    killer.start()
    process = cluster.bench(
        [task("one"), task("slow", setup="sleep 50; sleep 50")],
        "--workers",
        cluster.address,
        "--out",
        str(out),
    )
    killer.join()
    assert process.returncode == 1
    assert "The connection to the cluster was lost" in process.stderr
    assert "The results so far are kept." in process.stderr
    assert "Add --resume FILE" in process.stderr
    assert "Traceback" not in process.stderr
    assert len(out.read_text().splitlines()) == 2
    shutil.rmtree(cluster.folder, ignore_errors=True)


def wait_for_lines(path: Path, count: int) -> None:
    """Wait until a file has this many lines."""
    while not path.exists() or len(path.read_text().splitlines()) < count:
        time.sleep(0.1)
