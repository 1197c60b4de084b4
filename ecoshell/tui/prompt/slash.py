"""Slash commands: what a begun line could become."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ecoshell.tui.fuzzy import best
from ecoshell.tui.prompt.completion import Offer

if TYPE_CHECKING:
    from ecoshell.agent.commands import Completion

Completer = Callable[[str], "Sequence[Completion]"]
_MOST = 100


def command_offers(complete: Completer, typed: str) -> list[Offer]:
    """Lines that begin as typed, then those that hold its letters: commands, or the choices of the one typed."""
    command, blank, argument = typed.partition(" ")
    exact = complete(typed)
    lines = {offer.text.lower(): offer for offer in exact}
    stem, sought = (f"{command} ", argument) if blank else ("/", typed[1:])
    fuzzy, _ = best(sought, ((one.text[len(stem) :].lower(), one) for one in complete(stem)), _MOST)
    for offer in fuzzy:
        lines.setdefault(offer.text.lower(), offer)
    return [_offer(offer) for offer in list(lines.values())[:_MOST]]


def _offer(completion: "Completion") -> Offer:
    line = completion.text
    return Offer(line, completion.help, line if " " in line else f"{line} ")
