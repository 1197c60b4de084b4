"""Other models a step could be taken with, and what it could cost there."""

import asyncio
from collections.abc import Sequence

from ecoshell.agent.kit import Cast, Kit
from ecoshell.agent.mode import View
from ecoshell.agent.outlook import of_conclusion, of_step, with_room
from ecoshell.budget.caps import CapState
from ecoshell.errors import EcoshellError
from ecoshell.events import ModelOffer

MOST = 5
"""Models offered at once."""


async def alternatives(kit: Kit, view: View, caps: Sequence[CapState]) -> tuple[ModelOffer, ...]:
    """Models for which the caps have room, or that are cheaper than the present one; the cheapest first."""
    casts = await asyncio.to_thread(_others, kit)
    try:
        return await asyncio.to_thread(_offers, kit, casts, view, caps)
    finally:
        for other in casts:
            await other.aclose()


def _others(kit: Kit) -> list[Cast]:
    """Other models that can be had, each to do everything there is; nothing of them is loaded.

    Of several that play now, each could go on alone.
    """
    casts: list[Cast] = []
    own = [model.traits.name for model in kit.cast.models] if kit.cast.players else []
    for name in dict.fromkeys((*own, *kit.caster.substitutes(kit.model))):
        try:
            casts.append(kit.caster.cast(name, kit.cast.mode.name))
        except EcoshellError:  # a file that is gone or a missing key: one offer less
            continue
    return casts


def _offers(kit: Kit, casts: Sequence[Cast], view: View, caps: Sequence[CapState]) -> tuple[ModelOffer, ...]:
    present = of_step(kit.cast.mode.foresee(view)).nano
    offers = [_offer(other, kit, view, caps) for other in casts]
    useful = [offer for offer in offers if offer.fits or _cheaper(offer.most_nano, present)]
    return tuple(sorted(useful, key=_rank)[:MOST])


def _offer(other: Cast, kit: Kit, view: View, caps: Sequence[CapState]) -> ModelOffer:
    traits, foreseen = other.model.traits, other.mode.foresee(view)
    step = of_step(foreseen)
    fits = with_room(caps, kit.cast.mode.aside, step + of_conclusion(foreseen))
    return ModelOffer(traits.name, traits.local, step.nano, step.tokens, fits)


def _cheaper(nano: int | None, present: int | None) -> bool:
    return nano is not None and (present is None or nano < present)


def _rank(offer: ModelOffer) -> tuple[bool, bool, int, str]:
    return not offer.fits, offer.most_nano is None, offer.most_nano or 0, offer.name
