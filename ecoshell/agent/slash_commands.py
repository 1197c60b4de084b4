"""The slash commands, one function each, with usage, description and completions."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ecoshell.agent.command_table import (
    CommandTable,
    Printed,
    caps_table,
    dollars,
    spent_text,
    table,
)
from ecoshell.agent.conversation import Stopped
from ecoshell.agent.cost_bounds import unpriced
from ecoshell.agent.memory import PastTurn
from ecoshell.agent.model_set import MODES
from ecoshell.agent.plan_text import plan_summary, plan_table
from ecoshell.agent.quote_table import quote_table
from ecoshell.agent.session_settings import PlanMode
from ecoshell.agent.shell import Shell
from ecoshell.budget import SCOPES, Scope, about, counted, duration_text, parse_amount
from ecoshell.errors import EcoshellError, StoreError, ToolError, UsageError, suggestion
from ecoshell.events import Bill, TurnUndone
from ecoshell.events.context import context_line
from ecoshell.events.work import todo_headline, todo_lines
from ecoshell.messages import Effect, visible, visible_line
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.local_models import LOCAL, is_embedded, local_files
from ecoshell.options import (
    ADVISOR,
    APPROVAL_MODES,
    EFFORTS,
    NO_ROLE_MODELS,
    ROLES,
    SESSION_MODEL,
    Effort,
    role_named,
)
from ecoshell.paths import HOOKS_FILE
from ecoshell.sessions.export import write_new
from ecoshell.sessions.mermaid import flowchart
from ecoshell.sessions.tool_graphs import tool_graphs
from ecoshell.tools.builtin.files import RESTORABLE
from ecoshell.tools.builtin.task import PROJECT_FOLDERS
from ecoshell.tools.restore import Changed

COMMANDS: CommandTable[Shell] = CommandTable()
_OWN_FILES = """\
A file NAME.md in .ecoshell/commands, or in commands of the settings folder, becomes /NAME.
A folder with a SKILL.md in .ecoshell/skills, or in skills of the settings folder, is a skill: /tools."""
_UNWRITTEN = (
    "The last events are not written yet; they are lost if ecoshell ends before there is room."
)
_ROLES_OF_UMI = "Only mode umi uses planner, caller and summarizer: /mode umi."
_MODEL_PREFIXES = ("embedded", "local:", "openai/", "anthropic/")
_LASTING: frozenset[Effect] = frozenset({"write", "execute"})
_RESOURCE_LIMIT = 6
"""Resources of a server that are listed."""
_QUESTION_LIMIT = 60
"""Characters of a question that identify its turn."""
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
    word, _, tail = argument.partition(" ")
    scope: Scope | None = next((name for name in SCOPES if name == word.lower()), None)
    limit = tail.strip() if scope else argument
    is_free, hint = shell.deps.models.current.is_free, ""
    if limit:
        cap = None if limit.lower() == "off" else parse_amount(limit)
        await shell.set_cap(scope or "session", cap)
        if cap is not None and cap.unit == "usd" and is_free:
            hint = f"{shell.deps.models.name} is free. /budget 20000tok limits its tokens, /budget 2min its time.\n"
    caps = await shell.deps.budget.caps()
    if scope and not limit:
        caps = tuple(cap for cap in caps if cap.scope == scope)
        if not caps:
            amount = "2min" if is_free else "2.00"
            return Printed(f"No cap is set for the {scope}. /budget {scope} {amount} sets one.")
    return Printed(f"{hint}{caps_table(caps, shell.ledger.away, is_free=is_free)}")


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
    word, _, tail = argument.partition(" ")
    for mode, effect in _PLAN_MODES.items():
        if argument == mode:
            shell.deps.settings.plan = mode
            return Printed(f"Plan {mode}. {effect}")
    if word == "mermaid":
        return await _mermaid(shell, tail)
    if word in ("mode", "accept"):
        return await _plan_mode(shell, word, tail.strip())
    if argument and not (word == "why" and tail.strip()):
        raise UsageError(
            f"Unknown argument of /plan: {argument}.",
            fix=f"Use /plan, /plan why TOOL, /plan mermaid FILE, /plan mode, /plan accept, "
            f"or /plan {', '.join(_PLAN_MODES)}.",
        )
    tool = shell.conversation.known(tail.strip()).name if argument else ""
    plan = shell.conversation.plan  # of the present or last turn
    if plan is None:
        plan = await shell.conversation.forecast("")
    elif not shell.conversation.busy or not plan.priced.plan.rows:  # otherwise it is up to date
        await plan.renew()
    fault = f"{visible(plan.inputs.fault)}\n" if plan.inputs.fault else ""
    if tool:
        return Printed(f"{fault}{plan.explain(tool)}")
    event = plan.event()
    head = (
        ""
        if shell.deps.settings.plan != "off"
        else "Turns are not planned; this is the plan they would have.\n"
    )
    head = f"{head}{fault}"
    with suppress(StoreError):  # the next turn reports unreadable caps
        refusal = unpriced(
            shell.deps.models.current.mode.forecast(plan.inputs.view),
            await shell.deps.budget.caps(),
        )
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
    busy, past = shell.conversation.busy, shell.store.events(shell.session)
    graphs = await asyncio.to_thread(
        lambda: tool_graphs((event for _, event in past), running=busy)
    )
    if not graphs:
        fix = "Use /strategy graph, then ask for several things."
        raise UsageError("No tool graph was made in this session.", fix=fix)
    text = flowchart(graphs[-1])
    if not file.strip():
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
        return Printed("\n\n".join(filter(None, (schema, _why_loaded(shell, argument)))))
    status = await shell.status()
    rows = [
        (
            f"+ {tool.name}" if tool.registered else f"  {tool.name}",
            str(tool.tokens),
            tool.by.replace("upfront", "at the start").replace("_", " "),
            tool.description,
        )
        for tool in status.tools
    ]
    head = ("  tool", "tokens" if status.exact else "≈ tokens", "registered by", "description")
    context = (
        f"\nWorkspace context: {context_line(status.context)}."
        if status.context is not None
        else ""
    )
    registered = (
        f"{sum(tool.registered for tool in status.tools)} of {len(status.tools)} registered; names and schemas take "
        f"{status.context_tokens:,} tokens of the context; all schemas would take {status.everything_tokens:,}."
    )
    return Printed(f"{table(head, rows)}\n\n{registered}{context}")


def _why_loaded(shell: Shell, name: str) -> str:
    """Why a tool's schema is loaded or not; empty before the first turn."""
    tool, decision = shell.conversation.memory.library.tools.get(name), shell.conversation.decision
    if tool is not None and tool.by != "upfront":
        return f"{name} was registered by {'you' if tool.by == 'user' else 'the agent'}."
    if decision is not None and tool is None and name in decision.loaded:
        return f"{name} was registered at the start, and you unregistered it."
    return "" if decision is None else decision.why(name)


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
        return Printed(
            "No server is set up. `ecoshell mcp add NAME -- COMMAND …` adds one for the next start."
        )
    if argument:
        if argument not in providers:
            raise UsageError(
                f"Unknown server {argument!r}.", fix=f"Available: {', '.join(providers)}."
            )
        await providers[argument].connect()
        if not shell.conversation.busy:
            shell.deps.providers.update_catalog(shell.conversation.memory.library)
        tools = [(tool.schema.name, tool.schema.summary) for tool in providers[argument].tools]
        parts = [
            table(("tool", "description"), tools),
            f"{argument} is {providers[argument].status}.",
        ]
        server = shell.deps.providers.servers.get(argument)
        lists = server.lists if server else None
        for kind, addresses in (
            (("resource", lists.resources), ("template", lists.templates)) if lists else ()
        ):
            if addresses:
                examples = ", ".join(
                    f"@{argument}:{address}" for address in addresses[:_RESOURCE_LIMIT]
                )
                parts.insert(1, f"{counted(len(addresses), kind)}, such as {examples}")
        if lists and lists.prompts:
            rows = [
                (f"/{argument}:{prompt.name} {' '.join(prompt.arguments)}", prompt.description)
                for prompt in lists.prompts
            ]
            parts.insert(1, table(("prompt", "description"), rows))
        return Printed("\n\n".join(parts))
    prompts = {
        name: len(server.lists.prompts) for name, server in shell.deps.providers.servers.items()
    }
    rows = [
        (
            name,
            str(len(provider.tools)) if provider.known else "?",
            str(prompts.get(name, 0)),
            provider.status,
        )
        for name, provider in providers.items()
    ]
    return Printed(table(("server", "tools", "prompts", ""), rows))


