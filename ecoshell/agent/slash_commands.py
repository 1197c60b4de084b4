"""The slash commands, one function each, with usage, description and completions."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ecoshell.agent.command_table import (
    CommandTable,
    Printed,
    required,
    split_first_word,
    table,
)
from ecoshell.agent.mode import unpriced
from ecoshell.agent.model_commands import MODEL_COMMANDS, caps_text
from ecoshell.agent.plan_text import plan_summary, plan_table
from ecoshell.agent.session_commands import SESSION_COMMANDS
from ecoshell.agent.session_settings import PlanMode
from ecoshell.agent.shell import Shell
from ecoshell.agent.shell_status import suggested_token_cap
from ecoshell.budget import SCOPES, Scope, counted, parse_amount
from ecoshell.errors import StoreError, UsageError
from ecoshell.events.context import context_line
from ecoshell.messages import visible, visible_line
from ecoshell.options import APPROVAL_MODES
from ecoshell.paths import HOOKS_FILE
from ecoshell.sessions.export import write_new
from ecoshell.sessions.mermaid import flowchart
from ecoshell.sessions.tool_graphs import tool_graphs
from ecoshell.tools import ToolProvider

COMMANDS: CommandTable[Shell] = CommandTable()
_OWN_FILES = """\
A file NAME.md in .ecoshell/commands, or in commands of the settings folder, becomes /NAME.
A folder with a SKILL.md in .ecoshell/skills, or in skills of the settings folder, is a skill: /tools."""
_RESOURCE_LIMIT = 6
"""Resources of a server that are listed."""
_ENFORCED = "under a cap, calls that would make the answer or a better use unaffordable are refused"
_PLAN_MODES: Mapping[PlanMode, str] = {
    "off": "Turns are not planned; only the caps limit them.",
    "btp": f"From the next step on, {_ENFORCED}.",
    "prompt": "Nothing is blocked; the model sees the budget from now on, and costs from the next question on.",
    "btp+prompt": f"From the next step on, {_ENFORCED}; the model sees the budget from now on, and costs from the next "
    "question on.",
}


def _names(shell: Shell) -> Sequence[str]:
    """All tools and skills."""
    return (*shell.deps.catalog.names, *shell.deps.catalog.skills)


@COMMANDS.add("help", "", "list the commands")
async def _help(shell: Shell, argument: str) -> Printed:
    return Printed(f"{table(('command', 'description'), shell.overview())}\n\n{_OWN_FILES}")


@COMMANDS.add(
    "budget", "[SCOPE] [AMOUNT|off]", "show or set a spending cap", lambda _: (*SCOPES, "off")
)
async def _budget(shell: Shell, argument: str) -> Printed:
    """`/budget`, `/budget 0.50`, `/budget 20k tok`, `/budget 2min`, `/budget day`, `/budget day 2`, `/budget off`."""
    word, tail = split_first_word(argument)
    scope: Scope | None = next((name for name in SCOPES if name == word.lower()), None)
    limit = tail if scope else argument
    models, hint = shell.deps.models.current, ""
    if limit:
        try:
            cap = None if limit.lower() == "off" else parse_amount(limit)
        except UsageError as error:
            error.fix += f" /budget {f'{scope} ' if scope else ''}off removes the cap."
            raise
        token_cap = await asyncio.to_thread(suggested_token_cap, shell)
        await shell.set_cap(scope or "session", cap)
        if cap is not None and cap.unit == "usd" and models.is_free:
            limits = f"/budget {token_cap} limits its tokens, /budget 2min its time"
            hint = f"{shell.deps.models.name} is free. {limits}.\n"
    caps = await shell.deps.budget.caps()
    if scope and not limit:
        caps = tuple(cap for cap in caps if cap.scope == scope)
        if not caps:
            amount = "2.00" if models.is_priced else "2min"
            return Printed(f"No cap is set for the {scope}. /budget {scope} {amount} sets one.")
    return Printed(f"{hint}{await caps_text(shell, caps)}")


@COMMANDS.add(
    "plan",
    "[why TOOL|mermaid [FILE]|MODE|mode|accept]",
    "the budget plan of each tool, and why; mode: plan before acting; accept: carry out the written plan",
    lambda shell: (
        *_PLAN_MODES,
        "mermaid",
        "mode",
        *(f"mode {mode}" for mode in APPROVAL_MODES),
        "accept",
        "accept edits",
        *(f"why {name}" for name in shell.deps.catalog.names),
    ),
)
async def _plan(shell: Shell, argument: str) -> Printed:
    """`/plan`, `/plan why read_file`, `/plan off`, `/plan btp+prompt`, `/plan mermaid FILE`.

    `/plan mode [ask|plan|edits]`, `/plan accept`, `/plan accept edits`, `/plan accept TEXT`.
    """
    word, tail = split_first_word(argument)
    for mode, effect in _PLAN_MODES.items():
        if argument == mode:
            shell.deps.settings.plan = mode
            return Printed(f"Plan {mode}. {effect}")
    if word == "mermaid":
        return await _mermaid(shell, tail)
    if word in ("mode", "accept"):
        return await _plan_mode(shell, word, tail)
    if argument and not (word == "why" and tail):
        commands = "/plan, /plan why TOOL, /plan mermaid FILE, /plan mode, /plan accept"
        fix = f"Use {commands}, or /plan {', '.join(_PLAN_MODES)}."
        raise UsageError(f"Unknown argument of /plan: {argument}.", fix=fix)
    tool = shell.conversation.known(tail).name if argument else ""
    plan = shell.conversation.plan  # of the present or last turn
    if plan is None:
        plan = await shell.conversation.setup.forecast("")
    elif not shell.conversation.busy or not plan.priced.plan.rows:  # otherwise it is up to date
        await plan.renew()
    fault = f"{visible(plan.inputs.fault)}\n" if plan.inputs.fault else ""
    if tool:
        return Printed(f"{fault}{plan.explain(tool)}")
    event, head = plan.event(), fault
    if shell.deps.settings.plan == "off":
        head = f"Turns are not planned; this is the plan they would have.\n{fault}"
    forecast = shell.deps.models.current.mode.forecast(plan.inputs.view)
    with suppress(StoreError):  # the next turn reports unreadable caps
        refusal = unpriced(forecast, await shell.deps.budget.caps())
        head += f"{refusal}\n" if refusal else ""  # a missing price prevents every step
    rows = plan_table(event.rows, event.unit, enforced=event.enforced)
    more = f"\n… and {counted(event.others, 'more tool')}" if event.others else ""
    return Printed(f"{head}{plan_summary(event)}\n\n{rows}{more}")


async def _plan_mode(shell: Shell, word: str, argument: str) -> Printed:
    """`/plan mode [ask|plan|edits]` selects what runs without asking; `/plan accept` carries out the written plan."""
    if word == "accept":
        edits = argument == "edits"
        question = await shell.accept_plan("" if edits else argument, edits=edits)
        return Printed("", effect="ask", value=question)
    for mode, effect in APPROVAL_MODES.items():
        if mode == (argument or "plan"):
            shell.set_approval_mode(mode)
            return Printed(effect)
    raise UsageError(f"Unknown mode {argument!r}.", fix=f"Available: {', '.join(APPROVAL_MODES)}.")


async def _mermaid(shell: Shell, file: str) -> Printed:
    """The session's last tool graph as Mermaid, printed or written to a file."""
    past = (event for _, event in shell.store.events(shell.session))
    graphs = await asyncio.to_thread(tool_graphs, past, running=shell.conversation.busy)
    if not graphs:
        fix = "Use /strategy graph, then ask for several things."
        raise UsageError("No tool graph was made in this session.", fix=fix)
    text = flowchart(graphs[-1])
    if not file:
        return Printed(text.rstrip("\n"))
    path = shell.archive.file(file)
    await asyncio.to_thread(write_new, path, text)
    return Printed(f"Tool graph written to {path}.")


