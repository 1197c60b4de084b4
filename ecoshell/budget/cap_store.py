"""The caps in the ledger's file: reading and setting them, and the models that are barred under them."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ecoshell.budget import SCOPES, TASK, Account, Amount, CapState, Scope
from ecoshell.budget.costs import Costs
from ecoshell.budget.entries import LEASE, cap_state, caps_over, scope_keys
from ecoshell.budget.schema import SCHEMA, UPGRADES, VERSION
from ecoshell.errors import ModelDisabled, StoreError, UsageError

_UNCHANGED = "Nothing was changed."
_SET_CAP = "INSERT OR REPLACE INTO caps (scope, owner, unit, amount) VALUES (?, ?, ?, ?)"
_FROM_SETTINGS = "(settings)"
"""Owner of the rows that record the caps last read from the settings; they limit nothing."""


class CapStore(Costs):
    """The caps of the user, of sessions and turns, of subagents' tasks and of leases, and what counts under them."""

    away: StoreError | None = None
    """Why the shared caps are unknown; None if they are known or do not exist."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], datetime] = datetime.now,
        busy_seconds: float = 10.0,
    ) -> None:
        super().__init__(
            path, schema=SCHEMA, version=VERSION, upgrades=UPGRADES, busy_seconds=busy_seconds
        )
        self._clock = clock
        self._turn_limits: dict[tuple[str, int], tuple[Amount, ...]] = {}
        """Caps of single running turns by session and turn. Only this process spends in them, and they end with it."""

    def caps(
        self, session: str, turn: int, *, task: str = "", at_rest: bool = False
    ) -> tuple[CapState, ...]:
        """Return the user's own and the shared caps over a session's turn, or over a subagent's task in it.

        With `at_rest`, reservations of the turn's or task's running calls in this process are not counted.
        """
        shared = self.shared_caps()
        with self.reading() as db:
            account = Account(session, turn, "", "", "", task=task)
            caps = (*self._caps_over(db, account, self._today()), *shared)
            if not at_rest:
                return caps
            own = db.execute(
                """SELECT COALESCE(SUM(CASE state WHEN 'held' THEN held_nano END), 0) AS usd,
                COALESCE(SUM(CASE state WHEN 'held' THEN held_input + held_output END), 0) AS tokens,
                COALESCE(SUM(held_ms), 0) AS ms
                FROM entries WHERE state != 'aside' AND session = :session AND turn = :turn AND pid = :pid
                AND (:task = '' OR task || '/' GLOB :task || '/*')""",
                {"session": session, "turn": turn, "pid": os.getpid(), "task": task},
            ).fetchone()
        return tuple(replace(cap, held=max(0, cap.held - own[cap.unit])) for cap in caps)

    def own_caps(self, session: str, turn: int, *, task: str = "") -> tuple[CapState, ...]:
        """Return the caps that only this user spends under."""
        return self.caps_of_tasks(session, turn, [task])[0]

    def caps_of_tasks(
        self, session: str, turn: int, tasks: Iterable[str]
    ) -> tuple[tuple[CapState, ...], ...]:
        """Return the user's own caps over each of these tasks, all as of one moment."""
        accounts = [Account(session, turn, "", "", "", task=task) for task in tasks]
        with self.reading() as db:
            today = self._today()
            return tuple(self._caps_over(db, account, today) for account in accounts)

    def state_under(self, session: str, turn: int, scope: Scope, amount: Amount) -> CapState:
        """Return the state of a cap as if it were set now."""
        key = dict(scope_keys(session, turn, self._today(), "", ""))[scope]
        with self.reading() as db:
            return cap_state(db, scope, key, amount)

    def shared_caps(self) -> tuple[CapState, ...]:
        """Return the caps shared with other users; none in a local ledger."""
        return ()

    def refresh_shared_caps(self) -> None:
        """Read the shared caps again, which may have been raised since the last request."""

    def set_cap(self, session: str, scope: Scope, amount: Amount | None) -> None:
        """Set or remove (None) a cap; day and month caps belong to the user, turn and session caps to the session."""
        if scope not in SCOPES:
            if " " in scope:  # the period
                fix = f"An administrator can set it: ecoshell budget set {scope} AMOUNT."
                raise UsageError(f"{scope} is a team's cap.", fix=fix)
            raise UsageError(f"Unknown cap {scope!r:.80}.", fix=f"Available: {', '.join(SCOPES)}.")
        owner = session if scope in ("turn", "session") else ""
        with self.writing(_UNCHANGED) as db:
            if amount is None:
                db.execute("DELETE FROM caps WHERE scope = ? AND owner = ?", (scope, owner))
            else:
                db.execute(_SET_CAP, (scope, owner, amount.unit, amount.value))

    def limit_turn(self, session: str, turn: int, amounts: Sequence[Amount]) -> None:
        """Cap one turn, in addition to the caps of its session; no amounts end it.

        It is kept in memory, so that it ends with the process that runs the turn, also if that is killed.
        """
        if amounts:
            self._turn_limits[session, turn] = tuple(amounts)
        else:
            self._turn_limits.pop((session, turn), None)

    def turn_limits(self, session: str, turn: int) -> tuple[Amount, ...]:
        """Return the caps of one turn that `limit_turn` set."""
        return self._turn_limits.get((session, turn), ())

    def adopt_cap(self, scope: Scope, amount: Amount | None) -> None:
        """Adopt a day or month cap from the settings if it has changed there.

        A cap set in a chat applies until the settings change.
        """
        configured = None if amount is None else (amount.unit, amount.value)
        with self.writing(_UNCHANGED) as db:
            query = "SELECT unit, amount FROM caps WHERE scope = ? AND owner = ?"
            row = db.execute(query, (scope, _FROM_SETTINGS)).fetchone()
            previous: tuple[str, int] | None = None if row is None else (row["unit"], row["amount"])
            if previous == configured:
                return
            db.execute("DELETE FROM caps WHERE scope = ? AND owner = ?", (scope, _FROM_SETTINGS))
            if configured is not None:
                db.execute("DELETE FROM caps WHERE scope = ? AND owner = ''", (scope,))
                for owner in (_FROM_SETTINGS, ""):
                    db.execute(_SET_CAP, (scope, owner, *configured))
            elif previous is not None:  # removed from the settings: keep a cap set in a chat
                db.execute(
                    "DELETE FROM caps WHERE scope = ? AND owner = '' AND unit = ? AND amount = ?",
                    (scope, *previous),
                )

    def bar(self, model: str, reason: str) -> None:
        """Refuse calls of the model under any cap."""
        with self.writing(_UNCHANGED) as db:
            self._bar(db, model, reason)

    def unbar(self, model: str) -> None:
        """Allow the model again."""
        with self.writing(_UNCHANGED) as db:
            db.execute("DELETE FROM barred WHERE model = ?", (model,))

    def barred(self) -> dict[str, str]:
        """Return the reason by barred model."""
        with self.reading() as db:
            rows = db.execute("SELECT model, reason FROM barred ORDER BY at")
            return {row["model"]: row["reason"] for row in rows}

    def set_share(self, task: str, amounts: Iterable[Amount]) -> None:
        """Cap a subagent's task; the caps over its session apply as well."""
        rows = [(TASK, task, amount.unit, amount.value) for amount in amounts]
        with self.writing(_UNCHANGED) as db:
            db.executemany(_SET_CAP, rows)

    def end_share(self, task: str) -> None:
        """Lower the caps of a task to their use, so that nothing more can be reserved under them."""
        with self.writing(_UNCHANGED) as db:
            db.execute(
                """UPDATE caps SET amount = MIN(amount, COALESCE((SELECT CASE caps.unit
                    WHEN 'usd' THEN spent_nano + held_nano WHEN 'tokens' THEN spent_tokens + held_tokens
                    ELSE spent_ms + held_ms END FROM totals WHERE scope = 'task' AND key = caps.owner), 0))
                WHERE scope = 'task' AND owner = ?""",
                (task,),
            )

    def set_lease(self, lease: str, nano: int | None) -> None:
        """Set the cap of a lease to its total grant; None ends it."""
        with self.writing(_UNCHANGED) as db:
            if nano is None:
                db.execute("DELETE FROM caps WHERE scope = 'lease' AND owner = ?", (lease,))
            else:
                db.execute(_SET_CAP, (LEASE, lease, "usd", nano))

    def lease_cap(self, lease: str, *, lower: bool = False) -> CapState:
        """Return the grant of a lease, 0 for an unknown one, and its use.

        `lower` reduces the grant to its use, so that nothing more can be reserved from it.
        """
        with self.writing(_UNCHANGED) if lower else self.reading() as db:
            row = db.execute(
                """SELECT COALESCE((SELECT amount FROM caps WHERE scope = 'lease' AND owner = :lease), 0),
                COALESCE(SUM(spent_nano), 0), COALESCE(SUM(held_nano), 0)
                FROM totals WHERE scope = 'lease' AND key = :lease""",
                {"lease": lease},
            ).fetchone()
            cap = CapState(LEASE, "usd", *row)
            if lower:
                cap = replace(cap, limit=min(cap.limit, cap.spent + cap.held))
                db.execute(
                    "UPDATE caps SET amount = ? WHERE scope = 'lease' AND owner = ?",
                    (cap.limit, lease),
                )
            return cap

    def leases(self) -> tuple[str, ...]:
        """Return the open leases of all processes."""
        with self.reading() as db:
            rows = db.execute("SELECT owner FROM caps WHERE scope = 'lease'")
            return tuple(row["owner"] for row in rows)

    def _today(self) -> str:
        return self._clock().date().isoformat()

    def _caps_for(self, db: sqlite3.Connection, account: Account, day: str) -> tuple[CapState, ...]:
        """Return the caps over this account; raises ModelDisabled if there are any and the model is barred."""
        caps = self._caps_over(db, account, day)
        if not self._capped(caps):
            return caps
        query = "SELECT reason FROM barred WHERE model = ?"
        row = db.execute(query, (account.model,)).fetchone()
        if row is not None:
            raise ModelDisabled(
                f"{account.model} is no longer allowed under a cap: {row['reason']}.",
                fix=f"Choose another model, or allow this one again: ecoshell models --unbar {account.model}",
            )
        return caps

    def _caps_over(
        self, db: sqlite3.Connection, account: Account, day: str
    ) -> tuple[CapState, ...]:
        limits = self.turn_limits(account.session, account.turn)
        return caps_over(db, account, day, limits)

    def _capped(self, caps: tuple[CapState, ...]) -> bool:
        """Return whether any cap applies."""
        return bool(caps)

    def _bar(self, db: sqlite3.Connection, model: str, reason: str) -> None:
        values = (model, self._clock().timestamp(), reason)
        db.execute("INSERT OR REPLACE INTO barred (model, at, reason) VALUES (?, ?, ?)", values)
