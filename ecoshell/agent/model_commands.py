"""The slash commands for models, roles, modes, strategies and costs."""

import asyncio
from collections.abc import Sequence

from ecoshell.agent.command_table import (
    CommandTable,
    Printed,
    caps_table,
    dollars,
    spent_text,
    split_first_word,
    table,
)
from ecoshell.agent.conversation import Stopped
from ecoshell.agent.model_set import MODES
from ecoshell.agent.plan_text import quote_table
from ecoshell.agent.reconciling import (
    UNRECONCILED,
    UNRECONCILED_HEAD,
    reconcile,
    unreconciled_rows,
)
from ecoshell.agent.session_settings import effort_named
from ecoshell.agent.shell import Shell
from ecoshell.agent.shell_status import suggested_token_cap
from ecoshell.budget import CapState, about, duration_text
from ecoshell.budget.gate import finished
from ecoshell.errors import EcoshellError, ModelDisabled, PriceUnknown, UsageError, suggestion
from ecoshell.events import Bill, BudgetChanged
from ecoshell.messages import visible_line
from ecoshell.models.embedded import NAME as EMBEDDED
from ecoshell.models.hub_names import HUB
from ecoshell.models.local_models import LOCAL, is_embedded, local_files
from ecoshell.options import (
    ADVISOR,
    EFFORTS,
    NO_ROLE_MODELS,
    ROLES,
    SESSION_MODEL,
    role_named,
)

MODEL_COMMANDS: CommandTable[Shell] = CommandTable()
_RECONCILE = "/cost reconcile"
_ROLES_OF_UMI = "Only mode umi uses planner, caller and summarizer: /mode umi."
_MODEL_PREFIXES = ("embedded", "local:", "openai/", "anthropic/")


@MODEL_COMMANDS.add(
    "model", "[NAME|pull REPO]", "show, change or download the model", lambda _: _MODEL_PREFIXES
)
async def _model(shell: Shell, argument: str) -> Printed:
    """`/model`, `/model embedded`, `/model pull unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M`."""
    action, repository = split_first_word(argument)
    if action == "pull" and repository:
        try:
            argument = await shell.pull(repository)
        except Stopped:
            text = "The download was stopped. What has arrived is kept; pull again to resume."
            return Printed(text)
    models = shell.deps.models
    if argument:
        with shell.conversation.occupying():
            await models.change(model=argument)
    traits = models.current.model.traits
    price = "unknown" if traits.price is None else traits.price.summary()
    context = "unknown" if traits.context is None else f"{traits.context:,} tokens"
    has_role_models = models.current.players and models.roles != NO_ROLE_MODELS
    roles = "\nRoles have their own models: /role." if has_role_models else ""
    text = f"model {traits.name}\nprice {price}\ncontext {context}{roles}"
    return Printed(text if argument else f"{text}\n\n{await _other_models(shell)}")


async def _other_models(shell: Shell) -> str:
    """What `/model NAME` changes to: the models that the first start offers."""
    rows: list[tuple[str, str]] = []
    for offer in await shell.starting_models():
        name = f"pull {offer.name.removeprefix(HUB)}" if offer.source == "download" else offer.name
        if name != shell.model_name:
            rows.append((f"/model {name}", offer.words))
    return f"{table(('others', 'source'), rows)}\n`ecoshell models` lists all."


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
        settings.effort = effort_named(argument.lower())
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
    refusal = ""
    if argument:
        name, model = split_first_word(argument)
        role, presets = role_named(name), shell.deps.settings.presets
        if name == ADVISOR:
            refusal = await _set_advisor(shell, _required_model(ADVISOR, model, "openai/gpt-5"))
            roles = models.roles
        elif role is not None:
            model = _required_model(role, model, "embedded")
            roles = models.roles.with_role(role, None if model == SESSION_MODEL else model)
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
        rows.append((role, model, adapter, "" if own else "the session's"))
    advisor = shell.deps.settings.advisor
    about = "asked by the others" if advisor else "/role advisor MODEL"
    rows.append((ADVISOR, advisor or "none", "", about))
    cells = [tuple(map(visible_line, row)) for row in rows]
    text = table(("role", "model", "adapter", ""), cells)
    hint = "" if models.current.players else _ROLES_OF_UMI
    return Printed("\n\n".join(filter(None, (text, refusal, hint))))


