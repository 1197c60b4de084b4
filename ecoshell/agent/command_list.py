"""The commands of the chats: one function each, which says how it is typed, what it does and what completes it."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ecoshell.agent.commands import CommandTable, Printed, amount, caps_table, dollars, spent_text, table
from ecoshell.agent.conversation import Stopped
from ecoshell.agent.cost_bounds import unpriced
from ecoshell.agent.memory import PastTurn
from ecoshell.agent.model_set import AUTO, MODES
from ecoshell.agent.session_settings import PlanMode
from ecoshell.agent.shell import Shell
from ecoshell.budget import SCOPES, Scope, about, counted, parse_amount
from ecoshell.errors import EcoshellError, StoreError, UsageError, suggestion
from ecoshell.events import PlanChanged, PlanRow, TurnUndone
from ecoshell.events.describe import context_line, describe, untried, why_words
from ecoshell.messages import Effect, visible, visible_line
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.local_models import LOCAL, is_embedded, local_files
from ecoshell.options import EFFORTS, NO_ROLE_MODELS, ROLES, SESSION_MODEL, Effort, role_named
from ecoshell.planning.btp.costs import state_word
from ecoshell.sessions.export import write_new
from ecoshell.sessions.mermaid import flowchart
from ecoshell.sessions.tool_graphs import tool_graphs
from ecoshell.tools.builtin.files import RESTORABLE
from ecoshell.tools.restore import Changed

COMMANDS: CommandTable[Shell] = CommandTable()
_UNWRITTEN = "What happened last is not written down yet; it is lost when ecoshell ends before there is room."
_ROLES_OF_UMI = "Only the mode umi has these roles: /mode umi."
_MODELS = ("embedded", "local:", "openai/", "anthropic/")
"""How names of models begin."""
_BEYOND: frozenset[Effect] = frozenset({"write", "execute"})
_RESOURCES = 6
"""Resources of a server that are named."""
_NAMED = 60
"""Characters of a question by which a turn is named."""
_BINDS = "where a cap stands, calls are refused that would leave the answer or a better use unpaid"
_PLAN_MODES: Mapping[PlanMode, str] = {
    "off": "Turns are not planned: what the caps allow may be used.",
    "btp": f"From the next step on, {_BINDS}.",
    "prompt": "Nothing is blocked; the model is told the budget from now on, and costs with the next question.",
    "btp+prompt": f"From the next step on, {_BINDS}; the model is told the budget from now on, and costs with the next "
    "question.",
}
_SIGNS = {"planned": "√", "blocked": "×", "advised against": "!", "unplanned": "·"}


@COMMANDS.add("help", "", "list the commands")
async def _help(shell: Shell, argument: str) -> Printed:
    return Printed(table(("command", "what it does"), shell.overview()))


@COMMANDS.add("budget", "[SCOPE] [AMOUNT|off]", "show or set a spending cap", lambda _: (*SCOPES, "off"))
async def _budget(shell: Shell, argument: str) -> Printed:
    """`/budget`, `/budget 0.50`, `/budget 20k tok`, `/budget day`, `/budget day 2`, `/budget day off`."""
    first, _, rest = argument.partition(" ")
    named: Scope | None = next((known for known in SCOPES if known == first.lower()), None)
    typed = rest.strip() if named else argument
    hint = ""
    if typed:
        cap = None if typed.lower() == "off" else parse_amount(typed)
        await shell.set_cap(named or "session", cap)
        traits = shell.deps.models.current.model.traits
        if cap is not None and cap.unit == "usd" and traits.price is not None and traits.price.summary() == "free":
            hint = f"{traits.name} is free: a cap in tokens limits it, such as /budget 20000tok.\n"
    caps = await shell.deps.budget.caps()
    if named and not typed:
        caps = tuple(cap for cap in caps if cap.scope == named)
        if not caps:
            return Printed(f"No cap is set for the {named}. /budget {named} 2.00 sets one.")
    return Printed(f"{hint}{caps_table(caps, shell.ledger.away)}")


@COMMANDS.add(
    "plan",
    "[why TOOL|mermaid [FILE]|MODE]",
    "what the budget allows of each tool, and why; branches as Mermaid; off, btp, prompt, btp+prompt",
    lambda shell: (*_PLAN_MODES, "mermaid", *(f"why {name}" for name in shell.deps.catalog.names)),
)
async def _plan(shell: Shell, argument: str) -> Printed:
    """`/plan`, `/plan why read_file`, `/plan off`, `/plan btp+prompt`, `/plan mermaid`, `/plan mermaid FILE`."""
    word, _, rest = argument.partition(" ")
    for mode, means in _PLAN_MODES.items():
        if argument == mode:
            shell.deps.settings.plan = mode
            return Printed(f"Plan {mode}. {means}")
    if word == "mermaid":
        busy, past = shell.conversation.busy, shell.store.events(shell.session)
        drawn = await asyncio.to_thread(lambda: tool_graphs((event for _, event in past), running=busy))
        if not drawn:
            raise UsageError(
                "No tool graph was made in this session.", fix="Say /strategy graph, then ask for several things."
            )
        text = flowchart(drawn[-1])
        if not rest.strip():
            return Printed(text.rstrip("\n"))
        path = shell.archive.file(rest)
        await asyncio.to_thread(write_new, path, text)
        return Printed(f"The plan is in {path}.")
    if argument and not (word == "why" and rest.strip()):
        raise UsageError(
            f"/plan {argument} cannot be read.",
            fix=f"Say /plan, /plan why TOOL, /plan mermaid FILE, or /plan {', '.join(_PLAN_MODES)}.",
        )
    tool = shell.conversation.known(rest.strip()).name if argument else ""
    plan = shell.conversation.plan  # of the turn that runs or ran last; before the first, of no question
    if plan is None:
        plan = await shell.conversation.forecast("")
    elif not shell.conversation.busy or not plan.priced.plan.rows:  # it is only just being made
        await plan.renew()
    fault = f"{visible(plan.inputs.fault)}\n" if plan.inputs.fault else ""
    if tool:
        return Printed(f"{fault}{plan.explain(tool)}")
    told = plan.event()
    head = "" if shell.deps.settings.plan != "off" else "Turns are not planned; this is what a plan would be.\n"
    head = f"{head}{fault}"
    with suppress(StoreError):  # the caps cannot be read: the next turn says so
        refused = unpriced(shell.deps.models.current.mode.forecast(plan.inputs.view), await shell.deps.budget.caps())
        head += f"{refused}\n" if refused else ""  # no step can be taken where a price is missing
    rows = plan_table(told.rows, told.unit, enforced=told.enforced)
    others = f"\n… and {counted(told.others, 'more tool')}" if told.others else ""
    return Printed(f"{head}{standing_text(told)}\n\n{rows}{others}")


def plan_table(rows: Sequence[PlanRow], unit: str, *, enforced: bool) -> str:
    """A row for each tool; those of which nothing is known but that they are new share a line."""
    new = untried(rows)
    told = [row for row in rows if row.tool not in new]
    more = [f"{_SIGNS['planned']} {len(new)} tools not used yet  {', '.join(new)}"] if new else []
    cells: list[tuple[str, ...]] = []  # what fits beside each other on 80 columns; `/plan why` has the rest
    for row in told:
        state, used = state_word(row, enforced=enforced), f"{row.used}/{row.planned}"
        cost, why = amount(row.cost, unit).removesuffix(" tokens"), f"{state}: {why_words(row.why)}"
        cells.append((f"{_SIGNS[state]} {row.tool}", f"{row.value:.2f}", f"{row.chance:.2f}", cost, used, why))
    head = ("  tool", "value", "chance", "cost" if unit == "usd" else "tokens", "used", "state")
    return "\n".join([*([table(head, cells)] if cells else []), *more])


def standing_text(plan: PlanChanged) -> str:
    """What the plan may spend, and what the turn may come to, in two sentences."""
    sentences = [f"Mode {plan.mode}."]
    if plan.budget is None:
        sentences.append("No cap is set, so the plan is advice and blocks nothing; /budget sets one.")
    else:
        of = f"of {amount(plan.cap or 0, plan.unit)}, {amount(plan.reserved, plan.unit)} reserved for the answer"
        of += f", {amount(plan.paid, plan.unit)} paid already by thinking of the next use" if plan.paid else ""
        sentences.append(f"Left for tools: {amount(plan.budget, plan.unit)} ({of}).")
        if plan.reserved > (plan.cap or 0):
            sentences.append("That is less than an answer may cost: asked now, the turn would stop before it spends.")
        sentences.append(f"Planned uses are expected to cost {amount(plan.planned_cost, plan.unit)}.")
        if not plan.enforced:
            sentences.append("Nothing is blocked in this mode.")
    if plan.low is None or plan.high is None:
        sentences.append("The model's price is unknown, so these are the costs of tools and waiting alone.")
    else:
        low, high = amount(plan.low, plan.unit), amount(plan.high, plan.unit)
        sentences.append(f"The turn is estimated at {low if low == high else f'{low} to {high}'}.")
    return " ".join(sentences)


@COMMANDS.add(
    "tools", "[NAME]", "what is known and registered; a tool's document", lambda shell: shell.deps.catalog.names
)
async def _tools(shell: Shell, argument: str) -> Printed:
    if argument:
        told = visible(shell.conversation.known(argument).as_text())
        return Printed("\n\n".join(filter(None, (told, _why_there(shell, argument)))))
    status = await shell.status()
    rows = [
        (
            f"+ {tool.name}" if tool.registered else f"  {tool.name}",
            str(tool.tokens),
            tool.by.replace("upfront", "up front").replace("_", " "),
            tool.description,
        )
        for tool in status.tools
    ]
    head = ("  tool", "tokens" if status.exact else "≈ tokens", "registered by", "what it does")
    told = status.context
    besides = f"\nThe model is also told: {context_line(told)}." if told is not None else ""
    registered = (
        f"{sum(tool.registered for tool in status.tools)} of {len(status.tools)} registered; the context carries "
        f"{status.context_tokens:,} tokens of names and schemas, everything registered would be "
        f"{status.everything_tokens:,}."
    )
    return Printed(f"{table(head, rows)}\n\n{registered}{besides}")


def _why_there(shell: Shell, name: str) -> str:
    """Why a tool's document is there, or is not; empty where nobody has decided yet."""
    skill, decision = shell.conversation.memory.library.skills.get(name), shell.conversation.decision
    if skill is not None and skill.by != "upfront":
        return f"{name} was registered by {'hand' if skill.by == 'user' else 'the agent'}."
    if decision is not None and skill is None and name in decision.plan.loaded:
        return f"{name} was up front, and was taken out by hand."
    return "" if decision is None else decision.why(name)


