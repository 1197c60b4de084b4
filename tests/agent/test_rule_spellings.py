"""Many spellings of a forbidden path, command or address: each one works, and no rule misses it."""

import itertools
import os
import random
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shipped_tools import shipped_tools

from ecoshell.agent.rules import Rules
from ecoshell.agent.shell_line import parse_line
from ecoshell.errors import ToolError
from ecoshell.messages import Call, ToolSchema
from ecoshell.tools import Subject
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.workspace import Workspace

COUNT = 200
LATER = (
    ".git/config",
    ".git/hooks/pre-commit",
    ".envrc",
    ".vscode/tasks.json",
    ".bashrc",
    "sub/.git/config",
)


@pytest.fixture
def ground(tmp_path) -> Workspace:
    """A workspace with protected files, and links that lead to them."""
    root = tmp_path / "work"
    for name in ("secrets/k", "docs/a.md", "src/m.py", *LATER):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("a line\n")
    for link, to in {
        "up": ".", "docs/back": "..", "hidden": "secrets", "docs/key": "../secrets/k", "again": "docs/key",
        "docs/code": "../src", "docs/m": "../src/m.py", "docs/g": "../.git", "docs/hook": "../.git/hooks/pre-commit",
        "docs/rc": "../.envrc", "far": str(tmp_path / "work"),
    }.items():  # fmt: skip
        (root / link).symlink_to(to)
    (tmp_path / "door").symlink_to(root)
    return Workspace(root)


def judge(ground, call, **rules):
    tools = shipped_tools(ground)
    return Rules(workspace=ground.root, **rules).judge(call, tools[call.name])


def spellings(ground, target: str, begins=("",)) -> list[str]:
    """Different names that the workspace resolves to the same file."""
    chance, real = random.Random(target), ground.resolve(target)
    ways = [
        "",
        "./",
        ".//",
        "docs/../",
        "up/",
        "up/./up/",
        "docs/back/",
        "far/",
        "docs/back/docs/../",
        "secrets/../",
    ]
    fronts = [
        *ways,
        f"{ground.root}/",
        f"/{ground.root}/",
        f"{ground.root}/../work/",
        f"{ground.root.parent}/door/",
    ]
    ends = {target, target.replace("/", "//"), target.replace("/", "/./"), f"src/../{target}"}
    links = (
        "hidden/k",
        "docs/key",
        "again",
        "docs/code/m.py",
        "docs/m",
        "docs/g/config",
        "docs/hook",
        "docs/rc",
    )
    ends |= {link for link in (*links, "docs/g/hooks/pre-commit") if ground.resolve(link) == real}
    names: dict[str, None] = {}
    while len(names) < COUNT:
        middle = "".join(chance.choices(ways, k=chance.randrange(4)))
        name = chance.choice(fronts) + chance.choice(begins) + middle + chance.choice(sorted(ends))
        assert ground.resolve(name) == real, name
        names[name] = None
    return list(names)


@pytest.mark.parametrize(
    "rule", ["secrets/*", "./secrets/k", "secrets", "secrets/", "docs/../secrets//*", "hidden/*"]
)
def test_ask_and_deny_rules_match_every_spelling_of_a_path(ground, rule):
    for name in spellings(ground, "secrets/k"):
        call = Call("read_file", {"path": name})
        assert judge(ground, call, ask=(f"read_file:{rule}",)).verdict == "ask", name
        assert judge(ground, call, deny=(f"read_file:{rule}",), yes=True).verdict == "deny", name


def test_an_allow_rule_for_a_folder_matches_no_path_outside(ground):
    for name in spellings(ground, "src/m.py", begins=("", "docs/../", "docs/back/")):
        for arguments in ({"path": name, "content": "docs/"}, {"content": "docs/", "path": name}):
            assert (
                judge(ground, Call("write_file", arguments), allow=("write_file:docs/*",)).verdict
                == "ask"
            ), name


