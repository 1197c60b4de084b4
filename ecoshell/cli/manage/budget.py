"""`ecoshell budget`: the ledger of a team for those who look after it: make it, set its caps, see what is used."""

import argparse
import re
from contextlib import closing

from ecoshell.assembly import load_settings
from ecoshell.budget import amount_text, nano_to_usd_text, parse_amount, parse_spent
from ecoshell.budget.postgres import TeamServer
from ecoshell.cli.manage.show import print_json, print_table
from ecoshell.cli.parser import add_actions
from ecoshell.errors import UsageError
from ecoshell.paths import user_paths

_SCOPE = re.compile(r"everybody|(team|person|project|model):\S.{0,199}", re.DOTALL)
_SCOPES = "Give everybody, team:NAME, person:NAME, project:NAME or model:NAME."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    action = add_actions(parser, default="show")
    action("init", "make the ledger in the database of [budget] ledger, whose owner you are")
    action("show", "the caps, what is spent, held and leased of each, and the leases")
    put = action("set", "set a cap, or remove it")
    put.add_argument("scope", metavar="SCOPE", help="everybody, team:NAME, person:NAME, project:NAME or model:NAME")
    put.add_argument("period", choices=("day", "month"), metavar="PERIOD", help="day or month")
    put.add_argument("amount", metavar="USD", help="dollars, such as 200, or off")
    add = action("add", "let a role of the database use the ledger")
    add.add_argument("person", metavar="PERSON")
    add.add_argument("--team", default="", metavar="NAME", help="the team whose caps are theirs too")
    close = action("close", "end a lease whose shell will not come back")
    close.add_argument("lease", metavar="LEASE=USD", help="the lease, and what its shell spent of it without telling")


def run(args: argparse.Namespace) -> int:
    """Do it, and print how the caps then are; raises UsageError, SettingsError and StoreError."""
    address = load_settings(user_paths()).budget.ledger
    if address is None:
        fix = "Set [budget] ledger, or ECOSHELL_LEDGER, to its address: postgresql://PERSON@HOST/DATABASE."
        raise UsageError("It is not said where the team's ledger is.", fix=fix)
    with closing(TeamServer(address)) as server:
        said = ""
        match args.action:
            case "init":
                said = "The ledger is made." if server.create() else "The ledger is there already."
            case "set":
                _set(server, args.scope, args.period, args.amount)
            case "add":
                server.add_member(args.person, args.team)
                said = f"{args.person} may use the ledger{f', in team {args.team}' if args.team else ''}."
            case "close":
                lease, _, typed = args.lease.rpartition("=")
                if not lease:
                    form = "Give the lease and what was spent, as `budget show` has it."
                    raise UsageError(f"{args.lease!r} cannot be read.", fix=form)
                took = parse_spent(typed)
                if took.unit != "usd":
                    raise UsageError("What a lease took is in dollars.", fix="Give such as 0.25, or 0.")
                held = server.close_lease(lease, took.value)
                if held is None:
                    raise UsageError(f"There is no open lease {lease}.", fix="`ecoshell budget show` lists them.")
                said = f"{amount_text(held, 'usd')} are no longer leased."
            case _:
                pass
        caps, leases = server.caps(), server.open_leases()
    if args.json:
        names = ("limit", "spent", "held", "leased")
        records: list[dict[str, str]] = []
        for cap in caps:
            usd = {f"{name}_usd": nano_to_usd_text(getattr(cap, name)) for name in names}
            records.append({"scope": cap.scope, "period": cap.period, **usd})
        open_ones = [
            {"id": one.id, "person": one.person, "at": one.at, "amount_usd": nano_to_usd_text(one.nano)}
            for one in leases
        ]
        print_json({"caps": records, "leases": open_ones})
        return 0
    if said:
        print(said)
    if not caps:
        print("No cap is set. Set one: ecoshell budget set team:NAME month 200")
    else:
        right = ("limit", "spent", "held", "leased", "left")
        cells: list[tuple[str, ...]] = []
        for cap in caps:
            left = max(0, cap.limit - cap.spent - cap.held - cap.leased)
            amounts = (cap.limit, cap.spent, cap.held, cap.leased, left)
            cells.append((cap.scope, cap.period, *(amount_text(nano, "usd") for nano in amounts)))
        print_table(("cap", "of", *right), cells, right=right)
    if leases and args.action == "show":
        print("\nLeases:")
        cells = [(one.id, one.person, one.at, amount_text(one.nano, "usd")) for one in leases]
        print_table(("lease", "person", "since", "amount"), cells, right=("amount",))
    return 0


def _set(server: TeamServer, scope: str, period: str, text: str) -> None:
    if not _SCOPE.fullmatch(scope):
        raise UsageError(f"There is no scope {scope!r}.", fix=_SCOPES)
    if text.strip().lower() == "off":
        server.set_cap(scope, period, None)
        return
    amount = parse_amount(text)
    if amount.unit != "usd":
        raise UsageError("A team's cap is in dollars.", fix="Give such as 200 or $0.50.")
    used = server.set_cap(scope, period, amount.value)
    if used > amount.value:
        least = nano_to_usd_text(used)
        raise UsageError(
            f"{scope} has used {amount_text(used, 'usd')} of this {period} already, which is more than "
            f"{amount_text(amount.value, 'usd')}; the cap stays as it was.",
            fix=f"Give at least {least}, which ends all further calls.",
        )
