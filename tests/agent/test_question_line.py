"""Lines that are asked without a chat: questions, and commands, which are not asked."""

import pytest

from ecoshell.agent.question_line import require_question
from ecoshell.errors import UsageError

CUSTOM = {"models", "review"}


@pytest.mark.parametrize("line", ["/budget 1", "/Model gpt", " /theme", "/exit", "/model\ngpt"])
def test_a_command_of_the_chat_is_not_a_question(line: str) -> None:
    with pytest.raises(UsageError, match="is a chat command, not a question"):
        require_question(line, CUSTOM)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("/modle x", "Did you mean /model?"),
        ("/Bugdet 0.50", "Did you mean /budget?"),
        ("/themes", "Did you mean /theme?"),
        ("/exi", "Did you mean /exit?"),
        ("/taks Count.", "Did you mean /task?"),
        ("/reviw main", "Did you mean /review?"),
        ("/revise", "Did you mean /review?"),
        ("/nosuch", "/help in the chat lists the commands."),
    ],
)
def test_an_unknown_command_is_not_a_question(line: str, hint: str) -> None:
    with pytest.raises(UsageError, match="Unknown command") as caught:
        require_question(line, CUSTOM)
    assert caught.value.fix == f"{hint} To ask about it, begin with another word."


@pytest.mark.parametrize(
    "line",
    [
        "/task Count.",
        "/task",
        "/review main",
        "/models",
        "/etc/hosts is what?",
        "/etc/hosts",
        "/tmp is what?",
        "/tmp/x: what is it?",
        "/login returns 500. Why?",
        "/ is what?",
        "//",
        "What does /budget do?",
        "model x",
    ],
)
def test_tasks_custom_commands_and_paths_are_questions(line: str) -> None:
    refusals: list[UsageError] = []
    try:
        require_question(line, CUSTOM)
    except UsageError as refusal:
        refusals.append(refusal)
    assert refusals == []