_PARTS = st.lists(
    st.sampled_from(["secrets", "docs", "src", "k", "a.md", "m.py", "..", ".", "", "up", "back", "key", "code", "m",
                     "g", "hook", "rc", "far", "hidden", "again", ".git", "hooks", "pre-commit", "config",
                     ".envrc", "new"]),
    min_size=1, max_size=7,
)  # fmt: skip


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts=_PARTS, absolute=st.sampled_from(["", "/", "//", "door/"]))
def test_rules_follow_the_resolved_path(ground, parts, absolute):
    begin = {"": "", "door/": f"{ground.root.parent}/door/"}.get(
        absolute, f"{absolute}{ground.root}/".replace("//", "/")
    )
    name = begin + "/".join(parts)
    try:
        real = ground.name(ground.resolve(name))
    except ToolError:
        return  # it leads outside
    write = Call("write_file", {"path": name, "content": "a longer line\n"})
    if real == "secrets" or real.startswith("secrets/"):
        assert (
            judge(ground, Call("read_file", {"path": name}), ask=("read_file:secrets/*",)).verdict
            == "ask"
        )
    if not real.startswith("docs/"):
        assert judge(ground, write, allow=("write_file:docs/*",)).verdict == "ask"
    if real == ".envrc" or ".git" in real.split("/"):
        assert judge(ground, write, yes=True).always_asks
    elif not {".git", ".envrc", "g", "hook", "rc"} & {*parts}:
        assert judge(ground, write, yes=True).verdict == "allow"


def test_an_allow_rule_matches_every_spelling_of_a_path_in_its_folder(ground):
    for name in (
        "docs/a.md",
        "./docs/a.md",
        "docs//a.md",
        f"{ground.root}/docs/a.md",
        "src/../docs/b/c.md",
    ):
        call = Call("write_file", {"path": name, "content": "a longer line\n"})
        assert judge(ground, call, allow=("write_file:docs/*",)).verdict == "allow", name


def test_an_ask_rule_matches_folders_that_contain_its_path(ground):
    def verdict(path: dict[str, str]) -> str:
        return judge(
            ground, Call("search_text", {"text": "key", **path}), ask=("search_text:secrets/*",)
        ).verdict

    assert [verdict({}), verdict({"path": "."}), verdict({"path": "hidden"})] == ["ask"] * 3
    assert verdict({"path": "docs"}) == "allow"


@pytest.mark.parametrize(
    "path", [7, ["docs/a.md", 7], {"a": 1}, "", " ", "a\0b", "\ud800", "a/" * 100_000]
)
def test_an_invalid_path_needs_approval(ground, path):
    call = Call("write_file", {"path": path, "content": "a longer line\n"})
    assert (
        judge(ground, call, ask=("write_file:secrets/*",), allow=("write_file",)).verdict == "ask"
    )
    assert judge(ground, call, allow=("write_file:*",)).verdict == "ask"


def test_patterns_match_undeclared_arguments_in_deny_rules_only(ground):
    call = Call("run_python", {"code": "print(1)"})
    assert judge(ground, call, deny=("run_python:*remove*",), yes=True).verdict == "deny"
    assert judge(ground, call, allow=("run_python:print*",)).verdict == "ask"
    assert judge(ground, call, allow=("run_python:print(1)",)).verdict == "allow"


@pytest.mark.parametrize(
    "target", [*LATER[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in LATER[2:])]
)
def test_writing_a_file_that_is_executed_later_always_needs_approval(ground, target):
    rules = {
        "yes": True,
        "allow": ("write_file", "edit_file", "write_file:*", f"write_file:{target}"),
    }
    for name in spellings(ground, target):
        for call in (
            Call("write_file", {"path": name, "content": "x"}),
            Call("edit_file", {"path": name, "old": "a", "new": "b"}),
        ):
            judged = judge(ground, call, **rules)
            assert (judged.verdict, judged.always_asks) == ("ask", True), name
    assert "executed later" in judged.why