@COMMANDS.add("hooks", "", "the commands that run before and after tools, turns and sessions")
async def _hooks(shell: Shell, argument: str) -> Printed:
    hooks = shell.deps.hooks
    if hooks is None:
        return Printed(
            f"There are no hooks. [hooks.commands.NAME] in the settings, or {HOOKS_FILE}, adds some."
        )
    rows: list[tuple[str, ...]] = []
    for hook in hooks.all:
        ran = hooks.last.get(hook.name)
        status = (
            "" if ran is None else "stopped" if ran.status is None else f"exit status {ran.status}"
        )
        last = "" if ran is None else f"{status}, {ran.seconds:.1f} s"
        when = " ".join((hook.on, *hook.tools))
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
    event = await shell.conversation.register(_required(argument, "/register read_file"))
    return Printed(f"+ registered {argument}  +{counted(getattr(event, 'tokens', 0), 'token')}")


@COMMANDS.add(
    "unregister", "NAME", "unregister a tool", lambda shell: shell.conversation.memory.library.names
)
async def _unregister(shell: Shell, argument: str) -> Printed:
    await shell.conversation.unregister(_required(argument, "/unregister read_file"))
    return Printed(f"− unregistered {argument}")


@COMMANDS.add(
    "model", "[NAME|pull REPO]", "show, change or download the model", lambda _: _MODEL_PREFIXES
)
async def _model(shell: Shell, argument: str) -> Printed:
    """`/model`, `/model embedded`, `/model pull unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M`."""
    action, _, repository = argument.partition(" ")
    if action == "pull" and repository.strip():
        try:
            argument = await shell.pull(repository)
        except Stopped:
            return Printed(
                "The download was stopped. What has arrived is kept; pull again to resume."
            )
    if argument:
        with shell.conversation.occupying():
            await shell.deps.models.change(model=argument)
    traits = shell.deps.models.current.model.traits
    price = "unknown" if traits.price is None else traits.price.summary()
    context = "unknown" if traits.context is None else f"{traits.context:,} tokens"
    has_role_models = (
        shell.deps.models.current.players and shell.deps.models.roles != NO_ROLE_MODELS
    )
    roles = "\nRoles have their own models: /role." if has_role_models else ""
    return Printed(f"model {traits.name}\nprice {price}\ncontext {context}{roles}")


