"""Costs in the prompt for a tool graph, and estimates of a plan."""

from contextlib import closing

import pytest
from agent_play import finish, of, say, turn

from ecoshell.agent.tool_graph import MAX_TOOLS, costs_text
from ecoshell.agent.workspace import WorkspaceService
from ecoshell.events import GraphPlanned
from ecoshell.messages import Attachment, Footprint
from ecoshell.paths import user_paths
from ecoshell.planning.catp.costs import ProfiledRun, ProfileStore, cost_table
from ecoshell.tools import ToolOptions
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.undo_log import UndoLog
from ecoshell.tools.workspace import Workspace

TWO = say('["count_text", ["<task>"], "count_text#2", ["<task>"]]')
COUNT = say("", "count_text", path="notes.txt")
SCRIPT = (TWO, COUNT, COUNT, finish("3"))
GRAPH = {"strategy": "graph", "registration": "all"}
HEADING = "Cost of one use of each tool for"


def run(size, milliseconds, megabytes=50.0):
    return ProfiledRun(size, milliseconds, Footprint(megabytes))


RUNS = {
    "count_text": [run(14, 2), run(14_000, 2)],
    "search_text": [run(14, 2), run(14_000, 200)],
    "gone_tool": [run(14, 1)],
}


def profile(runs):
    user_paths().data.mkdir(parents=True, exist_ok=True)
    with closing(ProfileStore(user_paths().profiles_file)) as store:
        for tool, some in runs.items():
            store.replace(tool, "2026-11-21T10:00:00+00:00", some)


def plan_prompt(shell):
    return shell.requests[0].messages[-1].text


async def test_the_prompt_omits_unknown_costs(play):
    async with play(SCRIPT, **GRAPH) as shell:
        await turn(shell)
        assert HEADING not in plan_prompt(shell)
        assert "expected to take" not in plan_prompt(shell)


@pytest.mark.parametrize(
    ("question", "costs"),
    [
        ("How many lines has notes.txt?", ("this", "×1.0", "×1.0")),  # 14 bytes
        ("How many lines has `large.txt`?", ("this", "×1.0", "×52")),  # 2.12e-5 / 4.1e-7
        ("How many lines are there?", ("a usual", "×1.0", None)),
        ("How many lines has ../../etc/passwd, or no.txt?", ("a usual", "×1.0", None)),
    ],
)
async def test_the_prompt_gives_costs_for_the_size_of_the_named_file(play, home, question, costs):
    (home / "large.txt").write_text("a line\n" * 2_000)
    profile(RUNS)
    async with play(SCRIPT, **GRAPH) as shell:
        await turn(shell, question)
        prompt = plan_prompt(shell)
    size, count, search = costs
    assert f"{HEADING} {size} input" in prompt
    assert f"- count_text: {count}" in prompt
    assert "gone_tool" not in prompt
    if search:
        assert f"- search_text: {search} (large inputs cost" in prompt


async def test_the_prompt_gives_expected_prices_and_times(play):
    def buy() -> str:
        """Buy the number of lines."""
        return "3"

    async with play([say('["buy", ["<task>"]]'), finish("3"), *SCRIPT], **GRAPH) as shell:
        catalog = shell.deps.catalog
        tools = [
            *(catalog.tool(name) for name in catalog.names),
            FunctionTool(buy, effects=(), price_nano=2_000_000),
        ]
        catalog.__init__(tools)
        await turn(shell, "Buy the lines.")
        first = plan_prompt(shell)
        shell.requests.clear()
        events = await turn(shell, "Buy the lines.")
        second = plan_prompt(shell)
    assert "- buy: $0.002\n" in f"{first}\n"
    assert "- buy: $0.002, " in second
    assert len(of(events, GraphPlanned)) == 1


async def test_a_profile_gives_the_time_of_a_tool_without_experience(play):
    profile({"count_text": [run(14, 1_500), run(14_000, 2_500)]})
    async with play(SCRIPT, **GRAPH) as shell:
        (planned,) = of(await turn(shell), GraphPlanned)
        shell.deps.settings.recording = False
    assert [node.seconds for node in planned.nodes] == [2.0, 2.0]
    assert planned.seconds == 2.0


@pytest.mark.parametrize(
    ("file", "time"), [("notes.txt", "30 ms"), ("large.txt", "2.5 s"), ("nothing", "1.3 s")]
)
async def test_the_prompt_gives_times_for_the_size_of_the_named_file(play, home, file, time):
    (home / "large.txt").write_text("a line\n" * 2_000)
    profile({"count_text": [run(14, 30), run(14_000, 2_500)]})
    async with play(SCRIPT, **GRAPH) as shell:
        await turn(shell, f"How many lines has {file}?")
        assert f"- count_text: {time}\n" in plan_prompt(shell)


async def test_a_repaired_plan_is_estimated_from_the_first_run(play):
    missing = say("", "count_text", path="gone.txt")
    async with play([TWO, missing, COUNT, TWO, COUNT, finish("3")], **GRAPH) as shell:
        first, second = of(await turn(shell), GraphPlanned)
    assert first.seconds is None
    assert second.nodes[0].seconds > 0
    assert second.nodes[1].seconds == 0.0  # it is done already


async def test_the_prompt_lists_the_likeliest_tools_only(play):
    async with play([], **GRAPH) as shell:
        names = shell.deps.catalog.names
        plan = await shell.conversation.setup.forecast("How many lines has notes.txt?")
        table = cost_table(
            {name: [run(1, 1)] for name in (*names, *(f"t{at}" for at in range(20)))}
        )
        rows = costs_text(
            plan, table, (*names, *(f"t{at}" for at in range(20))), None
        ).splitlines()[1:]
        likeliest = max(names, key=lambda name: plan.inputs.chances[name])
    lines = [line for line in rows if "×" in line]
    assert len(lines) == MAX_TOOLS
    assert lines[0].startswith(f"- {likeliest}:")


def test_the_largest_attached_or_named_file_is_the_input_size(tmp_path):
    for name, size in (("none.txt", 0), ("some.txt", 5), ("more.txt", 50)):
        (tmp_path / name).write_text("x" * size)
    ground, attachments = (
        Workspace(tmp_path),
        (Attachment("a.txt", "x" * 10), Attachment("b.txt", "é" * 10)),
    )
    size = WorkspaceService(
        ground, undo=UndoLog(tmp_path / "undo"), options=ToolOptions()
    ).size_of_input
    assert size("Count some.txt.", attachments) == 20
    assert size("Count more.txt.", attachments) == 50
    assert size("Count none.txt.", ()) == 0
    assert size("Count them.", ()) is None
