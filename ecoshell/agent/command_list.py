"""The commands of the chats, one short function each."""

import asyncio
import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from ecoshell.agent.commands import Command, CommandTable, Printed
from ecoshell.agent.kit import AUTO, MODES, Kit
from ecoshell.agent.plan_command import PLAN_COMMAND
from ecoshell.agent.printing import caps_table, dollars, roles_table, spent_text, table
from ecoshell.agent.role_command import ROLE_COMMAND
from ecoshell.agent.shell import Shell, Standing
from ecoshell.agent.turn_commands import TURN_COMMANDS
from ecoshell.budget.caps import SCOPES, Scope
from ecoshell.budget.money import about, counted, parse_amount
from ecoshell.errors import UsageError
from ecoshell.events.describe import context_line, describe
from ecoshell.options import ALL_ONE
from ecoshell.untrusted import visible

_UNWRITTEN = "What happened last is not written down yet; it is lost when ecoshell ends before there is room."


async def _help(shell: Shell, argument: str) -> Printed:
    return Printed(table(("command", "what it does"), COMMANDS.overview()))


async def _budget(shell: Shell, argument: str) -> Printed:
    """`/budget`, `/budget 0.50`, `/budget 20k tok`, `/budget day`, `/budget day 2`, `/budget day off`."""
    first, _, rest = argument.partition(" ")
    named: Scope | None = next((known for known in SCOPES if known == first.lower()), None)
    typed = rest.strip() if named else argument
    if typed:
        await shell.set_cap(named or "session", None if typed.lower() == "off" else parse_amount(typed))
    caps = await shell.caps()
    if named and not typed:
        caps = tuple(cap for cap in caps if cap.scope == named)
        if not caps:
            return Printed(f"No cap is set for the {named}. /budget {named} 2.00 sets one.")
    return Printed(caps_table(caps))


async def _tools(shell: Shell, argument: str) -> Printed:
    if argument:
        decision = shell.conversation.decision
        why = f"\n\n{decision.why(argument)}" if decision else ""
        return Printed(visible(shell.document(argument).as_text()) + why)
    standing = await shell.standing()
    rows = [
        (f"+ {tool.name}" if tool.registered else f"  {tool.name}", str(tool.tokens), tool.by, tool.description)
        for tool in standing.tools
    ]
    head = ("  tool", "tokens" if standing.exact else "≈ tokens", "registered by", "what it does")
    told = standing.context
    besides = f"\nThe model is also told: {context_line(told)}." if told is not None else ""
    return Printed(f"{table(head, rows)}\n\n{_registered_line(standing)}{besides}")


def _registered_line(standing: Standing) -> str:
    registered = sum(tool.registered for tool in standing.tools)
    return (
        f"{registered} of {len(standing.tools)} registered; the context carries {standing.context_tokens:,} tokens of "
        f"names and documents, everything registered would be {standing.everything_tokens:,}."
    )


async def _register(shell: Shell, argument: str) -> Printed:
    event = await shell.conversation.register(_wanted(argument, "/register read_file"))
    return Printed(f"+ registered {argument}  +{counted(getattr(event, 'tokens', 0), 'token')}")


async def _unregister(shell: Shell, argument: str) -> Printed:
    await shell.conversation.unregister(_wanted(argument, "/unregister read_file"))
    return Printed(f"− unregistered {argument}")


async def _model(shell: Shell, argument: str) -> Printed:
    if argument:
        with shell.conversation.occupying():
            await shell.kit.switch(argument)
    traits = shell.kit.cast.model.traits
    price = "unknown" if traits.price is None else traits.price.summary()
    context = "unknown" if traits.context is None else f"{traits.context:,} tokens"
    several = shell.kit.cast.players and shell.kit.roles != ALL_ONE
    roles = "\nRoles have models of their own: /role." if several else ""
    return Printed(f"model {traits.name}\nprice {price}\ncontext {context}{roles}")


async def _mode(shell: Shell, argument: str) -> Printed:
    kit = shell.kit
    if argument:
        if argument not in MODES:
            raise UsageError(f"There is no mode called {argument!r}.", fix=f"There are {', '.join(MODES)}.")
        with shell.conversation.occupying():
            await kit.think_as(argument)
    rows = [("›" if name == kit.mode else "", name, about) for name, about in MODES.items()]
    told = table(("", "mode", "who thinks"), rows)
    return Printed(f"{told}\n\n{_last_choice(kit)}" if kit.mode == AUTO else told)


def _last_choice(kit: Kit) -> str:
    """Who has thought last in the mode auto, and why."""
    if kit.no_choice:
        return f"There is nothing to choose: {visible(kit.no_choice)}."
    if kit.chosen is None:
        return "Nothing was chosen yet: that is done, and told, when a question comes."
    return f"Chosen last: {describe(kit.chosen)}"


async def _strategy(shell: Shell, argument: str) -> Printed:
    kit = shell.kit
    if argument:
        if argument not in kit.strategies:
            names = ", ".join(kit.strategies)
            raise UsageError(f"There is no strategy called {argument!r}.", fix=f"There are {names}.")
        shell.conversation.require_free()
        kit.strategy = argument
    rows = [("›" if way is kit.way else "", way.name, way.about) for way in kit.strategies.values()]
    return Printed(table(("", "strategy", "what it does"), rows))


