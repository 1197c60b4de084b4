"""`ecoshell plan`: the plan for a question, without asking it."""

import argparse
import asyncio
import sys

from ecoshell.agent.mode import unpriced
from ecoshell.agent.plan_text import plan_summary, plan_table
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.assembly.viewing import assemble_view, caps_of
from ecoshell.cli.manage.show import print_json
from ecoshell.cli.run_options import add_run_options, options_from
from ecoshell.errors import UsageError
from ecoshell.messages import visible
from ecoshell.options import Options

_PLAN_FIELDS = ("cap", "reserved", "budget", "enforced", "planned_cost", "low", "high")
_ROW_FIELDS = ("tool", "value", "chance", "cost", "spread", "bound", "planned", "state", "why")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run_options(parser)
    parser.add_argument("question", nargs="+", help="the question; it is not asked")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the plan of a question; raises UsageError, SettingsError, StoreError, and PriceUnknown as a turn would."""
    question = " ".join(args.question).strip()
    if not question:
        raise UsageError("The question is empty.", fix="Give the question in quotes.")
    plan = asyncio.run(_forecast(options_from(args), question))
    if plan.inputs.fault:
        print(visible(plan.inputs.fault), file=sys.stderr)
    event, rows = plan.event(), plan.priced.plan.rows
    if args.json:
        # whole nano-dollars, tokens or milliseconds, see `unit`; null without a cap, like `fault` without one.
        record = {"mode": event.mode, "unit": "nano_usd" if event.unit == "usd" else event.unit}
        record |= {name: getattr(event, name) for name in _PLAN_FIELDS}
        row_records = [{name: getattr(row, name) for name in _ROW_FIELDS} for row in rows]
        print_json({**record, "fault": plan.inputs.fault or None, "rows": row_records})
    else:
        rows = sorted(rows, key=lambda row: -row.value * row.chance)
        print(f"{plan_summary(event)}\n\n{plan_table(rows, event.unit, enforced=event.enforced)}")
    return 0


async def _forecast(options: Options, question: str) -> TurnPlan:
    shell = await assemble_view(options)
    try:
        caps = await caps_of(shell, options)
        plan = await shell.conversation.setup.forecast(question, caps)
        error = unpriced(shell.deps.models.current.mode.forecast(plan.inputs.view), caps)
        if error is not None:
            raise error
        return plan
    finally:
        await shell.aclose()
