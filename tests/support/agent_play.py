"""Helpers for tests of whole turns: scripted models and the events of a turn."""

from dataclasses import replace

from ecoshell.agent.model_set import ModelSet
from ecoshell.models.script import ScriptModel
from ecoshell.modes.small import single_mode


class Recorder(ScriptModel):
    """A scripted model that records its requests."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.requests = []

    async def stream(self, request):
        self.requests.append(request)
        async for piece in super().stream(request):
            yield piece


def say(text="", call=None, /, *, usage=None, **arguments):
    """A line of a script: a text, or a call with these arguments."""
    line = {"text": text}
    if call:
        line["call"] = {"name": call, "arguments": arguments}
    if usage:
        line["usage"] = usage
    return line


def counts(number):
    """Lines of a script with one `count_text` call each."""
    return [say("", "count_text", text=f"text {index}") for index in range(number)]


def register(name, text=""):
    return say(text, "tool_register", tool_name=name)


def finish(answer="", **more):
    return say("", "finish", answer=answer, **more)


async def turn(shell, question="How many lines has notes.txt?"):
    """All events of one turn."""
    return [event async for event in shell.ask(question)]


def every_pair(first, second, third):
    """Pairwise combinations: every pair of the first two lists, with values of the third list spread over them."""
    return [(a, b, third[(at + by) % len(third)]) for at, a in enumerate(first) for by, b in enumerate(second)]


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def with_traits(shell, **traits):
    """Give the shell's scripted model these traits, and the aids that follow from them."""
    metered = shell.deps.models.current.model
    metered._model.traits = replace(metered.traits, **traits)
    shell.deps.models.current = ModelSet(metered, single_mode(metered, max_tokens=200, answer_tokens=100))
    return shell
