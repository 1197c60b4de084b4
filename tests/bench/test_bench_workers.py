"""`bench tasks --workers`: several processes run tasks, die or are stopped, and the results stay correct."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from bench_play import SAME_ANSWERS, Bench, task, without_seconds, written

from ecoshell.budget import NANO, parse_amount
from ecoshell.errors import EcoshellError, ModelMissing, UsageError
from ecoshell_team.server import TeamServer

SIX = (
    task("f"),
    task("b", kind="other", check={"answer_contains": ["12"]}),
    task("e", files={"a.txt": "x"}, check={"file": {"a.txt": "x"}}),
    task("a", setup="exit 3"),
    task("d", check={"answer_lacks": ["1204"]}),
    task("c", request="How much is it, and why?"),
)
ONCE_KILLED = 'echo x >> {log}; [ "$(wc -l < {log})" -gt 1 ] || kill -9 $PPID'
"""Kills the worker that prepares a task, the first time."""


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def has_ended(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def test_several_workers_give_the_rows_of_a_single_one_in_the_same_order(play: Bench) -> None:
    loop = play.script("loop.jsonl", *SAME_ANSWERS)
    both = ("--baseline-model", loop)
    expected = play.run(SIX, *both, "--events", str(play.folder / "1"), script=SAME_ANSWERS)
    record = play.run(
        SIX, *both, "--events", str(play.folder / "3"), "--workers", "3", script=SAME_ANSWERS
    )
    assert [row["id"] for row in record["rows"]] == ["f", "b", "e", "a", "d", "c"]
    assert [row["ok"] for row in record["rows"]] == [True, False, True, False, False, True]
    assert without_seconds(record) == without_seconds(expected)
    files = {path.name for path in (play.folder / "1").iterdir()}
    assert {path.name for path in (play.folder / "3").iterdir()} == files
    assert len(files) == 10
    assert not list(play.folder.glob("ecoshell-bench-*/*/"))


def test_killed_worker_is_replaced_and_its_task_runs_again(play: Bench) -> None:
    log = play.folder / "log"
    tasks = (
        task("one"),
        task("killed", setup=ONCE_KILLED.format(log=log)),
        task("two"),
        task("three"),
    )
    record = play.run(tasks, "--workers", "2", "--out", str(play.out), script=SAME_ANSWERS)
    assert [(row["id"], row["ok"]) for row in record["rows"]] == [
        ("one", True),
        ("killed", True),
        ("two", True),
        ("three", True),
    ]
    assert log.read_text() == "x\n" * 2
    assert len(play.out.read_text().splitlines()) == 5


@pytest.mark.slow
def test_task_that_kills_every_worker_ends_the_run_and_keeps_results(play: Bench) -> None:
    tasks = (task("one"), task("deadly", setup="kill -9 $PPID"))
    with pytest.raises(
        EcoshellError, match=r"deadly could not be run: 3 workers died with it.* exit status -9"
    ):
        play.run(tasks, "--workers", "2", "--out", str(play.out), script=SAME_ANSWERS)
    record = play.run(
        tasks, "--workers", "2", "--resume", str(play.out), "--only", "one", script=SAME_ANSWERS
    )
    assert (record["n"], record["success"]) == (1, 1.0)


def test_ctrl_c_ends_all_workers_and_the_run_can_be_resumed(play: Bench) -> None:
    pids, go = play.folder / "pids", play.folder / "go"
    slow = {"setup": f"echo $PPID >> {pids}; test -e {go} || sleep 50"}
    tasks = (task("slow", **slow), task("one"), task("two"), task("slow too", **slow))
    suite = written(play.folder / "suite.jsonl", *tasks)
    model = play.script("model.jsonl", *SAME_ANSWERS)
    command = [
        sys.executable,
        "-m",
        "ecoshell",
        "bench",
        "tasks",
        "--suite",
        suite,
        "--model",
        model,
        "--json",
    ]
    command += ["--registration", "names", "--workers", "2", "--out", play.out]
    pipe = subprocess.PIPE
    running = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    wait_until(
        lambda: play.out.exists() and len(play.out.read_text().splitlines()) == 3 and pids.exists()
    )
    wait_until(lambda: len(pids.read_text().split()) == 2)
    os.killpg(running.pid, signal.SIGINT)
    printed, stderr = running.communicate(timeout=600)
    assert running.returncode == 130
    assert [row["id"] for row in json.loads(printed)["rows"]] == ["one", "two"]
    assert f"Resume with --resume {play.out}" in stderr
    assert "Traceback" not in stderr
    assert all(has_ended(int(pid)) for pid in pids.read_text().split())
    assert not list(play.folder.glob("ecoshell-bench-*/*/"))
    go.touch()
    record = play.run(tasks, "--resume", str(play.out), "--workers", "2", script=SAME_ANSWERS)
    assert "2 of 4 are done" in play.notes
    assert [(row["id"], row["ok"]) for row in record["rows"]] == [
        (each["id"], True) for each in tasks
    ]


@pytest.mark.slow
def test_used_up_budget_starts_no_further_task_and_keeps_running_ones(play: Bench) -> None:
    record = play.run(
        SIX, "--budget", "10tok", "--workers", "2", "--out", str(play.out), script=SAME_ANSWERS
    )
    assert play.status == 3
    assert record["n"] in (1, 2, 3)
    assert "The budget of this run is used up" in play.notes
    assert play.run(SIX, "--workers", "2", "--resume", str(play.out), script=SAME_ANSWERS)["n"] == 6
    assert play.status == 0


def test_error_in_a_worker_is_raised_as_without_workers(play: Bench) -> None:
    with pytest.raises(ModelMissing, match="cannot be read"):
        play.run(SIX, "--workers", "2", "--model", "script:nowhere.jsonl")


@pytest.mark.parametrize("wrong", ["0", "-1", "2.5", "many", "1001"])
def test_invalid_number_of_workers_is_refused(play: Bench, wrong: str) -> None:
    with pytest.raises(UsageError, match=r"is not a number from 1 to 1000.*or ray://HOST:PORT"):
        play.run(SIX, f"--workers={wrong}")


@pytest.mark.parametrize(
    "wrong", ["ray://", "ray://head", "ray:head:10001", "ray://head:99999", "ray://a@head:1"]
)
def test_invalid_cluster_address_is_refused(play: Bench, wrong: str) -> None:
    with pytest.raises(UsageError, match=r"is not the address of a Ray cluster.*ray://HOST:PORT"):
        play.run(SIX, "--workers", wrong)


@pytest.mark.parametrize("missing", ["ray", "grpc"])
def test_missing_ray_client_is_reported_with_the_install_command(
    play: Bench, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=r"needs Ray's client.*pip install 'ecoshell\[scale\]'"):
        play.run(SIX, "--workers", "ray://127.0.0.1:10001")


@pytest.mark.slow
def test_there_are_at_most_as_many_workers_as_tasks(play: Bench) -> None:
    pids: Path = play.folder / "pids"
    tasks = [task(str(number), setup=f"echo $PPID >> {pids}") for number in range(2)]
    play.run(tasks, "--workers", "1000", script=SAME_ANSWERS)
    assert len(set(pids.read_text().split())) <= 2


Team = Callable[..., str]


@pytest.fixture
def admin(play: Bench, team_ledger: Team, monkeypatch: pytest.MonkeyPatch) -> Iterator[TeamServer]:
    """The administrator of a team ledger used by ann; a token of the script costs a tenth of a cent."""
    monkeypatch.setenv("ECOSHELL_LEDGER", team_ledger("ann"))
    settings = play.folder / "home" / "config" / "config.toml"
    settings.parent.mkdir(parents=True)
    price = 'price = { input = "1000", output = "1000" }'
    settings.write_text(
        f'[models."script:{play.folder}/model.jsonl"]\n{price}\n[budget]\nproject = "measuring"\n'
    )
    server = TeamServer(team_ledger("postgres"))
    server.set_cap("team:search", "month", 100 * NANO)
    yield server
    server.close()


def total_price(record: Any) -> int:
    """Sum the prices of the rows of both sides, in nano-dollars."""
    rows = [*record["rows"], *record["baseline"]["rows"]]
    return sum(parse_amount(row["price_usd"]).value for row in rows if row["price_usd"] != "0")


@pytest.mark.slow
def test_workers_reserve_from_the_team_ledger_for_both_sides(
    play: Bench, admin: TeamServer
) -> None:
    record = play.run(SIX, "--baseline", "--workers", "2", script=SAME_ANSWERS)
    (cap,) = admin.caps()
    assert (cap.spent, cap.held, cap.leased) == (total_price(record), 0, 0)
    assert cap.spent > NANO
    (project,) = admin.costs("project")
    assert (project.key, project.spent_nano) == ("measuring", cap.spent)
    assert project.calls == 10  # the task with a failing setup makes no call
    assert (
        project.usage.input == record["tokens"]["prompt"] + record["baseline"]["tokens"]["prompt"]
    )


def test_reached_team_cap_ends_the_run_and_the_cut_task_runs_again_on_resume(
    play: Bench, admin: TeamServer
) -> None:
    admin.set_cap("team:search", "month", 6 * NANO)
    record = play.run(
        SIX, "--baseline", "--workers", "2", "--out", str(play.out), script=SAME_ANSWERS
    )
    assert play.status == 3
    assert "the team:search month's cap of $6 has" in play.notes
    assert "ecoshell budget set team:search month AMOUNT" in play.notes
    assert f"Resume with --resume {play.out}" in play.notes
    assert all(
        row["status"] in ("answered", "setup")
        for row in [*record["rows"], *record["baseline"]["rows"]]
    )
    (cap,) = admin.caps()
    assert total_price(record) <= cap.spent <= cap.limit
    assert (cap.held, cap.leased) == (0, 0)
    admin.set_cap("team:search", "month", 100 * NANO)
    record = play.run(
        SIX, "--baseline", "--workers", "2", "--resume", str(play.out), script=SAME_ANSWERS
    )
    assert (play.status, record["n"], record["baseline"]["n"]) == (0, 6, 6)


def test_unreachable_team_ledger_fails_no_task(
    play: Bench, admin: TeamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    monkeypatch.setenv("ECOSHELL_LEDGER", f"postgresql://ann@127.0.0.1:{closed}/ledger")
    with pytest.raises(EcoshellError, match=r"could not be run: ServerAway: .* cannot be reached"):
        play.run(SIX, "--workers", "2", "--out", str(play.out), script=SAME_ANSWERS)
    assert len(play.out.read_text().splitlines()) == 1
