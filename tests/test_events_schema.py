"""The JSON schema of what `ask --json` prints: it is of this program, and what is printed is valid under it."""

import json
from pathlib import Path

import pytest
from command_play import CALCULATE, commands
from jsonschema import Draft202012Validator

from ecoshell.cli.manage.events import PRINTED, events_schema
from ecoshell.events import EVENTS, Notice, to_json

FILE = Path(__file__).parent.parent / "docs" / "events.schema.json"


def test_the_schema_in_the_docs_is_the_programs():
    assert json.loads(FILE.read_text(encoding="utf-8")) == events_schema(), "`make docs` makes it anew"


def test_every_event_is_in_it_with_the_words_of_its_fields():
    schema = events_schema()
    assert {*EVENTS, "result"} == {*PRINTED}
    for name, kind in PRINTED.items():
        one = schema["$defs"][kind.__name__]
        assert one["properties"]["type"] == {"const": name}
        assert one["required"] == [*one["properties"]]
        assert one["description"]
    assert schema["$defs"]["CallFinished"]["properties"]["changes"]["description"].startswith("The file changes")


@pytest.mark.parametrize("strategy", ["react", "dfsdt"])
def test_what_a_real_turn_prints_is_valid_under_it(tmp_path, monkeypatch, capsys, strategy):
    command = commands(tmp_path, monkeypatch, capsys)
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(reply) + "\n" for reply in CALCULATE), encoding="utf-8")
    shared = ("--model", f"script:{script}", "--registration", "names", "--price", "1,2", "--budget", "5")
    ended = command("ask", "--json", *shared, "--strategy", strategy, "What is 17 * 23?")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    valid = Draft202012Validator(events_schema())
    kinds = {line["type"] for line in lines}
    assert {"turn_started", "call_finished", "budget_settled", "plan_changed", "turn_finished", "result"} <= kinds
    for line in lines:
        assert valid.is_valid(line), [error.message for error in valid.iter_errors(line)]


def test_what_is_no_event_is_not_valid_under_it():
    valid = Draft202012Validator(events_schema())
    told = to_json(Notice("Something."))
    assert valid.is_valid(told)
    assert not valid.is_valid({**told, "text": 3})
    assert not valid.is_valid({"type": "notice"})
    assert not valid.is_valid({**told, "type": "nothing"})


def test_the_command_prints_the_schema_and_what_each_line_tells(tmp_path, monkeypatch, capsys):
    command = commands(tmp_path, monkeypatch, capsys)
    assert json.loads(command("events", "--schema").stdout) == events_schema()
    assert "turn_finished      The turn ended; the last event of every turn." in command("events").stdout
