"""The JSON schema of `ask --json`: it is current, and printed events are valid."""

import json
from pathlib import Path

import pytest
from command_play import CALCULATE, commands
from jsonschema import Draft202012Validator

from ecoshell.cli.manage.events import PRINTED, events_schema
from ecoshell.events import EVENTS, Notice, to_json

FILE = Path(__file__).parent.parent / "docs" / "events.schema.json"


def test_the_documented_schema_is_current():
    assert json.loads(FILE.read_text(encoding="utf-8")) == events_schema(), "run `make docs`"


def test_every_event_is_in_the_schema_with_descriptions():
    schema = events_schema()
    assert {*EVENTS, "result"} == {*PRINTED}
    for name, kind in PRINTED.items():
        definition = schema["$defs"][kind.__name__]
        assert definition["properties"]["type"] == {"const": name}
        assert definition["required"] == [*definition["properties"]]
        assert definition["description"]
    assert schema["$defs"]["CallFinished"]["properties"]["changes"]["description"].startswith(
        "The file changes"
    )


@pytest.mark.parametrize("strategy", ["react", "dfsdt"])
def test_events_of_a_real_turn_are_valid(tmp_path, monkeypatch, capsys, strategy):
    command = commands(tmp_path, monkeypatch, capsys)
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(reply) + "\n" for reply in CALCULATE), encoding="utf-8")
    shared = (
        "--model",
        f"script:{script}",
        "--registration",
        "names",
        "--price",
        "1,2",
        "--budget",
        "5",
    )
    ended = command("ask", "--json", *shared, "--strategy", strategy, "What is 17 * 23?")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    valid = Draft202012Validator(events_schema())
    kinds = {line["type"] for line in lines}
    assert {
        "turn_started",
        "call_finished",
        "budget_settled",
        "plan_changed",
        "turn_finished",
        "result",
    } <= kinds
    for line in lines:
        assert valid.is_valid(line), [error.message for error in valid.iter_errors(line)]


def test_invalid_events_are_rejected():
    valid = Draft202012Validator(events_schema())
    event = to_json(Notice("Something."))
    assert valid.is_valid(event)
    assert not valid.is_valid({**event, "text": 3})
    assert not valid.is_valid({"type": "notice"})
    assert not valid.is_valid({**event, "type": "nothing"})


def test_the_events_command_prints_the_schema_and_a_list(tmp_path, monkeypatch, capsys):
    command = commands(tmp_path, monkeypatch, capsys)
    assert json.loads(command("events", "--schema").stdout) == events_schema()
    assert (
        "turn_finished        The turn ended; the last event of every turn."
        in command("events").stdout
    )
