"""Plan mode and quotes on the screen: the key, the question after a plan, and the question previous a tool graph."""

from dataclasses import replace

import pytest
from tui_play import COUNTING, FINISHED, STATUS, FakeShell, eventually

from ecoshell.agent import QuoteChoice
from ecoshell.agent.command_table import Printed
from ecoshell.events import AdvisorReplied, Answer, Bill, PlanWritten, Quote, TurnStarted
from ecoshell.tui.chat import QuestionArea
from ecoshell.tui.plan_questions import PlanQuestion, QuoteQuestion
from ecoshell.tui.prompt.bar import PromptBar
from ecoshell.tui.prompt.prompt import Prompt
from ecoshell.tui.questions import Choices
from ecoshell.tui.transcript.view import Transcript

STARTED = next(event for event in COUNTING if isinstance(event, TurnStarted))
PLAN = PlanWritten("1. Write a.txt.\n2. Test.", 2)
QUOTE = Quote("1.plan", "plan", 3, 0.01, 0.02, 0.04, 5.0, 12.0, 40.0)
GRAPH = Quote(
    "1.1",
    "graph",
    3,
    0.01,
    0.02,
    0.04,
    5.0,
    12.0,
    40.0,
    labels=("a", "b", "c"),
    reason="it may take 60 %",
)


class PlanShell(FakeShell):
    """A shell with approval modes whose `/plan accept` asks the next question."""

    def set_approval_mode(self, mode):
        self.state = replace(self.state, approval_mode=mode)
        return mode

    @property
    def approval_mode(self):
        return self.state.approval_mode

    async def command(self, line):
        self.commands.append(line)
        return (
            Printed("", "ask", "Carry it out.")
            if line.startswith("/plan accept")
            else Printed("done")
        )


async def test_key_cycles_the_modes_and_tab_goes_to_the_transcript(make_app):
    app = make_app(PlanShell())
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, app.opened.is_set)
        titles = []
        for _ in range(3):
            previous = app.shell.state.approval_mode
            await pilot.press("shift+tab")
            await eventually(
                pilot, lambda previous=previous: app.shell.state.approval_mode != previous
            )
            await pilot.pause()
            titles.append(str(app.chat.query_one(PromptBar).border_title or "").strip())
        assert titles == [
            "plan mode · shift+tab changes it",
            "edits are accepted · shift+tab changes it",
            "",
        ]
        await pilot.press("tab")
        assert app.chat.query_one(Transcript).has_focus
        await pilot.press("shift+tab")
        assert not app.chat.query_one(Transcript).has_focus
        assert app.shell.state.approval_mode == "ask"


@pytest.mark.parametrize(
    ("key", "commands"),
    [("1", ["/plan accept"]), ("2", ["/plan accept edits"]), ("n", []), ("escape", [])],
)
async def test_plan_is_carried_out_after_the_answer_to_its_question(make_app, key, commands):
    shell = PlanShell(events=(STARTED, PLAN, QUOTE, FINISHED), state=STATUS)
    app = make_app(shell)
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, app.opened.is_set)
        await pilot.press(*"go", "enter")
        await eventually(pilot, lambda: app.chat.query(PlanQuestion))
        shell.events = (STARTED, FINISHED)
        await eventually(
            pilot,
            lambda: app.chat.query_one(PlanQuestion).has_focus or app.chat.query_one(Prompt).typing,
        )
        app.chat.query_one(PlanQuestion).focus()
        await pilot.press(key)
        await eventually(pilot, lambda: not app.chat.query(PlanQuestion))
        await eventually(pilot, lambda: len(shell.asked) == (2 if commands else 1))
        assert shell.commands == commands


async def test_plan_can_be_changed_in_the_prompt(make_app):
    app = make_app(PlanShell(events=(STARTED, PLAN, QUOTE, FINISHED)))
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, app.opened.is_set)
        await pilot.press(*"go", "enter")
        await eventually(pilot, lambda: app.chat.query(PlanQuestion))
        app.chat.query_one(PlanQuestion).focus()
        await pilot.press("e")
        await eventually(pilot, lambda: bool(app.chat.query_one(Prompt).text))
        assert app.chat.query_one(Prompt).text == f"/plan accept {PLAN.text}"


@pytest.mark.parametrize(
    ("keys", "choice"),
    [
        (("g",), QuoteChoice("start")),
        (("2", "g"), QuoteChoice("trim", ("b",))),
        (("2", "2", "y"), QuoteChoice("start")),
        (("1", "2", "3", "g"), QuoteChoice("refuse")),
        (("escape",), QuoteChoice("refuse")),
    ],
)
async def test_quoted_work_starts_with_the_chosen_nodes(make_app, keys, choice):
    app = make_app(PlanShell())
    async with app.run_test(size=(100, 30)) as pilot:
        await eventually(pilot, app.opened.is_set)
        area = app.chat.query_one(QuestionArea)
        asking = app.chat.run_worker(area.at_quote(GRAPH))
        await eventually(pilot, lambda: app.chat.query(QuoteQuestion))
        assert "it may take 60 %" in str(
            app.chat.query_one(QuoteQuestion).query("Static").first().content
        )
        app.chat.query_one(QuoteQuestion).focus()
        await pilot.press(*keys)
        assert await asking.wait() == choice


async def test_every_node_of_much_quoted_work_is_shown_and_can_be_left_out(make_app):
    labels = tuple(f"{n}. Look." for n in range(1, 13))
    app = make_app(PlanShell())
    async with app.run_test(size=(100, 60)) as pilot:
        await eventually(pilot, app.opened.is_set)
        area = app.chat.query_one(QuestionArea)
        asking = app.chat.run_worker(area.at_quote(replace(GRAPH, nodes=12, labels=labels)))
        await eventually(pilot, lambda: app.chat.query(QuoteQuestion))
        question = app.chat.query_one(QuoteQuestion)
        shown = "\n".join(str(row.choices[0]) for row in question.query(Choices) if row.choices)
        assert all(label in shown for label in labels)
        question.focus()
        await pilot.press("9", "c", "g")
        assert await asking.wait() == QuoteChoice("trim", (labels[8], labels[11]))


async def test_transcript_shows_plan_quote_and_bill_below_the_answer(make_app):
    bill = Bill("1.plan", "plan", "0.03", 31.0, 0.01, 0.04, 5.0, 40.0)
    advice = AdvisorReplied("Which?", "Read a.txt.", "openai/gpt-5", 0.004)
    graph = replace(GRAPH, reason="")
    app = make_app(
        PlanShell(
            earlier=(STARTED, advice, graph, Answer("The plan."), PLAN, QUOTE, bill, FINISHED)
        )
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await eventually(pilot, app.opened.is_set)
        text = app.chat.query_one(Transcript).column.plain
        parts = (
            "advice from openai/gpt-5 for $0.004 · Read a.txt.",
            "quote for 3 nodes: $0.01 to $0.04, 5.0 s to 40.0 s (estimated",
            "The plan.",
            "plan of 2 steps",
            "quote for 3 parts",
            "bill: $0.03 (quoted $0.01 to $0.04), 31.0 s (quoted 5.0 s to 40.0 s)",
        )
        places = [text.index(part) for part in parts]
        assert places == sorted(places)
