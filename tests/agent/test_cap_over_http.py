"""Whole turns under caps, over real HTTP and SQLite, against providers that misbehave in many ways.

One shell runs most turns, each in a new session, so that litellm is loaded once. While a turn runs, a second reader of
the same ledger checks every cap repeatedly.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from agent_play import of, turn
from hostile_server import hostile_server
from ledger_totals import wrong_totals
from llama_server import free_port, llama_address, llama_server
from processes import processes_of

from ecoshell.assembly.shell import assemble
from ecoshell.budget import CapState
from ecoshell.budget.entries import Entry
from ecoshell.budget.ledger import Ledger
from ecoshell.cli import main
from ecoshell.events import (
    BudgetHeld,
    BudgetSettled,
    ErrorHappened,
    Event,
    LimitHit,
    Notice,
    PlanChanged,
    TurnFinished,
)
from ecoshell.messages import Usage
from ecoshell.options import Options
from ecoshell.paths import user_paths

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sk-test-0123456789abcdef"
BROKEN_OFF = ("cut", "reset", "error-inside", "gave-up-waiting", "no-funds", "broken-down")
UNUSABLE = ("garbage", "web-page", "half-json")
SILENT = ("no-usage", "garbage-usage", "negative-usage", "zero-usage")
TURNED_AWAY = ("too-many",)
HOSTILE = (
    *("good", "double-usage", "overbilling", "endless", "greedy", "moody"),
    *(*BROKEN_OFF, *UNUSABLE, *SILENT, *TURNED_AWAY),
)
MODEL = """
[models."openai/{name}"]
base_url = "{address}"
price = {{ input = 1, output = 4 }}
"""
BUSY_SECONDS = 600
"""Limit for the processes started here."""


@dataclass(frozen=True)
class PlayedTurn:
    """The events of one turn, and its caps and ledger entries afterwards."""

    events: list[Event]
    caps: tuple[CapState, ...]
    entries: list[Entry]

    @property
    def end(self) -> TurnFinished:
        assert isinstance(self.events[-1], TurnFinished)
        return self.events[-1]

    @property
    def states(self) -> list[str]:
        return [entry.state for entry in self.entries]

    @property
    def error(self) -> ErrorHappened:
        (error,) = of(self.events, ErrorHappened)
        return error


@pytest.fixture(scope="module")
def server():
    with hostile_server() as running:
        yield running


@pytest.fixture(autouse=True)
def forget(server):
    server.forget()


@pytest.fixture(scope="module")
def llama_port():
    return free_port()


@pytest.fixture(scope="module")
def home(tmp_path_factory, server, llama_port):
    """Create a home whose settings declare every behaviour of the server as a model; return its workspace."""
    root = tmp_path_factory.mktemp("cap")
    workspace = root / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("one\ntwo\nthree\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ECOSHELL_HOME", str(root / "home"))
        patch.setenv("OPENAI_API_KEY", KEY)
        settings = user_paths().settings_file
        settings.parent.mkdir(parents=True)
        declared = [MODEL.format(name=name, address=server.openai) for name in HOSTILE]
        embedded = (
            MODEL.format(name="smollm2", address=llama_address(llama_port)) + "context = 2048\n"
        )
        brief = "[agent]\nmax_output_tokens = 64\nanswer_tokens = 64\n[models]\nretry_seconds = 2\n"
        settings.write_text(brief + "".join(declared) + embedded)
        yield workspace


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shell(home):
    shell = await assemble(Options(model="openai/good", workspace=home, registration="names"))
    for cap in ("day 20", "month 20"):
        await shell.command(f"/budget {cap}")
    yield shell
    await shell.aclose()
    assert processes_of(home.parent / "home") == []


@pytest.fixture
def play(shell):
    """Run a turn with a model under caps; check that nothing stays reserved and no cap is exceeded."""

    async def played(model, *caps, new=True):
        if new:
            await shell.command("/new")
        await shell.command(f"/model openai/{model}")
        for cap in caps or ("turn 100000tok", "session 0.50"):
            await shell.command(f"/budget {cap}")
        with watched(lambda: (shell.session, shell.conversation.turn)) as passed:
            events = await turn(shell)
        assert passed == []
        states = await shell.deps.budget.caps()
        assert [cap.held for cap in states] == [0] * len(states)
        assert wrong_totals(shell.ledger) == ()
        entries = [shell.ledger.entry(event.entry) for event in of(events, BudgetHeld)]
        return PlayedTurn(events, states, entries)

    yield played
    for model in shell.ledger.barred():
        shell.ledger.unbar(model)


@contextmanager
def watched(where):
    """Check every cap of the session and turn that `where()` returns, in a thread; yield those exceeded."""
    passed: list[CapState] = []
    checks = 0
    done = threading.Event()

    def check():
        nonlocal checks
        ledger = Ledger(user_paths().ledger_file)
        while not done.is_set() or not checks:
            passed.extend(cap for cap in ledger.caps(*where()) if cap.spent + cap.held > cap.limit)
            checks += 1
            time.sleep(0.005)
        ledger.close()

    checker = threading.Thread(target=check)
    checker.start()
    try:
        yield passed
    finally:
        done.set()
        checker.join()
        assert checks


async def test_the_reported_usage_is_charged(play):
    played = await play("good")
    assert (played.end.status, played.end.answer) == ("answered", "The answer.")
    (entry,) = played.entries
    assert (entry.state, entry.usage) == (
        "settled",
        Usage(input=70, output=12, cached=40, reasoning=5),
    )
    assert played.end.spent_nano == entry.spent_nano == 70 * 1000 + 12 * 4000
    assert {cap.spent for cap in played.caps if cap.scope in ("turn", "session")} == {
        82,
        entry.spent_nano,
    }


async def test_the_larger_of_two_usage_reports_is_charged(play):
    played = await play("double-usage")
    (entry,) = played.entries
    assert entry.usage == Usage(input=140, output=24)
    assert (entry.overrun_nano, entry.overrun_tokens) == (0, 0)


@pytest.mark.parametrize("behaviour", SILENT)
async def test_without_a_plausible_usage_report_the_whole_reservation_is_charged(play, behaviour):
    played = await play(behaviour)
    assert (played.end.status, played.end.answer) == ("answered", "The answer.")
    assert_whole_reservation_charged(played)


@pytest.mark.parametrize("behaviour", [*BROKEN_OFF, *UNUSABLE])
async def test_a_failed_call_that_may_be_billed_is_charged_its_whole_reservation(
    play, server, behaviour
):
    played = await play(behaviour)
    assert played.end.status == "error"
    assert played.error.kind in ("ModelUnavailable", "ModelBroken")
    assert_whole_reservation_charged(played)
    assert len(server.asked) == len(played.entries)
    assert (len(server.asked) > 1) == (behaviour in ("gave-up-waiting", "broken-down"))


@pytest.mark.parametrize("behaviour", TURNED_AWAY)
async def test_a_call_rejected_with_429_costs_nothing_and_is_retried(play, server, behaviour):
    played = await play(behaviour)
    assert (played.end.status, played.end.spent_nano) == ("error", 0)
    assert played.states == ["released"] * 2
    assert len({entry.id for entry in played.entries}) == len(server.asked) == 2
    assert {cap.spent for cap in played.caps if cap.scope in ("turn", "session")} == {0}


async def test_an_overbilling_model_is_disabled_until_the_user_enables_it(play, server, capsys):
    played = await play("overbilling")
    (entry,) = played.entries
    (settled,) = of(played.events, BudgetSettled)
    assert settled.overrun_nano == entry.overrun_nano == entry.spent_nano - entry.held_nano > 0
    assert any("openai/overbilling billed $" in notice.text for notice in of(played.events, Notice))

    again = await play("overbilling", new=False)
    assert (again.error.kind, again.end.spent_nano, again.entries) == ("ModelDisabled", 0, [])
    assert len(server.asked) == 1

    assert await asyncio.to_thread(main, ["models", "--unbar", "openai/overbilling"]) == 0
    capsys.readouterr()
    trusted = await play("overbilling", new=False)
    assert trusted.end.status == "answered"
    assert len(server.asked) == 2


async def test_a_disabled_model_can_be_used_without_a_cap(shell, play, server):
    await play("overbilling")
    await shell.command("/new")
    limits = [cap.scope for cap in await shell.deps.budget.caps()]
    for scope in limits:
        await shell.command(f"/budget {scope} off")
    try:
        events = await turn(shell)
    finally:
        for scope in limits:
            await shell.command(f"/budget {scope} 20")
    assert events[-1].status == "answered"
    assert len(server.asked) == 2


async def test_endless_output_is_cut_off_charged_in_full_and_disables_the_model(play, server):
    played = await play("endless")
    assert_whole_reservation_charged(played)
    assert any("continued past max_tokens" in notice.text for notice in of(played.events, Notice))
    assert await asyncio.to_thread(server.client_left.wait, BUSY_SECONDS)

    again = await play("endless", new=False)
    assert (again.error.kind, again.entries) == ("ModelDisabled", [])
    assert len(server.asked) == 1


@pytest.mark.parametrize("cap", ["session 0.03", "turn 0.03", "session 40000tok", "day 0.03"])
async def test_a_greedy_model_is_stopped_at_the_cap_with_an_answer(shell, play, cap):
    if cap.startswith("day"):
        spent = next(cap.spent for cap in await shell.deps.budget.caps() if cap.scope == "day")
        cap = f"day {(spent + 30_000_000) / 1e9:.9f}"
    try:
        await shell.command("/plan off")
        played = await play("greedy", "session 20", cap)
    finally:
        await shell.command("/plan btp")
        await shell.command("/budget day 20")
    assert played.end.status == "limit"
    assert played.end.answer
    assert of(played.events, LimitHit)[0].scope == cap.split()[0]
    assert played.end.steps > 2


async def test_a_greedy_model_is_stopped_by_an_enforced_plan_with_an_answer(shell, play):
    played = await play("greedy", "session 40000tok")
    assert (played.end.status, bool(played.end.answer)) == ("limit", True)
    assert of(played.events, PlanChanged)[-1].enforced


async def test_several_turns_of_a_moody_model_stay_within_the_session_cap(play):
    played = [await play("moody", "session 0.02", new=number == 0) for number in range(6)]
    assert played[-1].end.status == "limit"
    assert any(each.end.status == "error" for each in played)


async def test_concurrent_shells_share_the_day_cap_though_one_is_killed(
    home, server, tmp_path, monkeypatch
):
    settings = user_paths().settings_file.read_text()
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    user_paths().settings_file.parent.mkdir(parents=True)
    user_paths().settings_file.write_text(settings + '\n[budget]\nday = "0.20"\n')
    ledger = Ledger(user_paths().ledger_file)
    with watched(lambda: ("", 0)) as passed:
        killed, other = shells = [start_line_shell(home) for _ in range(2)]
        ask(*shells, times=1)
        await until(lambda: len(ledger.rows("session")) == 2)
        ask(*shells, times=40)
        await until(lambda: ledger.caps("", 0)[0].spent > 120_000_000)
        os.kill(killed.pid, signal.SIGKILL)
        out, err = await asyncio.to_thread(other.communicate, timeout=BUSY_SECONDS)
        killed.communicate()
    assert passed == []
    assert other.returncode == 3
    assert "the day's cap of $0.20 has" in out + err

    (day,) = ledger.caps("", 0)
    assert wrong_totals(ledger) == ()
    assert 120_000_000 < day.spent <= day.spent + day.held <= day.limit
    ledger.close()
    await until(lambda: processes_of(tmp_path / "home") == [])


@pytest.mark.slow
async def test_the_embedded_model_behind_a_server_stays_within_a_token_cap(play, llama_port):
    with llama_server(llama_port):
        played = await play("smollm2", "turn 20000tok")
    assert played.end.answer
    (turns,) = [cap for cap in played.caps if cap.scope == "turn"]
    assert (
        turns.spent == sum(entry.usage.total for entry in played.entries) <= turns.limit == 20_000
    )


async def test_no_file_of_the_home_contains_the_key(shell, home, play):
    await play("good")
    files = [file for file in (home.parent / "home").rglob("*") if file.is_file()]
    assert user_paths().ledger_file in files
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


def assert_whole_reservation_charged(played):
    assert all(
        (entry.state, entry.spent_nano) == ("unreported", entry.held_nano)
        for entry in played.entries
    )
    spent = {cap.scope: cap.spent for cap in played.caps}
    assert (
        spent["session"]
        == played.end.spent_nano
        == sum(entry.held_nano for entry in played.entries)
        > 0
    )
    assert spent["turn"] == sum(entry.held_usage.total for entry in played.entries)


def start_line_shell(workspace: Path) -> "subprocess.Popen[str]":
    """Start a line shell on a pipe with the moody model."""
    options = ("--model", "openai/moody", "--workspace", str(workspace), "--registration", "names")
    return subprocess.Popen(
        [sys.executable, "-m", "ecoshell", "line", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ask(*shells: "subprocess.Popen[str]", times: int) -> None:
    for shell in shells:
        shell.stdin.write("How many lines has notes.txt?\n" * times)
        shell.stdin.flush()


async def until(true):
    deadline = time.monotonic() + BUSY_SECONDS
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