@COMMANDS.add(
    "effort",
    "[LEVEL]",
    "show or set how much the model reasons: off, low, medium, high, max",
    lambda _: EFFORTS,
)
async def _effort(shell: Shell, argument: str) -> Printed:
    """`/effort`, `/effort high`, `/effort auto`."""
    settings, traits = shell.deps.settings, shell.deps.models.current.model.traits
    if argument:
        level: Effort | None = next((name for name in EFFORTS if name == argument.lower()), None)
        if level is None:
            raise UsageError(
                f"Unknown effort {argument!r}.", fix=f"Available: {', '.join(EFFORTS)}."
            )
        settings.effort = level
    text = f"effort {settings.effort}: {EFFORTS[settings.effort]}."
    if traits.reasons is False and settings.effort != "auto":
        text += f" {traits.name} does not reason, so this has no effect on it."
    return Printed(text)


@COMMANDS.add(
    "role",
    "[ROLE MODEL|PRESET]",
    "show or change the model of each role, and the advisor",
    lambda shell: (
        *(
            f"{role} {model}"
            for role in ROLES
            for model in (SESSION_MODEL, *_MODEL_PREFIXES, *shell.deps.settings.named_models)
        ),
        *shell.deps.settings.presets,
        SESSION_MODEL,
    ),
)
async def _role(shell: Shell, argument: str) -> Printed:
    """`/role`, `/role caller local:FILE.gguf`, `/role caller -`, `/role frugal`, `/role -`."""
    models = shell.deps.models
    if argument:
        name, _, model = argument.partition(" ")
        role, presets = role_named(name), shell.deps.settings.presets
        if name == ADVISOR:
            await _set_advisor(shell, model.strip())
            roles = models.roles
        elif role is not None:
            if not model.strip():
                raise UsageError(
                    f"The {role} needs a model.",
                    fix=f"For example: /role {role} embedded, or /role {role} -.",
                )
            roles = models.roles.with_role(
                role, None if model.strip() == SESSION_MODEL else model.strip()
            )
        elif argument == SESSION_MODEL:
            roles = NO_ROLE_MODELS
        elif argument in presets:
            roles = presets[argument]
        else:
            fix = suggestion(name, (*ROLES, ADVISOR, *presets))
            raise UsageError(f"Unknown role or preset {name!r}.", fix=fix)
        if roles is not models.roles:
            with shell.conversation.occupying():
                await models.give(roles)
    rows: list[tuple[str, str, str, str]] = []
    for role in ROLES:
        own = models.roles.of(role)
        model, adapter = await asyncio.to_thread(_split_adapter, own or models.session_model)
        rows.append(
            (role, visible_line(model), visible_line(adapter), "" if own else "the session's")
        )
    advisor = shell.deps.settings.advisor
    rows.append(
        (
            ADVISOR,
            visible_line(advisor or "none"),
            "",
            "asked by the others" if advisor else "/role advisor MODEL",
        )
    )
    text = table(("role", "model", "adapter", ""), rows)
    return Printed(text if models.current.players else f"{text}\n\n{_ROLES_OF_UMI}")