@COMMANDS.add(
    "mcp", "[NAME]", "the servers; connect to one", lambda shell: (one.name for one in shell.deps.catalog.providers)
)
async def _mcp(shell: Shell, argument: str) -> Printed:
    """`/mcp`, or `/mcp NAME` to connect to a server now, also once more, and see its tools."""
    providers = {one.name: one for one in shell.deps.catalog.providers}
    if not providers:
        return Printed("There is no server. `ecoshell mcp add NAME -- COMMAND …` adds one for the next start.")
    if argument:
        if argument not in providers:
            raise UsageError(f"There is no server {argument!r}.", fix=f"There are {', '.join(providers)}.")
        await providers[argument].connect()
        if not shell.conversation.busy:
            shell.deps.providers.take_up(shell.conversation.memory.library)
        tools = [(tool.schema.name, tool.schema.summary) for tool in providers[argument].tools]
        parts = [table(("tool", "what it does"), tools), f"{argument} is {providers[argument].status}."]
        server = shell.deps.providers.servers.get(argument)
        lists = server.lists if server else None
        for what, known in (("resource", lists.resources), ("template", lists.templates)) if lists else ():
            if known:
                some = ", ".join(f"@{argument}:{address}" for address in known[:_RESOURCES])
                parts.insert(1, f"{counted(len(known), what)}, such as {some}")
        listed = lists.prompts if lists else ()
        prompts = [(f"/{argument}:{one.name} {' '.join(one.arguments)}", one.description) for one in listed]
        if prompts:
            parts.insert(1, table(("prompt", "what it asks"), prompts))
        return Printed("\n\n".join(parts))
    prompts = {name: len(server.lists.prompts) for name, server in shell.deps.providers.servers.items()}
    rows = [
        (one.name, str(len(one.tools)) if one.known else "?", str(prompts.get(one.name, 0)), one.status)
        for one in providers.values()
    ]
    return Printed(table(("server", "tools", "prompts", ""), rows))