def test_rules_ignore_case_and_invisible_characters(ground):
    for name in (".GIT/config", ".g\u200cit/config", ".Envrc", "\uff0egit/config", "x/HEAD"):
        assert judge(
            ground, Call("write_file", {"path": name, "content": "a longer line\n"}), yes=True
        ).always_asks, name
    assert (
        judge(
            ground, Call("read_file", {"path": "SECRETS/K"}), ask=("read_file:secrets/*",)
        ).verdict
        == "ask"
    )


def test_bare_repositories_and_own_folders_count_as_executed_later(ground):
    bare = ground.root / "bare"
    (bare / "refs").mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    call = Call("write_file", {"path": "bare/config", "content": "a longer line\n"})
    assert judge(ground, call, yes=True).always_asks
    settings_file = Call("write_file", {"path": "up/etc/config.toml", "content": "a longer line\n"})
    assert judge(ground, settings_file, yes=True, own=(ground.root / "etc",)).always_asks
    assert judge(ground, settings_file, yes=True).verdict == "allow"


def test_ordinary_files_are_written_with_yes(ground):
    for name in (
        "README.md",
        "src/git/config",
        ".github/CODEOWNERS",
        ".gitignore",
        "docs/profile",
        "a.vscode/x",
    ):
        assert (
            judge(
                ground, Call("write_file", {"path": name, "content": "a longer line\n"}), yes=True
            ).verdict
            == "allow"
        ), name


def _quoted(chance: random.Random, word: str) -> str:
    """Spell a word with quotes and backslashes that a shell removes."""
    forms = (
        str,
        str,
        lambda sign: f"'{sign}'",
        lambda sign: f'"{sign}"',
        lambda sign: f"\\{sign}",
        lambda s: f"''{s}",
    )
    return "".join(chance.choice(forms)(sign) for sign in word)


def _removals() -> list[str]:
    """Shell command lines that remove the file `victim`."""
    chance = random.Random(7)
    names = ["rm", "/bin/rm", "/usr/bin/rm", "//bin//rm", "/bin/../bin/rm", "/???/r[m]", "/bin/r?", "$(echo rm)",
             "`echo rm`",
             "${X:-rm}", "r${X}m", "$(printf 'r%s' m)", "rm$X"]  # fmt: skip
    fronts = ["", " ", "\t", "\n", "true;", "true ; ", "true&&", "false||", "true|", "true\n", "true&", "X=1 ",
              "! ", ">o ", "2>/dev/null ",
              "# '\n", "if true; then ", "{ ", "(", "cat <<E\nE\n", "for f in 1; do ", "command ", "exec ", "env ",
              "env -i ", "nohup ",
              "nice ", "nice -n 5 ", "timeout 9 ", "setsid -w ", "stdbuf -o0 ", "busybox "]  # fmt: skip
    backs = {"if true; then ": "; fi", "{ ": "; }", "(": ")", "for f in 1; do ": "; done"}
    templates = [
        "eval '{}'", 'eval "{}"', "sh -c '{}'", "/bin/sh -c '{}'", "bash -c '{}'", "echo '{}' | sh",
        "echo '{}'|/bin/sh",
        "printf '%s\\n' '{}' | sh", "sh <<E\n{}\nE", "sh <<'E'\n{}\nE", "f() {{ {}; }}; f", "alias a='{}'\na",
        "trap '{}' EXIT", "X=`{}`",
        "echo $({})", ': "$({})"', "awk 'BEGIN{{system(\"{}\")}}'", "echo x | sed '1e {}'",
        "python3 -c 'import os; os.system(\"{}\")'",
        "perl -e 'system(\"{}\")'", "find . -name victim -exec {} +", "echo | xargs {}", "X='{}'; $X",
        "while true; do {}; break; done",
        "case 1 in 1) {};; esac", "echo '{}' > s; . ./s", "echo '{}' > s; sh s", "cp /bin/rm z; ./z victim #{}",
        "ln -s /bin/rm z; ./z victim",
        "echo victim | xargs rm", "find . -name victim -delete", "find . -name victim -exec rm {{}} \\;",
        "find . -name vi* -ok rm {{}} \\; <<E\ny\nE",
        "python3 - <<E\nimport os; os.remove('victim')\nE", "git -c alias.x='!{}' x",
        "bash -c 'printf -v \"a[\\$({})]\" y'", "git -c 'alias.x=!{}' x",
    ]  # fmt: skip
    plain = [
        f"{front}{name} victim{backs.get(front, '')}"
        for front, name in itertools.product(fronts, names)
    ]
    plain += [
        f"{_quoted(chance, name)} {_quoted(chance, 'victim')}"
        for name in ("rm", "/bin/rm")
        for _ in range(150)
    ]
    plain += [template.format("rm victim") for template in templates]
    return list(dict.fromkeys(plain))


