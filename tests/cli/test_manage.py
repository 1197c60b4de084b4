import json
import re
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ecoshell.budget import Account, Ask, Price, Rates, parse_amount
from ecoshell.budget.ledger import Ledger
from ecoshell.cli import main
from ecoshell.events import Answer, Event, TurnStarted
from ecoshell.messages import Usage
from ecoshell.paths import user_paths
from ecoshell.sessions import SessionStore
from ecoshell.tools.mcp.servers import CachedLists, Server

Shell = Callable[..., str]
PRICE = Price(Rates(*[Decimal(1)] * 5))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "home"


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Run a command in this process and return its output."""

    def run(*argv: str, status: int = 0) -> str:
        got = main(list(argv))
        output = capsys.readouterr()
        assert got == status, output.err
        return output.err if status else output.out

    return run


def written(text: str) -> Path:
    file = user_paths().settings_file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def talked(question: str = "how many words?", events: tuple[Event, ...] = ()) -> str:
    store = SessionStore(user_paths().sessions_file)
    session = store.create(workspace="/project", model="embedded")
    store.append(session, [TurnStarted(1, question, "embedded", "single", "react"), *events])
    store.close()
    return session


def spent(
    session: str, usage: Usage | None, *, price: Price | None = PRICE, model: str = "openai/x"
) -> int:
    ledger = Ledger(user_paths().ledger_file)
    hold = ledger.hold(Ask(price, 1000, 500, Account(session, 1, "single", model, "step")))
    ledger.settle(hold, usage, "count_text")
    ledger.close()
    return hold.entry


class TestTools:
    def test_tools_are_listed_with_tokens_and_effects(self, shell: Shell) -> None:
        rows = json.loads(shell("tools", "--json"))["rows"]
        by_name = {row["name"]: row for row in rows}
        assert by_name["run_command"]["effects"] == ["execute", "network", "read", "write"]
        assert all(row["tokens"] > 20 and row["description"] and row["parameters"] for row in rows)
        printed = shell("tools")
        assert all(re.search(rf"^{name} +\d+ ", printed, re.MULTILINE) for name in by_name)

    def test_one_tool_is_shown_with_its_schema(self, shell: Shell) -> None:
        assert json.loads(shell("tools", "read_file"))["name"] == "read_file"
        assert [
            row["name"] for row in json.loads(shell("tools", "read_file", "--json"))["rows"]
        ] == ["read_file"]

    def test_rows_have_the_source_and_the_initial_registration(self, shell: Shell) -> None:
        server = Server("far", url="http://127.0.0.1:9", cwd=str(Path.cwd()))
        records = [{"name": "add", "description": "Adds.", "parameters": {}, "read_only": True}]
        CachedLists(user_paths().mcp_folder, server).write({"tools": records})
        for registration, registered in (("names", False), ("all", True)):
            written(
                f'[agent]\nregistration = "{registration}"\n[mcp.servers.far]\nurl = "http://127.0.0.1:9"\n'
            )
            by_name = {row["name"]: row for row in json.loads(shell("tools", "--json"))["rows"]}
            assert by_name["read_file"]["source"] == "built-in"
            assert {row["registered"] for row in by_name.values()} == {registered}
        far = by_name["far.add"]
        assert (far["source"], far["effects"]) == ("MCP server far", ["network", "read", "write"])
        assert far["tokens"] > 0
        assert json.loads(shell("tools", "far.add"))["description"] == "Adds."

    def test_unknown_tool_is_refused_with_a_suggestion(self, shell: Shell) -> None:
        assert "Did you mean read_file" in shell("tools", "read_fil", status=2)

    def test_tools_are_listed_without_the_model(self, shell: Shell) -> None:
        written('model = "local:/nowhere/model.gguf"')
        assert json.loads(shell("tools", "--json"))["exact"] is False


class TestSessions:
    def test_sessions_are_listed(self, shell: Shell) -> None:
        assert "No sessions yet" in shell("sessions")
        session = talked("how many\x1b[2J words?")
        assert json.loads(shell("sessions", "list", "--json"))["rows"][0]["id"] == session
        assert json.loads(shell("sessions", "--json"))["rows"][0]["model"] == "embedded"
        printed = shell("sessions")
        assert "how many␛[2J words?" in printed
        assert "\x1b" not in printed

    def test_session_is_shown_by_a_prefix_of_its_id(self, shell: Shell) -> None:
        session = talked(events=(Answer("It has 12."),))
        assert "It has 12." in shell("sessions", "show", session[:5])
        document: dict[str, Any] = json.loads(shell("sessions", "show", session, "--json"))
        assert [event["type"] for event in document["events"]] == ["turn_started", "answer"]

    def test_session_is_exported_only_to_a_new_file(self, shell: Shell, tmp_path: Path) -> None:
        session = talked(events=(Answer("It has 12."),))
        for file, form in (
            (tmp_path / "a.md", []),
            (tmp_path / "b.json", []),
            (tmp_path / "c.txt", ["--format", "json"]),
        ):
            shell("sessions", "export", session, str(file), *form)
        assert (tmp_path / "a.md").read_text() == shell("sessions", "export", session)
        assert shell("sessions", "export", session, "-") == shell("sessions", "export", session)
        assert shell("sessions", "export", session, "-", "--format", "json").startswith("{")
        assert json.loads((tmp_path / "b.json").read_text()) == json.loads(
            (tmp_path / "c.txt").read_text()
        )
        assert "exists already" in shell(
            "sessions", "export", session, str(tmp_path / "a.md"), status=2
        )
        assert "cannot be written" in shell(
            "sessions", "export", session, str(tmp_path / "no" / "a.md"), status=1
        )

    def test_session_is_renamed_and_deleted(self, shell: Shell) -> None:
        session = talked()
        assert "'word count'" in shell("sessions", "rename", session[:5], "word", "count")
        assert "the full ID" in shell("sessions", "delete", session[:5], status=2)
        with closing(SessionStore(user_paths().sessions_file)) as store:
            lock = store.lock(session)
            refusal = shell("sessions", "delete", session, status=2)
            assert f"{session} is open in another ecoshell.\nClose it there first." in refusal
            lock.release()
        copies = user_paths().undo_folder / session / "1"
        copies.mkdir(parents=True)
        assert "word count" in shell("sessions", "delete", session)
        assert not copies.parent.exists()
        assert "Unknown session" in shell("sessions", "show", session, status=2)

    def test_damaged_store_is_an_error_with_a_fix(self, shell: Shell) -> None:
        file = user_paths().sessions_file
        file.parent.mkdir(parents=True)
        file.write_bytes(b"no database at all" * 100)
        assert "Move the file away" in shell("sessions", status=1)


class TestCost:
    def test_costs_and_caps_have_the_documented_fields(self, shell: Shell) -> None:
        session = talked()
        ledger = Ledger(user_paths().ledger_file)
        ledger.set_cap(session, "session", parse_amount("0.50"))
        ledger.set_cap(session, "day", parse_amount("20000tok"))
        ledger.close()
        spent(session, Usage(input=1000, output=200, cached=400))
        report = json.loads(shell("cost", "--by", "session", "--json"))
        row = report["rows"][0]
        assert row["key"] == session
        assert (row["spent_usd"], row["held_usd"]) == ("0.0012", "0")
        assert (row["input"], row["cached"], row["output"], row["calls"]) == (1000, 400, 200, 1)
        by_scope = {cap["scope"]: cap for cap in report["caps"]}
        assert by_scope["session"]["limit_usd"] == "0.5"
        assert by_scope["session"]["spent_usd"] == "0.0012"
        assert by_scope["session"]["held_usd"] == "0"
        assert by_scope["day"]["limit_usd"] is None
        assert (by_scope["day"]["limit_tokens"], by_scope["day"]["spent_tokens"]) == (20000, 1200)

    @pytest.mark.parametrize(
        ("by", "key"),
        [("day", None), ("model", "openai/x"), ("role", "single"), ("tool", "count_text")],
    )
    def test_costs_are_grouped(self, shell: Shell, by: str, key: str | None) -> None:
        spent("a", Usage(input=10, output=10))
        spent("b", Usage(input=10, output=10))
        rows = json.loads(shell("cost", "--by", by, "--json"))["rows"]
        assert [row["calls"] for row in rows] == [2]
        assert key is None or rows[0]["key"] == key
        assert by in shell("cost", "--by", by).splitlines()[0]

    def test_unknown_values_are_null_and_never_zero(self, shell: Shell) -> None:
        spent("a", Usage(input=10, output=10), price=None)
        assert json.loads(shell("cost", "--json"))["rows"][0]["spent_usd"] is None
        assert "unknown" in shell("cost")

    def test_call_of_unknown_cost_is_listed_until_reconciled(self, shell: Shell) -> None:
        entry = spent("a", None)
        waiting = json.loads(shell("cost", "--json"))["unreconciled"]
        assert [(item["entry"], item["counted_usd"]) for item in waiting] == [(entry, "0.0015")]
        for arguments in ("cost",), ("cost", "--reconcile"):
            assert f"--reconcile {entry}=" in shell(*arguments)
        report = json.loads(shell("cost", "--reconcile", f"{entry}=0.0004", "--json"))
        assert report["unreconciled"] == []
        assert report["rows"][0]["spent_usd"] == "0.0004"

    def test_reconciled_cost_may_be_zero(self, shell: Shell) -> None:
        entry = spent("a", None)
        assert (
            json.loads(shell("cost", "--reconcile", f"{entry}=0", "--json"))["rows"][0]["spent_usd"]
            == "0"
        )

    @pytest.mark.parametrize("text", ["12", "x=1", "=1", "1=lots", "1=-2", "999=1"])
    def test_invalid_reconciliation_is_refused(self, shell: Shell, text: str) -> None:
        assert shell("cost", "--reconcile", text, status=2)

    def test_empty_ledger_has_a_message(self, shell: Shell) -> None:
        assert "Nothing was spent yet" in shell("cost")
        assert json.loads(shell("cost", "--json")) == {"rows": [], "caps": [], "unreconciled": []}


class TestConfig:
    @pytest.mark.parametrize("typed", ["0.0000000001", "1,500", "20k", "9999999", "caf\udcff"])
    def test_unusable_values_are_not_written(self, shell: Shell, typed: str) -> None:
        assert "Nothing was written." in shell("config", "set", "budget.day", typed, status=2)
        assert not user_paths().settings_file.exists()
        shell("config", "check")

    def test_values_are_listed_with_their_origin(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = written('[budget]\nday = 2.50\n[models."openai/x".price]\ninput = 0.1\noutput = 2\n')
        monkeypatch.setenv("ECOSHELL_AGENT_MAX_STEPS", "9")
        rows = {row["key"]: row for row in json.loads(shell("config", "--json"))["rows"]}
        assert (rows["budget.day"]["value"], rows["budget.day"]["from"]) == (
            "2.50",
            f"{file} line 2",
        )
        assert (rows["agent.max_steps"]["value"], rows["agent.max_steps"]["from"]) == (
            9,
            "ECOSHELL_AGENT_MAX_STEPS",
        )
        assert rows['models."openai/x".price.input']["value"] == "0.1"
        assert rows["model"] == {
            "key": "model",
            "value": "embedded",
            "from": "default",
            "variable": "ECOSHELL_MODEL",
        }
        assert re.search(r"budget\.day +2\.50 +.*config\.toml line 2", shell("config", "show"))

    def test_path_is_printed_even_if_the_file_is_broken(self, shell: Shell) -> None:
        file = written("this is not toml")
        assert shell("config", "path") == f"{file}\n"

    def test_check_lists_every_problem(self, shell: Shell) -> None:
        assert "no problems" in shell("config", "check")
        written("modle = 'x'\n[agent]\nmax_steps = 'y'\n")
        output = shell("config", "check", status=2)
        assert "line 1: unknown key modle" in output
        assert "line 3: agent.max_steps" in output

    def test_rule_about_one_tool_is_pointed_out(self, shell: Shell) -> None:
        written(
            '[approval]\nask = ["read_file:secrets/*", "read:docs/*"]\ndeny = ["run_command:rm *"]\n'
        )
        deny, ask = json.loads(shell("config", "check", "--json"))["notes"]
        assert deny.startswith("approval.deny: run_command:rm * does not hold for run_python")
        assert deny.endswith("; execute:rm * does.")
        assert re.fullmatch(
            r"approval\.ask: read_file:secrets/\* does not hold for .*search_text.*; read:secrets/\* does\.",
            ask,
        )

    def test_effects_alone_are_rules(self, shell: Shell) -> None:
        written('[approval]\nask = ["read", "execute"]\ndeny = ["write", "network"]\n')
        assert "no problems" in shell("config", "check")

    def test_invalid_setting_stops_every_command_with_its_line(self, shell: Shell) -> None:
        written("[agent]\nmax_step = 3\n")
        for command in ("config", "models", "tools"):
            assert "config.toml line 2: unknown key agent.max_step" in shell(command, status=2)

    def test_keys_are_never_shown(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecretindeed")
        assert "verysecret" not in shell("config") + shell("config", "--json") + shell("models")

    def test_settings_are_set_and_removed_keeping_comments(self, shell: Shell) -> None:
        file = written("# mine\n[agent]\nmax_steps = 5 # enough\n")
        assert shell("config", "set", "agent.max_steps", "7") == "agent.max_steps = 7\n"
        assert file.read_text() == "# mine\n[agent]\nmax_steps = 7 # enough\n"
        price = 'models."openai/x".price'
        report = json.loads(
            shell("config", "set", f"{price}.input", "0.20", f"{price}.output", "0.80", "--json")
        )
        assert report == {
            "file": str(file),
            "keys": [f"{price}.input", f"{price}.output"],
            "hidden": {},
        }
        assert "agent.max_steps has its default again" in shell(
            "config", "unset", "agent.max_steps"
        )
        assert "agent.max_step was not in the file" in shell("config", "unset", "agent.max_step")
        assert file.read_text().startswith("# mine\n[agent]\n\n[models")

    def test_invalid_setting_is_refused_without_writing(self, shell: Shell) -> None:
        file = written("model = 'x'\n")
        assert "agent.max_steps must be" in shell(
            "config", "set", "agent.max_steps", "many", status=2
        )
        assert "did you mean agent.max_steps?" in shell(
            "config", "set", "agent.max_step", "3", status=2
        )
        assert "agent.max_steps has no value" in shell(
            "config", "set", "model", "y", "agent.max_steps", status=2
        )
        assert "is not a key" in shell("config", "set", "a..b", "3", status=2)
        output = shell("config", "set", "agent.strategy", "reakt", status=2)
        assert "agent.strategy names an unknown strategy, 'reakt'.\nNothing was written." in output
        assert "Did you mean react?" in output
        output = shell("config", "set", "approval.deny", '["run_comand:rm *"]', status=2)
        assert "approval.deny names an unknown tool or effect, 'run_comand'." in output
        assert "Did you mean run_command?" in output
        for rule, effect in (("reads:secrets/*", "read"), ("Write:*.lock", "write")):
            output = shell("config", "set", "approval.deny", f'["{rule}"]', status=2)
            assert f"Did you mean {effect}?" in output
        output = shell("config", "set", "approval.deny", "netwrok", status=2)
        assert "Did you mean network?" in output
        assert "names an unknown theme" in shell("config", "set", "tui.theme", "drak", status=2)
        assert "does not name a tool" in shell(
            "config", "set", "tools.prices.calculator", "0.01", status=2
        )
        output = shell("config", "set", "plugins.enabled", '["gti"]', status=2)
        assert "plugins.enabled names an unknown plugin, 'gti'." in output
        assert "Did you mean git?" in output
        assert file.read_text() == "model = 'x'\n"

    def test_unknown_names_are_reported_with_their_lines(self, shell: Shell) -> None:
        written(
            "[approval]\nallow = ['run_*:git status', 'read_file', 'weather__today']\ndeny = ['run_comand:rm *']\n"
            "[tools.prices]\ncalculate = '0.01'\ncalculator = '0.01'\n[tui]\ntheme = 'drak'\n"
        )
        output = shell("config", "check", status=2)
        assert (
            "line 3: approval.deny names an unknown tool or effect, 'run_comand'.\nDid you mean run_command?"
            in output
        )
        assert (
            "line 6: tools.prices.calculator does not name a tool that can have a price." in output
        )
        assert "line 8: tui.theme names an unknown theme, 'drak'.\nDid you mean dark?" in output
        assert "approval.allow" not in output

    def test_variable_that_overrides_a_written_setting_is_reported(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ECOSHELL_AGENT_MAX_STEPS", "9")
        report = json.loads(shell("config", "set", "agent.max_steps", "7", "--json"))
        assert report["hidden"] == {"agent.max_steps": "ECOSHELL_AGENT_MAX_STEPS"}

    @pytest.mark.parametrize(
        ("name", "value", "key", "typed"),
        [
            ("ECOSHELL_LEDGER", "postgresql://ann@a/b", "budget.ledger", "postgresql://ann@c/d"),
            ("ECOSHELL_AGENT__MAX_STEPS", "5", "agent.max_steps", "7"),
        ],
    )
    def test_overriding_variable_is_named_in_any_spelling(
        self,
        shell: Shell,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        value: str,
        key: str,
        typed: str,
    ) -> None:
        monkeypatch.setenv(name, value)
        assert json.loads(shell("config", "set", key, typed, "--json"))["hidden"] == {key: name}


class TestModels:
    def rows(self, shell: Shell, *argv: str) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in json.loads(shell("models", "--json", *argv))["rows"]}

    def test_models_on_this_machine_are_listed(self, shell: Shell, home: Path) -> None:
        file = home / "data" / "models" / "small.gguf"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"GGUF")
        rows = self.rows(shell)
        assert rows["embedded"]["price"] == {"input": "0", "cached_input": "0", "output": "0"}
        assert rows["embedded"]["ready"] in {True, False}
        assert rows[f"local:{file}"]["ready"] is True

    def test_models_of_a_provider_with_a_key_are_listed(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "gpt-4o-mini" not in self.rows(shell)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecretindeed")
        row = self.rows(shell)["gpt-4o-mini"]
        assert (row["ready"], row["context"]) == (True, 128000)
        assert row["price"] == {"input": "0.15", "cached_input": "0.075", "output": "0.6"}

    def test_part_of_a_name_searches_all_known_models(self, shell: Shell) -> None:
        rows = self.rows(shell, "GPT-4o-mini")
        assert rows["gpt-4o-mini"]["ready"] is False
        assert all("gpt-4o-mini" in name.lower() for name in rows)
        assert "No model has that" in shell("models", "no such model")

    def test_settings_of_a_model_override_the_price_list(self, shell: Shell) -> None:
        written('[models."mine/model"]\ncontext = 4096\nprice = { input = 0.5, output = 1 }\n')
        row = self.rows(shell)["mine/model"]
        assert row["context"] == 4096
        assert row["price"] == {"input": "0.5", "cached_input": "0.5", "output": "1"}

    def test_blocked_model_is_listed_until_unblocked(self, shell: Shell) -> None:
        spent("a", Usage(input=9000, output=9000), model="openai/greedy")
        assert "billed" in self.rows(shell)["openai/greedy"]["barred"]
        assert "blocked: it billed" in shell("models")
        assert "openai/greedy" not in self.rows(shell, "--unbar", "openai/greedy")
        assert "is not blocked" in shell("models", "--unbar", "openai/greedy", status=2)
