"""`ecoshell budget raise`: raise the cap of a running gateway, or one of the user's caps."""

import argparse
from contextlib import closing

from ecoshell.assembly import load_settings, open_ledger
from ecoshell.budget import Amount, CapState, amount_text
from ecoshell.errors import UsageError
from ecoshell.paths import Paths, user_paths
from ecoshell_gateway.metering import TURN
from ecoshell_gateway.options import scoped_amount
from ecoshell_gateway.registry import running_gateways


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "amount", metavar="AMOUNT", help="the new cap, such as 10, 1000000tok or day=20"
    )
    parser.add_argument(
        "--run", dest="session", metavar="ID", help="the run, if several are running"
    )


def run(args: argparse.Namespace) -> int:
    """Set the cap; raises UsageError and StoreError."""
    paths = user_paths()
    scope, amount = scoped_amount(args.amount)
    session = _session(paths, args.session) if scope == "session" else ""
    with closing(open_ledger(paths, load_settings(paths))) as ledger:
        _check(
            amount,
            next((cap for cap in ledger.own_caps(session, TURN) if cap.scope == scope), None),
        )
        ledger.set_cap(session, scope, amount)
    owner = f"of {session}" if session else f"of the {scope}"
    print(f"The cap {owner} is {amount}.")
    return 0


def _session(paths: Paths, name: str | None) -> str:
    gateways = running_gateways(paths)
    matches = sorted(
        {gateway.session for gateway in gateways if name is None or gateway.session.endswith(name)}
    )
    if not matches:
        raise UsageError(
            "No such gateway is running.", fix="Start one: ecoshell run --budget 5 -- COMMAND."
        )
    if len(matches) > 1:
        raise UsageError(
            "Several gateways are running.", fix=f"Choose one with --run: {', '.join(matches)}."
        )
    return matches[0]


def _check(amount: Amount, cap: CapState | None) -> None:
    if cap is not None and cap.unit == amount.unit and amount.value < cap.limit:
        limit = amount_text(cap.limit, cap.unit)
        raise UsageError(
            f"The cap is {limit}, more than {amount}; it is unchanged.", fix="Give a larger amount."
        )
