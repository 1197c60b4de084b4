"""`/plan`: the plan, why it has a row, whether turns are planned at all, and a parallel plan as a flowchart."""

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from ecoshell.agent.commands import Command, Printed
from ecoshell.agent.mode import unpriced
from ecoshell.agent.planning import PLAN_MODES
from ecoshell.agent.printing import amount, table
from ecoshell.agent.shell import Shell
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.budget.money import counted
from ecoshell.errors import StoreError, UsageError
from ecoshell.events import PlanChanged, PlanRow
from ecoshell.planning.btp.explain import state_word
from ecoshell.sessions.branching import Branching, branchings
from ecoshell.sessions.export import write_new
from ecoshell.sessions.mermaid import flowchart
from ecoshell.untrusted import visible

_BINDS = "where a cap stands, calls are refused that would leave the answer or a better use unpaid"
_MODES = {
    "off": "Turns are not planned: what the caps allow may be used.",
    "btp": f"From the next step on, {_BINDS}.",
    "prompt": "Nothing is blocked; the model is told the budget from now on, and costs with the next question.",
    "btp+prompt": f"From the next step on, {_BINDS}; the model is told the budget from now on, and costs with the next "
    "question.",
}
_SIGNS = {"planned": "√", "blocked": "×", "advised against": "!", "unplanned": "·"}
_FOLDED = 3
"""Tools of which nothing is known from which on they share a line."""
HEAD = ("  tool", "value", "chance", "cost", "bound", "planned", "used", "left", "state", "why")


async def _plan(shell: Shell, argument: str) -> Printed:
    """`/plan`, `/plan why read_file`, `/plan off`, `/plan btp+prompt`, `/plan mermaid`, `/plan mermaid FILE`."""
    word, _, rest = argument.partition(" ")
    for mode in PLAN_MODES:
        if argument == mode:
            shell.deps.planning.mode = mode
            return Printed(f"Plan {mode}. {_MODES[mode]}")
    if word == "why" and rest.strip():
        tool = shell.conversation.known(rest.strip()).name
        plan = await _present(shell)
        return Printed(f"{_fault(plan)}{plan.explain(tool)}")
    if word == "mermaid":
        return await _mermaid(shell, rest.strip())
    if argument:
        raise UsageError(
            f"/plan {argument} cannot be read.",
            fix=f"Say /plan, /plan why TOOL, /plan mermaid FILE, or /plan {', '.join(PLAN_MODES)}.",
        )
    plan = await _present(shell)
    told = plan.event()
    head = "" if shell.deps.planning.mode != "off" else "Turns are not planned; this is what a plan would be.\n"
    head = f"{head}{_fault(plan)}{await _refusal(shell, plan)}"
    rows = plan_table(told.rows, told.unit, enforced=told.enforced)
    return Printed(f"{head}{standing_text(told)}\n\n{rows}{_others(told.others)}")


async def _mermaid(shell: Shell, file: str) -> Printed:
    """The session's last parallel plan as a Mermaid flowchart, printed or put into a new file."""
    found = await asyncio.to_thread(_last_branching, shell)
    if found is None:
        raise UsageError(
            "No parallel plan was made in this session.", fix="Say /strategy graph, then ask for several things."
        )
    text = flowchart(found)
    if not file:
        return Printed(text.rstrip("\n"))
    path = Path(os.path.expanduser(file))  # noqa: ASYNC240, PTH111 - looks at no file
    await asyncio.to_thread(write_new, path, text)
    return Printed(f"The plan is in {path}.")


def _last_branching(shell: Shell) -> Branching | None:
    events = (event for _, event in shell.store.events(shell.session))
    return next(reversed(branchings(events, running=shell.conversation.busy)), None)


async def _present(shell: Shell) -> TurnPlan:
    """The plan of the turn that runs or ran last, with the caps as they are now; before the first, of no question."""
    plan = shell.conversation.plan
    if plan is None:
        return await shell.conversation.foresee("")
    if not shell.conversation.busy:
        await plan.renew()
    return plan


def _fault(plan: TurnPlan) -> str:
    """A line that says why experience could not be read; empty where it was."""
    return f"{visible(plan.inputs.fault)}\n" if plan.inputs.fault else ""


async def _refusal(shell: Shell, plan: TurnPlan) -> str:
    """A line that says why no step can be taken, where a price is missing; empty where one can."""
    with suppress(StoreError):  # the caps cannot be read: the next turn says so
        refused = unpriced(shell.deps.models.current.mode.foresee(plan.inputs.view), await shell.caps())
        return f"{refused}\n" if refused else ""
    return ""


def _others(count: int) -> str:
    return f"\n… and {counted(count, 'more tool')}" if count else ""


def _choices(shell: Shell) -> Iterable[str]:
    return (*PLAN_MODES, "mermaid", *(f"why {name}" for name in shell.deps.catalog.names))


def plan_table(rows: Sequence[PlanRow], unit: str, *, enforced: bool) -> str:
    """A row for each tool; those of which nothing is known but that they are new share a line."""
    new = [row.tool for row in rows if row.why == "new" and not row.used and row.state == "planned"]
    told = rows if len(new) < _FOLDED else [row for row in rows if row.tool not in new]
    more = [] if told is rows else [f"{_SIGNS['planned']} {len(new)} tools not used yet  {', '.join(new)}"]
    lines = [table(HEAD, (_cells(row, unit, enforced=enforced) for row in told))] if told else []
    return "\n".join([*lines, *more])


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
    return " ".join([*sentences, range_text(plan)])


def range_text(plan: PlanChanged) -> str:
    """The price range of the turn from here."""
    if plan.low is None or plan.high is None:
        return "The model's price is unknown, so these are the costs of tools and waiting alone."
    low, high = amount(plan.low, plan.unit), amount(plan.high, plan.unit)
    return f"The turn is estimated at {low if low == high else f'{low} to {high}'}."


def _cells(row: PlanRow, unit: str, *, enforced: bool) -> tuple[str, ...]:
    spread = f" ± {amount(row.spread, unit)}" if row.spread else ""
    counts = (str(row.bound), str(row.planned), str(row.used), str(row.left))
    return (
        f"{_SIGNS[state_word(row, enforced=enforced)]} {row.tool}",
        f"{row.value:.2f}",
        f"{row.chance:.2f}",
        f"{amount(row.cost, unit)}{spread}",
        *counts,
        state_word(row, enforced=enforced),
        row.why,
    )


PLAN_COMMAND: Command[Shell] = Command(
    "plan",
    "[why TOOL|mermaid [FILE]|MODE]",
    "what the budget allows of each tool, and why; branches as Mermaid; off, btp, prompt, btp+prompt",
    _plan,
    _choices,
)
