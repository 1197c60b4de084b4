"""Sessions whose model has a small context and writes summaries apart from its script."""

import asyncio
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from agent_play import say

from ecoshell.errors import ContextExceeded
from ecoshell.models.script import ScriptModel

CONTEXT = 40_000
SUMMARY = "## Goal\nCount the notes.\n## Next step\nRead the next file."


class Summarizer(ScriptModel):
    """A scripted model with a small context; `summaries` are its summaries, `refusals` counts prompts to reject."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.requests = []
        self.summaries = iter(lambda: SUMMARY, None)
        self.refusals = 0
        self.limit = None
        self.traits = replace(self.traits, context=CONTEXT)

    async def stream(self, request):
        self.requests.append(request)
        if request.purpose == "compact":
            text = next(self.summaries)
            if isinstance(text, Exception):
                raise text
            lines, at = self._lines, self._next
            self._lines, self._next = [replace(lines[0], text=text, calls=())], 0
            try:
                async for piece in super().stream(request):
                    yield piece
            finally:
                self._lines, self._next = lines, at
            return
        if self.refusals:
            self.refusals -= 1
            raise ContextExceeded("The prompt is too long.", limit=self.limit)
        async for piece in super().stream(request):
            yield piece

    @property
    def steps(self):
        return [request for request in self.requests if request.purpose != "compact"]

    @property
    def compactions(self):
        return [request for request in self.requests if request.purpose == "compact"]


def write(home, count, characters):
    for number in range(count):
        line = f"file {number}: " + "word " * 20 + "\n"
        (home / f"f{number}.txt").write_text((line * (characters // len(line) + 1))[:characters])


def reads(numbers):
    return [say(f"Read number {number}.", "read_file", path=f"f{number}.txt") for number in numbers]


def small(shell, tmp_path, **traits):
    """Replace the shell's scripted model by a Summarizer."""
    metered = shell.deps.models.current.model
    model = Summarizer(tmp_path / "script.jsonl", price=metered.traits.price)
    model.traits = replace(model.traits, **traits)
    metered._model = model
    return model


def play_until_killed(home: Path, question: str, session: str | None = None) -> None:
    """Run one turn in `home`; a new session hangs as soon as it writes a summary."""
    os.environ |= {"ECOSHELL_HOME": str(home / "home"), "ECOSHELL_AGENT_CONTEXT": "off"}
    asyncio.run(_turn(home, question, session))


async def _turn(home: Path, question: str, session: str | None) -> None:
    from ecoshell.assembly.shell import assemble
    from ecoshell.options import Options

    options = Options(
        model=f"script:{home / 'script.jsonl'}",
        workspace=home / "workspace",
        price=(Decimal(1), Decimal(4)),
        budget="20.00",
        registration="all",
        max_steps=200,
        resume=session,
    )
    shell = await assemble(options)
    model = small(shell, home)
    if session is None:
        stream = model.stream

        async def waiting(request):
            if request.purpose == "compact":
                (home / "summarizing").touch()
                await asyncio.Event().wait()
            async for piece in stream(request):
                yield piece

        model.stream = waiting
    async for _ in shell.ask(question):
        pass
    await shell.aclose()
