"""`ecoshell plan`: what would be planned for a question, without asking it."""

import argparse
import asyncio
import sys

from ecoshell.agent.cost_bounds import unpriced
from ecoshell.agent.plan_text import plan_summary, plan_table
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.assembly.viewing import assemble_view, caps_of
from ecoshell.cli.manage.show import print_json
from ecoshell.cli.parser import add_shared_options, options_from
from ecoshell.errors import UsageError
from ecoshell.messages import visible
from ecoshell.options import Options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_shared_options(parser)
    parser.add_argument("question", nargs="+", help="the question; it is not asked")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the plan of a question; raises UsageError, SettingsError, StoreError, and PriceUnknown as a turn would."""
    question = " ".join(args.question).strip()
    if not question:
        raise UsageError("The question is empty.", fix="Say what is to be planned, in quotes.")
    plan = asyncio.run(_planned(options_from(args), question))
    if plan.inputs.fault:
        print(visible(plan.inputs.fault), file=sys.stderr)
    told = plan.event()
    if args.json:
        # whole nano-dollars or tokens, as `unit` says; without a cap it is null, as `fault` is without one
        same = ("cap", "reserved", "budget", "enforced", "planned_cost", "low", "high")
        of_row = ("tool", "value", "chance", "cost", "spread", "bound", "planned", "state", "why")
        record = {"mode": told.mode, "unit": "nano_usd" if told.unit == "usd" else "tokens"}
        record |= {name: getattr(told, name) for name in same} | {"fault": plan.inputs.fault or None}
        rows = [{name: getattr(row, name) for name in of_row} for row in plan.priced.plan.rows]
        print_json({**record, "rows": rows})
    else:
        rows = sorted(plan.priced.plan.rows, key=lambda row: -row.value * row.chance)
        print(f"{plan_summary(told)}\n\n{plan_table(rows, told.unit, enforced=told.enforced)}")
    return 0


async def _planned(options: Options, question: str) -> TurnPlan:
    shell = await assemble_view(options)
    try:
        caps = await caps_of(shell, options)
        plan = await shell.conversation.forecast(question, caps)
        refused = unpriced(shell.deps.models.current.mode.forecast(plan.inputs.view), caps)
        if refused is not None:
            raise refused
        return plan
    finally:
        await shell.aclose()