def _removes(folder: Path, line: str) -> bool:
    """Whether a real shell removes the file when it runs this line."""
    (folder / "victim").write_text("")
    (folder / "z").unlink(missing_ok=True)
    nothing = subprocess.DEVNULL
    subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
        timeout=120,
        check=False,
    )
    return not (folder / "victim").exists()


def test_ask_and_deny_rules_match_every_spelling_of_a_command(ground, tmp_path):
    lines = _removals()
    passed = [
        (line, rules)
        for line in lines
        for rules in (
            {"deny": ("run_command:rm *",), "yes": True},
            {"ask": ("run_command:rm *",), "allow": ("*",)},
        )
        if judge(ground, Call("run_command", {"command": line}), **rules).verdict == "allow"
    ]
    assert passed == []
    removing = [line for line in random.Random(3).sample(lines, 150) if _removes(tmp_path, line)]
    assert len(removing) > 110  # some need programs that not every machine has
    assert len(lines) >= COUNT


def test_an_allow_rule_covers_no_further_command(ground):
    for line in _removals():
        for command in (
            f"git status;{line}",
            f"git status {line}" if line[:1] in "|;&\n>#$`(" else line,
        ):
            judged = judge(
                ground,
                Call("run_command", {"command": command}),
                allow=("run_command:git status*",),
            )
            assert judged.verdict == "ask", command
    for command in (
        "/tmp/git status",
        "./git status",
        "'git status' -s",
        "git -c core.pager=x status",
        "git status > x",
    ):
        judged = judge(
            ground, Call("run_command", {"command": command}), allow=("run_command:git status*",)
        )
        assert judged.verdict == "ask", command


@pytest.mark.parametrize(
    "line",
    ["ls -l", "git status -s", "make test", "python -m pytest tests/a.py -q", "grep -nE 'a(b|c)+$' src/m.py",
    "cat a | sort | uniq -c",
     "ls *.py && cat README.md", "sed -n '5,9p' f", "sed s/a/b/g f", "awk '{print $1}' f", "find . -name '*.py'",
     "npm run build 2>&1",
     "echo rm > /dev/null | cat", "grep -rn rm src", "python train.py --lr=0.1", "[ -f a ] && cat a",
     "mkdir -p build/rm"],
)  # fmt: skip
def test_ordinary_commands_do_not_match_a_deny_rule(ground, line):
    judged = judge(
        ground, Call("run_command", {"command": line}), deny=("run_command:rm *",), yes=True
    )
    assert (judged.verdict == "allow") != (
        "echo rm >" in line
    )  # a file with this text could be run


def test_array_subscripts_that_bash_evaluates_are_doubtful(ground):
    for line in (
        "printf -v 'a[$(rm x)]' y",
        "test -v 'a[$(r'm'x)]'",
        "[ -v 'a[`x`]' ]",
        "let 'a[0]=1'",
        "unset 'a[$(x)]'",
    ):
        assert parse_line(line).doubt, line