async def _set_advisor(shell: Shell, model: str) -> None:
    """Set or, with `-`, remove the advisor; raises UsageError and ModelMissing."""
    from ecoshell.agent.advisor import offer_advisor

    if not model:
        raise UsageError(
            "The advisor needs a model.",
            fix="For example: /role advisor openai/gpt-5, or /role advisor -.",
        )
    with shell.conversation.occupying():
        if model != SESSION_MODEL:
            await (await asyncio.to_thread(shell.deps.models.lend, model)).aclose()
        shell.deps.settings.advisor = None if model == SESSION_MODEL else model
        offer_advisor(shell.deps)


def _split_adapter(name: str) -> tuple[str, str]:
    """A model's name without its adapter, and the adapter's file; empty without an adapter."""
    try:
        files = local_files(name)
    except EcoshellError:  # deleted meanwhile
        return name, ""
    if files is None or files.adapter is None or name == EMBEDDED:
        return name, ""
    return (name.partition("+")[0] if is_embedded(name) else f"{LOCAL}{files.base}"), str(
        files.adapter
    )


@COMMANDS.add("mode", "[NAME]", "show or change the agent mode", lambda _: MODES)
async def _mode(shell: Shell, argument: str) -> Printed:
    models = shell.deps.models
    if argument:
        if argument not in MODES:
            raise UsageError(f"Unknown mode {argument!r}.", fix=f"Available: {', '.join(MODES)}.")
        with shell.conversation.occupying():
            await models.change(mode=argument)
    rows = [("›" if name == models.mode else "", name, about) for name, about in MODES.items()]
    return Printed(table(("", "agent mode", "models"), rows))


