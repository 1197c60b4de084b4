"""`/role`: which model plays which role of the mode umi."""

import asyncio
import difflib
from collections.abc import Iterable

from ecoshell.agent.commands import Command, Printed
from ecoshell.agent.kit import Kit
from ecoshell.agent.printing import table
from ecoshell.agent.shell import Shell
from ecoshell.errors import EcoshellError, UsageError
from ecoshell.models.local_models import LOCAL, is_embedded, local_files
from ecoshell.options import ALL_ONE, ROLES, SESSIONS, RoleModels, role_named
from ecoshell.untrusted import visible_line

_NOT_NOW = "Only the mode umi has these roles: /mode umi."


async def _role(shell: Shell, argument: str) -> Printed:
    """`/role`, `/role caller local:FILE.gguf`, `/role caller -`, `/role frugal`, `/role -`."""
    kit = shell.kit
    if argument:
        wanted = _wanted(kit, argument)
        with shell.conversation.occupying():
            await kit.give(wanted)
    rows = await asyncio.to_thread(lambda: [_row(role, kit.roles.of(role), kit.session_model) for role in ROLES])
    told = table(("role", "model", "adapter", ""), rows)
    return Printed(told if kit.cast.players else f"{told}\n\n{_NOT_NOW}")


def _wanted(kit: Kit, argument: str) -> RoleModels:
    """What the roles are to be played by; raises UsageError."""
    name, _, model = argument.partition(" ")
    role = role_named(name)
    if role is not None:
        if not model.strip():
            raise UsageError(f"The {role} needs a model.", fix=f"Say /role {role} embedded, or /role {role} -.")
        return kit.roles.giving(role, None if model.strip() == SESSIONS else model.strip())
    if argument == SESSIONS:
        return ALL_ONE
    if argument in kit.presets:
        return kit.presets[argument]
    known = (*ROLES, *kit.presets)
    near = difflib.get_close_matches(name, known, n=1)
    fix = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
    raise UsageError(f"There is no role and no preset called {name!r}.", fix=fix)


def _row(role: str, own: str | None, sessions: str) -> tuple[str, str, str, str]:
    model, adapter = _parted(sessions if own is None else own)
    return role, visible_line(model), visible_line(adapter), "the session's" if own is None else ""


def _parted(name: str) -> tuple[str, str]:
    """A model's name without its adapter, and the adapter's file; empty where it has none."""
    try:
        files = local_files(name)
    except EcoshellError:  # it is gone since it was named
        return name, ""
    if files is None or files.adapter is None:
        return name, ""
    return (name.partition("+")[0] if is_embedded(name) else f"{LOCAL}{files.base}"), str(files.adapter)


def _choices(shell: Shell) -> Iterable[str]:
    models = (SESSIONS, "embedded", "local:", "openai/", "anthropic/", *shell.kit.named_models)
    return (*(f"{role} {model}" for role in ROLES for model in models), *shell.kit.presets, SESSIONS)


ROLE_COMMAND: Command[Shell] = Command(
    "role", "[ROLE MODEL|PRESET]", "show or change which model plays which role", _role, _choices
)