async def _cost(shell: Shell, argument: str) -> Printed:
    if argument == "last":
        entry = await asyncio.to_thread(shell.ledger.last, shell.session)
        return Printed("No model call was made in this session." if entry is None else "\n".join(entry.arithmetic()))
    if argument:
        raise UsageError(f"/cost {argument} cannot be read.", fix="Say /cost, or /cost last for the arithmetic.")
    row = await asyncio.to_thread(shell.ledger.session_row, shell.session)
    if row is None:
        return Printed("Nothing was spent in this session.")
    used = f"{row.shown_usage.input:,} in ({row.usage.cached:,} cached), {row.shown_usage.output:,} out"
    tokens = about(used, estimated=row.estimate is not None)
    spent = f"spent {spent_text(row)}, held {dollars(row.held_nano)}; calls {row.calls}; tokens {tokens}"
    if row.estimate is not None or row.estimate_nano is not None:
        spent += "\n≈: some calls reported no usage, so a tokenizer counted; caps count their whole reservation."
    roles = await asyncio.to_thread(shell.ledger.rows, "role", shell.session)
    parts = (spent, roles_table(roles) if len(roles) > 1 else "", caps_table(await shell.caps()))
    return Printed("\n\n".join(part for part in parts if part))


async def _sessions(shell: Shell, argument: str) -> Printed:
    listed = await asyncio.to_thread(shell.store.list, 20)
    rows = [(one.id, one.updated_text, visible(one.title), one.model) for one in listed]
    return Printed(table(("session", "last used", "title", "model"), rows))


async def _resume(shell: Shell, argument: str) -> Printed:
    await shell.open(_wanted(argument, "/resume ID (see /sessions)"))
    await shell.bring_back()
    return Printed("", effect="session")


async def _new(shell: Shell, argument: str) -> Printed:
    await shell.open()
    old = "The old one is kept; /sessions lists it." if await shell.write_down() is None else _UNWRITTEN
    return Printed(f"A new session: {shell.session}. {old}", effect="session")


async def _export(shell: Shell, argument: str) -> Printed:
    """`/export`, `/export FILE.md`, `/export FILE.json`."""
    file = Path(os.path.expanduser(argument)) if argument else await asyncio.to_thread(_free, shell)  # noqa: ASYNC240, PTH111 - looks at no file
    await shell.archive.export(shell.session, file, running=shell.conversation.busy)
    return Printed(f"Exported to {file}.")


def _free(shell: Shell) -> Path:
    """A file of the session's name in the workspace that is not there yet."""
    endings = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    files = (Path(shell.workspace, f"{shell.session}{ending}.md") for ending in endings)
    return next(file for file in files if not file.exists())


async def _clear(shell: Shell, argument: str) -> Printed:
    return Printed("", effect="clear")


async def _quit(shell: Shell, argument: str) -> Printed:
    return Printed("" if await shell.write_down() is None else _UNWRITTEN, effect="quit")


def _wanted(argument: str, example: str) -> str:
    if not argument:
        raise UsageError("A name is missing.", fix=f"Say {example}.")
    return argument


def _unregistered(shell: Shell) -> Iterable[str]:
    return (name for name in shell.kit.catalog.names if name not in shell.conversation.library)


COMMANDS: CommandTable[Shell] = CommandTable(
    [
        Command("help", "", "list the commands", _help),
        Command("budget", "[SCOPE] [AMOUNT|off]", "show or set a spending cap", _budget, lambda _: (*SCOPES, "off")),
        PLAN_COMMAND,
        Command(
            "tools", "[NAME]", "what is known and registered; a tool's document", _tools, lambda s: s.kit.catalog.names
        ),
        Command("register", "NAME", "register a tool by hand", _register, _unregistered),
        Command("unregister", "NAME", "take a tool out again", _unregister, lambda s: s.conversation.library.names),
        Command(
            "model",
            "[NAME]",
            "show or change the model",
            _model,
            lambda s: ("embedded", "local:", "openai/", "anthropic/"),
        ),
        ROLE_COMMAND,
        Command("mode", "[NAME]", "show or change who thinks", _mode, lambda _: MODES),
        Command("strategy", "[NAME]", "show or change how it thinks", _strategy, lambda s: s.kit.strategies),
        Command("cost", "[last]", "what was spent; the last call's arithmetic", _cost, lambda _: ("last",)),
        Command("sessions", "", "earlier sessions", _sessions),
        Command(
            "resume", "ID", "go on with an earlier session", _resume, lambda s: (one.id for one in s.store.list(20))
        ),
        Command("new", "", "begin a new session", _new),
        Command(
            "export",
            "[FILE]",
            "this session into a new file: Markdown, or JSON where FILE ends in .json",
            _export,
            lambda s: (f"{s.session}.md", f"{s.session}.json"),
        ),
        *TURN_COMMANDS,
        Command("clear", "", "clear the screen; the session is kept", _clear),
        Command("quit", "", "leave; everything is kept", _quit),
    ]
)
