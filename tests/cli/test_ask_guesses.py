"""What a small, untrusted model may do to files with `ecoshell ask --yes`."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_play import Command

from ecoshell.agent.untrusted import TRUSTED_PARAMETERS, Guess
from ecoshell.messages import Call
from ecoshell.models.gguf import parameters
from ecoshell.tools.builtin import builtin_tools
from ecoshell.tools.workspace import Workspace

FILES = {
    "sales.csv": "item,price\napple,3\npear,2\nplum,5\n",
    "todo.md": "# Todo\n\n- buy milk\n- call __name__\n",
    "hello.py": 'print("hello")\n',
    "src/app.py": 'if __name__ == "__main__":\n    print(2**3, 4*5)\n',
    "notes.txt": "Project plan\nBudget: 4,200 euros\nTravel: 300 euros\nDeadline: 3 May\n",
}
EMBEDDED = pytest.mark.usefixtures("embedded_model")


class Ground:
    """A workspace with files, and questions about it."""

    def __init__(self, folder: Path, command: Command) -> None:
        self.workspace, self._command = folder / "workspace", command
        self._home, self._script = folder / "home", folder / "script.jsonl"
        for name, text in FILES.items():
            (self.workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (self.workspace / name).write_text(text)

    @property
    def now(self) -> dict[str, str]:
        """The content of every file."""
        files = (path for path in self.workspace.rglob("*") if path.is_file())
        return {path.relative_to(self.workspace).as_posix(): path.read_text() for path in files}

    def ask(
        self, question: str, *options: str, model: str = "embedded"
    ) -> tuple[int, str, list[dict[str, Any]]]:
        """Return the exit status, the answer and the events."""
        done = self._command("ask", "--json", "--model", model, *options, question)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert events, done.stderr
        return done.returncode, events[-1]["answer"], events

    def play(
        self,
        *calls: dict[str, Any],
        question: str,
        options: tuple[str, ...] = ("--yes",),
        trusted: str = "false",
    ):
        """Ask a script of calls; an empty `trusted` leaves the model out of the settings."""
        name = f"script:{self._script}"
        replies = [{"call": call} for call in calls] + [{"text": "done"}]
        self._script.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        settings = self._home / "config" / "config.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(
            f"[models.{json.dumps(name)}]\ntrusted = {trusted}\n" if trusted else ""
        )
        return self.ask(question, "--registration", "all", *options, model=name)


@pytest.fixture
def ground(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Ground:
    # a busy machine must not shorten the diff
    monkeypatch.setattr("ecoshell.tools.diffs._SECONDS", 60.0)
    # the embedded model's replies depend on the folder's name
    monkeypatch.setenv("ECOSHELL_AGENT_CONTEXT", "off")
    return Ground(tmp_path, command)


@EMBEDDED
@pytest.mark.parametrize(
    "question",
    [
        pytest.param("sort sales.csv by price", marks=pytest.mark.slow),
        "open src/app.py",
        pytest.param("How do I write hello to todo.md?", marks=pytest.mark.slow),
    ],
)
def test_a_guess_of_the_embedded_model_changes_nothing(ground: Ground, question: str) -> None:
    _, answer, events = ground.ask(question, "--yes")
    assert ground.now == FILES
    assert answer
    ran = {
        event["name"]
        for event in events
        if event["type"] == "call_finished" and not event["refused"]
    }
    assert not ran & {"write_file", "edit_file", "run_command", "run_python"}


@EMBEDDED
def test_trusted_model_is_limited_only_by_the_rules(ground: Ground, tmp_path: Path) -> None:
    settings = tmp_path / "home" / "config" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[models.embedded]\ntrusted = true\n")
    calls = [
        e["name"] for e in ground.ask("delete hello.py", "--yes")[2] if e["type"] == "call_started"
    ]
    assert set(calls) & {"write_file", "edit_file", "run_command", "run_python"}


WRITE = {"name": "write_file", "arguments": {"path": "todo.md", "content": "made up " * 9}}
READ = {"name": "read_file", "arguments": {"path": "todo.md"}}
ECHO = {"name": "run_command", "arguments": {"command": "echo hello > greeting.txt"}}


def refusals(events: list[dict[str, Any]]) -> list[str]:
    return [event["refused"] for event in events if event["type"] == "call_finished"]


@pytest.mark.parametrize(
    ("question", "calls"),
    [
        ("What is in todo.md?", [WRITE]),
        ("What is in todo.md?", [READ, WRITE]),
        ("Write me a poem about lakes.", [WRITE]),
        ("hello!", [ECHO]),
    ],
)
def test_unrequested_call_of_a_small_model_needs_approval_even_with_yes(
    ground: Ground, question: str, calls: list[dict[str, Any]]
) -> None:
    _, _, events = ground.play(*calls, question=question)
    assert refusals(events)[-1] == "unapproved"
    assert ground.now == FILES
    approvals = [event for event in events if event["type"] == "approval_wanted"]
    assert "too small to be trusted" in approvals[-1]["reason"]
    notices = [event["text"] for event in events if event["type"] == "notice"]
    (notice,) = (text for text in notices if "too small to be trusted" in text)
    assert notice.startswith(calls[-1]["name"])
    assert "`trusted = true` for the model in the settings" in notice
    observation = [event["observation"] for event in events if event["type"] == "call_finished"][-1]
    assert observation.endswith(
        "Answer the request in your own words, or use a tool that only reads."
    )
    assert "trusted" not in observation, "a weak model would give the reason as its answer"


@pytest.mark.parametrize(
    ("question", "calls"),
    [
        ("Write a longer list to todo.md.", [WRITE]),
        ("Change my list a bit.", [READ, WRITE]),
        ("Save something new.", [{**WRITE, "arguments": {**WRITE["arguments"], "path": "new.md"}}]),
        ("run something", [ECHO]),
    ],
)
def test_small_model_may_do_what_the_request_names(
    ground: Ground, question: str, calls: list[dict[str, Any]]
) -> None:
    assert refusals(ground.play(*calls, question=question)[2])[-1] == ""
    assert ground.now != FILES


def test_capable_model_may_do_what_the_request_does_not_name(ground: Ground) -> None:
    assert refusals(ground.play(WRITE, question="What is in todo.md?", trusted="")[2]) == [""]
    assert ground.now["todo.md"] == WRITE["arguments"]["content"]


LESS = {"name": "write_file", "arguments": {"path": "sales.csv", "content": "price"}}


@pytest.mark.parametrize(
    ("options", "written"), [((), False), (("--yes",), False), (("--yes", "--force"), True)]
)
def test_shorter_content_replaces_a_file_only_with_force(
    ground: Ground, options: tuple[str, ...], written: bool
) -> None:
    _, _, events = ground.play(
        LESS, question="Write price to sales.csv.", options=options, trusted=""
    )
    assert (ground.now["sales.csv"] == "price") is written
    approvals = [event for event in events if event["type"] == "approval_wanted"]
    assert written or "-apple,3" in approvals[0]["changes"]
    assert written or "from 33 to 5 bytes" in approvals[0]["reason"]


@EMBEDDED
def test_content_of_a_missing_file_is_not_invented(ground: Ground) -> None:
    _, answer, _ = ground.ask("What is the budget in plan.txt?")
    assert "plan.txt" in answer
    assert "there is no" in answer.lower()
    assert not any(sign.isdigit() for sign in answer)


@EMBEDDED
@pytest.mark.parametrize("name", ["sales.csv", pytest.param("src/app.py", marks=pytest.mark.slow)])
def test_quoted_file_is_unchanged(ground: Ground, name: str) -> None:
    assert ground.ask(f"read {name}")[1].endswith(f"```\n{FILES[name].rstrip()}\n```")


@EMBEDDED
def test_embedded_model_answers_consecutive_plain_requests(ground: Ground) -> None:
    """Uses the shipped adapter; the second question continues the first session."""
    _, answer, events = ground.ask("Which file mentions travel?")
    assert "notes.txt" in answer
    assert "sales.csv" not in answer
    assert "391" in ground.ask("What is 17 * 23?", "--resume", events[-1]["session"])[1]
    assert "4,200" in ground.ask("What is the budget in notes.txt?")[1]
    assert f"```\n{FILES['sales.csv'].rstrip()}\n```" in ground.ask("read sales.csv")[1]
    assert "Budget: 4,200 euros" in ground.ask("Was steht in notes.txt?")[1]


@EMBEDDED
def test_embedded_model_is_smaller_than_the_trusted_size() -> None:
    from ecoshell.models.embedded import embedded_path

    assert parameters(embedded_path()) == 135_000_000 < TRUSTED_PARAMETERS


@pytest.mark.parametrize(
    ("path", "content", "strange"),
    [
        ("todo.md", "hello", ""),
        ("hello.md", "hello", "“hello.md” is neither"),
        ("todo.md", "todo list", "“todo list” is"),
    ],
)
def test_trained_model_writes_only_words_of_the_request_without_approval(
    tmp_path: Path, path: str, content: str, strange: str
) -> None:
    """Other models may choose the name of a new file."""
    write = next(
        tool for tool in builtin_tools(Workspace(tmp_path)) if tool.schema.name == "write_file"
    )
    call = Call("write_file", {"path": path, "content": content})
    request, alike = "write hello to todo.md", (write.schema,)
    deviation_text = Guess(request, (), alike, exact=True).deviation(call, write, tmp_path)
    assert (deviation_text[: len(strange)], bool(deviation_text)) == (strange, bool(strange))
    assert Guess(request, (), alike, exact=False).deviation(call, write, tmp_path) == ""
