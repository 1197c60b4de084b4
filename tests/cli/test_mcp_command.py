"""`ecoshell mcp`: servers in the settings, imports from other clients, and connection tests."""

import io
import json
from pathlib import Path

import pytest

from ecoshell.assembly import server_of
from ecoshell.cli import main
from ecoshell.cli.manage.mcp import SignInCaller
from ecoshell.errors import ToolError
from ecoshell.paths import user_paths
from ecoshell.settings.schema import McpServerSettings


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    """Run a command in a temporary home; return its output and errors."""
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))

    def run(*argv, status=0):
        got = main(list(argv))
        output = capsys.readouterr()
        assert got == status, output.err
        return output.out, output.err

    return run


def rows(shell):
    return json.loads(shell("mcp", "list", "--json")[0])["rows"]


def test_server_is_added_listed_and_removed(shell):
    assert "No servers." in shell("mcp")[0]
    shell(
        "mcp",
        "add",
        "one",
        "--env",
        "ONE_TOKEN=se,cret=1",
        "--trust",
        "--no-test",
        "--",
        "run-one",
        "-y",
        "--flag",
    )
    shell(
        "mcp",
        "add",
        "two",
        "--url",
        "https://example.org/mcp",
        "--header",
        "X-Key: abc",
        "--no-test",
    )
    first, second = rows(shell)
    assert (first["command"], first["env"], first["trusted"]) == (
        ["run-one", "-y", "--flag"],
        ["ONE_TOKEN"],
        True,
    )
    assert (second["url"], second["headers"], second["tools"]) == (
        "https://example.org/mcp",
        ["X-Key"],
        None,
    )
    assert "se,cret=1" in user_paths().settings_file.read_text()
    assert "se,cret=1" not in shell("config")[0]
    shell("mcp", "remove", "one")
    assert [row["name"] for row in rows(shell)] == ["two"]
    shell("mcp", "remove", "two")
    assert rows(shell) == []


def test_existing_server_is_replaced_only_with_replace(shell):
    shell("mcp", "add", "one", "--env", "A=1", "--no-test", "--", "before")
    assert "--replace" in shell("mcp", "add", "one", "--no-test", "--", "after", status=2)[1]
    report = shell("mcp", "add", "one", "--replace", "--no-test", "--json", "--", "after")[0]
    assert json.loads(report) == {"added": "one"}
    assert [(row["command"], row["env"]) for row in rows(shell)] == [(["after"], [])]


@pytest.mark.parametrize(
    "words",
    [
        ["add", "one"],
        ["add", "one", "--url", "http://x/", "--", "run"],
        ["add", "a b", "--", "run"],
    ],
)
def test_server_needs_a_valid_name_and_one_address(shell, words):
    shell("mcp", *words[:2], "--no-test", *words[2:], status=2)
    assert rows(shell) == []


@pytest.mark.parametrize(
    "words",
    [["--env", "=1"], ["--env", "A"], ["--env", " = "], ["--header", ": x"], ["--header", ""]],
)
def test_variable_and_header_need_a_name(shell, words):
    error = shell("mcp", "add", "one", *words, "--no-test", "--", "run", status=2)[1]
    assert f"{words[1]!r} cannot be read." in error
    assert rows(shell) == []


def test_servers_of_another_client_are_imported(shell, tmp_path, monkeypatch):
    theirs = {
        "files": {
            "command": "npx",
            "args": ["-y", "server", 8080],
            "env": {"KEY": "${env:MY_KEY}"},
            "disabled": True,
        },
        "odd name": {
            "type": "http",
            "url": "https://example.org/mcp",
            "headers": {"Authorization": "Bearer x"},
        },
        "old": {"type": "sse", "url": "https://example.org/sse"},
        "asks": {"command": "run", "env": {"KEY": "${input:key}"}},
        "nothing": {},
        "list": {"command": ["npx", "-y", "server"]},
    }
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": theirs}), encoding="utf-8-sig")
    report = json.loads(shell("mcp", "import", str(file), "--json")[0])
    assert report["imported"] == ["files", "odd-name"]
    assert set(report["left_out"]) == {"old", "asks", "nothing", "list"}
    files, odd = rows(shell)
    assert (files["command"], files["enabled"], odd["headers"]) == (
        ["npx", "-y", "server", "8080"],
        False,
        ["Authorization"],
    )
    assert "${MY_KEY}" in user_paths().settings_file.read_text()
    again = json.loads(shell("mcp", "import", str(file), "--json")[0])
    assert again["imported"] == []
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text(encoding="utf-8")))
    assert "odd-name" in shell("mcp", "import", "-", "--replace")[0]