@COMMANDS.add("tools", "[NAME]", "known and registered tools and skills, or one's schema", _names)
async def _tools(shell: Shell, argument: str) -> Printed:
    if argument:
        schema = visible(shell.conversation.known(argument).as_text())
        if (skill := shell.deps.catalog.skills.get(argument)) is not None:
            return Printed(f"{schema}\n\n{visible(await asyncio.to_thread(skill.text))}")
        return Printed("\n\n".join(filter(None, (schema, shell.why_loaded(argument)))))
    status = await shell.status()
    rows = [
        (
            f"+ {tool.name}" if tool.loaded else f"  {tool.name}",
            str(tool.tokens),
            tool.by.replace("upfront", "at the start").replace("_", " ")
            or ("first question" if tool.ahead else ""),
            tool.description,
        )
        for tool in status.tools
    ]
    head = ("  tool", "tokens" if status.exact else "≈ tokens", "registered by", "description")
    context = ""
    if status.context is not None:
        context = f"\nWorkspace context: {context_line(status.context)}."
    ahead = sum(tool.ahead for tool in status.tools)
    loaded = (
        f"{sum(tool.loaded for tool in status.tools)} of {len(status.tools)} loaded"
        f"{f', {ahead} of them with the first question' if ahead else ''}; names and schemas take "
        f"{status.context_tokens:,} tokens of the context; all schemas would take {status.everything_tokens:,}."
    )
    return Printed(f"{table(head, rows)}\n\n{loaded}{context}")


