"""Plugins in sessions, from packages and the user's folder, including failing ones."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from command_play import Command, Ended, commands

from ecoshell import Agent
from ecoshell.events import CallFinished
from ecoshell.options import Options
from ecoshell.paths import Paths
from ecoshell.tui.themes import load_theme, load_themes

EVERYTHING = '''
from decimal import Decimal
from pathlib import Path

from ecoshell import tool
from ecoshell.agent.command_table import Command, Printed
from ecoshell.budget import Price, Rates
from ecoshell.models.script import ScriptModel
from ecoshell.plugins import hookimpl
from ecoshell.strategies import Outcome, Path as Way, StrategySpec

@tool
def twice(number: int) -> int:
    """Double a whole number."""
    return 2 * number

@tool
def broken() -> str:
    """Break."""
    raise ZeroDivisionError("on purpose")

@hookimpl
def tools(workspace):
    assert workspace.root.is_dir()
    return [twice, broken]

def parrot(question, max_steps):
    if question == "fail":
        raise LookupError("no parrot")
    if question == "nothing":
        return question
    return Outcome("answered", question.upper(), Way(question))
    yield

@hookimpl
def strategies():
    return [StrategySpec("parrot", parrot, "says it loudly")]

@hookimpl
def models():
    return {"canned:": lambda name, price: ScriptModel(Path(name.removeprefix("canned:")), name=name, price=price)}

@hookimpl
def prices():
    return {"canned:dear.jsonl": Price(Rates(*[Decimal(1000)] * 5), source="the plugin")}

async def shout(shell, argument):
    if not argument:
        raise LookupError("nothing to shout")
    if argument == "leave":
        raise SystemExit(2)
    if argument == "count":
        return Printed(5)
    return Printed(argument.upper())

@hookimpl
def slash_commands():
    return [Command("shout", "TEXT", "say it loudly", shout)]

def strict(question, call, observation):
    assert question
    if call.name == "broken":
        raise LookupError("no judge")
    return observation.text == "42"

@hookimpl
def judges():
    return {"strict": strict}

@hookimpl
def themes():
    return Path(__file__).parent / "looks"
'''
FAILING = {
    "cannot be imported": (
        "import no_such_module",
        "ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "raises in a hook": (
        "from ecoshell.plugins import hookimpl\n@hookimpl\ndef tools():\n    raise OSError('no disk')\n",
        "OSError: no disk",
    ),
    "gives a function as it is": (
        "from ecoshell.plugins import hookimpl\ndef f(): ...\n@hookimpl\ndef tools():\n    return [f]\n",
        "TypeError: f is not a tool: mark it with @ecoshell.tool",
    ),
    "has a tool that is there": (
        "from ecoshell import tool\nfrom ecoshell.plugins import hookimpl\n@tool\ndef read_file() -> str: ...\n"
        "@hookimpl\ndef tools():\n    return [read_file]\n",
        "ValueError: the tool read_file already exists",
    ),
    "has a tool of another kind": (
        "from ecoshell import tool\nfrom ecoshell.plugins import hookimpl\n@tool\ndef f(*words) -> str: ...\n"
        "@hookimpl\ndef tools():\n    return [f]\n",
        "TypeError: f: a tool takes arguments by name, so not *words",
    ),
    "has a schema that is none": (
        "from types import SimpleNamespace\nfrom ecoshell import tool\nfrom ecoshell.messages import ToolSchema\n"
        "from ecoshell.plugins import hookimpl\n@tool\ndef f() -> str: ...\n"
        "schema = ToolSchema('g', 'Go.', {'type': 'object', 'properties': [1]})\n@hookimpl\ndef tools():\n"
        "    return [SimpleNamespace(schema=schema, effects=f.effects, price_nano=0, run=f.run)]\n",
        "ValueError: the parameters of g are not a JSON schema of an object",
    ),
    "has a strategy that is there": (
        "from ecoshell.plugins import hookimpl\nfrom ecoshell.strategies.react import REACT\n"
        "@hookimpl\ndef strategies():\n    return [REACT]\n",
        "ValueError: the strategy react already exists",
    ),
    "takes over our models": (
        "from ecoshell.plugins import hookimpl\n@hookimpl\ndef models():\n    return {'script:': print}\n",
        "ValueError: the model script: already exists",
    ),
}
PROVIDER = '''
from ecoshell import tool
from ecoshell.plugins import hookimpl

@tool
def tide() -> str:
    """Return the tide."""
    return "high"

class Harbour:
    name, known, status = "harbour", False, "at anchor"
    tools = ()

    async def connect(self):
        self.tools, self.known = (tide,), True

    async def aclose(self):
        raise OSError("sunk")

class Wreck(Harbour):
    name, known = "wreck", True

    @property
    def tools(self):
        raise LookupError("all hands lost")

@hookimpl
def tools():
    return [Harbour(), Wreck()]
'''


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    return commands(tmp_path, monkeypatch, capsys)


def own(place: Path, name: str, code: str) -> Path:
    """Put a plugin into the user's folder, as a file or, without a suffix, as a package."""
    file = (
        place
        / "home"
        / "config"
        / "plugins"
        / (name if name.endswith(".py") else f"{name}/__init__.py")
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    return file


def settings(place: Path, text: str) -> None:
    (place / "home" / "config").mkdir(parents=True, exist_ok=True)
    (place / "home" / "config" / "config.toml").write_text(text)


def ask(
    command: Command, place: Path, *replies: dict[str, object], options: tuple[str, ...] = ()
) -> Ended:
    (place / "script.jsonl").write_text("".join(f"{json.dumps(reply)}\n" for reply in replies))
    return command(
        "ask", "--model", f"script:{place / 'script.jsonl'}", *options, "--json", "twice 21"
    )


def events(done: Ended) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def notices(done: Ended) -> list[object]:
    return [event["text"] for event in events(done) if event["type"] == "notice"]


def observations(done: Ended) -> list[object]:
    return [event["observation"] for event in events(done) if event["type"] == "call_finished"]


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"call": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("name", ["first_own.py", "second_own"])
def test_a_tool_of_the_users_folder_runs_and_its_failure_is_an_observation(
    name: str, command: Command, tmp_path: Path
) -> None:
    own(tmp_path, name, EVERYTHING)
    replies = (call("twice", number=21), call("broken"), {"text": "42"})
    done = ask(command, tmp_path, *replies, options=("--registration", "all"))
    assert observations(done) == ["42", "broken failed: ZeroDivisionError: on purpose"]
    assert (done.returncode, notices(done), events(done)[-1]["answer"]) == (0, [], "42")
    again = ask(
        command, tmp_path, {"text": "42"}
    )  # in the same process, where the plugin is loaded already
    assert notices(again) == []


@pytest.mark.parametrize(("name", "options"), [("loud_own.py", ()), ("louder_own.py", ("--json",))])
def test_printed_text_of_a_tool_is_not_in_the_answer(
    name: str, options: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    own(tmp_path, name, EVERYTHING.replace("return 2 * number", "print('noise')"))
    script = tmp_path / "script.jsonl"
    script.write_text(f"{json.dumps(call('twice', number=21))}\n{json.dumps({'text': '42'})}\n")
    done = command(
        "ask", "--model", f"script:{script}", "--registration", "all", *options, "twice 21"
    )
    assert (done.returncode, "noise" in done.stdout, "noise" in done.stderr) == (0, False, True)


def test_a_strategy_of_a_plugin_can_be_chosen_by_option_and_setting(
    command: Command, tmp_path: Path
) -> None:
    own(tmp_path, "third_own.py", EVERYTHING)
    assert (
        events(ask(command, tmp_path, options=("--strategy", "parrot")))[-1]["answer"] == "TWICE 21"
    )
    assert command("config", "set", "agent.strategy", "parrot").returncode == 0
    assert events(ask(command, tmp_path))[-1]["answer"] == "TWICE 21"
    failed = command("ask", "--model", f"script:{tmp_path / 'script.jsonl'}", "fail")
    assert failed.returncode == 1
    assert "The plugin third_own failed: LookupError: no parrot (" in failed.stderr
    failed = command("ask", "--model", f"script:{tmp_path / 'script.jsonl'}", "nothing")
    assert (
        "The plugin third_own failed: TypeError: parrot returned str instead of Outcome ("
        in failed.stderr
    )


def test_an_unknown_strategy_is_refused_as_an_option_and_replaced_as_a_setting(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").touch()
    refused = command(
        "ask", "--model", f"script:{tmp_path / 'empty.jsonl'}", "--strategy", "parot", "hello"
    )
    assert refused.returncode == 2
    assert "Unknown strategy 'parot'.\nAvailable: react, dfsdt, tot, graph." in refused.stderr
    settings(tmp_path, '[agent]\nstrategy = "parrot"\n')
    done = ask(command, tmp_path, {"text": "42"})
    assert notices(done) == ["Unknown strategy 'parrot'. Using react."]
    assert events(done)[-1]["answer"] == "42"
    checked = command("config", "check")
    assert checked.returncode == 2
    assert (
        "config.toml line 2: agent.strategy names an unknown strategy, 'parrot'." in checked.stderr
    )
    own(tmp_path, "with_parrot.py", EVERYTHING)
    assert command("config", "check").returncode == 0


def test_a_judge_of_a_plugin_is_used_and_an_unknown_one_falls_back_to_rules(
    command: Command, tmp_path: Path
) -> None:
    own(tmp_path, "judging_own.py", EVERYTHING)
    assert command("config", "set", "plan.judge", "strict").returncode == 0
    calls = (call("twice", number=21), call("twice", number=2))
    done = ask(command, tmp_path, *calls, {"text": "42"}, options=("--registration", "all"))
    verdicts = [
        (event["helpful"], event["by"]) for event in events(done) if event["type"] == "call_judged"
    ]
    assert (verdicts, notices(done)) == ([(True, "plugin"), (False, "plugin")], [])
    settings(tmp_path, '[plan]\njudge = "lenient"\n')
    done = ask(command, tmp_path, calls[0], {"text": "42"}, options=("--registration", "all"))
    assert notices(done) == ["Unknown judge 'lenient'. Using rules."]


def test_a_model_of_a_plugin_answers_at_the_plugins_price(command: Command, tmp_path: Path) -> None:
    own(tmp_path, "fourth_own.py", EVERYTHING)
    (tmp_path / "workspace").mkdir()
    for name in ("cheap", "dear"):
        (tmp_path / "workspace" / f"{name}.jsonl").write_text('{"text": "from a can"}\n')
    free = command("ask", "--model", "canned:cheap.jsonl", "--budget", "0.001", "hello")
    assert (free.returncode, free.stdout) == (0, "from a can\n")
    dear = command("ask", "--model", "canned:dear.jsonl", "--budget", "0.001", "hello")
    assert dear.returncode == 3


async def test_slash_commands_of_a_plugin_run_are_listed_and_name_it_in_errors(
    tmp_path: Path,
) -> None:
    from ecoshell.assembly.shell import assemble
    from ecoshell.errors import EcoshellError

    own(tmp_path, "fifth_own.py", EVERYTHING)
    (tmp_path / "script.jsonl").write_text("")
    options = Options(model=f"script:{tmp_path / 'script.jsonl'}", workspace=tmp_path)
    shell = await assemble(options, paths=Paths.under(tmp_path / "home"))
    try:
        assert (await shell.command("/shout hello")).text == "HELLO"
        assert ("/shout TEXT", "say it loudly") in shell.overview()
        assert "/shout TEXT" in (await shell.command("/help")).text
        assert [completion.text for completion in shell.complete("/sho")] == ["/shout"]
        with pytest.raises(
            EcoshellError, match="The plugin fifth_own failed: LookupError: nothing to shout"
        ):
            await shell.command("/shout")
        with pytest.raises(
            EcoshellError, match="The plugin fifth_own failed: RuntimeError: it tried to exit"
        ):
            await shell.command("/shout leave")
        with pytest.raises(
            EcoshellError, match="The plugin fifth_own failed: TypeError: /shout returned Printed"
        ):
            await shell.command("/shout count")
    finally:
        await shell.aclose()


def test_themes_of_a_plugin_are_listed_and_overridden_by_the_users(tmp_path: Path) -> None:
    paths = Paths.under(tmp_path / "home")
    looks = own(tmp_path, "sixth_own", EVERYTHING).parent / "looks"
    looks.mkdir()
    (looks / "plum.toml").write_text('[colors]\nprimary = "#aa00aa"\n')
    assert load_theme(paths, "plum").primary == "#AA00AA"
    (paths.config / "themes").mkdir()
    (paths.config / "themes" / "plum.toml").write_text('[colors]\nprimary = "#0000ff"\n')
    assert {theme.name: theme.primary for theme in load_themes(paths).all}["plum"] == "#0000FF"


def test_tools_of_a_provider_appear_after_it_connects_despite_a_failing_one(
    command: Command, tmp_path: Path
) -> None:
    own(tmp_path, "seventh_own.py", PROVIDER)
    done = ask(command, tmp_path, call("tide"), {"text": "high"}, options=("--registration", "all"))
    assert observations(done) == ["high"]
    assert "Tools available now: tide." in notices(done)
    assert done.returncode == 0


@pytest.mark.parametrize("failure", FAILING)
def test_a_failing_plugin_is_reported_once(failure: str, command: Command, tmp_path: Path) -> None:
    code, reason = FAILING[failure]
    name = f"bad_{failure.replace(' ', '_')}"
    own(tmp_path, f"{name}.py", code)
    own(tmp_path, f"good_{name}.py", EVERYTHING.replace('"parrot"', '"other"'))
    replies = (call("twice", number=21), {"text": "42"})
    done = ask(command, tmp_path, *replies, options=("--registration", "all"))
    assert notices(done) == [f"Plugin {name} disabled: {reason}"]
    assert observations(done) == ["42"]
    assert done.returncode == 0
    row = json.loads(command("plugins", "info", name, "--json").stdout)
    assert (row["state"], row["error"], row["brings"]) == ("failed", reason, {})


def test_an_error_possibly_caused_by_a_disabled_plugin_names_it(
    command: Command, tmp_path: Path
) -> None:
    own(tmp_path, "eighth_own.py", "import no_such_module")
    done = command("ask", "--strategy", "parrot", "--model", "script:x", "hello")
    assert "Plugin eighth_own disabled: ModuleNotFoundError" in done.stderr


def test_a_disabled_plugin_is_not_loaded(command: Command, tmp_path: Path) -> None:
    own(tmp_path, "ninth_own.py", f"open({str(tmp_path / 'mark')!r}, 'w')")
    settings(tmp_path, '[plugins]\ndisabled = ["ninth_own"]\n')
    assert notices(ask(command, tmp_path, {"text": "42"})) == []
    assert command("no-such-command").returncode == 2
    (row,) = [
        row
        for row in json.loads(command("plugins", "--json").stdout)["rows"]
        if row["name"] == "ninth_own"
    ]
    assert (row["state"], row["brings"], row["source"]) == (
        "off",
        {},
        str(tmp_path / "home/config/plugins/ninth_own.py"),
    )
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("file", "variables"),
    [
        ("", {"ECOSHELL_PLUGINS__DISABLED": '["loud_own"]'}),
        ('[plugins]\ndisabled = ["still_own"]\n', {"ECOSHELL_PLUGINS_ENABLED": "git"}),
    ],
)
def test_a_plugin_can_be_disabled_by_variable_and_despite_invalid_settings(
    file: str,
    variables: dict[str, str],
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "still_own" if file else "loud_own"
    own(tmp_path, f"{name}.py", f"open({str(tmp_path / 'mark')!r}, 'w')")
    settings(tmp_path, file)
    for variable, text in variables.items():
        monkeypatch.setenv(variable, text)
    assert command("--help").returncode == 0
    assert name in command("plugins").stdout
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("line", ['plugins = ["git"]', "plugins = 5", "[[plugins]]"])
def test_invalid_settings_of_plugins_do_not_break_help(
    line: str, command: Command, tmp_path: Path
) -> None:
    settings(tmp_path, line)
    assert command("--help").returncode == command("plugins").returncode == 0
    assert "plugins" in command("config", "check").stderr


def test_shipped_tools_are_known_unless_the_settings_disable_their_plugin(
    command: Command, tmp_path: Path
) -> None:
    def sources() -> dict[str, str]:
        return {
            row["name"]: row["source"]
            for row in json.loads(command("tools", "--json").stdout)["rows"]
        }

    assert set(sources().values()) == {"built-in", "plugin git", "plugin data", "plugin web"}
    assert {name for name, source in sources().items() if source == "plugin git"} == {
        f"git_{name}" for name in ("status", "diff", "log", "show", "blame", "commit")
    }
    assert command("config", "set", "plugins.disabled", '["git", "web"]').returncode == 0
    assert set(sources().values()) == {"built-in", "plugin data"}


def test_reading_a_repository_needs_no_approval_and_a_commit_does(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
    ):
        monkeypatch.setenv(name, "ann@example.org")
    settings(tmp_path, '[plugins]\nenabled = ["git"]\n')
    (tmp_path / "workspace").mkdir()
    git = partial(
        subprocess.run, cwd=tmp_path / "workspace", check=True, capture_output=True, text=True
    )
    git(["git", "init", "-b", "main"])
    (tmp_path / "workspace" / "a.txt").write_text("one\n")
    replies = (
        call("git_status"),
        call("git_commit", message="Add a", paths=["a.txt"]),
        {"text": "done"},
    )
    done = ask(command, tmp_path, *replies, options=("--registration", "all"))
    status, commit = observations(done)
    assert status == "## No commits yet on main\n?? a.txt"
    assert "git_commit was not run: it was not approved." in str(commit)
    assert (
        ask(command, tmp_path, *replies, options=("--registration", "all", "--yes")).returncode == 0
    )
    assert git(["git", "log", "--format=%s"]).stdout == "Add a\n"


SETTLED = """
from ecoshell import tool
from ecoshell.errors import UsageError
from ecoshell.plugins import hookimpl

@hookimpl
def tools(settings):
    if settings.get("language", "en") == "??":
        raise UsageError("`language` is unknown.", fix="Use a code such as en.")

    @tool
    def language() -> str:
        \"\"\"Return the language.\"\"\"
        return settings.get("language", "en")

    return [language]
"""


def test_a_plugin_has_a_table_of_settings(command: Command, tmp_path: Path) -> None:
    own(tmp_path, "settled.py", SETTLED)

    def languages() -> list[object]:
        replies = (call("language"), {"text": "done"})
        return observations(ask(command, tmp_path, *replies, options=("--registration", "all")))

    assert languages() == ["en"]
    assert command("config", "set", "plugins.settled.language", "fr").returncode == 0
    assert (
        tmp_path / "home" / "config" / "config.toml"
    ).read_text() == '[plugins.settled]\nlanguage = "fr"\n'
    assert languages() == ["fr"]
    assert "plugins.settled.language" in command("config").stdout
    assert command("config", "check").returncode == 0


def test_a_plugin_that_reports_a_usage_error_is_disabled_with_its_message(
    command: Command, tmp_path: Path
) -> None:
    own(tmp_path, "wordy.py", SETTLED)
    settings(tmp_path, '[plugins.wordy]\nlanguage = "??"\n')
    error = "`language` is unknown. Use a code such as en."
    done = ask(command, tmp_path, {"text": "42"})
    assert notices(done) == [f"Plugin wordy disabled: {error}"]
    assert events(done)[-1]["answer"] == "42"
    row = json.loads(command("plugins", "info", "wordy", "--json").stdout)
    assert (row["state"], row["error"], row["brings"]) == ("incomplete", error, {})
    assert command("plugins", "info", "wordy").stdout.startswith(f"wordy : {error}\n")


def test_a_mistyped_setting_of_plugins_is_an_unknown_key(command: Command, tmp_path: Path) -> None:
    settings(tmp_path, '[plugins]\nenabeld = ["git"]\n')
    checked = command("config", "check")
    assert checked.returncode == 2
    assert (
        "config.toml line 2: unknown key plugins.enabeld\ndid you mean plugins.enabled?"
        in checked.stderr
    )


def test_a_mistyped_setting_of_a_packaged_plugin_is_reported(
    command: Command, tmp_path: Path
) -> None:
    text = '[plugins.web]\nserxng = "http://localhost:8888"\n'
    settings(tmp_path, text)
    fault = "[plugins.web] has no setting serxng; did you mean searxng?"
    assert notices(ask(command, tmp_path, {"text": "42"})) == [f"Plugin web disabled: {fault}"]
    checked = command("config", "check")
    assert (checked.returncode, f"Plugin web disabled: {fault}" in checked.stderr) == (2, True)
    refused = command("config", "set", "plugins.web.searx", "http://localhost:8888")
    assert (refused.returncode, "Nothing was written." in refused.stderr) == (2, True)
    assert (tmp_path / "home" / "config" / "config.toml").read_text() == text
    assert command("config", "unset", "plugins.web.serxng").returncode == 0
    assert "no problems" in command("config", "check").stdout


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[plugins]\ndisabled = ["wbe"]\n',
            "line 2: plugins.disabled names an unknown plugin, 'wbe'.\nDid you mean web?",
        ),
        (
            "[plugins.git]\nfoo = 1\n",
            "line 2: plugins.git.foo is not a setting: the plugin git has none.",
        ),
        (
            "[plugins.wbe]\nfoo = 1\n",
            "line 2: plugins.wbe.foo names an unknown plugin, 'wbe'.\nDid you mean web?",
        ),
    ],
)
def test_check_reports_settings_that_no_plugin_reads(
    text: str, problem: str, command: Command, tmp_path: Path
) -> None:
    settings(tmp_path, text)
    checked = command("config", "check")
    assert (checked.returncode, problem in checked.stderr) == (2, True)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_missing_dependency_is_a_problem_only_of_an_enabled_plugin(
    *, is_enabled: bool, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    settings(tmp_path, '[plugins]\nenabled = ["data"]\n' if is_enabled else "")
    assert bool(notices(ask(command, tmp_path, {"text": "42"}))) == is_enabled
    assert ("Plugin data disabled" in command("config", "check").stderr) == is_enabled


@pytest.mark.parametrize("module", ["duckdb", "plotille"])
def test_a_missing_dependency_of_a_packaged_plugin_is_named(
    module: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    settings(tmp_path, '[plugins]\nenabled = ["data"]\n')
    lacks = f"needs {module}: pip install 'ecoshell[data]'"
    assert notices(ask(command, tmp_path, {"text": "42"})) == [f"Plugin data disabled: {lacks}"]
    (row,) = [
        row
        for row in json.loads(command("plugins", "--json").stdout)["rows"]
        if row["name"] == "data"
    ]
    assert (row["state"], row["error"]) == ("incomplete", lacks)
    assert lacks in command("plugins").stdout


def test_data_and_web_tools_work_in_a_session(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="the extra `data` is not installed")
    pytest.importorskip("plotille", reason="the extra `data` is not installed")
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    settings(
        tmp_path, '[plugins]\nenabled = ["data", "web"]\n[approval]\nask = ["data_query:secret*"]\n'
    )
    (tmp_path / "workspace").mkdir()
    for name in ("sales.csv", "secret.csv"):
        (tmp_path / "workspace" / name).write_text("who,amount\n\x1b[2JAnn,3\nBen,4\n")
    query = {"query": "SELECT who, amount FROM sales", "paths": ["sales.csv"]}
    drawing = {**query, "plot": "bar", "path": "plot.png"}
    secret = {"query": "SELECT * FROM secret", "paths": ["sales.csv", "secret.csv"]}
    calls = (
        call("data_query", **query),
        call("data_query", **secret),
        call("data_plot", **drawing),
    )
    options = ("--registration", "all")
    done = ask(command, tmp_path, *calls, {"text": "done"}, options=options)
    table, *refusals = map(str, observations(done))
    assert table == "who      amount\n␛[2JAnn       3\nBen           4"
    assert ["was not run: it was not approved" in refusal for refusal in refusals] == [True, True]
    fetch = call("fetch_url", url="https://example.org")
    refusals = observations(ask(command, tmp_path, fetch, {"text": "?"}, options=options))
    assert "fetch_url was not run: it was not approved" in str(refusals)

    image = tmp_path / "workspace" / "plot.png"
    observed = observations(
        ask(command, tmp_path, *calls, {"text": "done"}, options=(*options, "--yes", "--read-only"))
    )
    assert "read-only" in str(observed)
    assert not image.exists()
    ask(command, tmp_path, call("data_plot", **drawing), options=(*options, "--yes"))
    assert image.read_bytes().startswith(b"\x89PNG")


async def test_a_program_that_names_its_tools_gets_none_of_plugins(tmp_path: Path) -> None:
    own(tmp_path, "tenth_own.py", EVERYTHING)
    (tmp_path / "script.jsonl").write_text(
        '{"call": {"name": "twice", "arguments": {"number": 1}}}\n{"text": "?"}\n'
    )
    model, home = f"script:{tmp_path / 'script.jsonl'}", tmp_path / "home"
    async with Agent(
        model, tools=["calculate"], home=home, options=Options(workspace=tmp_path)
    ) as agent:
        finished = [
            event async for event in agent.stream("hello") if isinstance(event, CallFinished)
        ]
    assert [(event.name, event.ok) for event in finished] == [("twice", False)]
