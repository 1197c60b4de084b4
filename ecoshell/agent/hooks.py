"""Hooks: the user's commands that run before and after a tool, around turns and sessions, and at a cap.

A hook reads its event as JSON on standard input. Exit status 2 before a tool refuses the call, and after a tool its
standard error is added to the result. Any other failure is reported and changes nothing.
"""

import asyncio
import json
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from ecoshell.agent.guards import CallContext, Guard, ToolExecutor, refuse
from ecoshell.agent.project_trust import ProjectTrust
from ecoshell.agent.user_interface import UserInterface
from ecoshell.errors import ToolError, UsageError
from ecoshell.events import Emit, Event, HookRan, LimitHit, Notice
from ecoshell.messages import Call, Observation, visible
from ecoshell.options import HookPoint
from ecoshell.paths import HOOKS_FILE
from ecoshell.secrecy import environ, mask_secrets
from ecoshell.tools.builtin.commands import run_process, safe_environment, temporary_file
from ecoshell.tools.running import clip
from ecoshell.tools.workspace import Workspace

BLOCKED = 2
"""The exit status that refuses a call."""
_MAX_FILE_BYTES = 100_000
_MAX_RESULT = 100_000
"""Characters of a result that a hook reads."""
_MAX_TEXT = 4_000
"""Bytes of standard error that are kept."""
_ONLY_ERRORS = 'exec /bin/sh -c "$1" >/dev/null'
"""Runs a command without its standard output, which nothing reads."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One command and when it runs."""

    name: str
    on: HookPoint
    command: str
    tools: tuple[str, ...]
    """Patterns of tool names; empty for all tools."""
    seconds: float
    source: str
    """The file that declares it."""


class Hooks:
    """The hooks of the user and of the workspace."""

    def __init__(
        self, own: Sequence[Hook], workspace: Workspace, trust: ProjectTrust, *, seconds: float
    ) -> None:
        """`seconds` limit hooks of the workspace that state no time."""
        self._own = own
        self._workspace = workspace
        self._trust = trust
        self._seconds = seconds
        self._text: str | None = None
        """The text of the workspace's file as last read; None before the first turn."""
        self._of_project: Sequence[Hook] = ()
        self._started: set[str] = set()
        """Sessions whose start hooks have run."""
        self._at_caps: set[asyncio.Task[list[HookRan]]] = set()
        self.problem = (
            f"{HOOKS_FILE} is read with the next question."
            if (workspace.root / HOOKS_FILE).exists()
            else ""
        )
        """Why the workspace's file is not used; empty if it is, or is missing."""
        self.last: dict[str, HookRan] = {}
        """The last run of each hook."""

    @property
    def all(self) -> Sequence[Hook]:
        """The hooks in use, the user's own first."""
        return (*self._own, *self._of_project)

    async def begin_turn(
        self, session: str, turn: int, question: str, user: UserInterface, emit: Emit
    ) -> None:
        """Read the workspace's hooks, and run those of the session's first turn and of each turn."""
        await self._follow(user, emit)
        if session not in self._started:
            self._started.add(session)
            await self.run("session_start", session, {}, emit)
        await self.run("turn_start", session, {"turn": turn, "question": question}, emit)

    async def end_turn(self, session: str, turn: int, status: str, answer: str, emit: Emit) -> None:
        """Wait for hooks at a cap, and run those of the turn's end."""
        if self._at_caps:
            await asyncio.wait(self._at_caps)
        if session in self._started:
            await self.run(
                "turn_end", session, {"turn": turn, "status": status, "answer": answer}, emit
            )

    async def end_session(self, session: str, emit: Emit) -> None:
        """Run the hooks of the session's end if those of its start have run."""
        if session in self._started:
            self._started.discard(session)
            await self.run("session_end", session, {}, emit)

    def around(self, inner: ToolExecutor, session: str, turn: int) -> ToolExecutor:
        """The executor with the hooks of tools around it."""
        return Hooked(inner, self, session, turn)

    def see(self, session: str, event: Event, emit: Emit) -> None:
        """Start the hooks of a cap, which run while the user decides."""
        if isinstance(event, LimitHit) and any(hook.on == "cap" for hook in self.all):
            facts = {"scope": event.scope, "message": event.message, "unit": event.unit}
            task = asyncio.create_task(self.run("cap", session, facts, emit))
            self._at_caps.add(task)
            task.add_done_callback(self._at_caps.discard)

    async def run(
        self, on: HookPoint, session: str, facts: Mapping[str, Any], emit: Emit, *, tool: str = ""
    ) -> list[HookRan]:
        """Run the hooks of this point in order, up to the first one that blocks; never fails."""
        results: list[HookRan] = []
        for hook in self.all:
            if hook.on != on or (
                hook.tools and not any(fnmatchcase(tool, pattern) for pattern in hook.tools)
            ):
                continue
            root = str(self._workspace.root)
            event = {"event": on, "session": session, "workspace": root}
            event |= {"tool": tool, **facts} if tool else facts
            text = json.dumps(event, ensure_ascii=False, default=str)
            ran = self.last[hook.name] = mask_secrets(await self._execute(hook, text))
            emit(ran)
            results.append(ran)
            if ran.blocked:
                break
        return results

    async def _execute(self, hook: Hook, event: str) -> HookRan:
        """Run one hook within its time, with bounded output."""
        started, status, text = time.monotonic(), None, ""
        try:
            stdin = await asyncio.to_thread(temporary_file, mask_secrets(event))
            with stdin:
                finished = await run_process(
                    ["/bin/sh", "-c", _ONLY_ERRORS, "sh", hook.command],
                    folder=self._workspace.root,
                    environment=safe_environment(environ),
                    seconds=hook.seconds,
                    window=_MAX_TEXT,
                    stdin=stdin.fileno(),
                )
            status, text = None if finished.timed_out else finished.status, finished.output.strip()
            if finished.timed_out:
                text = f"It was stopped after {hook.seconds:g} s. {text}".strip()
        except (ToolError, OSError) as error:
            text = str(error)
        blocked = hook.on == "before_tool" and status == BLOCKED
        seconds = time.monotonic() - started
        return HookRan(hook.on, hook.name, hook.command, status, seconds, blocked, visible(text))

    async def _follow(self, user: UserInterface, emit: Emit) -> None:
        """Read the workspace's file if it has changed, and ask the user whether to trust it."""
        text, problem, hooks = "", "", tuple[Hook, ...]()
        try:
            if (self._workspace.root / HOOKS_FILE).exists():
                file = await asyncio.to_thread(
                    self._workspace.read_text, HOOKS_FILE, _MAX_FILE_BYTES
                )
                text = visible(file.text)
            if text != self._text:
                hooks = parse_hooks(text, self._seconds)
        except (ToolError, UsageError) as error:
            problem = f"Hooks of this project are not used. {error}"
        if problem and problem != self.problem:
            emit(Notice(problem))
        if problem or text != self._text:
            self._text, self.problem, self._of_project = text, problem, ()
            if hooks and not await self._trust.allows(
                HOOKS_FILE, text, user, emit, use="run", once=True
            ):
                self.problem = f"{HOOKS_FILE} is not trusted."
            else:
                self._of_project = hooks


