"""Leases: a shell leases a part of a team's caps and reserves from it locally, so that a step needs no network.

The server counts a lease until it is settled or returned, and grants what it has room for (see `schema.sql`). Locally
a lease is an additional cap over the calls made from it. Settlements are reported with the next request and at exit.
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
    SLICE_MS,
    Account,
    Amount,
    Ask,
    CapState,
    Hold,
    Settlement,
    ToolHold,
    limit_reached,
    price_unknown,
    reserved_output,
)
from ecoshell.budget.costs import CostRow
from ecoshell.budget.entries import LEASE, Entry, alive
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import LimitReached, StoreError
from ecoshell.messages import Usage
from ecoshell_team.server import Granted, ServerAway, Share, TeamServer

_SECONDS_AHEAD = 60
"""Intended duration of a lease at the recent rate of spending."""
_CALLS_AHEAD = 3
"""Number of further calls of the same size that a lease covers."""
_MANY_TOKENS = 1_000_000
"""A token count with a price above zero unless the model is free."""
_BATCH_SIZE = 1_000
"""Maximum number of calls in one report to the server."""
_AWAY = "Nothing was reserved and nothing was sent. The amount leased before the server went away is used up."


@dataclass(slots=True)
class _Lease:
    """A lease of this process for the calls of one model."""

    id: str
    model: str
    requests: int = 0
    single: bool = False
    spent: int = 0
    """The amount reported to the server as spent."""
    since: float = field(default_factory=time.monotonic)
    """Time of the last request to the server."""
    unreported: list[int] = field(default_factory=list[int])
    """Settled entries that were not reported to the server."""


class TeamLedger(Ledger):
    """A ledger that reserves under the user's own caps and from leases of shared caps.

    Also raises StoreError if a lease is needed and the server cannot be reached.
    """

    def __init__(self, path: Path, server: TeamServer, *, project: str = "", **more: Any) -> None:
        super().__init__(path, **more)
        self.server = server
        self.project = project
        self._lock_leases = threading.RLock()
        """Held during requests for leases; reserving from a lease needs no lock."""
        self._leases: dict[str, _Lease] = {}
        self._closing: list[_Lease] = []
        """Leases of an earlier day with running calls."""
        self._shares: dict[tuple[str, str], Share] | None = None
        """The shared caps as of the last request."""

    def hold(self, ask: Ask) -> Hold:
        return self._reserved(ask, super().hold)

    def set_aside(self, ask: Ask) -> Hold:
        return self._reserved(ask, super().set_aside, self.aside_nano)

    def exchange(self, old: Hold, ask: Ask) -> Hold:
        place, lease = partial(super().exchange, old), self._leases.get(ask.account.model)
        if lease is not None and lease.id == old.account.lease:
            return self._reserved(ask, place, lambda _: old.nano or 0)
        if not old.account.lease and _is_free(ask):
            return place(ask)
        if old.account.model == ask.account.model:
            with suppress(LimitReached):  # It fits into an ended lease if it is not larger.
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
        ms: int | None = None,
        estimate: Usage | None = None,
    ) -> Settlement:
        settlement = super().settle(hold, usage, tool, ms=ms, estimate=estimate)
        lease = self._leases.get(hold.account.model)
        self._end_call(hold.account.lease, hold.entry)
        if settlement.overran and lease is not None and lease.id == hold.account.lease:
            self._grow(lease, 0, 0)  # Report the overrun before other users spend the same amount.
        return settlement

    def release(self, hold: Hold, ms: int | None = None) -> None:
        super().release(hold, ms)
        self._end_call(hold.account.lease)

    def start_tool(
        self, account: Account, tool: str, nano: int, wanted_ms: int = SLICE_MS
    ) -> ToolHold:
        account = replace(account, model="")
        place = super().start_tool
        if not nano:
            return place(account, tool, nano, wanted_ms)
        while True:
            lease = self._lease_of("")
            try:
                hold = place(replace(account, lease=lease.id), tool, nano, wanted_ms)
            except LimitReached as hit:
                if hit.scope != LEASE:
                    raise
                self._refuse(lease, self._grow(lease, nano, nano), nano)
                continue
            self._end_call(lease.id, hold.entry)
            return hold

    def reconcile(self, entry: int, actual: Amount | Usage) -> Settlement:
        settlement = super().reconcile(entry, actual)
        stored = self.entry(entry)
        if stored.lease:
            try:
                granted = self.server.settle(stored.lease, None, [_report(stored, reconciled=True)])
            except StoreError as failure:
                failure.kept = (
                    "Your own ledger is updated; repeat the command to update the team ledger."
                )
                raise
            if (lease := self._find_lease(stored.lease)) is not None:
                self._update(lease, granted)
        return settlement

    def shared_costs(self, by: str) -> tuple[CostRow, ...]:
        return self.server.costs(by)

    def end_dead_leases(self) -> int:
        """End the leases of dead processes: what their calls spent or held counts as spent, the rest is released."""
        dead: list[str] = []
        for lease in self.leases():
            host, pid, _ = lease.rsplit(":", 2)
            if host == socket.gethostname()[:60] and not alive(
                int(pid)
            ):  # Other machines' processes are unknown.
                dead.append(lease)
        for lease in dead:
            cap, entries = self.lease_cap(lease, lower=True), self.entries_of(lease)
            for first in range(0, len(entries), _BATCH_SIZE):
                self.server.settle(
                    lease, None, [_report(entry) for entry in entries[first : first + _BATCH_SIZE]]
                )
            self.server.settle(lease, None, [], cap.limit, close=True)
            self.set_lease(lease, None)
        return len(dead)

    def import_calls(self) -> int:
        sent = (entry for entry in self.entries_of("") if entry.usage is not None)
        entries = [entry for entry in sent if entry.purpose != "tool" or entry.spent_nano]
        calls = [
            {
                **_report(entry),
                "entry": f"{entry.session}/{entry.turn}/{entry.id}/{entry.at}",
                "day": entry.day,
            }
            | {"model": entry.model}
            for entry in entries
        ]
        batches = (
            calls[first : first + _BATCH_SIZE] for first in range(0, len(calls), _BATCH_SIZE)
        )
        return sum(self.server.import_calls(self.project, batch) for batch in batches)

    def close(self) -> None:
        """Return the rest of the leases if the server can be reached, and close the file."""
        with self._lock_leases, suppress(StoreError):
            for lease in (*self._leases.values(), *self._closing):
                self._give_back(lease, close=True)
        self.server.close()
        super().close()

    def _reserved(
        self, ask: Ask, place: Callable[[Ask], Hold], freed: Callable[[Account], int] = lambda _: 0
    ) -> Hold:
        """Reserve from a lease, which is requested or extended as needed; `freed` is the amount being replaced."""
        if ask.price is None:  # Allowed only if no shared cap applies.
            for share in self.server.shares(self.project, ask.account.model):
                raise price_unknown(ask.account.model, _cap_state(share))
            return place(ask)
        lease = self._leases.get(ask.account.model)
        if lease is None:
            if _is_free(ask):
                return place(ask)
            lease = self._lease_of(ask.account.model)
        try:  # Usually the lease has room for the whole call.
            return place(_within(ask, lease.id, ask.usual_tokens))
        except LimitReached:
            pass
        with self._lock_leases:
            while True:
                lease = self._lease_of(ask.account.model)
                leased = _within(ask, lease.id)
                free = freed(leased.account)
                output = ask.max_tokens
                try:
                    account = ask.account
                    caps = self.own_caps(account.session, account.turn, task=account.task)
                    output = reserved_output(leased, caps)
                except LimitReached:
                    if not free:
                        raise
                minimum = ask.price.worst(ask.prompt_tokens, min(ask.floor, output))
                maximum = ask.price.worst(ask.prompt_tokens, output)
                refused = self._grow(lease, minimum - free, maximum - free)
                if refused is None:
                    continue
                try:
                    return place(leased)
                except LimitReached as hit:
                    if hit.scope != LEASE:
                        raise
                    self._refuse(lease, refused, minimum, free)

    def _lease_of(self, model: str) -> _Lease:
        """Return the lease of this model's calls; a new one has no grant yet."""
        if (lease := self._leases.get(model)) is None:
            with self._lock_leases:
                if (lease := self._leases.get(model)) is None:
                    lease = _Lease(
                        f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(12)}", model
                    )
                    self.set_lease(lease.id, 0)
                    self._leases[model] = lease
        return lease

    def _grow(self, lease: _Lease, minimum: int, maximum: int) -> StoreError | bool | None:
        """Extend a lease to have room for `maximum`, or at least for `minimum`.

        Returns whether the minimum is refused, or the error if the server is away; None if the lease ended and a new
        one is needed.
        """
        with self._lock_leases:
            cap = self.lease_cap(lease.id)
            used = cap.spent + cap.held
            if used + maximum <= cap.limit:
                return False
            pace = (
                (cap.spent - lease.spent)
                * _SECONDS_AHEAD
                // max(1, int(time.monotonic() - lease.since))
            )
            amounts = (
                used + minimum,
                used + maximum,
                used + maximum + max(pace, _CALLS_AHEAD * maximum),
            )
            try:
                granted = self._request(lease, amounts)
            except ServerAway as away:
                away.kept = _AWAY
                return away
            if granted.over:
                self._closing.append(self._leases.pop(lease.model))
                self._give_back(lease, close=True)
                return None
            self.set_lease(lease.id, granted.granted)
            refused = granted.granted < used + minimum
            idle = [
                other
                for other in self._leases.values()
                if other is not lease and self.lease_cap(other.id).left
            ]
            if granted.granted >= used + maximum or not idle:
                return refused
            try:
                for other in idle:  # Return what this process holds unused for other models.
                    self._give_back(other)
            except ServerAway as away:
                away.kept = _AWAY
                return away if refused else False  # The grant suffices for a clamped call.
            return self._grow(lease, minimum, maximum)

    def _request(
        self,
        lease: _Lease,
        amounts: tuple[int, int, int] | None = None,
        *,
        keep: int | None = None,
        close: bool = False,
    ) -> Granted:
        """Request these amounts, or return what exceeds `keep`; also reports settled calls."""
        ids = lease.unreported[:_BATCH_SIZE]
        calls = [_report(entry) for entry in self.entries_of(lease.id, ids)] if ids else []
        lease.requests += 1
        if amounts is None:
            granted = self.server.settle(lease.id, lease.requests, calls, keep, close=close)
        else:
            granted = self.server.lease(
                lease.id, lease.requests, (self.project, lease.model), amounts, calls
            )
        del lease.unreported[: len(ids)]
        lease.since = time.monotonic()
        self._update(lease, granted)
        return granted

    def _update(self, lease: _Lease, granted: Granted) -> None:
        """Apply the server's reply to a lease and the caps over it."""
        lease.single, lease.spent = granted.single, granted.spent
        self._update_shares(granted.shares, lease.model)

    def _update_shares(self, shares: Iterable[Share], model: str = "") -> None:
        """Replace the caps over calls of a model; caps of other leased models stay."""
        other_scopes = {f"model:{lease.model}" for lease in [*self._leases.values()]} - {
            f"model:{model}"
        }
        unchanged = [
            share for share in (self._shares or {}).values() if share.scope in other_scopes
        ]
        self._shares = {(share.scope, share.period): share for share in (*unchanged, *shares)}
        self.away = None

    def _find_lease(self, lease_id: str) -> _Lease | None:
        """Return an open lease of this process."""
        return next(
            (lease for lease in (*self._leases.values(), *self._closing) if lease.id == lease_id),
            None,
        )

    def _give_back(self, lease: _Lease, *, close: bool = False) -> None:
        """Report all calls, and return what is neither spent nor held."""
        cap = self.lease_cap(lease.id, lower=True)
        if (
            lease.unreported and not lease.requests
        ):  # calls that needed no room and still cost something
            self._request(lease, (cap.limit, cap.limit, cap.limit))
        if lease.requests:
            while len(lease.unreported) > _BATCH_SIZE:
                self._request(lease)
            self._request(lease, keep=cap.limit, close=close and not cap.held)
        if close and not cap.held:
            self.set_lease(lease.id, None)

    def _end_call(self, lease_id: str, entry: int | None = None) -> None:
        """Queue the report of a settled call; send it at once if the server needs the remainder."""
        lease = self._find_lease(lease_id)
        if lease is None:
            return
        if entry is not None:
            lease.unreported.append(entry)
        if lease.single or lease in self._closing:
            with (
                self._lock_leases,
                suppress(StoreError),
            ):  # reported with the next request on failure
                self._give_back(lease, close=lease in self._closing)

    def _capped(self, caps: tuple[CapState, ...]) -> bool:
        return bool(self._shares) or any(cap.scope != LEASE for cap in caps)

    def shared_caps(self) -> tuple[CapState, ...]:
        """Return the shared caps; the unused part of this process's leases counts as available."""
        if self._shares is None:
            self._shares = {}
            try:
                self._update_shares(self.server.shares(self.project))
            except StoreError as failure:  # The next lease request tries again.
                self.away = failure
        own = [(lease, self.lease_cap(lease.id)) for lease in [*self._leases.values()]]
        models = {f"model:{lease.model}" for lease, _ in own}
        states: list[CapState] = []
        for share in [*self._shares.values()]:
            counted = [
                (lease, cap)
                for lease, cap in own
                if share.scope not in models - {f"model:{lease.model}"}
            ]
            unreported = sum(cap.spent - lease.spent for lease, cap in counted)
            free = sum(cap.limit - cap.spent - cap.held for _, cap in counted)
            states.append(_cap_state(share, spent=unreported, held=-unreported - free))
        return tuple(states)

    def refresh_shared_caps(self) -> None:
        with suppress(StoreError):  # The previous values stay.
            self._update_shares(self.server.shares(self.project))

    def _refuse(
        self, lease: _Lease, refused: StoreError | bool | None, need: int, freed: int = 0
    ) -> None:
        """Raise the reason why a lease was not extended: the server is away, or the tightest cap over it."""
        if isinstance(refused, StoreError):
            raise refused from None
        if refused:
            cap = min(
                (cap for cap in self.shared_caps() if cap.over(lease.model)),
                key=lambda cap: cap.left,
            )
            raise limit_reached(replace(cap, held=cap.held - freed), need) from None


def _is_free(ask: Ask) -> bool:
    """Return whether a call counts nothing under dollar caps."""
    return ask.price is None or not ask.price.worst(
        ask.prompt_tokens + _MANY_TOKENS, ask.max_tokens + _MANY_TOKENS
    )


def _within(ask: Ask, lease: str, minimum: int | None = None) -> Ask:
    """Return the call with its lease and, if given, another minimum output; faster than `replace`."""
    old = ask.account
    account = Account(old.session, old.turn, old.role, old.model, old.purpose, lease, old.task)
    min_tokens = ask.min_tokens if minimum is None else minimum
    return Ask(ask.price, ask.prompt_tokens, ask.max_tokens, account, min_tokens, ask.repeatable)


def _cap_state(share: Share, *, spent: int = 0, held: int = 0) -> CapState:
    used = share.held + share.leased + held
    own = None if share.own is None else share.own + spent
    return CapState(
        f"{share.scope} {share.period}", "usd", share.limit, share.spent + spent, max(0, used), own
    )


def _report(entry: Entry, *, reconciled: bool = False) -> dict[str, Any]:
    """Return the report of a call; an unsettled call counts with its reservation."""
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
