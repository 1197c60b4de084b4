"""What models read of a turn: its messages, and the view of a mode on one path."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from ecoshell.catalog import Catalog, Presentation
from ecoshell.events import BackgroundEnded, BackgroundStarted, CommandRan, Compacted
from ecoshell.events.tools import MAX_COMMAND_CHARS
from ecoshell.messages import (
    META_TOOLS,
    TOOL_CALL,
    TOOL_REGISTER,
    Attachment,
    Call,
    Message,
    ToolSchema,
    fenced,
    visible_line,
)
from ecoshell.strategies import Path, Sibling, Step
from ecoshell.tools.background import COMMAND_OUTPUT, end_text

LARGE_CONTEXT = 32_000
"""Tokens; in smaller contexts the oldest results are cut one by one, larger ones are compacted."""
_DONE_SO_FAR = "What was done for this so far, in short (the earlier steps are no longer shown):"
_NEVER_CUT = META_TOOLS - {TOOL_CALL}
"""Calls whose results are schemas, or short."""


@dataclass(frozen=True, slots=True)
class Condensed:
    """How models read a turn whose earlier steps were summarized or trimmed."""

    summary: str = ""
    calls: frozenset[str] = frozenset()
    """IDs of the calls that the summary replaces."""
    schemas: tuple[str, ...] = ()
    """Results of registrations among them, since models still need the schemas."""
    trimmed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Characters kept of each trimmed result, by the ID of its call."""

    @property
    def forgotten(self) -> frozenset[str]:
        """IDs of calls whose results models no longer read in full, so that repeating them is allowed."""
        return self.calls | self.trimmed.keys()

    def including(self, event: Compacted, path: Path) -> "Condensed":
        """Add a summary that replaces steps of this path."""
        calls = frozenset(event.calls)
        steps = (step for step in path.steps if step.call.id in calls and step.observation.ok)
        texts = (step.observation.text for step in steps if step.call.name == TOOL_REGISTER)
        schemas = tuple(dict.fromkeys(texts))
        return replace(self, summary=event.summary, calls=calls, schemas=schemas)

    def path(self, path: Path) -> Path:
        """The path as models read it; complete if it branches off before the end of the summary."""
        steps = path.steps
        if self._applies_to(path):
            steps = tuple(step for step in steps if step.call.id not in self.calls)
        return replace(path, steps=tuple(map(self._step, steps)))

    def opening(self, opening: str, path: Path) -> str:
        """The question as models read it, with the summary."""
        if not self._applies_to(path):
            return opening
        parts = (opening, f"{_DONE_SO_FAR}\n{self.summary}", *self.schemas)
        return "\n\n".join(filter(None, parts))

    def _applies_to(self, path: Path) -> bool:
        return bool(self.calls) and self.calls <= {step.call.id for step in path.steps}

    def _step(self, step: Step) -> Step:
        characters = self.trimmed.get(step.call.id)
        if characters is None:
            return step
        text = trimmed(step.observation.text, characters, step.call.subject)
        return replace(step, observation=replace(step.observation, text=text))


@dataclass(frozen=True, slots=True)
class View:
    """What a model reads of a turn on one path, and everything else that a mode may use to produce a step."""

    path: Path
    opening: str
    """The question as the model reads it, with names, and with schemas if the presentation puts them there."""
    history: tuple[Message, ...]
    """Earlier turns of the session."""
    known: tuple[str, ...]
    """Names of all tools that may be registered or called."""
    registered: tuple[ToolSchema, ...]
    """Tools that this path may call, in the order of registration."""
    presentation: Presentation
    library: tuple[str, ...] = ()
    """Tools and skills that were registered before the turn's first step."""
    registered_names: tuple[str, ...] = ()
    """The names of `registered`, and of loaded skills."""
    deferrable: tuple[ToolSchema, ...] = ()
    """All tools, if the provider's search loads them or the presentation declares some."""
    large: bool = False
    """Whether only a shortlist of names is shown and `tool_search` is offered."""
    attachments: tuple[Attachment, ...] = ()
    """Files for which a program is tried first."""
    contexts: tuple[str, ...] = ()
    """Workspace contexts at the head of questions in `history`; omitted for small models."""
    skills: bool = False
    """Whether `tool_register` is offered because it loads skills."""
    forbidden: frozenset[str] = frozenset()
    """Names that the plan forbids now."""
    closed: bool = False
    """Whether no tool may be used, so that only an answer is possible."""
    searching: bool = False
    """Whether giving up leads to another path, so that `finish` is offered."""
    siblings: tuple[Sibling, ...] = ()
    """Steps already tried from here; the next one must differ."""
    costs: str = ""
    """The costs of tools for the author of a tool graph; empty if not shown."""
    condensed: Condensed = field(default_factory=Condensed)
    """The earlier steps of the turn that were summarized or trimmed."""

    @property
    def array(self) -> tuple[ToolSchema, ...]:
        return self.presentation.array(
            self.registered,
            deferrable=self.deferrable,
            large=self.large,
            finish=self.searching,
            skills=self.skills,
        )

    def at(
        self,
        path: Path,
        siblings: tuple[Sibling, ...] = (),
        *,
        catalog: Catalog,
        forbidden: Collection[str],
    ) -> "View":
        """The view on another path of the turn, from the view at its beginning.

        `siblings` are the steps already tried from the path's end, and `forbidden` the tools that the plan refuses now.
        """
        names = dict.fromkeys((*self.library, *path.registered, *path.called))
        condensed_path, opening = path, self.opening
        if self.condensed.forgotten:
            condensed_path = self.condensed.path(path)
            opening = self.condensed.opening(opening, path)
        registered = catalog.schemas_of(names)
        skills = [name for name in names if name in catalog.skills] if catalog.skills else ()
        return replace(
            self,
            path=replace(condensed_path, images=self.path.images),
            opening=opening,
            registered=registered,
            registered_names=(*[schema.name for schema in registered], *skills),
            forbidden=frozenset(forbidden),
            closed=bool(forbidden) and len(forbidden) == len(catalog),
            siblings=siblings,
        )

    @property
    def usable(self) -> tuple[str, ...]:
        """Names of tools that may be registered or called now."""
        return tuple(name for name in self.known if name not in self.forbidden)