@COMMANDS.add(
    "strategy", "[NAME]", "show or change the strategy", lambda shell: shell.deps.strategies
)
async def _strategy(shell: Shell, argument: str) -> Printed:
    deps = shell.deps
    if argument:
        deps.require("strategy", argument)
        shell.conversation.require_free()
        deps.settings.strategy = argument
    rows = [
        ("›" if spec is deps.strategy else "", spec.name, spec.about)
        for spec in deps.strategies.values()
    ]
    return Printed(table(("", "strategy", "description"), rows))


@COMMANDS.add(
    "cost",
    "[last]",
    "show the costs, quotes with their bills, or the arithmetic of the last call",
    lambda _: ("last",),
)
async def _cost(shell: Shell, argument: str) -> Printed:
    if argument == "last":
        entry = await asyncio.to_thread(shell.ledger.last, shell.session)
        return Printed(
            "No model call was made in this session."
            if entry is None
            else "\n".join(entry.arithmetic())
        )
    if argument:
        raise UsageError(
            f"Unknown argument of /cost: {argument}.",
            fix="Use /cost, or /cost last for the arithmetic.",
        )
    row = await asyncio.to_thread(shell.ledger.session_row, shell.session)
    if row is None:
        return Printed("Nothing was spent in this session.")
    used = f"{row.shown_usage.input:,} in ({row.usage.cached:,} cached), {row.shown_usage.output:,} out"
    if row.usage.reasoning:
        reasoning = await asyncio.to_thread(shell.ledger.reasoning_nano, shell.session)
        used += f" (reasoning: {row.usage.reasoning:,} for {dollars(reasoning)})"
    tokens = about(used, estimated=row.estimate is not None)
    spent = f"spent {spent_text(row)}, held {dollars(row.held_nano)}; calls {row.calls}; tokens {tokens}"
    spent += f"; time {'unknown' if row.ms is None else duration_text(row.ms)}"
    if row.estimate is not None or row.estimate_nano is not None:
        spent += "\n≈: some calls reported no usage; a tokenizer estimated it, and caps count the whole reservation."
    roles = await asyncio.to_thread(shell.ledger.rows, "role", shell.session)
    cells = [
        (
            row.key or "tools",
            f"{row.calls:,}",
            about(f"{row.shown_usage.input:,}", estimated=row.estimate is not None),
            f"{row.usage.cached:,}",
            about(f"{row.shown_usage.output:,}", estimated=row.estimate is not None),
            spent_text(row) if not row.unpriced else "unknown",
            "unknown" if row.seconds is None or row.untimed else f"{row.seconds:,.1f}",
        )
        for row in roles
    ]
    by_role = (
        table(("role", "calls", "in", "cached", "out", "spent", "seconds"), cells)
        if len(roles) > 1
        else ""
    )
    bills = [
        bill for _, bill in await asyncio.to_thread(shell.store.events_of, Bill, shell.session)
    ]
    parts = (
        spent,
        by_role,
        quote_table(bills),
        caps_table(await shell.deps.budget.caps(), shell.ledger.away),
    )
    return Printed("\n\n".join(part for part in parts if part))


@COMMANDS.add(
    "task",
    "[AGENT] [AMOUNT]: TEXT",
    "let a subagent do a piece of work; without a text, list the agents",
    lambda shell: (f"{name}: " for name, _, _ in shell.deps.agents().rows()),
)
async def _task(shell: Shell, argument: str) -> Printed:
    """`/task Check the links in docs`, `/task reviewer 0.05: Check the last commit`, `/task`."""
    if argument:
        return Printed("", effect="ask", value=f"/task {argument}")
    rows = await asyncio.to_thread(shell.deps.agents().rows)
    if not rows:
        return Printed(
            f"No agent is defined. {PROJECT_FOLDERS[0]}/NAME.md defines one; /task TEXT needs none."
        )
    return Printed(
        table(("agent", "description", "file"), [tuple(map(visible_line, row)) for row in rows])
    )


