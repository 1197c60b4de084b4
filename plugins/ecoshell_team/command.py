"""`ecoshell budget`: create a team ledger, manage its caps and members, and show its use."""

import argparse
import re
from collections.abc import Sequence
from contextlib import closing

from ecoshell.assembly import load_settings
from ecoshell.budget import amount_text, nano_to_usd_text, parse_amount, parse_spent
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_actions
from ecoshell.errors import UsageError
from ecoshell.paths import user_paths
from ecoshell_team.server import OpenLease, Share, TeamServer

_SCOPE = re.compile(r"everybody|(team|person|project|model):\S.{0,199}", re.DOTALL)
_SCOPE_FORMS = "Give everybody, team:NAME, person:NAME, project:NAME or model:NAME."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's actions."""
    action = add_actions(parser, default="show")
    action("init", "create the ledger in the database of [budget] ledger (requires its owner)")
    action("show", "show caps with spent, held and leased amounts, and the open leases")
    put = action("set", "set a cap, or remove it")
    put.add_argument(
        "scope",
        metavar="SCOPE",
        help="everybody, team:NAME, person:NAME, project:NAME or model:NAME",
    )
    put.add_argument("period", choices=("day", "month"), metavar="PERIOD", help="day or month")
    put.add_argument("amount", metavar="USD", help="dollars, such as 200, or off")
    add = action("add", "give a database role access to the ledger")
    add.add_argument("person", metavar="PERSON")
    add.add_argument("--team", default="", metavar="NAME", help="the member's team")
    close = action("close", "end the lease of a lost shell")
    close.add_argument("lease", metavar="LEASE=USD", help="the lease and its unreported spending")


def run(args: argparse.Namespace) -> int:
    """Run the action and print the caps; raises UsageError, SettingsError and StoreError."""
    address = load_settings(user_paths()).budget.ledger
    if address is None or not address.startswith(("postgresql://", "postgres://")):
        fix = "Set [budget] ledger, or ECOSHELL_LEDGER, to its address: postgresql://PERSON@HOST/DATABASE."
        raise UsageError("No team ledger in PostgreSQL is configured.", fix=fix)
    with closing(TeamServer(address)) as server:
        message = _act(server, args)
        caps, leases = server.caps(), server.open_leases()
    if args.json:
        print_json(
            {
                "caps": [_cap_record(cap) for cap in caps],
                "leases": [_lease_record(lease) for lease in leases],
            }
        )
        return 0
    if message:
        print(message)
    _print_caps(caps)
    if leases and args.action == "show":
        print("\nLeases:")
        cells = [
            (lease.id, lease.person, lease.at, amount_text(lease.nano, "usd")) for lease in leases
        ]
        print_table(("lease", "person", "since", "amount"), cells, right=("amount",))
    return 0


def _act(server: TeamServer, args: argparse.Namespace) -> str:
    """Carry out the action and return its message."""
    match args.action:
        case "init":
            return "The ledger was created." if server.create() else "The ledger already exists."
        case "set":
            _set(server, args.scope, args.period, args.amount)
            return ""
        case "add":
            server.add_member(args.person, args.team)
            return (
                f"{args.person} may use the ledger{f', in team {args.team}' if args.team else ''}."
            )
        case "close":
            return _close(server, args.lease)
        case _:
            return ""


def _close(server: TeamServer, text: str) -> str:
    lease, _, spent_text = text.rpartition("=")
    if not lease:
        form = "Use LEASE=USD with a lease of `ecoshell budget show`, such as LEASE=0.25."
        raise UsageError(f"{text!r} is not a lease with an amount.", fix=form)
    spent = parse_spent(spent_text)
    if spent.unit != "usd":
        raise UsageError(
            "The spending of a lease is in dollars.", fix="Use an amount such as 0.25, or 0."
        )
    released = server.close_lease(lease, spent.value)
    if released is None:
        raise UsageError(f"No open lease {lease}.", fix="`ecoshell budget show` lists open leases.")
    return f"{amount_text(released, 'usd')} are no longer leased."


def _cap_record(cap: Share) -> dict[str, str]:
    amounts = {"limit": cap.limit, "spent": cap.spent, "held": cap.held, "leased": cap.leased}
    usd = {f"{name}_usd": nano_to_usd_text(nano) for name, nano in amounts.items()}
    return {"scope": cap.scope, "period": cap.period, **usd}


def _lease_record(lease: OpenLease) -> dict[str, str]:
    return {
        "id": lease.id,
        "person": lease.person,
        "at": lease.at,
        "amount_usd": nano_to_usd_text(lease.nano),
    }


def _print_caps(caps: Sequence[Share]) -> None:
    if not caps:
        print("No cap is set. Set one: ecoshell budget set team:NAME month 200")
        return
    right = ("limit", "spent", "held", "leased", "left")
    cells: list[tuple[str, ...]] = []
    for cap in caps:
        remaining = max(0, cap.limit - cap.spent - cap.held - cap.leased)
        amounts = (cap.limit, cap.spent, cap.held, cap.leased, remaining)
        cells.append((cap.scope, cap.period, *(amount_text(nano, "usd") for nano in amounts)))
    print_table(("cap", "of", *right), cells, right=right)


def _set(server: TeamServer, scope: str, period: str, text: str) -> None:
    if not _SCOPE.fullmatch(scope):
        raise UsageError(f"Unknown scope {scope!r}.", fix=_SCOPE_FORMS)
    if text.strip().lower() == "off":
        server.set_cap(scope, period, None)
        return
    amount = parse_amount(text)
    if amount.unit != "usd":
        fix = "Use an amount such as 200 or $0.50."
        if amount.unit == "ms":
            fix = f"A cap in time limits one user only, who sets it with /budget or [budget]. {fix}"
        raise UsageError("A team cap is in dollars.", fix=fix)
    used = server.set_cap(scope, period, amount.value)
    if used > amount.value:
        minimum = nano_to_usd_text(used)
        raise UsageError(
            f"{scope} has already used {amount_text(used, 'usd')} this {period}, more than "
            f"{amount_text(amount.value, 'usd')}; the cap is unchanged.",
            fix=f"Use at least {minimum}, which allows no further calls.",
        )