def _required_model(role: str, model: str, example: str) -> str:
    """The model for a role; raises UsageError without one."""
    if not model:
        fix = f"For example: /role {role} {example}, or /role {role} -."
        raise UsageError(f"The {role} needs a model.", fix=fix)
    return model


async def _set_advisor(shell: Shell, model: str) -> str:
    """Set or, with `-`, remove the advisor; returns why the caps refuse its calls, empty if they do not.

    Raises UsageError and ModelMissing.
    """
    from ecoshell.agent.advisor import offer_advisor

    refusal = ""
    with shell.conversation.occupying():
        if model != SESSION_MODEL:
            lent = await asyncio.to_thread(shell.deps.models.lend, model)
            try:
                await shell.deps.budget.require_allowed(lent.current.models)
            except (PriceUnknown, ModelDisabled) as error:
                refusal = f"The advisor will not be asked under this cap. {error}"
            finally:
                await lent.aclose()
        shell.deps.settings.advisor = None if model == SESSION_MODEL else model
        offer_advisor(shell.deps)
    return refusal


def _split_adapter(name: str) -> tuple[str, str]:
    """A model's name without its adapter, and the adapter's file; empty without an adapter."""
    try:
        files = local_files(name)
    except EcoshellError:  # deleted meanwhile
        return name, ""
    if files is None or files.adapter is None or name == EMBEDDED:
        return name, ""
    base = name.partition("+")[0] if is_embedded(name) else f"{LOCAL}{files.base}"
    return base, str(files.adapter)


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
    "[last | reconcile [ENTRY=AMOUNT]]",
    "show the costs, quotes with their bills, or the arithmetic of the last call; set an unknown cost",
    lambda _: ("last", "reconcile"),
)
async def _cost(shell: Shell, argument: str) -> Printed:
    if argument == "last":
        entry = await asyncio.to_thread(shell.ledger.last, shell.session)
        lines = entry.arithmetic() if entry else ["No model call was made in this session."]
        return Printed("\n".join(lines))
    word, typed = split_first_word(argument)
    if word == "reconcile":
        return await _reconcile(shell, typed)
    if argument:
        fix = "Use /cost, /cost last for the arithmetic, or /cost reconcile."
        raise UsageError(f"Unknown argument of /cost: {argument}.", fix=fix)
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
    bills = await asyncio.to_thread(shell.store.events_of, Bill, shell.session)
    quotes = quote_table([bill for _, bill in bills])
    caps = await caps_text(shell, await shell.deps.budget.caps())
    return Printed("\n\n".join(filter(None, (spent, by_role, quotes, caps))))


async def _reconcile(shell: Shell, typed: str) -> Printed:
    """Set the cost of a call of this session, or list the calls whose cost is unknown."""
    if typed:
        event = await finished(
            asyncio.to_thread(reconcile, shell.ledger, typed, _RECONCILE, session=shell.session)
        )
        await shell.conversation.note(event)
        caps = await shell.deps.budget.caps()
        await shell.conversation.note(BudgetChanged(caps))
        return Printed(f"The cost is set.\n\n{await caps_text(shell, caps)}")
    everywhere = await asyncio.to_thread(shell.ledger.unreconciled)
    entries = [entry for entry in everywhere if entry.session == shell.session]
    if not entries:
        return Printed("The cost of every call of this session is known.")
    rows = table(UNRECONCILED_HEAD, unreconciled_rows(entries))
    hint = f"If the provider's bill differs: {_RECONCILE} {entries[0].id}=0.0031"
    return Printed("\n".join((UNRECONCILED, rows, hint)))


async def caps_text(shell: Shell, caps: Sequence[CapState]) -> str:
    """The caps and their use; without caps, how to set one."""
    if caps or shell.ledger.away is not None:
        return caps_table(caps, shell.ledger.away)
    dollars_command = "/budget 0.50, " if shell.deps.models.current.is_priced else ""
    token_cap = await asyncio.to_thread(suggested_token_cap, shell)
    commands = f"{dollars_command}/budget {token_cap} or /budget 2min"
    return f"No cap is set. Set one for this session: {commands}."