@COMMANDS.add(
    "register",
    "NAME",
    "register a tool by hand",
    lambda shell: (name for name in shell.deps.catalog.names if name not in shell.conversation.memory.library),
)
async def _register(shell: Shell, argument: str) -> Printed:
    event = await shell.conversation.register(_wanted(argument, "/register read_file"))
    return Printed(f"+ registered {argument}  +{counted(getattr(event, 'tokens', 0), 'token')}")


@COMMANDS.add("unregister", "NAME", "take a tool out again", lambda shell: shell.conversation.memory.library.names)
async def _unregister(shell: Shell, argument: str) -> Printed:
    await shell.conversation.unregister(_wanted(argument, "/unregister read_file"))
    return Printed(f"− unregistered {argument}")


@COMMANDS.add("model", "[NAME|pull REPO]", "show, change or download the model", lambda _: _MODELS)
async def _model(shell: Shell, argument: str) -> Printed:
    """`/model`, `/model embedded`, `/model pull unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M`."""
    action, _, repository = argument.partition(" ")
    if action == "pull" and repository.strip():
        try:
            argument = await shell.pull(repository)
        except Stopped:
            return Printed("The download was stopped. What has arrived is kept; pull again to resume.")
    if argument:
        with shell.conversation.occupying():
            await shell.deps.models.change(model=argument)
    traits = shell.deps.models.current.model.traits
    price = "unknown" if traits.price is None else traits.price.summary()
    context = "unknown" if traits.context is None else f"{traits.context:,} tokens"
    several = shell.deps.models.current.players and shell.deps.models.roles != NO_ROLE_MODELS
    roles = "\nRoles have models of their own: /role." if several else ""
    return Printed(f"model {traits.name}\nprice {price}\ncontext {context}{roles}")


