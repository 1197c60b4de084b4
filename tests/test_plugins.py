"""Plugin packages: loaded when needed, and disabled with a message when they fail."""

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ecoshell.cli import main

GREET = """
from ecoshell.errors import UsageError
from ecoshell.plugins import Command, hookimpl

def add_arguments(parser):
    parser.add_argument("name")
    parser.add_argument("--status", type=int, default=0)

def run(args):
    if args.name == "unknown":
        raise UsageError("The name is unknown.", fix="Give another name.")
    if args.name == "nothing":
        raise ZeroDivisionError("no\\x1b[31m colour")
    print("Hello,", args.name)
    return args.status

@hookimpl
def cli_commands():
    return [Command("greet", "say hello, 100% friendly", add_arguments, run)]
"""
FAILING = {
    "cannot be imported": (
        "import no_such_module",
        "ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "leaves when imported": ("raise SystemExit(7)", "SystemExit: 7"),
    "raises in its hook": (
        "from ecoshell.plugins import hookimpl\n@hookimpl\ndef cli_commands():\n    raise OSError('no disk')\n",
        "OSError: no disk",
    ),
    "gives no commands": (
        "from ecoshell.plugins import hookimpl\n@hookimpl\ndef cli_commands():\n    return [3]\n",
        "TypeError: 3 is not an ecoshell.plugins.Command",
    ),
    "asks for what the hook does not give": (
        "from ecoshell.plugins import hookimpl\n@hookimpl\ndef cli_commands(shell):\n    return []\n",
        "TypeError: cli_commands() receives no arguments, but expects shell",
    ),
    "has a command that is there": (
        GREET.replace('"greet"', '"ask"'),
        "ValueError: the command ask already exists",
    ),
    "has a hook that is none": (
        "from ecoshell.plugins import hookimpl\n@hookimpl\ndef cli_comands():\n    return []\n",
        "TypeError: unknown hook cli_comands; did you mean cli_commands?",
    ),
}

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a plugin package of one module, like pip."""

    def make(name: str, code: str) -> None:
        (tmp_path / f"{name}.py").write_text(code)
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[ecoshell]\n{name} = {name}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return make


def test_an_installed_package_adds_a_command(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("a_stranger", GREET)
    assert main(["greet", "Ann", "--status", "4"]) == 4
    assert main(["--model", "embedded", "greet", "Ben"]) == 0
    assert capsys.readouterr().out == "Hello, Ann\nHello, Ben\n"


def test_help_lists_commands_of_plugins(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("b_stranger", GREET)
    for argv, text in (
        (["--help"], "    greet               say hello, 100% friendly"),
        (["greet", "--help"], "usage: ecoshell greet"),
    ):
        with pytest.raises(SystemExit, match="0"):
            main(argv)
        assert text in capsys.readouterr().out


def test_a_mistyped_command_suggests_that_of_a_plugin(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("c_stranger", GREET)
    assert main(["greed", "Ann"]) == 2
    assert "Did you mean greet?" in capsys.readouterr().err


@pytest.mark.parametrize("failure", FAILING)
def test_a_failing_plugin_is_disabled_with_its_reason(
    failure: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    code, reason = FAILING[failure]
    name = failure.replace(" ", "_")
    install(name, code)
    install(f"{name}_neighbour", GREET)
    assert main(["greet", "Ann"]) == 0
    output = capsys.readouterr()
    assert output.out == "Hello, Ann\n"
    assert output.err.startswith(f"ecoshell: Plugin {name} disabled: {reason}")
    assert len(output.err.splitlines()) == 1


def test_an_error_in_a_command_is_the_plugins_message_or_names_the_plugin(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("d_stranger", GREET)
    assert main(["greet", "unknown"]) == 2
    assert capsys.readouterr().err == "ecoshell: The name is unknown.\nGive another name.\n"
    assert main(["greet", "nothing"]) == 1
    message = capsys.readouterr().err
    assert message.startswith(
        "ecoshell: The plugin d_stranger failed: ZeroDivisionError: no␛[31m colour ("
    )
    assert "d_stranger.py, line 13" in message


def test_plugins_are_not_imported_if_none_is_needed(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("e_stranger", "raise RuntimeError('imported')")
    assert main(["--version"]) == main(["config", "path"]) == 0
    assert main(["config", "path", "--no-such-option"]) == 2
    assert "imported" not in capsys.readouterr().err


def test_the_benchmarks_are_a_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    assert [entry.value for entry in entry_points(group="ecoshell", name="bench")] == [
        "ecoshell_bench.plugin"
    ]
    with pytest.raises(SystemExit, match="0"):
        main(["bench", "--help"])
    output = capsys.readouterr().out
    assert all(
        f"    {name} " in output for name in ("ecoact", "tasks", "btp", "umi", "catp", "speed")
    )
