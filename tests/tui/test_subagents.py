"""Subagents on the screen: a line each, and their transcripts."""

import json
from pathlib import Path

import pytest
from tui_play import eventually

from ecoshell.assembly.shell import assemble
from ecoshell.options import Options
from ecoshell.paths import Paths
from ecoshell.tui.app import ChatApp
from ecoshell.tui.screens.subagent import SubagentScreen
from ecoshell.tui.side.layout import SideLayout
from ecoshell.tui.side.panel_state import SUBAGENT
from ecoshell.tui.transcript.view import Transcript

PARENT = [
    {"text": "", "call": {"name": "tool_register", "arguments": {"tool_name": "task"}}},
    {
        "text": "",
        "calls": [
            {"name": "task", "arguments": {"instructions": f"Count {name}.", "budget": "0.05"}}
            for name in ("words", "lines")
        ],
    },
    {"text": "Both were counted."},
]
CHILD = [{"text": "There are three words."}, {"text": "There are three lines."}]


@pytest.fixture
def app(paths: Paths, tmp_path: Path, quiet: None, monkeypatch: pytest.MonkeyPatch) -> ChatApp:
    """A chat over a real shell, whose agent delegates twice."""
    names = []
    for name, lines in (("parent", PARENT), ("child", CHILD)):
        (tmp_path / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        names.append(f"script:{tmp_path / name}")
    monkeypatch.setenv("ECOSHELL_AGENT_TASK_MODEL", names[1])
    options = Options(model=names[0], workspace=tmp_path)
    return ChatApp(
        options, build=lambda options, person: assemble(options, person, paths=paths), paths=paths
    )


def lines(app: ChatApp) -> str:
    column = app.screen.query_one(Transcript).column
    return "\n".join(item.full_text for item in column.items)


async def test_each_subagent_is_a_line_and_enter_opens_its_transcript(app: ChatApp) -> None:
    async with app.run_test(size=(110, 32)) as pilot:
        await eventually(pilot, lambda: app.screen.query("Prompt"))
        await pilot.press(*"count", "enter")
        await eventually(pilot, lambda: "Both were counted." in lines(app))
        column = app.screen.query_one(Transcript).column
        blocks = [item.block for item in column.items if item.block.session[0]]
        assert [block.text().partition("  ")[2].partition("  ")[0] for block in blocks] == [
            "Count words.",
            "Count lines.",
        ]
        assert all(
            "answered · " in block.text() and " of $0.05" in block.text() for block in blocks
        )
        roles = app.screen.query_one(SideLayout).side.state.roles
        (use,) = [use for use in roles.values() if use.role == SUBAGENT]
        assert (use.calls, use.consumption.usage.output) == (2, 12)
        view = app.screen.query_one(Transcript)
        view.focus()
        view._pointed = next(item for item in column.items if item.block.session[0])
        await pilot.press("enter")
        await eventually(
            pilot,
            lambda: isinstance(app.screen, SubagentScreen) and "There are three" in lines(app),
        )
        assert "Count words." in lines(app)
        await pilot.press("escape")
        await eventually(pilot, lambda: not isinstance(app.screen, SubagentScreen))


async def test_a_task_by_command_is_one_question(app: ChatApp) -> None:
    async with app.run_test(size=(110, 32)) as pilot:
        await eventually(pilot, lambda: app.screen.query("Prompt"))
        await pilot.press(*"/task Count.", "enter")
        await eventually(pilot, lambda: "There are three words." in lines(app))
        assert [item.full_text for item in app.screen.query_one(Transcript).column.items].count(
            "/task Count."
        ) == 1


async def test_title_and_panels_follow_subagents_while_they_work(
    paths: Paths, tmp_path: Path, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both subagents wait for approval after their first call, so that nothing else reports amounts."""
    write = {"name": "write_file", "arguments": {"path": "new.txt", "content": "x"}}
    scripts = {"parent": PARENT, "child": [{"text": "", "call": write}] * 2}
    names: list[str] = []
    settings = ""
    for name, script in scripts.items():
        (tmp_path / name).write_text("".join(f"{json.dumps(line)}\n" for line in script))
        names.append(f"script:{tmp_path / name}")
        settings += f'[models.{json.dumps(names[-1])}.price]\ninput = "1"\noutput = "4"\n'
    paths.config.mkdir(parents=True, exist_ok=True)
    (paths.config / "config.toml").write_text(settings)
    monkeypatch.setenv("ECOSHELL_AGENT_TASK_MODEL", names[1])
    options = Options(model=names[0], workspace=tmp_path, budget="2")
    app = ChatApp(
        options, build=lambda options, person: assemble(options, person, paths=paths), paths=paths
    )
    async with app.run_test(size=(140, 40)) as pilot:
        await eventually(pilot, lambda: app.screen.query("Prompt"))
        await pilot.press(*"count", "enter")
        side = app.screen.query_one(SideLayout).side
        state = side.state

        def spent_by_subagents() -> int:
            uses = [use for use in state.uses(session=False) if use.role == SUBAGENT]
            return sum(use.consumption.nano or 0 for use in uses if use.calls == 2)

        await eventually(pilot, spent_by_subagents)
        spent = sum(use.consumption.nano or 0 for use in state.uses(session=False))
        await eventually(pilot, lambda: [cap.spent for cap in state.caps] == [spent])
        assert state.status is not None
        assert state.status.spent_nano == spent > spent_by_subagents()
        budget = "\n".join("".join(text for text, _ in line) for line in side.panels[0].lines(60))
        assert "2 subagents" in budget
        assert "no call" not in budget
        await pilot.press("escape")