@COMMANDS.add(
    "effort", "[LEVEL]", "show or set how much the model reasons: off, low, medium, high, max", lambda _: EFFORTS
)
async def _effort(shell: Shell, argument: str) -> Printed:
    """`/effort`, `/effort high`, `/effort auto`."""
    settings, traits = shell.deps.settings, shell.deps.models.current.model.traits
    if argument:
        level: Effort | None = next((known for known in EFFORTS if known == argument.lower()), None)
        if level is None:
            raise UsageError(f"There is no effort {argument!r}.", fix=f"Available: {', '.join(EFFORTS)}.")
        settings.effort = level
    text = f"effort {settings.effort}: {EFFORTS[settings.effort]}."
    if traits.reasons is False and settings.effort != "auto":
        text += f" {traits.name} does not reason, so this has no effect on it."
    return Printed(text)


@COMMANDS.add(
    "role",
    "[ROLE MODEL|PRESET]",
    "show or change which model plays which role",
    lambda shell: (
        *(
            f"{role} {model}"
            for role in ROLES
            for model in (SESSION_MODEL, *_MODELS, *shell.deps.settings.named_models)
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
        if role is not None:
            if not model.strip():
                raise UsageError(f"The {role} needs a model.", fix=f"Say /role {role} embedded, or /role {role} -.")
            wanted = models.roles.with_role(role, None if model.strip() == SESSION_MODEL else model.strip())
        elif argument == SESSION_MODEL:
            wanted = NO_ROLE_MODELS
        elif argument in presets:
            wanted = presets[argument]
        else:
            fix = suggestion(name, (*ROLES, *presets))
            raise UsageError(f"There is no role and no preset called {name!r}.", fix=fix)
        with shell.conversation.occupying():
            await models.give(wanted)
    rows: list[tuple[str, str, str, str]] = []
    for role in ROLES:
        own = models.roles.of(role)
        model, adapter = await asyncio.to_thread(_parted, own or models.session_model)
        rows.append((role, visible_line(model), visible_line(adapter), "" if own else "the session's"))
    told = table(("role", "model", "adapter", ""), rows)
    return Printed(told if models.current.players else f"{told}\n\n{_ROLES_OF_UMI}")


def _parted(name: str) -> tuple[str, str]:
    """A model's name without its adapter, and the adapter's file; empty where it has none."""
    try:
        files = local_files(name)
    except EcoshellError:  # it is gone since it was named
        return name, ""
    if files is None or files.adapter is None or name == EMBEDDED:
        return name, ""
    return (name.partition("+")[0] if is_embedded(name) else f"{LOCAL}{files.base}"), str(files.adapter)


@COMMANDS.add("mode", "[NAME]", "show or change the agent mode", lambda _: MODES)
async def _mode(shell: Shell, argument: str) -> Printed:
    models = shell.deps.models
    if argument:
        if argument not in MODES:
            raise UsageError(f"There is no mode called {argument!r}.", fix=f"There are {', '.join(MODES)}.")
        with shell.conversation.occupying():
            await models.change(mode=argument)
    rows = [("›" if name == models.mode else "", name, about) for name, about in MODES.items()]
    told = table(("", "agent mode", "models"), rows)
    if models.mode != AUTO:
        return Printed(told)
    last = "Nothing was chosen yet: that is done, and told, when a question comes."
    if models.no_choice:
        last = f"There is nothing to choose: {visible(models.no_choice)}."
    elif models.chosen is not None:
        last = f"Chosen last: {describe(models.chosen)}"
    return Printed(f"{told}\n\n{last}")


@COMMANDS.add("strategy", "[NAME]", "show or change how it thinks", lambda shell: shell.deps.strategies)
async def _strategy(shell: Shell, argument: str) -> Printed:
    deps = shell.deps
    if argument:
        deps.require("strategy", argument)
        shell.conversation.require_free()
        deps.settings.strategy = argument
    rows = [("›" if spec is deps.strategy else "", spec.name, spec.about) for spec in deps.strategies.values()]
    return Printed(table(("", "strategy", "what it does"), rows))


@COMMANDS.add("cost", "[last]", "what was spent; the last call's arithmetic", lambda _: ("last",))
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
    if row.usage.reasoning:
        reasoning = await asyncio.to_thread(shell.ledger.reasoning_nano, shell.session)
        used += f" (reasoning: {row.usage.reasoning:,} for {dollars(reasoning)})"
    tokens = about(used, estimated=row.estimate is not None)
    spent = f"spent {spent_text(row)}, held {dollars(row.held_nano)}; calls {row.calls}; tokens {tokens}"
    if row.estimate is not None or row.estimate_nano is not None:
        spent += "\n≈: some calls reported no usage, so a tokenizer counted; caps count their whole reservation."
    roles = await asyncio.to_thread(shell.ledger.rows, "role", shell.session)
    cells = [
        (
            row.key or "-",  # tools that are paid for are nobody's
            f"{row.calls:,}",
            about(f"{row.shown_usage.input:,}", estimated=row.estimate is not None),
            f"{row.usage.cached:,}",
            about(f"{row.shown_usage.output:,}", estimated=row.estimate is not None),
            spent_text(row) if not row.unpriced else "unknown",
            "unknown" if row.seconds is None or row.untimed else f"{row.seconds:,.1f}",
        )
        for row in roles
    ]
    by_role = table(("role", "calls", "in", "cached", "out", "spent", "seconds"), cells) if len(roles) > 1 else ""
    parts = (spent, by_role, caps_table(await shell.deps.budget.caps(), shell.ledger.away))
    return Printed("\n\n".join(part for part in parts if part))


@COMMANDS.add("sessions", "", "earlier sessions")
async def _sessions(shell: Shell, argument: str) -> Printed:
    listed = await asyncio.to_thread(shell.store.list, 20)
    rows = [(one.id, one.updated_text, visible(one.title), one.model) for one in listed]
    return Printed(table(("session", "last used", "title", "model"), rows))


@COMMANDS.add("resume", "ID", "go on with an earlier session", lambda shell: (one.id for one in shell.store.list(20)))
async def _resume(shell: Shell, argument: str) -> Printed:
    await shell.open(_wanted(argument, "/resume ID (see /sessions)"))
    await shell.restore_choices()
    return Printed("", effect="session")


@COMMANDS.add("new", "", "begin a new session")
async def _new(shell: Shell, argument: str) -> Printed:
    await shell.open()
    old = "The old one is kept; /sessions lists it." if await shell.flush() is None else _UNWRITTEN
    return Printed(f"A new session: {shell.session}. {old}", effect="session")


@COMMANDS.add(
    "export",
    "[FILE]",
    "this session into a new file: Markdown, or JSON where FILE ends in .json",
    lambda shell: (f"{shell.session}.md", f"{shell.session}.json"),
)
async def _export(shell: Shell, argument: str) -> Printed:
    """`/export`, `/export FILE.md`, `/export FILE.json`."""
    endings = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    files = (Path(shell.workspace, f"{shell.session}{ending}.md") for ending in endings)
    free = filter(lambda file: not file.exists(), files)
    file = shell.archive.file(argument) if argument else await asyncio.to_thread(next, free)
    await shell.archive.export(shell.session, file, running=shell.conversation.busy)
    return Printed(f"Exported to {file}.")


@COMMANDS.add("undo", "[FILE]", "take the last turn back: its files, and what models know of it")
async def _undo(shell: Shell, argument: str) -> Printed:
    """`/undo`, or `/undo FILE` for a file that it has left alone."""
    if argument:
        restored = await shell.conversation.undo_over(argument)
        name = visible_line(argument)
        return Printed(f"Restored: {name}." if restored else f"{name} could not be restored, or is so already.")
    turn, undone, changed = await shell.conversation.undo()
    return Printed(_taken_back(shell, turn, undone, changed))


@COMMANDS.add("retry", "", "take the last turn back and ask its question again")
async def _retry(shell: Shell, argument: str) -> Printed:
    turn, undone, changed = await shell.conversation.undo()
    told = _taken_back(shell, turn, undone, changed)
    return Printed(told, effect="ask", value=turn.question, attachments=turn.attachments)


def _taken_back(shell: Shell, turn: PastTurn, undone: TurnUndone, changed: Sequence[Changed]) -> str:
    """What was taken back, what was not, and why."""
    question = visible_line(turn.question, _NAMED)
    lines = [f"Turn {turn.number} is undone: “{question}”. Models are not told of it any more."]
    if undone.restored:
        lines.append(f"Restored: {_listed(undone.restored)}.")
    if undone.kept:
        why = "they were changed since or cannot be written, or no copy was kept"
        lines.append(f"Left alone, because {why}: {_listed(undone.kept)}.")
    for one in changed:
        name = visible_line(one.path)
        lines.append(f"{name} was changed since. Restore it all the same? /undo {name} does this to it:")
        lines.append(visible(one.changes) or "(It is long or no text, so this is not shown.)")
    wrote = turn.ran & RESTORABLE
    if wrote and not undone.restored and not undone.kept:
        lines.append(f"No file was restored: what {_listed(sorted(wrote))} did had no effect left, or is too long ago.")
    catalog = shell.deps.catalog
    beyond = (name for name in turn.ran - RESTORABLE if name in catalog and catalog.tool(name).effects & _BEYOND)
    if others := sorted(beyond):
        lines.append(f"What {_listed(others)} may have changed cannot be restored.")
    if turn.registered:
        lines.append(f"Registered tools stay registered: {_listed(turn.registered)}.")
    if turn.spent_nano != 0:
        lines.append(f"What it cost stays spent: {dollars(turn.spent_nano)}.")
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(visible_line, names))


@COMMANDS.add("compact", "", "replace all turns, for models, with a summary")
async def _compact(shell: Shell, argument: str) -> Printed:
    try:
        compacted, spent = await shell.conversation.compact()
    except Stopped:
        return Printed("Stopped. Everything stays as it was; what the call has cost is in /cost.")
    turns = counted(compacted.turns, "turn")
    sizes = f"{compacted.tokens_before:,} tokens before, {compacted.tokens_after:,} now"
    if not compacted.model:
        by = "This model is too small for summaries, so an extract that no model has written is told from now on."
        return Printed(f"Compacted {turns}: {sizes}. {by} The transcript is kept whole.")
    by = f"{compacted.model} wrote the summary for {dollars(spent)}"
    return Printed(f"Compacted {turns}: {sizes}. {by}. The transcript is kept whole.")


@COMMANDS.add("context", "", "what fills the model's context, and what is left of it")
async def _context(shell: Shell, argument: str) -> Printed:
    from ecoshell.agent.context_report import report_text

    return Printed(report_text(await shell.context_report()))


@COMMANDS.add("copy", "[N]", "copy the last answer, or the Nth from the end", lambda _: ("1", "2", "3"))
async def _copy(shell: Shell, argument: str) -> Printed:
    """`/copy`, or `/copy 2` for the answer before the last."""
    answers = shell.conversation.memory.answers
    if argument and (not argument.isdecimal() or int(argument) < 1):
        raise UsageError(f"/copy {argument} cannot be read.", fix="Say /copy, or /copy 2 for the answer before.")
    back = int(argument or 1)
    if back > len(answers):
        fix = "Say /copy N, counted from the end." if answers else "Ask something first."
        raise UsageError(f"This session has {counted(len(answers), 'answer')}.", fix=fix)
    answer = answers[-back]
    which = "The last answer" if back == 1 else f"Answer {back} from the end"
    return Printed(f"{which} is copied: {len(answer):,} characters.", effect="copy", value=answer)


@COMMANDS.add("clear", "", "clear the screen; the session is kept")
async def _clear(shell: Shell, argument: str) -> Printed:
    return Printed("", effect="clear")


@COMMANDS.add("quit", "", "leave; everything is kept")
async def _quit(shell: Shell, argument: str) -> Printed:
    return Printed("" if await shell.flush() is None else _UNWRITTEN, effect="quit")


def _wanted(argument: str, example: str) -> str:
    if not argument:
        raise UsageError("A name is missing.", fix=f"Say {example}.")
    return argument