@COMMANDS.add(
    "mcp",
    "[NAME]",
    "list the MCP servers, or connect to one",
    lambda shell: (provider.name for provider in shell.deps.catalog.providers),
)
async def _mcp(shell: Shell, argument: str) -> Printed:
    """`/mcp`, or `/mcp NAME` to connect or reconnect to a server and see its tools."""
    providers = {provider.name: provider for provider in shell.deps.catalog.providers}
    if not providers:
        fix = "`ecoshell mcp add NAME -- COMMAND …` adds one for the next start."
        return Printed(f"No server is set up. {fix}")
    if argument and argument not in providers:
        fix = f"Available: {', '.join(providers)}."
        raise UsageError(f"Unknown server {argument!r}.", fix=fix)
    if argument:
        await providers[argument].connect()
        if not shell.conversation.busy:
            shell.deps.providers.update_catalog(shell.conversation.memory.library)
        return Printed(_server_text(shell, providers[argument]))
    servers = shell.deps.providers.servers
    prompts = {name: str(len(server.lists.prompts)) for name, server in servers.items()}
    counts = {
        name: str(len(provider.tools)) if provider.known else "?"
        for name, provider in providers.items()
    }
    rows = [
        (name, counts[name], prompts.get(name, "0"), provider.status)
        for name, provider in providers.items()
    ]
    return Printed(table(("server", "tools", "prompts", ""), rows))


def _server_text(shell: Shell, provider: ToolProvider) -> str:
    """The tools, prompts, resources and state of a server."""
    name = provider.name
    tools = [(tool.schema.name, tool.schema.summary) for tool in provider.tools]
    parts = [table(("tool", "description"), tools)]
    if (server := shell.deps.providers.servers.get(name)) is not None:
        lists = server.lists
        if lists.prompts:
            rows = [
                (f"/{name}:{prompt.name} {' '.join(prompt.arguments)}", prompt.description)
                for prompt in lists.prompts
            ]
            parts.append(table(("prompt", "description"), rows))
        for kind, addresses in (("template", lists.templates), ("resource", lists.resources)):
            if addresses:
                examples = ", ".join(f"@{name}:{each}" for each in addresses[:_RESOURCE_LIMIT])
                parts.append(f"{counted(len(addresses), kind)}, such as {examples}")
    return "\n\n".join((*parts, f"{name} is {provider.status}."))


@COMMANDS.add("hooks", "", "the commands that run before and after tools, turns and sessions")
async def _hooks(shell: Shell, argument: str) -> Printed:
    hooks = shell.deps.hooks()
    if hooks is None or not (hooks.all or hooks.problem):
        fix = f"[hooks.commands.NAME] in the settings, or {HOOKS_FILE}, adds some."
        return Printed(f"There are no hooks. {fix}")
    rows: list[tuple[str, ...]] = []
    for hook in hooks.all:
        last, when = "", " ".join((hook.on, *hook.tools))
        if (ran := hooks.last.get(hook.name)) is not None:
            status = "stopped" if ran.status is None else f"exit status {ran.status}"
            last = f"{status}, {ran.seconds:.1f} s"
        rows.append(tuple(map(visible_line, (hook.name, when, hook.source, last, hook.command))))
    text = table(("hook", "when", "from", "last run", "command"), rows) if rows else ""
    return Printed("\n\n".join(filter(None, (text, hooks.problem))))


@COMMANDS.add(
    "register",
    "NAME",
    "register a tool or a skill",
    lambda shell: (name for name in _names(shell) if name not in shell.conversation.memory.library),
)
async def _register(shell: Shell, argument: str) -> Printed:
    event = await shell.conversation.register(required(argument, "/register read_file"))
    return Printed(f"+ registered {argument}  +{counted(getattr(event, 'tokens', 0), 'token')}")


@COMMANDS.add(
    "unregister", "NAME", "unregister a tool", lambda shell: shell.conversation.memory.library.names
)
async def _unregister(shell: Shell, argument: str) -> Printed:
    await shell.conversation.unregister(required(argument, "/unregister read_file"))
    return Printed(f"− unregistered {argument}")


COMMANDS.update(MODEL_COMMANDS | SESSION_COMMANDS)