@COMMANDS.add("sessions", "", "list earlier sessions")
async def _sessions(shell: Shell, argument: str) -> Printed:
    sessions = await asyncio.to_thread(shell.store.list, 20)
    rows = [(info.id, info.updated_text, visible(info.title), info.model) for info in sessions]
    return Printed(table(("session", "last used", "title", "model"), rows))


@COMMANDS.add(
    "resume", "ID", "resume a session", lambda shell: (info.id for info in shell.store.list(20))
)
async def _resume(shell: Shell, argument: str) -> Printed:
    await shell.open(_required(argument, "/resume ID (see /sessions)"))
    await shell.restore_choices()
    return Printed("", effect="session")


@COMMANDS.add("new", "", "start a new session")
async def _new(shell: Shell, argument: str) -> Printed:
    await shell.open()
    old = (
        "The previous session is kept; /sessions lists it."
        if await shell.flush() is None
        else _UNWRITTEN
    )
    return Printed(f"New session {shell.session}. {old}", effect="session")


@COMMANDS.add(
    "export",
    "[FILE]",
    "export this session to a new file, as Markdown or, with the suffix .json, as JSON",
    lambda shell: (f"{shell.session}.md", f"{shell.session}.json"),
)
async def _export(shell: Shell, argument: str) -> Printed:
    """`/export`, `/export FILE.md`, `/export FILE.json`."""
    suffixes = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    files = (Path(shell.workspace, f"{shell.session}{suffix}.md") for suffix in suffixes)
    new_files = filter(lambda file: not file.exists(), files)
    file = shell.archive.file(argument) if argument else await asyncio.to_thread(next, new_files)
    await shell.archive.export(shell.session, file, running=shell.conversation.busy)
    return Printed(f"Exported to {file}.")


@COMMANDS.add("undo", "[FILE]", "undo the last turn and its changes to files")
async def _undo(shell: Shell, argument: str) -> Printed:
    """`/undo`, or `/undo FILE` for a file that changed after the turn."""
    if argument:
        restored = await shell.conversation.undo_over(argument)
        name = visible_line(argument)
        return Printed(
            f"Restored: {name}." if restored else f"{name} was not restored; it may be unchanged."
        )
    turn, undone, changed = await shell.conversation.undo()
    return Printed(_undo_text(shell, turn, undone, changed))


@COMMANDS.add("retry", "", "undo the last turn and ask its question again")
async def _retry(shell: Shell, argument: str) -> Printed:
    turn, undone, changed = await shell.conversation.undo()
    text = _undo_text(shell, turn, undone, changed)
    return Printed(text, effect="ask", value=turn.question, attachments=turn.attachments)


def _undo_text(shell: Shell, turn: PastTurn, undone: TurnUndone, changed: Sequence[Changed]) -> str:
    """What was undone, what was not, and why."""
    question = visible_line(turn.question, _QUESTION_LIMIT)
    lines = [f"Turn {turn.number} is undone: “{question}”. Models no longer see it."]
    if undone.restored:
        lines.append(f"Restored: {_listed(undone.restored)}.")
    if undone.kept:
        why = "they changed later, cannot be written, or have no copy"
        lines.append(f"Not restored, because {why}: {_listed(undone.kept)}.")
    for change in changed:
        name = visible_line(change.path)
        lines.append(
            f"{name} changed later. To restore it anyway, use /undo {name}, with this effect:"
        )
        lines.append(visible(change.changes) or "(The change is too long, or not text.)")
    writers = turn.ran & RESTORABLE
    if writers and not undone.restored and not undone.kept:
        lines.append(
            f"No file was restored: {_listed(sorted(writers))} left no change, or too long ago."
        )
    catalog = shell.deps.catalog
    lasting = (
        name
        for name in turn.ran - RESTORABLE
        if name in catalog and catalog.tool(name).effects & _LASTING
    )
    if unrestorable := sorted(lasting):
        lines.append(f"Changes by {_listed(unrestorable)} cannot be restored.")
    if turn.registered:
        lines.append(f"Registered tools stay registered: {_listed(turn.registered)}.")
    if turn.spent_nano != 0:
        lines.append(f"Its cost of {dollars(turn.spent_nano)} stays spent.")
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(visible_line, names))


