"""Leases: a shell takes a slice of a team's caps and reserves from it in its own ledger; a step costs no network.

The team's ledger counts a lease as long as it is not settled or given back, and grants what it has room for; how much
that is stands in `postgres.sql`. Here a lease is one cap more, over all calls that are made from it. What a call took
is told with the next request, and when the shell ends.
"""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ecoshell.budget import (
    Account,
    Amount,
    Ask,
    CapState,
    Hold,
    Settlement,
    fitting_output,
    limit_reached,
    price_unknown,
)
from ecoshell.budget.ledger import LEASE, Entry, Ledger, alive
from ecoshell.budget.postgres import Granted, ServerAway, Share, TeamServer
from ecoshell.errors import LimitReached, StoreError
from ecoshell.messages import Usage

_SECONDS_AHEAD = 60
"""A lease is to last so long, at the pace at which the shell has spent of late."""
_CALLS_AHEAD = 3
"""And for so many calls more, like the one that it is taken for."""
_MANY = 1_000_000
"""Tokens that cost something where any do."""
_AT_ONCE = 1_000
"""Calls that are told of in one request."""
_AWAY = "Nothing was reserved and nothing was sent. What was leased before the server went away is used up."


@dataclass(slots=True)
class _Lease:
    """A lease of this process's, for the calls of one model."""

    id: str
    model: str
    requests: int = 0
    single: bool = False
    spent: int = 0
    """What the server knows to be spent of it."""
    since: float = field(default_factory=time.monotonic)
    """When the server was last asked."""
    untold: list[int] = field(default_factory=list[int])
    """Entries that the server has not been told of."""