class UndeclaredTool:
    """A writing tool without declared subjects, other than a FunctionTool."""

    schema, effects, price_nano = (
        ToolSchema("store", "", {"properties": {"to": True}}),
        frozenset({"write"}),
        0,
    )

    async def run(self, arguments): ...


def test_any_text_argument_of_an_undeclared_tool_is_checked_as_a_path(ground):
    deep: object = "docs/../.git/config"
    for _ in range(5_000):
        deep = [deep]
    own = (Path.home() / ".config" / "ecoshell",)
    for to, always in (
        *(("a.txt", False), ("up/.envrc", True), ({"all": ["a", "docs/hook"]}, True), (deep, True)),
        *(({"files": {".envrc": "text"}}, True), ({"all": [{"docs/hook": ""}]}, True), ({"a": {"b.txt": ""}}, False)),
        *((f"{scheme}{ground.root}/{name}", True) for scheme in ("file://", "FILE://localhost", "file:")
          for name in ("docs/hook", "docs/%68ook", "%2Eenvrc")),
        *(("~/.config/ecoshell/config.toml", True), ("file://~/notes.txt", False), ("100% file:", False)),
    ):  # fmt: skip
        judged = Rules(workspace=ground.root, yes=True, own=own).judge(
            Call("store", {"n": 1, "to": to}), UndeclaredTool()
        )
        assert judged.always_asks == always, to


class Lister:
    """A tool whose list of paths can be empty, which means every path."""

    schema = ToolSchema("commit", "", {"properties": {"paths": {"type": "array", "default": []}}})
    subjects, effects, price_nano = {"paths": Subject.PATH}, frozenset({"write"}), 0

    async def run(self, arguments): ...


def test_an_empty_list_of_paths_matches_deny_rules_only(ground):
    for arguments in ({}, {"paths": []}, {"paths": ["docs/a.md", "secrets/k"]}):
        call = Call("commit", arguments)
        assert (
            Rules(workspace=ground.root, deny=("commit:secrets/*",), yes=True)
            .judge(call, Lister())
            .verdict
            == "deny"
        )
        assert (
            Rules(workspace=ground.root, allow=("commit:docs/*",)).judge(call, Lister()).verdict
            == "ask"
        )
    call_with_path = Call("commit", {"paths": ["docs/a.md"]})
    assert (
        Rules(workspace=ground.root, allow=("commit:docs/*",))
        .judge(call_with_path, Lister())
        .verdict
        == "allow"
    )


def test_a_refusal_names_the_rule_and_the_doubt(ground):
    judged = judge(ground, Call("run_command", {"command": "ls $X"}), deny=("run_command:rm *",))
    assert "run_command:rm *" in judged.why
    assert "'$'" in judged.why


def test_a_rule_matches_its_words_with_options_between_them(ground):
    for line in (
        "git push",
        "git --no-pager push origin",
        "git  push",
        "/usr/bin/git 'push'",
        "git -C . push",
        "nice git push",
    ):
        judged = judge(
            ground,
            Call("run_command", {"command": line}),
            deny=("run_command:git push*",),
            yes=True,
        )
        assert judged.verdict == "deny", line
    judged = judge(
        ground,
        Call("run_command", {"command": "git pull"}),
        deny=("run_command:git push*",),
        yes=True,
    )
    assert judged.verdict == "allow"


def test_a_wildcard_does_not_cover_files_that_are_executed_later(ground):
    for line in (
        "cp docs/a.md .git/hooks/pre-commit",
        "cp docs/a.md docs/hook",
        "cp docs/a.md --target-directory=.git/hooks",
        "cp -t.git/hooks docs/a.md",
        "cp -at.git/hooks docs/a.md",
        "cp docs/a.md .gi?/hooks/pre-commit",
        "cp docs/a.md *i*/*o*/*pre*",
    ):
        judged = judge(ground, Call("run_command", {"command": line}), allow=("run_command:cp *",))
        assert judged.verdict == "ask", line
    (ground.root / "many").mkdir()
    for number in range(1_000):
        (ground.root / "many" / f"{number}.txt").touch()
    many = judge(
        ground, Call("run_command", {"command": "cp many/* b"}), allow=("run_command:cp *",)
    )
    assert many.verdict == "ask"
    for line in ("cp docs/a.md b", "cp -a docs/*.md b"):
        judged = judge(ground, Call("run_command", {"command": line}), allow=("run_command:cp *",))
        assert judged.verdict == "allow", line


