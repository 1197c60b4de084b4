"""The loop of the line shell, with played events and prepared input."""

import asyncio
import io
import signal
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from command_play import Command
from plan_play import BLACKLISTED, COUNTED, FAILED, HELPED, PLANNED, USED

from ecoshell.agent import LimitChoice
from ecoshell.agent.command_table import Printed
from ecoshell.agent.shell_status import ShellStatus, ToolRow
from ecoshell.budget import NANO, CapState
from ecoshell.cli.line import LineShell, toolbar_text
from ecoshell.cli.line_user import LineUser
from ecoshell.cli.printer import Printer
from ecoshell.cli.signals import Interrupted
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import (
    Answer,
    ApprovalWanted,
    BranchLeft,
    CallFinished,
    CallJudged,
    CallMarked,
    CallStarted,
    CommandRan,
    Compacted,
    CostWanted,
    ErrorHappened,
    Event,
    LimitHit,
    Notice,
    PlanScored,
    Rationale,
    StepProposed,
    StepStarted,
    TextArrived,
    TurnFinished,
    TurnStarted,
    TurnUndone,
)
from ecoshell.messages import Attachment, Usage

WANTED = ApprovalWanted(
    "c1", "run_command", {"command": "make"}, ("execute",), "It would run a program."
)
HIT = LimitHit("session", "usd", 5, 2, "The next call could pass the session's cap.")


def finished(status: str = "answered", answer: str = "") -> TurnFinished:
    return TurnFinished(1, status, answer, 3_100_000, Usage(120, 30), 2, (), 1.5)  # type: ignore[arg-type]


