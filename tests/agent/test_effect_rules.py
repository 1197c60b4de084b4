"""Rules on effects: they hold for every tool with the effect, in every spelling."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from agent_play import User, finish, of, say, turn
from shipped_tools import shipped_tools

from ecoshell.agent.rules import Rules, full_rule
from ecoshell.events import CallFinished
from ecoshell.messages import Call, ToolSchema
from ecoshell.tools import ToolOptions
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.sandbox import Sandbox, backend
from ecoshell.tools.workspace import Workspace

needs_sandbox = pytest.mark.skipif(
    bool(backend(Path("/nowhere")).problem), reason="no sandbox works on this machine"
)


@pytest.fixture
def ground(tmp_path: Path) -> Workspace:
    root = tmp_path / "work"
    for name in ("secrets/k", "docs/a.md", "src/m.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("a line\n")
    (root / "hidden").symlink_to("secrets")
    (root / "docs/key").symlink_to("../secrets/k")
    return Workspace(root)


def verdict(
    ground: Workspace, name: str, arguments: dict[str, object], *, confined: bool = False, **rules
) -> str:
    options = ToolOptions(sandbox=Sandbox("auto", ground.root) if confined else None)
    tools = shipped_tools(ground, options)
    tools["convert"] = FunctionTool(convert, effects=("read", "write"))
    return Rules(workspace=ground.root, **rules).judge(Call(name, arguments), tools[name]).verdict


def convert(source: str, target: str = "") -> str:
    """Does something, like a tool of a server."""
    return source + target


READS = [
    ("read_file", {"path": "secrets/k"}),
    ("read_file", {"path": "./docs/../secrets//k"}),
    ("read_file", {"path": "hidden/k"}),
    ("read_file", {"path": "docs/key"}),
    ("read_file", {"path": "SECRETS/K"}),
    ("search_text", {"text": "a", "path": "hidden/k"}),
    ("count_text", {"path": "docs/key"}),
    ("json_query", {"path": "secrets/k", "query": "@"}),
    ("edit_file", {"path": "secrets/k", "old": "a", "new": "b"}),
    ("convert", {"source": "file:secrets/k"}),
    ("run_command", {"command": "cat secrets/k"}),
    ("run_command", {"command": "cat < hidden/k"}),
    ("run_command", {"command": "cp --from=secrets/k x"}),
    ("run_command", {"command": "cat docs/key | wc"}),
    ("run_command", {"command": "cd secrets && cat k"}),
]
UNCERTAIN = [
    ("run_command", {"command": "cat sec*/k"}),
    ("run_command", {"command": "grep -r a ."}),
    ("run_command", {"command": "cat $(echo secrets/k)"}),
    ("run_python", {"code": "print(open('sec' + 'rets/k').read())"}),
]
"""What is not visible in the arguments; only the sandbox holds it."""
HIDDEN = [
    "python3 w.py",
    "make",
    "./cat docs/a.md",
    "git diff",
    "grep -r line",
    "grep -A 3 --recursive line",
    "ls && pytest",
    "wc --files0-from=list",
]
"""Plain lines of programs that use more than their arguments name."""
FREE = [
    ("read_file", {"path": "docs/a.md"}),
    ("search_text", {"text": "a"}),
    ("list_files", {}),
    ("count_text", {"text": "secrets/k"}),
    ("current_time", {}),
    ("fetch_url", {"url": "https://example.org/secrets/k"}),
    ("convert", {"source": "docs/a.md"}),
    ("run_command", {"command": "cat docs/a.md"}),
]


@pytest.mark.parametrize(
    "rule", ["read:secrets/*", "read:./secrets/", "read:secrets", "read:hidden/*"]
)
@pytest.mark.parametrize(("name", "arguments"), READS)
def test_rule_on_reading_holds_for_every_tool(ground, rule, name, arguments):
    assert verdict(ground, name, arguments, deny=(rule,)) == "deny"
    assert verdict(ground, name, arguments, deny=(rule,), yes=True) == "deny"


@pytest.mark.parametrize(("name", "arguments"), UNCERTAIN)
def test_uncertain_programs_match_only_outside_the_sandbox(ground, name, arguments):
    assert verdict(ground, name, arguments, deny=("read:secrets/*",)) == "deny"
    assert verdict(ground, name, arguments, ask=("read:secrets/*",)) == "ask"


@pytest.mark.parametrize("command", [*HIDDEN, "cd src && cat ../secrets/k"])
@pytest.mark.parametrize("rule", ["read:secrets/*", "write:secrets/*", "network:*.internal"])
def test_programs_that_use_more_than_they_name_match_without_a_sandbox(ground, rule, command):
    arguments, is_named = {"command": command}, command not in HIDDEN
    expected = "ask" if is_named and rule.startswith("network") else "deny"
    assert verdict(ground, "run_command", arguments, deny=(rule,)) == expected
    if expected == "deny":
        assert verdict(ground, "run_command", arguments, ask=(rule,), allow=("*",)) == "ask"
    assert verdict(ground, "run_command", arguments, allow=("run_command",)) == "allow"
    assert verdict(ground, "run_command", arguments, deny=("execute:rm *",), yes=True) == "allow"


@needs_sandbox
@pytest.mark.parametrize(
    ("rule", "held"),
    [
        ("write:docs/*", True),
        ("write:docs/**", True),
        ("write:./docs/", True),
        ("write:docs", True),
        ("write:docs/a.md", True),
        ("write:/etc/*", True),
        ("write:docs/a*", False),
        ("write:*.md", False),
        ("write:docs/new.md", False),
        ("write:docs/new/*", False),
        ("write:docs/a.md/*", False),
        ("write:hidden/*", False),
        ("read:hidden/*", False),
        ("read:/etc/*.d/*", False),
        ("read:*.pem", True),
        ("read:/etc/*", True),
        ("read:secrets/new", True),
    ],
)
@pytest.mark.parametrize("network", [(), ("python3 *",)])
def test_rule_that_the_sandbox_cannot_hold_matches_as_without_one(ground, rule, held, network):
    arguments = {"command": "python3 w.py"}
    rules = {"auto_accept": True, "network": network}
    denied = verdict(ground, "run_command", arguments, confined=True, deny=(rule,), **rules)
    assert denied == ("deny" if not held else "ask" if network else "allow")
    asked = verdict(ground, "run_command", arguments, confined=True, ask=(rule,), **rules)
    assert asked == ("allow" if held and not network else "ask")


@needs_sandbox
def test_rule_that_compares_too_many_files_is_not_held(ground, monkeypatch):
    monkeypatch.setattr("ecoshell.tools.protection._MAX_PATHS", 3)
    arguments, rules = {"command": "python3 w.py"}, {"confined": True, "auto_accept": True}
    for rule, expected in (("read:*.pem", "deny"), ("read:secrets/*", "allow")):
        assert verdict(ground, "run_command", arguments, deny=(rule,), **rules) == expected


@needs_sandbox
@pytest.mark.parametrize(("name", "arguments"), UNCERTAIN)
def test_sandbox_holds_uncertain_programs(ground, name, arguments):
    rules = {"deny": ("read:secrets/*",), "auto_accept": True}
    assert verdict(ground, name, arguments, confined=True, **rules) == "allow"
    outside = tuple(str(text) for text in arguments.values())
    assert verdict(ground, name, arguments, confined=True, outside=outside, **rules) == "deny"


@pytest.mark.parametrize(("name", "arguments"), FREE)
def test_rule_on_reading_leaves_other_calls_alone(ground, name, arguments):
    expected = verdict(ground, name, arguments)
    assert verdict(ground, name, arguments, deny=("read:secrets/*",)) == expected


@pytest.mark.parametrize(
    ("rule", "name", "arguments", "matches"),
    [
        ("write:docs/*", "write_file", {"path": "docs/new.md", "content": ""}, True),
        ("write:docs/*", "edit_file", {"path": "src/../docs/a.md", "old": "a", "new": "b"}, True),
        ("write:docs/*", "read_file", {"path": "docs/a.md"}, False),
        ("write:docs/*", "write_file", {"path": "src/new.py", "content": ""}, False),
        ("write:docs/*", "run_command", {"command": "tee docs/x"}, True),
        ("write:docs/*", "convert", {"source": "x", "target": "docs/x"}, True),
        ("execute:rm *", "run_command", {"command": "rm -r x"}, True),
        ("execute:rm *", "run_command", {"command": "ls; /bin/rm x"}, True),
        ("execute:rm *", "run_command", {"command": "ls -l"}, False),
        ("execute:rm *", "run_python", {"code": "import os"}, True),
        ("execute:rm *", "write_file", {"path": "rm", "content": ""}, False),
        ("network:*.internal", "fetch_url", {"url": "https://db.internal/x"}, True),
        ("network:*.internal", "fetch_url", {"url": "HTTP://DB.Internal.:8080"}, True),
        ("network:*.internal", "fetch_url", {"url": "https://user@db.internal%2f"}, True),
        ("network:*.internal", "fetch_url", {"url": "https://example.org/x.internal"}, False),
        ("network:*.internal", "run_command", {"command": "curl https://db.internal/x"}, True),
        ("network:*.internal", "run_command", {"command": "ssh db.internal"}, True),
        ("network:*.internal", "run_command", {"command": "ls docs"}, False),
        ("network:*", "run_command", {"command": "ls docs"}, True),
        ("network:*", "fetch_url", {"url": "https://example.org"}, True),
        ("network:*", "read_file", {"path": "docs/a.md"}, False),
    ],
)
def test_rules_on_other_effects(ground, rule, name, arguments, matches):
    denied = verdict(ground, name, arguments, deny=(rule,)) == "deny"
    assert denied == matches
    asked = verdict(ground, name, arguments, ask=(rule,), allow=(name,)) == "ask"
    assert asked == matches


@pytest.mark.parametrize(
    ("rule", "name", "arguments", "allowed"),
    [
        ("write:docs/*", "write_file", {"path": "docs/new.md", "content": "x"}, True),
        ("write:docs/*", "write_file", {"path": "docs/key", "content": "a longer line\n"}, False),
        ("write:docs/*", "write_file", {"path": "src/new.py", "content": "x"}, False),
        ("write:docs/*", "run_command", {"command": "tee docs/x"}, False),
        ("execute:ls *", "run_command", {"command": "ls -l"}, True),
        ("execute:ls *", "run_command", {"command": "ls -l; rm x"}, False),
        ("execute:ls *", "run_python", {"code": "ls -l"}, False),
        ("network:*.example.org", "fetch_url", {"url": "https://www.example.org/a"}, True),
        ("network:*.example.org", "fetch_url", {"url": "https://evil.org/?.example.org"}, False),
        ("network:*", "run_command", {"command": "curl https://example.org"}, False),
    ],
)
def test_rules_that_allow_an_effect(ground, rule, name, arguments, allowed):
    assert (verdict(ground, name, arguments, allow=(rule,)) == "allow") == allowed


@pytest.fixture
def rules(tmp_path: Path, home: Path):
    (home / "secrets").mkdir()
    (home / "secrets/key.txt").write_text("two keys\n")
    os.link(home / "notes.txt", home / "plain.txt")

    def write(sandbox: Mapping[str, object] | None = None, **approval: list[str]) -> None:
        file = tmp_path / "home/config/config.toml"
        file.parent.mkdir(parents=True)
        tables = {"approval": approval, "sandbox": sandbox or {}}
        lines = [
            line
            for name, table in tables.items()
            for line in (f"[{name}]", *(f"{key} = {json.dumps(table[key])}" for key in table))
        ]
        file.write_text("\n".join(lines))

    return write


@pytest.mark.parametrize("decision", ["deny", "ask"])
async def test_tools_that_read_a_tree_leave_protected_files_out_and_say_so(play, rules, decision):
    rules(**{decision: ["read:secrets/*"]})
    lines = [
        say("", "search_text", text="two"),
        say("", "list_files"),
        say("", "search_text", text="keys"),
    ]
    lines += [say("", "search_text", text="keys", path="secrets"), finish()]
    async with play(lines, user=User()) as shell:
        events = await turn(shell)
    found, listed, missing, within = (event.observation for event in of(events, CallFinished))
    assert "notes.txt:2: two" in found
    assert "key.txt" not in found + listed
    assert "secrets/" in listed
    for text in (found, listed, missing, within):
        assert "[omitted: 1 that the user's rules protect]" in text
    assert missing.startswith("No match for 'keys' in .")


@pytest.mark.parametrize(
    ("effect", "name", "arguments"),
    [
        ("read", "read_file", {"path": "notes.txt"}),
        ("read", "read_file", {"path": "/etc/hostname"}),
        ("read", "list_files", {}),
        ("write", "write_file", {"path": "new.md", "content": "x"}),
        ("execute", "run_command", {"command": "ls"}),
        ("execute", "run_python", {"code": "1"}),
        ("network", "fetch_url", {"url": "http://127.0.0.1:9/"}),
    ],
)
async def test_an_effect_alone_denies_every_use(play, rules, effect, name, arguments):
    rules(deny=[effect])
    async with play([say("", name, **arguments), finish()], yes=True) as shell:
        events = await turn(shell)
        judged = shell.deps.approvals.rules
    assert of(events, CallFinished)[0].observation.startswith(
        f"{name} was not run: a rule in the settings forbids it ({effect}:*"
    )
    assert judged.denies_network() == (effect == "network")
    assert judged.denies_files() == (effect in {"read", "write"})


@pytest.mark.parametrize(
    ("effect", "name", "arguments", "allowed"),
    [
        ("write", "write_file", {"path": "new.md", "content": "x"}, True),
        ("write", "write_file", {"path": "../new.md", "content": "x"}, False),
        ("execute", "run_command", {"command": "ls"}, True),
        ("execute", "run_command", {"command": "ls; ls"}, False),
        ("network", "fetch_url", {"url": "https://example.org"}, True),
        ("network", "run_command", {"command": "curl https://example.org"}, False),
    ],
)
async def test_an_effect_alone_allows_no_more_than_its_pattern_for_everything(
    play, rules, effect, name, arguments, allowed
):
    rules(allow=[effect])
    async with play([]) as shell:
        tool = shell.deps.catalog.tool(name)
        judged = shell.deps.approvals.rules.judge(Call(name, arguments), tool)
    assert (judged.verdict == "allow") == allowed


def test_a_tool_with_the_name_of_an_effect_keeps_its_rules():
    assert full_rule("execute", {"execute", "read_file"}) == "execute"
    assert full_rule("execute", {"read_file"}) == "execute:*"


@needs_sandbox
async def test_sandboxed_programs_do_not_read_protected_files(play, rules):
    rules(deny=["read:secrets/*", "write:notes.txt"])
    commands = [
        "cat sec*/*",
        "python3 -c \"print(open('sec' + 'rets/key.txt').read())\"",
        "for f in notes*; do echo x > $f; done",
    ]
    lines = [*(say("", "run_command", command=command) for command in commands), finish()]
    async with play(lines, yes=True) as shell:
        events = await turn(shell)
    results = of(events, CallFinished)
    assert len(results) == len(commands)
    assert not any("two keys" in event.observation for event in results)
    assert not any(event.ok for event in results)


@needs_sandbox
async def test_an_approved_command_reads_what_its_rule_asked_about(play, rules):
    rules(ask=["read:secrets/*", "read:plain.txt"], sandbox={"auto_accept": True})
    commands = ["cat secrets/key.txt", "cat secrets/key.txt && cat pla*", "cat sec*/*"]
    lines = [say("", "run_command", command=command) for command in commands]
    user = User("yes", "yes", "no")
    async with play([*lines, finish()], user=user) as shell:
        events = await turn(shell)
    asked = [question.arguments["command"] for question in user.asked]
    assert asked == [commands[0], commands[1], commands[1]]
    texts = [question.reason for question in user.asked]
    assert ["A rule in the settings asks" in text for text in texts] == [True, True, False]
    results = of(events, CallFinished)
    assert [event.ok for event in results] == [True, False, False]
    assert ["two keys" in event.observation for event in results] == [True, True, False]


@needs_sandbox
@pytest.mark.parametrize("decision", ["deny", "ask"])
async def test_no_later_call_reads_a_protected_file_by_another_name(play, rules, decision):
    rules(**{decision: ["read:secrets/*"]}, sandbox={"auto_accept": True})
    lines = [say("", "run_command", command=text) for text in ("mv secrets s4", "cat s4/key.txt")]
    lines += [say("", "read_file", path="s4/key.txt"), finish()]
    async with play(lines, user=User()) as shell:
        events = await turn(shell)
    assert not any(event.ok for event in of(events, CallFinished))


def test_schema_of_tools_does_not_mention_rules(ground):
    schemas = [tool.schema for tool in builtin_tools(ground)]
    assert all(
        isinstance(schema, ToolSchema) and "tree" not in json.dumps(schema.parameters)
        for schema in schemas
    )