@pytest.mark.parametrize("address", ["https://bad.example/x", "HTTPS://BAD.example", "bad.example",
                                     "https://bad.example:443/",
                                     "https://bad.example./", "https://b%61d.example", "https://u@bad.example/",
                                     "https:\\\\bad.example"])  # fmt: skip
def test_a_deny_rule_matches_every_spelling_of_an_address(ground, address):
    assert (
        judge(
            ground,
            Call("fetch_url", {"url": address}),
            deny=("fetch_url:*://bad.example/*",),
            yes=True,
        ).verdict
        == "deny"
    )


def test_an_allow_rule_matches_the_real_host_of_an_address(ground):
    def verdict(address: str) -> str:
        return judge(
            ground, Call("fetch_url", {"url": address}), allow=("fetch_url:https://docs.example/*",)
        ).verdict

    assert [verdict("https://docs.example/a?b=c"), verdict("https://DOCS.example/")] == [
        "allow",
        "allow",
    ]
    for address in ("https://docs.example@bad.example/", "https://bad.example/https://docs.example/",
                    "https://docs.example.bad/",
                    "http://docs.example/", "https://docs.example\\@bad.example/",
                    "https://docs.example/../x"):  # fmt: skip
        assert verdict(address) == "ask", address


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """A folder of programs that record their arguments."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("rm", "a", "git"):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\037" {name} "$@" >> "$NOTES"\nprintf "\\036" >> "$NOTES"\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


_SIGNS = st.lists(
    st.sampled_from(["rm", "a", "git", " ", " ", "\t", "'", '"', ";", "&", "|", "\n", "$", "#", "<", ">", "\\", "1",
    "-", "{", "}", "(", ")",
                     "!", "=", "*", "[", "]", "~", "\r", "\x0b", "\u00a0", "`", "&&", "||", "'rm x'", '"a b"',
                     "status", "if", "then"]),
    min_size=2, max_size=9,
)  # fmt: skip


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(signs=_SIGNS)
def test_a_shell_runs_exactly_the_parsed_words_of_a_plain_line(programs, tmp_path, signs):
    line = "".join(signs)
    commands = parse_line(line)
    if commands.doubt:
        return
    notes, folder = tmp_path / "notes", tmp_path / "folder"
    notes.unlink(missing_ok=True)
    folder.mkdir(exist_ok=True)
    subprocess.run(
        ["/bin/sh", "-c", f"{line}\nwait"], cwd=folder, env={"PATH": str(programs), "NOTES": str(notes),
        "HOME": "/h"},
        stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    ran = notes.read_bytes().decode().split("\x1e")[:-1] if notes.exists() else []
    expected = {words if not commands.redirects else words[:1] for words in commands.commands}
    for call in ran:
        words = tuple(call.split("\x1f")[:-1])
        assert any(
            "*" in line or "[" in line or "~" in line or words[: len(each)] == each
            for each in expected
        ), shlex.quote(line)
        assert words[0] in {each[0] for each in expected}, shlex.quote(line)


def test_judging_a_read_without_rules_does_not_touch_the_disk(ground, monkeypatch):
    rules = Rules(
        workspace=ground.root,
        allow=("run_command:ls",),
        deny=("run_command:rm *", "list_files:secrets/*"),
    )
    tool = next(tool for tool in builtin_tools(ground) if tool.schema.name == "read_file")
    call = Call("read_file", {"path": "docs/a.md"})
    monkeypatch.setattr(os.path, "realpath", None)
    assert rules.judge(call, tool).verdict == "allow"
