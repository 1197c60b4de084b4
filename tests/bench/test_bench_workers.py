"""`bench tasks --workers`: several processes that play, die and are stopped, and what it comes to."""

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
from bench_play import SAID, Bench, task, timeless, written

from ecoshell.budget import NANO, parse_amount
from ecoshell.budget.postgres import TeamServer
from ecoshell.errors import EcoshellError, ModelMissing, UsageError

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


def waited(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


def gone(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def test_several_workers_come_to_what_one_does_in_the_same_order(play: Bench) -> None:
    loop = play.script("loop.jsonl", *SAID)
    both = ("--baseline-model", loop)
    alone = play.run(SIX, *both, "--events", str(play.folder / "1"), script=SAID)
    found = play.run(SIX, *both, "--events", str(play.folder / "3"), "--workers", "3", script=SAID)
    assert [row["id"] for row in found["rows"]] == ["f", "b", "e", "a", "d", "c"]
    assert [row["ok"] for row in found["rows"]] == [True, False, True, False, False, True]
    assert timeless(found) == timeless(alone)
    files = {path.name for path in (play.folder / "1").iterdir()}
    assert {path.name for path in (play.folder / "3").iterdir()} == files
    assert len(files) == 10
    assert not list(play.folder.glob("ecoshell-bench-*/*/"))


def test_a_worker_that_is_killed_is_replaced_and_its_task_played_again(play: Bench) -> None:
    log = play.folder / "log"
    tasks = (task("one"), task("killed", setup=ONCE_KILLED.format(log=log)), task("two"), task("three"))
    found = play.run(tasks, "--workers", "2", "--out", str(play.out), script=SAID)
    assert [(row["id"], row["ok"]) for row in found["rows"]] == [
        ("one", True),
        ("killed", True),
        ("two", True),
        ("three", True),
    ]
    assert log.read_text() == "x\n" * 2
    assert len(play.out.read_text().splitlines()) == 5


def test_a_task_that_kills_every_worker_ends_the_run_and_what_was_played_stays(play: Bench) -> None:
    tasks = (task("one"), task("deadly", setup="kill -9 $PPID"))
    with pytest.raises(EcoshellError, match=r"deadly could not be played: 3 workers died of it.* exit status -9"):
        play.run(tasks, "--workers", "2", "--out", str(play.out), script=SAID)
    found = play.run(tasks, "--workers", "2", "--resume", str(play.out), "--only", "one", script=SAID)
    assert (found["n"], found["success"]) == (1, 1.0)


def test_ctrl_c_ends_all_workers_and_keeps_what_was_played_and_resume_goes_on(play: Bench) -> None:
    pids, go = play.folder / "pids", play.folder / "go"
    slow = {"setup": f"echo $PPID >> {pids}; test -e {go} || sleep 50"}
    tasks = (task("slow", **slow), task("one"), task("two"), task("slow too", **slow))
    suite = written(play.folder / "suite.jsonl", *tasks)
    model = play.script("model.jsonl", *SAID)
    command = [sys.executable, "-m", "ecoshell", "bench", "tasks", "--suite", suite, "--model", model, "--json"]
    command += ["--registration", "names", "--workers", "2", "--out", play.out]
    pipe = subprocess.PIPE
    running = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    waited(lambda: play.out.exists() and len(play.out.read_text().splitlines()) == 3 and pids.exists())
    waited(lambda: len(pids.read_text().split()) == 2)
    os.killpg(running.pid, signal.SIGINT)
    printed, told = running.communicate(timeout=600)
    assert running.returncode == 130
    assert [row["id"] for row in json.loads(printed)["rows"]] == ["one", "two"]
    assert f"--resume {play.out} goes on there" in told
    assert "Traceback" not in told
    assert all(gone(int(pid)) for pid in pids.read_text().split())
    assert not list(play.folder.glob("ecoshell-bench-*/*/"))
    go.touch()
    found = play.run(tasks, "--resume", str(play.out), "--workers", "2", script=SAID)
    assert "2 of 4 are there" in play.told
    assert [(row["id"], row["ok"]) for row in found["rows"]] == [(one["id"], True) for one in tasks]


def test_a_used_up_budget_begins_no_further_task_and_keeps_those_that_run(play: Bench) -> None:
    found = play.run(SIX, "--budget", "10tok", "--workers", "2", "--out", str(play.out), script=SAID)
    assert play.status == 3
    assert found["n"] in (1, 2, 3)
    assert "The budget is used up" in play.told
    assert play.run(SIX, "--workers", "2", "--resume", str(play.out), script=SAID)["n"] == 6
    assert play.status == 0


def test_what_is_wrong_in_a_worker_is_told_as_it_is_without(play: Bench) -> None:
    with pytest.raises(ModelMissing, match="cannot be read"):
        play.run(SIX, "--workers", "2", "--model", "script:nowhere.jsonl")


@pytest.mark.parametrize("wrong", ["0", "-1", "2.5", "many", "1001"])
def test_a_number_of_workers_that_is_none_is_refused(play: Bench, wrong: str) -> None:
    with pytest.raises(UsageError, match=r"is not a number from 1 to 1000.*or ray://HOST:PORT"):
        play.run(SIX, f"--workers={wrong}")


@pytest.mark.parametrize("wrong", ["ray://", "ray://head", "ray:head:10001", "ray://head:99999", "ray://a@head:1"])
def test_what_is_no_address_of_a_cluster_is_refused(play: Bench, wrong: str) -> None:
    with pytest.raises(UsageError, match=r"is not the address of a Ray cluster.*ray://HOST:PORT"):
        play.run(SIX, "--workers", wrong)


@pytest.mark.parametrize("lacking", ["ray", "grpc"])
def test_where_rays_client_is_not_installed_it_is_said_how_it_is(
    play: Bench, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    monkeypatch.setitem(sys.modules, lacking, None)
    with pytest.raises(UsageError, match=r"needs Ray's client.*pip install 'ecoshell\[scale\]'"):
        play.run(SIX, "--workers", "ray://127.0.0.1:10001")


def test_workers_are_as_many_as_tasks_at_most(play: Bench) -> None:
    pids: Path = play.folder / "pids"
    tasks = [task(str(number), setup=f"echo $PPID >> {pids}") for number in range(2)]
    play.run(tasks, "--workers", "1000", script=SAID)
    assert len(set(pids.read_text().split())) <= 2


Team = Callable[..., str]


@pytest.fixture
def admin(play: Bench, team_ledger: Team, monkeypatch: pytest.MonkeyPatch) -> Iterator[TeamServer]:
    """The administrator of the ledger of ann's team; she pays a tenth of a cent for a token of the script."""
    monkeypatch.setenv("ECOSHELL_LEDGER", team_ledger("ann"))
    settings = play.folder / "home" / "config" / "config.toml"
    settings.parent.mkdir(parents=True)
    price = 'price = { input = "1000", output = "1000" }'
    settings.write_text(f'[models."script:{play.folder}/model.jsonl"]\n{price}\n[budget]\nproject = "measuring"\n')
    server = TeamServer(team_ledger("postgres"))
    server.set_cap("team:search", "month", 100 * NANO)
    yield server
    server.close()


def paid(found: Any) -> int:
    """What the rows of both sides say, in nano-dollars."""
    rows = [*found["rows"], *found["baseline"]["rows"]]
    return sum(parse_amount(row["price_usd"]).value for row in rows if row["price_usd"] != "0")


def test_every_worker_reserves_from_the_ledger_of_a_team_for_both_sides_and_the_sums_agree(
    play: Bench, admin: TeamServer
) -> None:
    found = play.run(SIX, "--baseline", "--workers", "2", script=SAID)
    (cap,) = admin.caps()
    assert (cap.spent, cap.held, cap.leased) == (paid(found), 0, 0)
    assert cap.spent > NANO
    (project,) = admin.costs("project")
    assert (project.key, project.spent_nano) == ("measuring", cap.spent)
    assert project.calls == 10  # the one that cannot be prepared is played by nobody
    assert project.usage.input == found["tokens"]["prompt"] + found["baseline"]["tokens"]["prompt"]


def test_a_teams_cap_that_is_reached_ends_the_run_and_what_it_cut_short_is_played_again(
    play: Bench, admin: TeamServer
) -> None:
    admin.set_cap("team:search", "month", 6 * NANO)
    found = play.run(SIX, "--baseline", "--workers", "2", "--out", str(play.out), script=SAID)
    assert play.status == 3
    assert "the team:search month's cap of $6 has" in play.told
    assert "ecoshell budget set team:search month AMOUNT" in play.told
    assert f"--resume {play.out} goes on there" in play.told
    assert all(row["status"] in ("answered", "setup") for row in [*found["rows"], *found["baseline"]["rows"]])
    (cap,) = admin.caps()
    assert paid(found) <= cap.spent <= cap.limit
    assert (cap.held, cap.leased) == (0, 0)
    admin.set_cap("team:search", "month", 100 * NANO)
    found = play.run(SIX, "--baseline", "--workers", "2", "--resume", str(play.out), script=SAID)
    assert (play.status, found["n"], found["baseline"]["n"]) == (0, 6, 6)


def test_without_the_server_of_the_teams_ledger_no_task_counts_as_failed(
    play: Bench, admin: TeamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
    monkeypatch.setenv("ECOSHELL_LEDGER", f"postgresql://ann@127.0.0.1:{closed}/ledger")
    with pytest.raises(EcoshellError, match=r"could not be played: ServerAway: .* cannot be reached"):
        play.run(SIX, "--workers", "2", "--out", str(play.out), script=SAID)
    assert len(play.out.read_text().splitlines()) == 1