def path_messages(opening: str, path: Path) -> tuple[Message, ...]:
    """The turn as messages: the opening, then each assistant reply followed by the results of its calls."""
    messages = [Message("user", opening, images=path.images)]
    for steps in reply_groups(path.steps):
        calls = tuple(step.call for step in steps)
        messages.append(Message("assistant", steps[0].rationale, calls, state=steps[0].state))
        messages += [step.observation.message(step.call) for step in steps]
    return tuple(messages)


def reply_groups(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """Group the steps by the reply that made them; a step without a reply is a group by itself."""
    numbered = groupby(enumerate(steps), lambda pair: pair[1].call.group or pair[0])
    return [tuple(step for _, step in group) for _, group in numbered]


def is_trimmable(call: Call | None) -> bool:
    """Whether the call's result may be shortened: tool schemas and other meta-tool results may not."""
    return call is None or call.name not in _NEVER_CUT


def trimmed(text: str, characters: int, tool: str) -> str:
    """The beginning and the end of a result, with a note on how to get the rest in between."""
    if len(text) <= characters:
        return text
    end = characters // 3
    removed = len(text) - characters
    marker = f"[{removed:,} characters left out here to make room. Call {tool} again to see what you need of them.]"
    return f"{text[: characters - end]}\n{marker}\n{text[len(text) - end :] if end else ''}"


def trimmed_message(message: Message, characters: int) -> Message:
    """A tool message whose result is trimmed; its note stays."""
    tool = message.call.subject if message.call else "the tool"
    return replace(message, text=f"{trimmed(message.result, characters, tool)}{message.note}")


def opening_text(
    listing: str,
    question: str,
    *,
    advice: str = "",
    context: str = "",
    budget: str = "",
    ends: Mapping[str, str] | None = None,
) -> str:
    """The first message of a turn: names, workspace context, plan advice, ends, question and budget line.

    The names come first because they are the same in every session. `ends` holds the lines about background commands
    that have ended, by ID.
    """
    lines = "\n".join((ends or {}).values())
    return "\n\n".join(filter(None, (listing, context, advice, lines, question, budget)))


def end_line(command: BackgroundStarted | BackgroundEnded, *, is_past: bool) -> str:
    """The line about the end of a background command; the output of a past process is gone (`is_past`)."""
    name = f"Background command {command.id} ({visible_line(command.command, MAX_COMMAND_CHARS)})"
    status = command.status if isinstance(command, BackgroundEnded) else None
    if is_past and status is None:
        return f"[{name} ended with the session; its output is gone.]"
    output = (
        "Its output is gone." if is_past else f"{COMMAND_OUTPUT}(id={command.id}) shows the rest."
    )
    return f"[{name} has ended: {end_text(status)}. {output}]"


def question_text(
    question: str, attachments: Sequence[Attachment] = (), commands: Sequence[CommandRan] = ()
) -> str:
    """The question as a model reads it, after shell commands and before attachments."""
    parts: list[str] = []
    for command in commands:
        about = "This is its output." if command.ok else "This is its output. It failed."
        parts.append(f"I ran a command: {command.command}\n{about}\n{fenced(command.output)}")
    parts.append(question)
    for attachment in attachments:
        text = attachment.text
        parts.append(text if attachment.image else f"{attachment.name}:\n{fenced(text)}")
    return "\n\n".join(filter(None, parts))


def path_of(question: str, attachments: Sequence[Attachment] = ()) -> Path:
    """The empty path of a turn, with its question and images."""
    images = (attachment.image for attachment in attachments)
    return Path(question, images=tuple(image for image in images if image is not None))


def summary_messages(summary: str) -> tuple[Message, ...]:
    """The messages that replace compacted turns."""
    return (
        Message("user", f"What was said and done so far, in short:\n{summary}"),
        Message("assistant", "Noted."),
    )
