"""The slash commands for models, roles, modes, strategies and costs."""

import asyncio

from ecoshell.agent.command_table import (
    CommandTable,
    Printed,
    caps_table,
    dollars,
    spent_text,
    table,
)
from ecoshell.agent.conversation import Stopped
from ecoshell.agent.model_set import MODES
from ecoshell.agent.plan_text import quote_table
from ecoshell.agent.shell import Shell
from ecoshell.budget import about, duration_text
from ecoshell.errors import EcoshellError, UsageError, suggestion
from ecoshell.events import Bill
from ecoshell.messages import visible_line
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.local_models import LOCAL, is_embedded, local_files
from ecoshell.options import (
    ADVISOR,
    EFFORTS,
    NO_ROLE_MODELS,
    ROLES,
    SESSION_MODEL,
    Effort,
    role_named,
)

MODEL_COMMANDS: CommandTable[Shell] = CommandTable()
_ROLES_OF_UMI = "Only mode umi uses planner, caller and summarizer: /mode umi."
_MODEL_PREFIXES = ("embedded", "local:", "openai/", "anthropic/")


@MODEL_COMMANDS.add(
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


@MODEL_COMMANDS.add(
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


@MODEL_COMMANDS.add(
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


@MODEL_COMMANDS.add("mode", "[NAME]", "show or change the agent mode", lambda _: MODES)
async def _mode(shell: Shell, argument: str) -> Printed:
    models = shell.deps.models
    if argument:
        if argument not in MODES:
            raise UsageError(f"Unknown mode {argument!r}.", fix=f"Available: {', '.join(MODES)}.")
        with shell.conversation.occupying():
            await models.change(mode=argument)
    rows = [("›" if name == models.mode else "", name, about) for name, about in MODES.items()]
    return Printed(table(("", "agent mode", "models"), rows))


@MODEL_COMMANDS.add(
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


@MODEL_COMMANDS.add(
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
    by_role = ""
    if len(roles) > 1:
        by_role = table(("role", "calls", "in", "cached", "out", "spent", "seconds"), cells)
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
