"""`/plan`: the plan, why it has a row, whether turns are planned at all, and a plan of branches as a flowchart."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ecoshell.agent.commands import Command, Printed
from ecoshell.agent.mode import unpriced
from ecoshell.agent.plan.choices import PLAN_MODES
from ecoshell.agent.plan.live import LivePlan
from ecoshell.agent.plan.text import plan_table, standing_text
from ecoshell.agent.plan.why import why_text
from ecoshell.agent.shell import Shell
from ecoshell.budget.money import counted
from ecoshell.errors import StoreError, UsageError
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
        return Printed(f"{_fault(plan)}{why_text(plan, tool)}")
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
    """The session's last plan of branches as a Mermaid flowchart, printed or put into a new file."""
    found = await asyncio.to_thread(_last_branching, shell)
    if found is None:
        raise UsageError(
            "No plan of branches was made in this session.", fix="Say /strategy graph, then ask for several things."
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


async def _present(shell: Shell) -> LivePlan:
    """The plan of the turn that runs or ran last, with the caps as they are now; before the first, of no question."""
    plan = shell.conversation.plan
    if plan is None:
        return await shell.conversation.foresee("")
    if not shell.conversation.busy:
        await plan.renew()
    return plan


def _fault(plan: LivePlan) -> str:
    """A line that says why experience could not be read; empty where it was."""
    return f"{visible(plan.outset.fault)}\n" if plan.outset.fault else ""


async def _refusal(shell: Shell, plan: LivePlan) -> str:
    """A line that says why no step can be taken, where a price is missing; empty where one can."""
    with suppress(StoreError):  # the caps cannot be read: the next turn says so
        refused = unpriced(shell.deps.models.current.mode.foresee(plan.outset.view), await shell.caps())
        return f"{refused}\n" if refused else ""
    return ""


def _others(count: int) -> str:
    return f"\n… and {counted(count, 'more tool')}" if count else ""


def _choices(shell: Shell) -> Iterable[str]:
    return (*PLAN_MODES, "mermaid", *(f"why {name}" for name in shell.deps.catalog.names))


PLAN_COMMAND: Command[Shell] = Command(
    "plan",
    "[why TOOL|mermaid [FILE]|MODE]",
    "what the budget allows of each tool, and why; branches as Mermaid; off, btp, prompt, btp+prompt",
    _plan,
    _choices,
)