def test_invalid_server_does_not_prevent_the_import_of_others(shell, tmp_path):
    theirs = {
        "good": {
            "command": "run",
            "args": ["--port", 80, True],
            "env": {"PORT": 8080, "DEBUG": False},
        },
        "no address": {"url": "example.org/mcp"},
        "line": {"command": "npx", "args": "-y server"},
        "odd": {"command": "run", "args": [None, {"a": 1}]},
        "unset": {"command": "run", "env": {"KEY": None}},
        "pairs": {"command": "run", "env": ["KEY=1"]},
        "both": {"command": "run", "url": "https://example.org/mcp"},
    }
    (tmp_path / "a.json").write_text(json.dumps({"mcpServers": theirs}))
    report = json.loads(shell("mcp", "import", str(tmp_path / "a.json"), "--json")[0])
    assert report["imported"] == ["good"]
    assert report["left_out"].keys() == theirs.keys() - {"good"}
    assert "must be an address such as" in report["left_out"]["no address"]
    assert "not both" in report["left_out"]["both"]
    assert [row["command"] for row in rows(shell)] == [["run", "--port", "80", "true"]]
    assert 'PORT = "8080"\nDEBUG = "false"' in user_paths().settings_file.read_text()


def test_second_server_of_the_same_name_is_skipped(shell, tmp_path):
    theirs = {"a.b": {"command": "one"}, "a b": {"command": "two"}}
    (tmp_path / "a.json").write_text(json.dumps({"mcpServers": theirs}))
    for more in ([], ["--replace"]):
        report = json.loads(shell("mcp", "import", str(tmp_path / "a.json"), "--json", *more)[0])
    assert report == {
        "imported": ["a-b"],
        "left_out": {"a b": "another server of the file is also named a-b"},
    }


def test_file_without_servers_is_refused(shell, tmp_path):
    (tmp_path / "a.json").write_text("[]")
    assert "mcpServers" in shell("mcp", "import", str(tmp_path / "a.json"), status=2)[1]


def test_testing_an_unreachable_server_reports_the_error_as_json(shell):
    pytest.importorskip("mcp")
    shell("mcp", "add", "one", "--no-test", "--", "no-such-program-anywhere")
    report = json.loads(shell("mcp", "test", "one", "--json", status=1)[0])
    assert (report["name"], report["tools"]) == ("one", [])
    assert report["seconds"] >= 0
    assert "no-such-program-anywhere cannot be started" in report["error"]
    assert "Available: one." in shell("mcp", "test", "two", status=2)[1]


@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        (None, "/w"),
        ("sub", "/w/sub"),
        ("/srv", "/srv"),
        ("~/p", "/home/me/p"),
        ("~nobody-x", "/w/~nobody-x"),
    ],
)
def test_working_folder_of_a_server_is_relative_to_workspace_or_home(monkeypatch, cwd, folder):
    monkeypatch.setenv("HOME", "/home/me")
    assert server_of("one", McpServerSettings(command="run", cwd=cwd), Path("/w")).cwd == folder


@pytest.mark.parametrize(
    "address", ["file:///home/me/run.desktop", "vscode://run", "--profile=x", "javascript:x", ""]
)
async def test_signing_in_opens_only_web_pages_and_declines_other_requests(monkeypatch, address):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert not await SignInCaller().visit("one", "Sign in.", address)
    assert await SignInCaller().visit("one", "Sign in.", "https://example.org/sign")
    assert opened == ["https://example.org/sign"]
    assert await SignInCaller().form("one", "Your name?", {}) is None
    with pytest.raises(ToolError):
        await SignInCaller().sample("one", [], 10, allowed=True)