class PlayedShell:
    """Plays prepared events for each question; asks the user in a separate task, as the core does."""

    def __init__(self, *turns: Iterable[Event], past: Iterable[Event] = ()) -> None:
        self.turns = list(turns)
        self.past_events = list(past)
        self.questions: list[str] = []
        self.attached: list[object] = []
        self.decisions: list[str | LimitChoice] = []
        self.user: LineUser | None = None
        self.on_played = lambda event: None
        self._stopped = asyncio.Event()

    resume_hint = ""

    async def flush(self) -> None: ...

    async def introduction(self) -> str:
        return "tiny answers. A better one is near."

    async def ask(self, question: str, attachments: object = ()) -> AsyncGenerator[Event, None]:
        self.questions.append(question)
        self.attached.append(attachments)
        self._stopped.clear()
        for event in self.turns.pop(0):
            asking = self._asking(event)
            yield event
            self.on_played(event)
            if asking:
                await asyncio.wait(
                    {asking, asyncio.ensure_future(self._stopped.wait())},
                    return_when="FIRST_COMPLETED",
                )
            await asyncio.sleep(0)
            if self._stopped.is_set():
                yield finished("interrupted")
                return

    def _asking(self, event: Event) -> "asyncio.Task[None] | None":
        async def ask() -> None:
            assert self.user is not None
            if isinstance(event, ApprovalWanted):
                self.decisions.append((await self.user.approve(event)).decision)
            elif isinstance(event, LimitHit):
                self.decisions.append(await self.user.at_limit(event))
            elif isinstance(event, CostWanted):
                self.decisions.append(await self.user.at_cost(event))

        is_question = self.user is not None and isinstance(
            event, ApprovalWanted | LimitHit | CostWanted
        )
        return asyncio.ensure_future(ask()) if is_question else None

    async def stop(self) -> None:
        self._stopped.set()

    async def command(self, line: str) -> Printed:
        match line:
            case "/quit":
                return Printed("", "quit")
            case "/budget":
                return Printed("no cap is set")
            case "/retry":
                return Printed("taken back", "ask", "again?", (Attachment("a.txt", "text"),))
            case "/copy":
                return Printed("copied", "copy", "the answer √")
            case "/resume abc":
                return Printed("resumed", "session")
            case _:
                raise UsageError("Unknown command /bugdet.", fix="Did you mean /budget?")

    @property
    def past(self) -> list[Event]:
        return self.past_events

    async def status(self) -> ShellStatus:
        tools = (
            ToolRow("read_file", 80, True, "agent", ""),
            ToolRow("list_files", 60, False, "", ""),
        )
        caps = (CapState("session", "usd", NANO // 2, NANO // 10, NANO // 100),)
        return ShellStatus(
            "abc",
            "",
            "embedded",
            "single",
            "react",
            caps,
            NANO // 10,
            150,
            tools,
            90,
            140,
            exact=True,
        )

    async def run(self, command: str) -> CommandRan:
        return CommandRan(command, "12 files\x1b[2J", command == "ls", False, 0.012)


class PreparedInput:
    """Returns prepared lines; an exception among them is raised."""

    def __init__(self, *lines: str | Exception) -> None:
        self.lines = list(lines)

    async def question(self, prompt: str) -> str:
        if not self.lines:
            raise EOFError
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line

    word = question

    def typeahead(self) -> list[str]:
        return []


async def chat(
    shell: PlayedShell, *lines: str | Exception, with_user: bool = True
) -> tuple[int, str]:
    """Run the loop on prepared lines; return its status and output."""
    screen = io.StringIO()
    printer = Printer(screen)
    source = PreparedInput(*lines)
    shell.user = LineUser(source.word, printer.line) if with_user else None
    status = await LineShell(shell, source=source, printer=printer, user=shell.user).run()  # type: ignore[arg-type]
    return status, screen.getvalue()


async def test_only_a_new_session_is_introduced() -> None:
    _, screen = await chat(PlayedShell())
    assert "tiny answers. A better one is near.\n" in screen
    _, screen = await chat(PlayedShell(past=[Answer("391"), finished()]))
    assert "tiny answers" not in screen


async def test_heading_names_what_is_left_of_the_cap() -> None:
    _, screen = await chat(PlayedShell())
    assert "embedded, $0.39 left of the session cap\n" in screen


async def test_streamed_answer_is_printed_once() -> None:
    turn = [
        TextArrived("It has ", "thought", "single"),
        TextArrived("12 lines.", "thought", "single"),
    ]
    _, screen = await chat(
        PlayedShell([StepStarted(1, "single", "m"), *turn, Answer("It has 12 lines."), finished()]),
        "q",
    )
    assert screen.count("It has 12 lines.") == 1


async def test_answer_that_was_not_streamed_is_printed_whole() -> None:
    _, screen = await chat(
        PlayedShell([TextArrived("{", "thought", "single"), Answer("391"), finished()]), "q"
    )
    assert "391" in screen


async def test_tabs_of_an_answer_are_kept() -> None:
    _, screen = await chat(
        PlayedShell([Answer("all:\n\tmake it"), finished(answer="all:\n\tmake it")]), "how?"
    )
    assert "all:\n\tmake it\n" in screen


async def test_rationale_takes_one_line() -> None:
    _, screen = await chat(
        PlayedShell([Rationale("I need\n\na word counter.", "single"), finished()]), "q"
    )
    assert "I need a word counter.\n" in screen


async def test_search_shows_proposals_and_backtracking() -> None:
    proposed = StepProposed("Look around.", "list_files()", "single")
    backtracked = BranchLeft(("c1", "c2"), 1, "given up: \x1b[2Jnothing")
    _, screen = await chat(
        PlayedShell([proposed, backtracked, replace(backtracked, path=()), finished()]), "q"
    )
    assert "| proposed list_files() | Look around." in screen
    assert "< back to step 2 | given up: ␛[2Jnothing" in screen
    assert "< back to the beginning | given up" in screen


async def test_plan_is_printed_before_the_first_step_and_when_it_forbids_a_tool() -> None:
    turn = [PLANNED, *COUNTED, HELPED, USED, *FAILED, BLACKLISTED, finished()]
    _, screen = await chat(PlayedShell(turn), "q")
    lines = [line for line in screen.splitlines() if "plan:" in line or "unhelpful" in line]
    assert lines == [
        "| plan: 3 of 5 tools, about $0.002 to $0.011",
        "  !! unhelpful | an empty result",
        "| plan: count_text (quota) and read_file (blacklist) may no longer be used",
    ]


async def test_score_of_a_tool_graph_takes_one_line() -> None:
    scored = PlanScored(1, 0.5, "rules", 2_000_000, 50_000_000, 0.5, 0.23)
    _, screen = await chat(PlayedShell([scored, finished()]), "q")
    assert "| plan of turn 1: QoP 0.23: P 0.50 by rules, C $0.002 of $0.05" in screen.splitlines()


async def test_resumed_session_shows_marks() -> None:
    past = [CallMarked(1, "c1", "count\x1b_text", helpful) for helpful in (True, False, None)]
    _, screen = await chat(PlayedShell(past=past), "/resume abc", with_user=False)
    for words in ("ok: helpful, marked by you", "!! unhelpful, marked by you", "| mark removed"):
        assert f"{words} | count␛_text of turn 1" in screen


async def test_streamed_proposal_is_printed_once() -> None:
    streamed = TextArrived("Look around.", "thought", "single")
    proposed = StepProposed("Look around.", "list_files()", "single")
    _, screen = await chat(
        PlayedShell([StepStarted(1, "single", "m"), streamed, proposed, finished()]), "q"
    )
    assert screen.count("Look around.") == 1


async def test_markup_and_escapes_of_a_tool_result_are_shown_as_text() -> None:
    hostile = CallFinished("c1", "read_file", True, "[bold]\x1b[2Jhello[/bold]", False, 0.01)
    _, screen = await chat(PlayedShell([hostile, finished()]), "q")
    assert "[bold]␛[2Jhello[/bold]" in screen
    assert "\x1b" not in screen


async def test_refused_call_names_the_guard() -> None:
    refused = CallFinished(
        "c1", "read_file", False, "Register it first.", False, 0.0, refused="unregistered"
    )
    _, screen = await chat(PlayedShell([refused, finished()]), "q")
    assert "result: refused: unregistered | Register it first." in screen


async def test_result_after_a_later_call_names_its_call() -> None:
    started = [
        CallStarted(call_id, "read_file", {"path": f"{call_id}.txt"}) for call_id in ("c1", "c2")
    ]
    ended = [
        CallFinished(call_id, "read_file", True, f"text {call_id}", False, 0.01)
        for call_id in ("c1", "c2")
    ]
    unhelpful = CallJudged("c1", "read_file", False, "rules", "an empty result")
    _, screen = await chat(PlayedShell([*started, *ended, unhelpful, finished()]), "q")
    lines = [line for line in screen.splitlines() if "text c" in line or "unhelpful" in line]
    assert lines == [
        "  = result: read_file(path=c1.txt): 10 ms | text c1",
        "  = result: 10 ms | text c2",
        "  !! read_file(path=c1.txt): unhelpful | an empty result",
    ]


async def test_summary_shows_an_unknown_cost() -> None:
    unknown = TurnFinished(1, "answered", "x", None, Usage(), 1, (), 0.2)  # type: ignore[arg-type]
    _, screen = await chat(PlayedShell([unknown]), "q")
    assert "cost unknown" in screen


@pytest.mark.parametrize(
    ("lines", "decision"),
    [
        (["y"], "once"),
        (["S"], "session"),
        (["project"], "project"),
        (["n"], "no"),
        (["perhaps", "y"], "once"),
        ([], "no"),
    ],
    ids=[
        "once",
        "session",
        "project",
        "no",
        "asked again after an unknown word",
        "denied at the end of input",
    ],
)
async def test_approval_is_asked(lines: list[str], decision: str) -> None:
    shell = PlayedShell([WANTED, finished()])
    _, screen = await chat(shell, "q", *lines)
    assert shell.decisions == [decision]
    assert 'run_command(command="make")' in screen


@pytest.mark.parametrize(
    ("typed", "choice"),
    [
        (["r", "0.50"], LimitChoice("raise", "0.50")),
        (["r", "-3", "r", "20000tok"], LimitChoice("raise", "20000tok")),
        (["m", "local:My Model.gguf"], LimitChoice("model", "local:My Model.gguf")),
        (["a"], LimitChoice("answer")),
        (["x", "stop"], LimitChoice("stop")),
    ],
)
async def test_choice_at_a_limit_is_asked(typed: list[str], choice: LimitChoice) -> None:
    shell = PlayedShell([HIT, finished("limit")])
    await chat(shell, "q", *typed)
    assert shell.decisions == [choice]


async def test_ctrl_c_at_an_approval_stops_the_turn_and_keeps_the_shell() -> None:
    shell = PlayedShell([WANTED, Answer("never"), finished()], [Answer("second"), finished()])
    _, screen = await chat(shell, "q", Interrupted(), "again")
    assert shell.decisions == []
    assert "never" not in screen
    assert "stopped" in screen
    assert "second" in screen


async def test_ctrl_c_in_a_turn_stops_the_turn_and_keeps_the_shell() -> None:
    shell = PlayedShell(
        [StepStarted(1, "single", "m"), Answer("never"), finished()], [Answer("second"), finished()]
    )

    def interrupt(event: Event) -> None:
        if isinstance(event, StepStarted):
            signal.raise_signal(signal.SIGINT)

    shell.on_played = interrupt
    status, screen = await chat(shell, "q", "again")
    assert "stopped" in screen
    assert "second" in screen
    assert status == 0


async def test_ctrl_c_at_the_prompt_says_how_to_quit() -> None:
    _, screen = await chat(PlayedShell(), Interrupted())
    assert "Ctrl-D or /quit quits" in screen


async def test_shell_continues_after_an_unknown_command() -> None:
    shell = PlayedShell([Answer("fine"), finished()])
    _, screen = await chat(shell, "/bugdet", "q")
    assert "Did you mean /budget?" in screen
    assert "fine" in screen


async def test_shell_continues_after_a_defect_in_a_command(monkeypatch) -> None:
    async def defect(line: str) -> Printed:
        raise RuntimeError("a defect")

    shell = PlayedShell([Answer("fine"), finished()])
    monkeypatch.setattr(shell, "command", defect)
    _, screen = await chat(shell, "/tools", "q")
    assert "Something unexpected happened: a defect" in screen
    assert "fine" in screen


async def test_shell_continues_after_a_locked_ledger(monkeypatch) -> None:
    shell = PlayedShell([Answer("fine"), finished()])
    stand, locked = shell.status, [False, True]  # the greeting looks too

    async def status() -> ShellStatus:
        if locked and locked.pop(0):
            raise StoreError("ledger.db is locked by another process.")
        return await stand()

    monkeypatch.setattr(shell, "status", status)
    _, screen = await chat(shell, "q")
    assert "ledger.db is locked" in screen
    assert "fine" in screen


async def test_lines_after_quit_are_not_read() -> None:
    shell = PlayedShell()
    await chat(shell, "/budget", "/quit", "not asked")
    assert shell.questions == []


async def test_resuming_shows_the_session() -> None:
    past = [
        TurnStarted(1, "how many?", "m", "single", "react"),
        TextArrived("Tw", "thought", "s"),
        Answer("Twelve."),
    ]
    _, screen = await chat(PlayedShell(past=past), "/resume abc", with_user=False)
    assert "> how many?" in screen
    assert screen.count("Twelve.") == 1


async def test_empty_lines_are_ignored() -> None:
    shell = PlayedShell()
    await chat(shell, "", "   ")
    assert shell.questions == []


async def test_pipe_gets_answers_without_greeting_or_prompt() -> None:
    _, screen = await chat(PlayedShell([Answer("391"), finished()]), "17 * 23", with_user=False)
    assert screen.splitlines()[0] == "answer: 391"


async def test_exit_status_of_a_pipe_is_that_of_the_unanswered_turn() -> None:
    shell = PlayedShell([finished("limit")], [Answer("x"), finished()])
    status, _ = await chat(shell, "one", "two", with_user=False)
    assert status == 3


def test_toolbar_shows_what_is_spent_held_and_left_of_each_cap() -> None:
    status = asyncio.run(PlayedShell().status())
    assert (
        toolbar_text(status)
        == " session: spent $0.10, held $0.01, left $0.39 | 1 of 2 tools | embedded "
    )
    free = replace(status, caps=(), is_free=True, used_tokens=1_204, estimated=False)
    assert toolbar_text(free) == " no cap, used 1,204 tokens | 1 of 2 tools | embedded "


async def test_call_written_as_text_is_not_streamed() -> None:
    pieces = [
        TextArrived(piece, "thought", "single")
        for piece in ('{"thought": "count"', ', "call": {}}')
    ]
    _, screen = await chat(PlayedShell([*pieces, Rationale("count", "single"), finished()]), "q")
    assert '"thought"' not in screen
    assert "- count\n" in screen


async def test_line_with_an_exclamation_mark_runs_a_program() -> None:
    shell = PlayedShell()
    _, screen = await chat(shell, "!ls", "! make")
    assert shell.questions == []
    assert "$ ls | 12 ms\n12 files␛[2J\n" in screen
    assert "$ make | failed after 12 ms\n12 files␛[2J\n" in screen


async def test_command_that_asks_again_starts_a_turn_with_its_attachments() -> None:
    shell = PlayedShell([Answer("391"), finished()])
    _, screen = await chat(shell, "/retry")
    assert shell.questions == ["again?"]
    assert shell.attached == [(Attachment("a.txt", "text"),)]
    assert "taken back\n> again?\nanswer: 391" in screen


async def test_copying_without_a_terminal_is_refused() -> None:
    _, screen = await chat(PlayedShell(), "/copy")
    assert "Nothing was copied" in screen
    assert "the answer" not in screen


def test_copying_sends_the_text_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert Printer(screen).copy("the answer √")
    assert screen.getvalue() == "\x1b]52;c;dGhlIGFuc3dlciDiiJo=\x07"


async def test_resumed_session_shows_attachments_undo_and_compaction() -> None:
    past = [
        TurnStarted(1, "q", "m", "single", "react", (Attachment("a\n.txt", "text"),)),
        finished(),
        TurnUndone(1, ("b.txt",), ("c.txt",)),
        Compacted("short", "m", 2, 1200, 100),
        Compacted("short", "", 2, 1200, 100),
    ]
    _, screen = await chat(PlayedShell(past=past), "/resume abc", with_user=False)
    for line in (
        "attached: a .txt | 1 line",
        "< turn 1 was undone | restored b.txt | not restored because of later changes: c.txt",
        "= 2 turns summarized by m | 1,200 tokens became 100",
        "= 2 turns replaced by an extract that no model wrote | 1,200 tokens became 100",
    ):
        assert f"{line}\n" in screen


async def test_error_after_its_note_shows_only_the_fix() -> None:
    notes = [Notice(f"It did not answer. Retrying ({at} of 3).") for at in (2, 2, 3)]
    _, screen = await chat(
        PlayedShell([*notes, ErrorHappened("ModelUnavailable", "It did not answer.", "", "Wait.")]),
        "q",
    )
    assert screen.count("It did not answer.") == 2
    assert "error: Wait." in screen


def test_budget_command_accepts_common_amounts_and_shows_one_scope(
    tmp_path: Path, command: Command
) -> None:
    typed = "/budget 1,50\n/budget day 20k tok\n/budget month 50c\n/budget day\n/budget turn\n/budget 1,500\n"
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "fine"}\n')
    ended = command("line", "--model", f"script:{script}", typed=typed)
    output = ended.stdout
    assert "session  $1.50" in output
    assert "month    $0.50" in output
    after_turn = output.rpartition("No cap is set for the turn. /budget turn 2min sets one.")
    assert after_turn[0].rstrip().splitlines()[-1].split()[:3] == ["day", "20,000", "tokens"]
    assert "is ambiguous" in after_turn[2]
    assert ended.returncode == 2