class TeamLedger(Ledger):
    """The ledger of a user who shares caps with others: it reserves under the user's own caps, and from leases.

    Beside what a ledger raises, StoreError when a lease is needed and the server cannot be reached.
    """

    def __init__(self, path: Path, server: TeamServer, *, project: str = "", **more: Any) -> None:
        super().__init__(path, **more)
        self.server = server
        self.project = project
        self._asking = threading.RLock()
        """Held by whoever speaks for the leases; reserving from one needs no lock."""
        self._leases: dict[str, _Lease] = {}
        self._past: list[_Lease] = []
        """Leases of an earlier day, some of whose calls have not ended."""
        self._shares: dict[tuple[str, str], Share] | None = None
        """The team's caps as they stood with the last request."""

    def hold(self, ask: Ask) -> Hold:
        return self._reserved(ask, super().hold)

    def set_aside(self, ask: Ask) -> Hold:
        return self._reserved(ask, super().set_aside, self.aside_nano)

    def exchange(self, old: Hold, ask: Ask) -> Hold:
        place, lease = partial(super().exchange, old), self._leases.get(ask.account.model)
        if lease is not None and lease.id == old.account.lease:
            return self._reserved(ask, place, lambda _: old.nano or 0)
        if not old.account.lease and _free(ask):
            return place(ask)
        if old.account.model == ask.account.model:
            with suppress(LimitReached):  # in a lease that is over, it still fits when it is no larger
                return place(_within(ask, old.account.lease))
        hold = self.hold(ask)
        self.release(old)
        return hold

    def settle(
        self,
        hold: Hold,
        usage: Usage | None,
        tool: str = "",
        *,
        seconds: float | None = None,
        estimate: Usage | None = None,
    ) -> Settlement:
        settlement = super().settle(hold, usage, tool, seconds=seconds, estimate=estimate)
        lease = self._leases.get(hold.account.model)
        self._ended(hold.account.lease, hold.entry)
        if settlement.overran and lease is not None and lease.id == hold.account.lease:
            self._grow(lease, 0, 0)  # so that others do not spend what is no longer there
        return settlement

    def release(self, hold: Hold) -> None:
        super().release(hold)
        self._ended(hold.account.lease)

    def charge_tool(self, account: Account, tool: str, nano: int) -> int:
        account = replace(account, model="")
        place = super().charge_tool
        if not nano:
            return place(account, tool, nano)
        while True:
            lease = self._lease_of("")
            try:
                entry = place(replace(account, lease=lease.id), tool, nano)
            except LimitReached as hit:
                if hit.scope != LEASE:
                    raise
                self._refuse(lease, self._grow(lease, nano, nano), nano)
                continue
            self._ended(lease.id, entry)
            return entry

    def reconcile(self, entry: int, actual: Amount | Usage) -> Settlement:
        settlement = super().reconcile(entry, actual)
        kept = self.entry(entry)
        if kept.lease:
            try:
                granted = self.server.settle(kept.lease, None, [_told(kept, reconciled=True)])
            except StoreError as failure:
                failure.kept = "It is changed in your own ledger; say it once more, so that the team's follows."
                raise
            if (lease := self._open_lease(kept.lease)) is not None:
                self._heard(lease, granted)
        return settlement

    def reconcile_leases(self) -> int:
        """End the leases of this user's shells that died: what their calls took, or held, counts as spent; the rest is
        free again. Gives how many there were.
        """
        died: list[str] = []
        for lease in self.leases():
            host, pid, _ = lease.rsplit(":", 2)
            if host == socket.gethostname()[:60] and not alive(int(pid)):  # of another machine's that is not known
                died.append(lease)
        for lease in died:
            cap, entries = self.lease_cap(lease, lower=True), self.entries_of(lease)
            for first in range(0, len(entries), _AT_ONCE):
                self.server.settle(lease, None, [_told(entry) for entry in entries[first : first + _AT_ONCE]])
            self.server.settle(lease, None, [], cap.limit, close=True)
            self.set_lease(lease, None)
        return len(died)

    def take_over(self) -> int:
        """Tell the team's ledger of calls that were made without it; gives how many it did not know yet."""
        entries = [entry for entry in self.entries_of("") if entry.usage is not None]
        calls = [
            {**_told(entry), "entry": f"{entry.session}/{entry.turn}/{entry.id}/{entry.at}", "day": entry.day}
            | {"model": entry.model}
            for entry in entries
        ]
        batches = (calls[first : first + _AT_ONCE] for first in range(0, len(calls), _AT_ONCE))
        return sum(self.server.take_over(self.project, batch) for batch in batches)

    def close(self) -> None:
        """Give back what is left of the leases, as far as the server can be reached, and close the file."""
        with self._asking, suppress(StoreError):
            for lease in (*self._leases.values(), *self._past):
                self._give_back(lease, close=True)
        self.server.close()
        super().close()

    def _reserved(self, ask: Ask, place: Callable[[Ask], Hold], freed: Callable[[Account], int] = lambda _: 0) -> Hold:
        """A reservation from a lease, which is taken or grows where it has to; `freed` is what the new one replaces."""
        if ask.price is None:  # a call that nobody can price, where no cap of the team's stands
            for share in self.server.shares(self.project, ask.account.model):
                raise price_unknown(ask.account.model, _state(share))
            return place(ask)
        lease = self._leases.get(ask.account.model)
        if lease is None:
            if _free(ask):
                return place(ask)
            lease = self._lease_of(ask.account.model)
        try:  # as a rule there is room for the whole call
            return place(_within(ask, lease.id, ask.max_tokens))
        except LimitReached:
            pass
        with self._asking:
            while True:
                lease = self._lease_of(ask.account.model)
                here = _within(ask, lease.id)
                free = freed(here.account)
                output = ask.max_tokens
                try:
                    output = fitting_output(here, self.own_caps(ask.account.session, ask.account.turn))
                except LimitReached:
                    if not free:
                        raise
                least = ask.price.worst(ask.prompt_tokens, min(ask.floor, output))
                whole = ask.price.worst(ask.prompt_tokens, output)
                refused = self._grow(lease, least - free, whole - free)
                if refused is None:
                    continue
                try:
                    return place(here)
                except LimitReached as hit:
                    if hit.scope != LEASE:
                        raise
                    self._refuse(lease, refused, least, free)

    def _lease_of(self, model: str) -> _Lease:
        """The lease of this model's calls; a new one was granted nothing yet."""
        if (lease := self._leases.get(model)) is None:
            with self._asking:
                if (lease := self._leases.get(model)) is None:
                    lease = _Lease(f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(12)}", model)
                    self.set_lease(lease.id, 0)
                    self._leases[model] = lease
        return lease

    def _grow(self, lease: _Lease, least: int, whole: int) -> StoreError | bool | None:
        """Have room in a lease for `whole`, or for `least`.

        Gives whether that is refused, or why nobody can be asked; None when the lease is over and another is needed.
        """
        with self._asking:
            cap = self.lease_cap(lease.id)
            used = cap.spent + cap.held
            if used + whole <= cap.limit:
                return False
            pace = (cap.spent - lease.spent) * _SECONDS_AHEAD // max(1, int(time.monotonic() - lease.since))
            amounts = (used + least, used + whole, used + whole + max(pace, _CALLS_AHEAD * whole))
            try:
                granted = self._request(lease, amounts)
            except ServerAway as away:
                away.kept = _AWAY
                return away
            if granted.over:
                self._past.append(self._leases.pop(lease.model))
                self._give_back(lease, close=True)
                return None
            self.set_lease(lease.id, granted.granted)
            refused = granted.granted < used + least
            others = [one for one in self._leases.values() if one is not lease and self.lease_cap(one.id).left]
            if granted.granted >= used + whole or not others:
                return refused
            try:
                for one in others:  # what this process has for other models is not idle where it is needed
                    self._give_back(one)
            except ServerAway as away:
                away.kept = _AWAY
                return away if refused else False  # what was granted is enough for the call, cut short
            return self._grow(lease, least, whole)

    def _request(
        self,
        lease: _Lease,
        amounts: tuple[int, int, int] | None = None,
        *,
        keep: int | None = None,
        close: bool = False,
    ) -> Granted:
        """Ask the server for these amounts in a lease, or give back what is beyond `keep`; it is told of calls, too."""
        ids = lease.untold[:_AT_ONCE]
        calls = [_told(entry) for entry in self.entries_of(lease.id, ids)] if ids else []
        lease.requests += 1
        if amounts is None:
            granted = self.server.settle(lease.id, lease.requests, calls, keep, close=close)
        else:
            granted = self.server.lease(lease.id, lease.requests, (self.project, lease.model), amounts, calls)
        del lease.untold[: len(ids)]
        lease.since = time.monotonic()
        self._heard(lease, granted)
        return granted

    def _heard(self, lease: _Lease, granted: Granted) -> None:
        """Know what the server said of a lease and of the caps over it."""
        lease.single, lease.spent = granted.single, granted.spent
        self._know(granted.shares, lease.model)

    def _know(self, shares: Iterable[Share], model: str = "") -> None:
        """Know the caps over calls of a model as the server has them now; those of other models stay."""
        others = {f"model:{lease.model}" for lease in [*self._leases.values()]} - {f"model:{model}"}
        kept = [share for share in (self._shares or {}).values() if share.scope in others]
        self._shares, self.away = {(share.scope, share.period): share for share in (*kept, *shares)}, None

    def _open_lease(self, lease_id: str) -> _Lease | None:
        """A lease of this process's that has not ended."""
        return next((one for one in (*self._leases.values(), *self._past) if one.id == lease_id), None)

    def _give_back(self, lease: _Lease, *, close: bool = False) -> None:
        """Tell the server of all calls, and give back what is neither spent nor held."""
        cap = self.lease_cap(lease.id, lower=True)
        if lease.untold and not lease.requests:  # calls that no room was needed for, and that took some
            self._request(lease, (cap.limit, cap.limit, cap.limit))
        if lease.requests:
            while len(lease.untold) > _AT_ONCE:
                self._request(lease)
            self._request(lease, keep=cap.limit, close=close and not cap.held)
        if close and not cap.held:
            self.set_lease(lease.id, None)

    def _ended(self, lease_id: str, entry: int | None = None) -> None:
        """A call is over: the server is told with the next request, and at once where it waits for what is left."""
        lease = self._open_lease(lease_id)
        if lease is None:
            return
        if entry is not None:
            lease.untold.append(entry)
        if lease.single or lease in self._past:
            with self._asking, suppress(StoreError):  # else with the next request
                self._give_back(lease, close=lease in self._past)

    def _capped(self, caps: tuple[CapState, ...]) -> bool:
        return bool(self._shares) or any(cap.scope != LEASE for cap in caps)

    def shared_caps(self) -> tuple[CapState, ...]:
        """The team's caps, as if what is free in this process's leases were free."""
        if self._shares is None:
            self._shares = {}
            try:
                self._know(self.server.shares(self.project))
            except StoreError as failure:  # then as soon as the server is asked for a lease
                self.away = failure
        own = [(lease, self.lease_cap(lease.id)) for lease in [*self._leases.values()]]
        models = {f"model:{lease.model}" for lease, _ in own}
        states: list[CapState] = []
        for share in [*self._shares.values()]:
            mine = [(lease, cap) for lease, cap in own if share.scope not in models - {f"model:{lease.model}"}]
            untold = sum(cap.spent - lease.spent for lease, cap in mine)
            free = sum(cap.limit - cap.spent - cap.held for _, cap in mine)
            states.append(_state(share, spent=untold, held=-untold - free))
        return tuple(states)

    def ask_anew(self) -> None:
        with suppress(StoreError):  # then they are as they were
            self._know(self.server.shares(self.project))

    def _refuse(self, lease: _Lease, refused: StoreError | bool | None, need: int, freed: int = 0) -> None:
        """Raise why a lease did not grow: the server is away, or the tightest of the caps over it, `freed` added."""
        if isinstance(refused, StoreError):
            raise refused from None
        if refused:
            cap = min((cap for cap in self.shared_caps() if cap.over(lease.model)), key=lambda cap: cap.left)
            raise limit_reached(replace(cap, held=cap.held - freed), need) from None


