"""Quotes and written plans in the line shell."""

import asyncio
import sys

import pytest

from ecoshell.agent import QuoteChoice
from ecoshell.cli.line_user import LineUser
from ecoshell.cli.parser import build_parser
from ecoshell.cli.run_options import options_from
from ecoshell.events import PlanWritten, Quote

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
PLAN = PlanWritten("1. Write a.txt.", 1)


class Typist:
    """Types these lines and records the screen."""

    def __init__(self, *lines):
        self.lines, self.screen = list(lines), []
        self.user = LineUser(self.read, self.screen.append)

    async def read(self, prompt):
        self.screen.append(prompt)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


@pytest.mark.parametrize(
    ("lines", "choice"),
    [
        (["g"], QuoteChoice("start")),
        (["2, 3"], QuoteChoice("trim", ("b", "c"))),
        (["7", "what", "n"], QuoteChoice("refuse")),
        ([], QuoteChoice("refuse")),
    ],
)
async def test_quoted_work_starts_with_the_chosen_nodes(lines, choice):
    typist = Typist(*lines)
    waiting = asyncio.ensure_future(typist.user.at_quote(GRAPH))
    await asyncio.sleep(0)
    await typist.user.answer(GRAPH)
    assert await waiting == choice
    assert typist.screen[:3] == ["  [1] a", "  [2] b", "  [3] c"]


async def test_quote_that_waits_for_nothing_asks_nothing():
    typist = Typist()
    await typist.user.answer(GRAPH)
    assert typist.screen == []


@pytest.mark.parametrize(
    ("lines", "argument"),
    [(["1"], ""), (["2"], "edits"), (["x", "n"], None), ([], None), (["e", "y"], "")],
)
async def test_plan_is_carried_out_as_chosen(lines, argument, monkeypatch):
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")  # so that e says how to set an editor
    assert await Typist(*lines).user.review_plan(PLAN) == argument


async def test_plan_is_changed_in_the_editor(monkeypatch, tmp_path):
    script = tmp_path / "edit.py"
    script.write_text("import sys; open(sys.argv[1], 'a').write('\\n2. Test it.')")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    assert await Typist("e").user.review_plan(PLAN) == "1. Write a.txt.\n2. Test it."


def test_options_select_plan_mode_and_advisor():
    args = build_parser().parse_args(
        ["--plan", "--role", "advisor=openai/gpt-5", "--role", "caller=embedded"]
    )
    options = options_from(args)
    assert (options.approval_mode, options.advisor, options.roles.caller) == (
        "plan",
        "openai/gpt-5",
        "embedded",
    )
