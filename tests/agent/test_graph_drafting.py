"""Messages to the user and to the model about a drafted plan that cannot run."""

import json

import pytest
from agent_play import finish, of, say, turn

from ecoshell.events import GraphPlanned, Notice
from ecoshell.messages import ToolSchema

GOOD = say('["list_files", ["<task>"]]')
SEVENTEEN = json.dumps([part for at in range(1, 18) for part in (f"list_files#{at}", ["<task>"])])
LAST = SEVENTEEN.index('"list_files#17"') + 1


class Describes:
    """A tool that needs an image, which no tool of the shell returns."""

    schema = ToolSchema(
        "describe_image",
        "Describes a picture.",
        {"type": "object", "properties": {"image": {"type": "string"}}, "required": ["image"]},
    )
    effects = frozenset()
    price_nano = 0


def add(shell, tool):
    catalog = shell.deps.catalog
    catalog.__init__([*(catalog.tool(name) for name in catalog.names), tool])


@pytest.mark.parametrize(
    ("draft", "place"),
    [
        (SEVENTEEN, f"line 1, column {LAST}: The plan has 17 nodes"),
        (
            'I look at [it]:\n["list_files", ["<task>"],\n "describe_image", ["list_files"]]',
            "line 3, column 21: `describe_image` takes image, and `list_files` gives text.",
        ),
        (
            'Plan:\n```json\n["count_text", ["<task>"], "finish", ["count_text"]]\n```',
            "line 3, column 28: `finish`: ",
        ),
        (
            'Well.\n["count_text", ["<task>"], "count_text#3", ["<task>"]]',
            "line 2, column 28: `count_text#3` is use 2",
        ),
        (
            '["count_text", ["<task>"]]\n["calculate", ["count_text"]]',
            "line 1, column 1: There are two plans",
        ),
        ("\ud800", "line 1, column 1: Expected `[`"),
        ('["lost_tool", ["<task>"]]', "line 1, column 2: There is no tool called `lost_tool`"),
        ('["count_text", ["count_text"]]', "line 1, column 17: `count_text` waits for itself"),
    ],
)
async def test_an_invalid_plan_is_reported_once_with_node_line_and_column(play, draft, place):
    async with play(
        [say(draft), GOOD, say("", "list_files"), finish("ok")], strategy="graph"
    ) as shell:
        add(shell, Describes())
        events = await turn(shell)
        again = shell.requests[1].messages[-1].text
    (notice,) = of(events, Notice)
    assert place in notice.text
    assert place in again
    assert notice.text.count(place) == 1
    assert len(of(events, GraphPlanned)) == 1
    assert (events[-1].answer, events[-1].steps) == ("ok", 3)


@pytest.mark.parametrize(
    "around",
    [
        "Here is [my] plan: {} It [lists] files.",
        "```json\n{}\n```\n[done]",
        '{0}\nThe node "list_files" of {0} lists.',
    ],
)
async def test_a_plan_is_read_from_prose_with_brackets(play, around):
    draft = around.format('["list_files", ["<task>"]]')
    async with play([say(draft), say("", "list_files"), finish("ok")], strategy="graph") as shell:
        events = await turn(shell)
    assert of(events, Notice) == []
    (planned,) = of(events, GraphPlanned)
    assert planned.text == '["list_files", ["<task>"]]'
    assert events[-1].answer == "ok"