def _free(ask: Ask) -> bool:
    """Whether nothing can come of a call that caps in dollars count."""
    return ask.price is None or not ask.price.worst(ask.prompt_tokens + _MANY, ask.max_tokens + _MANY)


def _within(ask: Ask, lease: str, least: int | None = None) -> Ask:
    """The call as one of a lease, of use with `least` output tokens; made anew with each, so by hand."""
    of = ask.account
    account = Account(of.session, of.turn, of.role, of.model, of.purpose, lease)
    return Ask(ask.price, ask.prompt_tokens, ask.max_tokens, account, ask.min_tokens if least is None else least)


def _state(share: Share, *, spent: int = 0, held: int = 0) -> CapState:
    used = share.held + share.leased + held
    own = None if share.own is None else share.own + spent
    return CapState(f"{share.scope} {share.period}", "usd", share.limit, share.spent + spent, max(0, used), own)


def _told(entry: Entry, *, reconciled: bool = False) -> dict[str, Any]:
    """What the server is told of a call; one that nobody knows the end of counts as what was held."""
    usage = entry.usage or entry.held_usage
    return {
        "entry": entry.id,
        "role": entry.role,
        "reconciled": reconciled,
        "spent": entry.spent_nano if entry.usage else entry.held_nano,
        "calls": int(entry.purpose != "tool"),
        "input": usage.input,
        "cached": usage.cached,
        "cache_write": usage.cache_write,
        "output": usage.output,
        "reasoning": usage.reasoning,
    }
