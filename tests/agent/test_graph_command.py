"""`/plan mermaid` and `/export` draw the tool graphs of a session as flowcharts."""

from pathlib import Path

import pytest
from agent_play import finish, say, turn

from ecoshell.errors import UsageError

COUNT = say("", "count_text", path="notes.txt")
LINES = [
    say('["count_text", ["<task>"], "count_text#2", ["<task>"]]'),
    COUNT,
    COUNT,
    finish("3 lines"),
]


async def test_the_last_plan_is_printed_as_a_flowchart(play):
    async with play(LINES, strategy="graph", registration="names") as shell:
        await turn(shell)
        printed = (await shell.command("/plan mermaid")).text
        await shell.command("/export")
        exported = Path(shell.workspace, f"{shell.session}.md")
    head, first, second, *more = printed.splitlines()
    assert head == "flowchart TD"
    assert first.endswith('"]:::done')
    assert second.startswith('    n2["count_text#35;2<br/>') or second.startswith(
        '    n2["* count_text#35;2<br/>'
    )
    assert more[-1].startswith("    classDef done ")
    assert f"```mermaid\n{printed}\n```" in exported.read_text()  # noqa: ASYNC240


async def test_a_flowchart_is_written_to_a_new_file_only(play, tmp_path):
    async with play(LINES, strategy="graph", registration="names") as shell:
        await turn(shell)
        file = tmp_path / "a plan.mmd"
        printed = (await shell.command(f"/plan mermaid {file}")).text
        assert str(file) in printed
        flowchart = file.read_text()
        with pytest.raises(UsageError, match="exists already"):
            await shell.command(f"/plan mermaid {file}")
    assert flowchart.startswith("flowchart TD\n")
    assert file.read_text() == flowchart


async def test_without_a_tool_graph_the_error_names_the_strategy(play):
    async with play([finish("hello")]) as shell:
        await turn(shell)
        with pytest.raises(UsageError, match="No tool graph") as refused:
            await shell.command("/plan mermaid")
    assert "/strategy graph" in refused.value.fix
