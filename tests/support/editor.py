"""An editor for tests: the client of the SDK and a process of `ecoshell acp` with a scripted model."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

import acp
from acp import schema

LIMIT_S = 600
"""Limit for every wait in this module."""


class Editor:
    """A client that records updates and permission requests, and answers requests with `choose`."""

    def __init__(self):
        self.told = []
        """Pairs of session and update, in order."""
        self.asked = []
        """Permission requests: the tool call, the names of the options by ID, and the updates before the request."""
        self.choose = lambda options: "once"
        """Returns the ID of the chosen option, None to dismiss the request, or a dictionary as the whole response."""
        self._changed = asyncio.Event()

    async def session_update(self, session_id, update, **_):
        self.told.append((session_id, update))
        self._changed.set()

    async def request_permission(self, session_id, tool_call, options, **_):
        names = {option.option_id: option.name for option in options}
        self.asked.append((tool_call, names, [update for _, update in self.told]))
        self._changed.set()
        chosen = self.choose(names)
        if asyncio.iscoroutine(chosen):
            chosen = await chosen
        if isinstance(chosen, dict):
            return chosen
        outcome = (
            schema.DeniedOutcome(outcome="cancelled")
            if chosen is None
            else schema.AllowedOutcome(outcome="selected", option_id=chosen)
        )
        return schema.RequestPermissionResponse(outcome=outcome)

    def on_connect(self, agent):
        pass

    def of(self, kind, session=None):
        """The updates of one kind, from one session or from all."""
        return [
            update
            for name, update in self.told
            if isinstance(update, kind) and session in (None, name)
        ]

    def text(self, kind=schema.AgentMessageChunk, session=None):
        """The joined text of the chunks of one kind."""
        return "".join(chunk.content.text for chunk in self.of(kind, session))

    def calls(self, session=None):
        """The statuses of each tool call, in order, by its title."""
        titles, statuses = {}, {}
        for update in self.of((schema.ToolCallStart, schema.ToolCallProgress), session):
            titles.setdefault(update.tool_call_id, getattr(update, "title", None))
            statuses.setdefault(titles[update.tool_call_id], []).append(update.status)
        return statuses

    async def until(self, is_true):
        """Wait until a condition on the recorded updates and requests is true."""
        async with asyncio.timeout(LIMIT_S):
            while not is_true():
                self._changed.clear()
                await self._changed.wait()


class Opened(Editor):
    """An editor with its agent."""

    def __init__(self, home):
        super().__init__()
        self.home = home
        self.workspace = home / "workspace"
        self.workspace.mkdir(exist_ok=True)

    async def new(self, cwd=None, servers=()):
        """Create a session and return its ID."""
        return (
            await self.agent.new_session(cwd=str(cwd or self.workspace), mcp_servers=[*servers])
        ).session_id

    async def ask(self, session, *blocks):
        """Send a prompt of texts and blocks; return the stop reason."""
        prompt = [acp.text_block(block) if isinstance(block, str) else block for block in blocks]
        async with asyncio.timeout(LIMIT_S):
            return (await self.agent.prompt(prompt=prompt, session_id=session)).stop_reason


def environment(home):
    """The environment of an agent whose state is in this home."""
    return {**os.environ, "ECOSHELL_HOME": str(home / "home"), "PYTHONUTF8": "1"}


def command(home, lines, *options):
    """The command line of an agent whose model replies with these lines."""
    script = home / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return (sys.executable, "-m", "ecoshell", "--model", f"script:{script}", "acp", *options)


@asynccontextmanager
async def editor(home, lines, *options):
    """Open an editor with an initialized agent whose model replies with these lines in each session."""
    opened = Opened(home)
    async with acp.spawn_agent_process(
        opened,
        *command(home, lines, *options),
        env=environment(home),
        cwd=home,
        transport_kwargs={
            "stderr": None,
            "limit": 1 << 26,
            "shutdown_timeout": 60.0,
        },  # a busy machine is slow
        use_unstable_protocol=True,
    ) as (agent, process):
        opened.agent, opened.process = agent, process
        opened.about = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        yield opened