@COMMANDS.add("todo", "", "show the agent's task list")
async def _todo(shell: Shell, argument: str) -> Printed:
    items = shell.conversation.memory.shown.todo
    lines = (todo_headline(items), *todo_lines(items))
    return Printed(
        "\n".join(lines) if items else "There is no task list; the agent makes one for longer work."
    )


@COMMANDS.add(
    "background",
    "[stop ID]",
    "list or stop background commands",
    lambda shell: (f"stop {command.id}" for command in shell.deps.workspace.background.running),
)
async def _background(shell: Shell, argument: str) -> Printed:
    background = shell.deps.workspace.background
    action, _, name = argument.partition(" ")
    if action == "stop" and name:
        try:
            command = background.get(name.strip())
        except ToolError as error:
            raise UsageError(error.message) from error
        await background.stop(command)
        return Printed(f"{command.id} is {command.state}: {visible_line(command.command)}")
    if argument:
        raise UsageError(
            f"/background does not know {argument!r}.",
            fix="Write /background or /background stop b1.",
        )
    lines = [
        f"{each.id}  {each.state}  {visible_line(each.command)}" for each in background.running
    ]
    return Printed("\n".join(lines) or "No command runs in the background.")


@COMMANDS.add("compact", "", "replace all turns with a summary for models")
async def _compact(shell: Shell, argument: str) -> Printed:
    try:
        compacted, spent = await shell.conversation.compact()
    except Stopped:
        return Printed("Stopped. Nothing was compacted; /cost includes the call.")
    turns = counted(compacted.turns, "turn")
    sizes = f"{compacted.tokens_before:,} tokens before, {compacted.tokens_after:,} now"
    if not compacted.model:
        by = "This model is too small for summaries; from now on it reads an extract."
        return Printed(f"Compacted {turns}: {sizes}. {by} The transcript is unchanged.")
    by = f"{compacted.model} wrote the summary for {dollars(spent)}"
    return Printed(f"Compacted {turns}: {sizes}. {by}. The transcript is unchanged.")


@COMMANDS.add("context", "", "show the use of the model's context")
async def _context(shell: Shell, argument: str) -> Printed:
    from ecoshell.agent.context_report import report_text

    return Printed(report_text(await shell.context_report()))


@COMMANDS.add(
    "copy", "[N]", "copy the last answer, or the Nth from the end", lambda _: ("1", "2", "3")
)
async def _copy(shell: Shell, argument: str) -> Printed:
    """`/copy`, or `/copy 2` for the answer before the last."""
    answers = shell.conversation.memory.answers
    if argument and (not argument.isdecimal() or int(argument) < 1):
        raise UsageError(
            f"Unknown argument of /copy: {argument}.",
            fix="Use /copy, or /copy 2 for an earlier answer.",
        )
    back = int(argument or 1)
    if back > len(answers):
        fix = "N counts from the last answer." if answers else "Ask something first."
        raise UsageError(f"This session has {counted(len(answers), 'answer')}.", fix=fix)
    answer = answers[-back]
    subject = "The last answer" if back == 1 else f"Answer {back} from the end"
    return Printed(
        f"{subject} was copied: {len(answer):,} characters.", effect="copy", value=answer
    )


@COMMANDS.add("clear", "", "clear the screen; the session is kept")
async def _clear(shell: Shell, argument: str) -> Printed:
    return Printed("", effect="clear")


@COMMANDS.add("quit", "", "leave; the session is kept")
async def _quit(shell: Shell, argument: str) -> Printed:
    return Printed("" if await shell.flush() is None else _UNWRITTEN, effect="quit")


def _required(argument: str, example: str) -> str:
    if not argument:
        raise UsageError("A name is missing.", fix=f"For example: {example}")
    return argument
