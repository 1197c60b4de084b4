"""Refuses the chat's commands as questions of `ecoshell ask` and the Python API."""

import re
from collections.abc import Collection

from ecoshell.agent.command_table import SCREEN_COMMANDS, split_first_word
from ecoshell.agent.slash_commands import COMMANDS
from ecoshell.agent.task_command import COMMAND
from ecoshell.errors import UsageError, closest_words, is_typo

_WORD = re.compile(r"/[a-z][a-z0-9_-]*")
_NOT_ASKED = "Nothing was asked."
_ASK_ANYWAY = "To ask about it, begin with another word."


def require_question(line: str, custom: Collection[str]) -> None:
    """Raise UsageError for a chat command, a mistyped command and an unknown one without further words.

    `/task` and `custom` commands ask questions. Other words after a slash may be paths (`/tmp is full`).
    """
    word, rest = split_first_word(line)
    name = word[1:].lower()
    if not _WORD.fullmatch(f"/{name}") or not word.startswith("/") or name in custom:
        return
    chat = COMMANDS.keys() | SCREEN_COMMANDS
    if name in chat:
        if f"/{name}" != COMMAND:
            fix = f"Type it in the chat (ecoshell). {_ASK_ANYWAY}"
            message = f"{word} is a chat command, not a question."
            raise UsageError(message, kept=_NOT_ASKED, fix=fix)
        return
    near = closest_words(name, chat | {*custom})
    if rest:  # a path, unless it is surely a mistake
        near = [match for match in near if is_typo(name, match)]
    if near or not rest:
        hint = f"Did you mean /{near[0]}?" if near else "/help in the chat lists the commands."
        raise UsageError(f"Unknown command {word}.", kept=_NOT_ASKED, fix=f"{hint} {_ASK_ANYWAY}")
