"""How large a call may be under the caps that stand: pure arithmetic, no store."""

from collections.abc import Iterable

from ecoshell.budget.caps import CapState
from ecoshell.budget.holds import Ask, Hold
from ecoshell.budget.money import amount_text
from ecoshell.errors import LimitReached, PriceUnknown


def fitting_output(ask: Ask, caps: Iterable[CapState]) -> int:
    """The `max_tokens` that every cap leaves room for.

    Raises LimitReached for the tightest cap when not even the floor fits, and PriceUnknown when a cap is in dollars and
    the model has no price.
    """
    allowed, tightest = ask.max_tokens, None
    for cap in caps:
        room = _room(ask, cap)
        if room < allowed:
            allowed, tightest = room, cap
    if tightest is not None and allowed < ask.floor:
        raise _limit_reached(ask, tightest)
    return allowed


def exchanged_output(ask: Ask, caps: Iterable[CapState], old: Hold) -> int:
    """The `max_tokens` of a call that takes a hold's place: what the caps leave, or what the hold already covers."""
    try:
        allowed, refusal = fitting_output(ask, caps), None
    except LimitReached as error:
        allowed, refusal = -1, error
    covered = old.tokens - ask.prompt_tokens
    if ask.price is not None:
        covered = min(covered, ask.price.affordable_output(ask.prompt_tokens, old.nano or 0))
    best = min(max(allowed, covered), ask.max_tokens)
    if refusal is not None and best < ask.floor:
        raise refusal
    return best


def _room(ask: Ask, cap: CapState) -> int:
    """Output tokens the cap leaves room for; negative when not even the prompt fits."""
    if cap.unit == "tokens":
        return cap.left - ask.prompt_tokens
    if ask.price is None:
        raise price_unknown(ask.account.model, cap)
    return ask.price.affordable_output(ask.prompt_tokens, cap.left)


def price_unknown(model: str, cap: CapState) -> PriceUnknown:
    """The refusal of a call that nobody can price under a cap in dollars."""
    return PriceUnknown(
        f"The price of {model} is not known, and a cap of {amount_text(cap.limit, 'usd')} stands for the {cap.scope}.",
        fix=f'Give it in the configuration under [models."{model}".price], or set the cap in tokens.',
    )


def _limit_reached(ask: Ask, cap: CapState) -> LimitReached:
    need = ask.prompt_tokens + ask.floor
    if cap.unit == "usd" and ask.price is not None:
        need = ask.price.worst(ask.prompt_tokens, ask.floor)
    return limit_reached(cap, need)


def limit_reached(cap: CapState, need: int) -> LimitReached:
    """The refusal of something that needs more than the cap has left."""
    how = f"/budget {cap.scope} AMOUNT in a chat"
    if cap.scope == "session":
        how = "/budget AMOUNT in a chat, --budget AMOUNT before one"
    return LimitReached(
        f"The next call may need {amount_text(need, cap.unit)}, and the {cap.scope}'s cap of "
        f"{amount_text(cap.limit, cap.unit)} has {amount_text(cap.left, cap.unit)} left.",
        scope=cap.scope,
        need=need,
        left=cap.left,
        unit=cap.unit,
        fix=f"Raise it ({how}), or go on with a cheaper or local model.",
    )