def parse_hooks(text: str, seconds: float) -> tuple[Hook, ...]:
    """The hooks of a TOML file with one table for each; raises UsageError."""
    from ecoshell.settings.convert import InvalidTable, to_settings
    from ecoshell.settings.schema import HookSettings

    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{HOOKS_FILE} is not TOML: {error}.") from error
    hooks: list[Hook] = []
    for name, table in tables.items():
        try:
            settings = to_settings(HookSettings, table, (name,))
        except InvalidTable as error:
            fix = 'Write a table [NAME] with on = "…" and command = "…" for each hook.'
            raise UsageError(f"{HOOKS_FILE}, {error}.", fix=fix) from error
        limit = seconds if settings.seconds is None else settings.seconds
        hooks.append(Hook(name, settings.on, settings.command, settings.tools, limit, HOOKS_FILE))
    return tuple(hooks)


@dataclass(frozen=True)
class Hooked(Guard):
    """Runs the hooks of a tool around its call."""

    hooks: Hooks
    session: str
    turn: int

    async def execute(self, call: Call, context: CallContext) -> Observation:
        run = partial(self.hooks.run, session=self.session, emit=context.emit, tool=call.name)
        facts = {"turn": self.turn, "id": call.id, "arguments": dict(call.arguments)}
        results = await run("before_tool", facts=facts)
        if results and (last := results[-1]).blocked:
            reason = last.text or "It gives no reason."
            text = f"{call.name} was not run, because the hook {last.name} blocks it: {reason}"
            return refuse("hook", text)
        observation = await self.inner.execute(call, context)
        if observation.refused:
            return observation
        made = context.bill.made or call
        text = clip(observation.text, _MAX_RESULT)[0]
        facts |= {"arguments": dict(made.arguments), "ok": observation.ok, "result": text}
        for ran in await run("after_tool", facts=facts):
            if ran.status == BLOCKED and ran.text:
                note = f"\nThe hook {ran.name} says: {ran.text}"
                observation = replace(observation, text=observation.text + note)
        return observation
