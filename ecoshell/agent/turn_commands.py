"""The commands that take back, repeat, shorten and copy what was said."""

from collections.abc import Sequence

from ecoshell.agent.commands import Command, Printed
from ecoshell.agent.conversation import Stopped
from ecoshell.agent.memory import PastTurn
from ecoshell.agent.printing import dollars
from ecoshell.agent.shell import Shell
from ecoshell.catalog.catalog import Catalog
from ecoshell.errors import UsageError
from ecoshell.events import TurnUndone
from ecoshell.messages import Effect
from ecoshell.tools.builtin.files import RESTORABLE
from ecoshell.tools.restore import Changed
from ecoshell.untrusted import visible, visible_line

_BEYOND: frozenset[Effect] = frozenset({"write", "execute"})
_NAMED = 60
"""Characters of a question by which a turn is named."""


async def _undo(shell: Shell, argument: str) -> Printed:
    """`/undo`, or `/undo FILE` for a file that it has left alone."""
    if argument:
        restored = await shell.conversation.undo_over(argument)
        name = visible_line(argument)
        return Printed(f"Restored: {name}." if restored else f"{name} could not be restored, or is so already.")
    turn, undone, changed = await shell.conversation.undo()
    return Printed(_taken_back(shell, turn, undone, changed))


async def _retry(shell: Shell, argument: str) -> Printed:
    turn, undone, changed = await shell.conversation.undo()
    told = _taken_back(shell, turn, undone, changed)
    return Printed(told, effect="ask", value=turn.question, attachments=turn.attachments)


async def _compact(shell: Shell, argument: str) -> Printed:
    try:
        compacted, spent = await shell.conversation.compact()
    except Stopped:
        return Printed("Stopped. Everything stays as it was; what the call has cost is in /cost.")
    turns = f"{compacted.turns} turn{'' if compacted.turns == 1 else 's'}"
    sizes = f"{compacted.tokens_before:,} tokens before, {compacted.tokens_after:,} now"
    if not compacted.model:
        by = "This model is too small for summaries, so an extract that no model has written is told from now on."
        return Printed(f"Compacted {turns}: {sizes}. {by} The transcript is kept whole.")
    by = f"{compacted.model} wrote the summary for {dollars(spent)}"
    return Printed(f"Compacted {turns}: {sizes}. {by}. The transcript is kept whole.")


async def _copy(shell: Shell, argument: str) -> Printed:
    """`/copy`, or `/copy 2` for the answer before the last."""
    answers = shell.conversation.memory.answers
    if argument and (not argument.isdecimal() or int(argument) < 1):
        raise UsageError(f"/copy {argument} cannot be read.", fix="Say /copy, or /copy 2 for the answer before.")
    back = int(argument or 1)
    if back > len(answers):
        raise UsageError(f"There are {len(answers)} answers in this session.", fix="Ask something first.")
    answer = answers[-back]
    which = "The last answer" if back == 1 else f"Answer {back} from the end"
    return Printed(f"{which} is copied: {len(answer):,} characters.", effect="copy", value=answer)


def _taken_back(shell: Shell, turn: PastTurn, undone: TurnUndone, changed: Sequence[Changed]) -> str:
    """What was taken back, what was not, and why."""
    lines = [f"Turn {turn.number} is taken back: “{_named(turn.question)}”. Models are not told of it any more."]
    if undone.restored:
        lines.append(f"Restored: {_listed(undone.restored)}.")
    if undone.kept:
        lines.append(f"Left alone, because they were changed since or no copy was kept: {_listed(undone.kept)}.")
    for one in changed:
        name = visible_line(one.path)
        lines.append(f"{name} was changed since. Restore it all the same? /undo {name} does this to it:")
        lines.append(visible(one.changes) or "(It is long or no text, so this is not shown.)")
    wrote = turn.ran & RESTORABLE
    if wrote and not undone.restored and not undone.kept:
        lines.append(f"No file was restored: what {_listed(sorted(wrote))} did had no effect left, or is too long ago.")
    others = _beyond(turn.ran, shell.kit.catalog)
    if others:
        lines.append(f"What {_listed(others)} may have changed cannot be restored.")
    if turn.registered:
        lines.append(f"Registered tools stay registered: {_listed(turn.registered)}.")
    if turn.spent_nano != 0:
        lines.append(f"What it cost stays spent: {dollars(turn.spent_nano)}.")
    return "\n".join(lines)


def _beyond(ran: frozenset[str], catalog: Catalog) -> list[str]:
    """Tools that may have changed something no copy is kept of."""
    return sorted(name for name in ran - RESTORABLE if name in catalog and catalog.tool(name).effects & _BEYOND)


def _named(question: str) -> str:
    line = visible_line(question)
    return line if len(line) <= _NAMED else f"{line[:_NAMED].rstrip()}…"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(visible_line, names))


TURN_COMMANDS: tuple[Command[Shell], ...] = (
    Command("undo", "[FILE]", "take the last turn back: its files, and what models know of it", _undo),
    Command("retry", "", "take the last turn back and ask its question again", _retry),
    Command("compact", "", "have a short summary told to models in the place of all turns", _compact),
    Command("copy", "[N]", "copy the last answer, or the Nth from the end", _copy, lambda _: ("1", "2", "3")),
)
