"""An editor for tests: the SDK's client, with `ecoshell acp` as a process of its own, and a script for a model."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

import acp
from acp import schema

LIMIT_S = 600
"""Longer than anything here may take."""


class Editor:
    """A client that writes down what it is told and answers what it is asked by `choose`."""

    def __init__(self):
        self.told = []
        """Session and update, in their order."""
        self.asked = []
        """What permission was asked for: the tool call, and the names of the options by their ids."""
        self.choose = lambda options: "once"
        """The id to choose of the options; None dismisses the question, and a table is the whole answer."""
        self._came = asyncio.Event()

    async def session_update(self, session_id, update, **_):
        self.told.append((session_id, update))
        self._came.set()

    async def request_permission(self, session_id, tool_call, options, **_):
        names = {option.option_id: option.name for option in options}
        self.asked.append((tool_call, names, [update for _, update in self.told]))
        self._came.set()
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
        """The updates of a kind, of one session or of all."""
        return [update for name, update in self.told if isinstance(update, kind) and session in (None, name)]

    def text(self, kind=schema.AgentMessageChunk, session=None):
        """What was said in chunks of a kind."""
        return "".join(chunk.content.text for chunk in self.of(kind, session))

    def calls(self, session=None):
        """Each tool call by its title: every status it has had, in order."""
        titles, found = {}, {}
        for update in self.of((schema.ToolCallStart, schema.ToolCallProgress), session):
            titles.setdefault(update.tool_call_id, getattr(update, "title", None))
            found.setdefault(titles[update.tool_call_id], []).append(update.status)
        return found

    async def until(self, holds):
        """Wait until something holds of what was told and asked."""
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                self._came.clear()
                await self._came.wait()


class Opened(Editor):
    """The same with the agent it talks with."""

    def __init__(self, home):
        super().__init__()
        self.home = home
        self.workspace = home / "workspace"
        self.workspace.mkdir(exist_ok=True)

    async def new(self, cwd=None, servers=()):
        """A new session; gives its id."""
        return (await self.agent.new_session(cwd=str(cwd or self.workspace), mcp_servers=[*servers])).session_id

    async def ask(self, session, *blocks):
        """A prompt of texts and blocks; gives why it ended."""
        prompt = [acp.text_block(block) if isinstance(block, str) else block for block in blocks]
        async with asyncio.timeout(LIMIT_S):
            return (await self.agent.prompt(prompt=prompt, session_id=session)).stop_reason


def environment(home):
    """The variables of an agent whose state is in this home."""
    return {**os.environ, "ECOSHELL_HOME": str(home / "home"), "PYTHONUTF8": "1"}


def command(home, lines, *options):
    """The command line of an agent whose model speaks these lines."""
    script = home / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return (sys.executable, "-m", "ecoshell", "--model", f"script:{script}", "acp", *options)


@asynccontextmanager
async def editor(home, lines, *options):
    """An editor with an agent that has been initialized, and whose model speaks these lines in each session."""
    opened = Opened(home)
    async with acp.spawn_agent_process(
        opened,
        *command(home, lines, *options),
        env=environment(home),
        cwd=home,
        transport_kwargs={"stderr": None, "limit": 1 << 26, "shutdown_timeout": 60.0},  # a busy machine is slow
        use_unstable_protocol=True,
    ) as (agent, process):
        opened.agent, opened.process = agent, process
        opened.about = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        yield opened
