"""What a user's own sessions teach: turns that a remote model concluded well, asked again as a local one would be.

Nothing runs again. The shell goes on with the session as it was before the turn, and asks a model that says what was
said then; each tool returns what it returned then. Secrets are marked before anything else happens.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

from ecoshell import secrecy
from ecoshell.assembly import load_settings, open_store, sources_of
from ecoshell.budget import counted
from ecoshell.events import (
    Answer,
    BudgetSettled,
    CallFinished,
    CallMarked,
    CallStarted,
    ContextTold,
    Event,
    Rationale,
    TurnFinished,
    TurnStarted,
    TurnUndone,
    from_json,
    to_json,
)
from ecoshell.messages import Call, ToolSchema
from ecoshell.models.local import LocalModel
from ecoshell.models.local_models import is_local
from ecoshell.options import Options
from ecoshell.paths import Paths, user_paths
from ecoshell.planning.btp.redaction import redacted_value
from ecoshell.secrecy import environ, mask_secrets
from ecoshell.sessions import SessionStore
from ecoshell.tools.workspace import Workspace, workspace_folder
from ecoshell_train.data import ROLES, Example, Step, Task, played, replayed

_ALL = 1_000_000
"""Sessions, more than anybody has."""


@dataclass(slots=True)
class Taken:
    """What was learned from: how many turns, their examples, and why others were left out."""

    turns: int = 0
    examples: list[Example] = field(default_factory=list[Example])
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Turns, by the reason."""
    damaged: list[str] = field(default_factory=list[str])
    """Sessions of which nothing is taken, each with its place that cannot be read."""

    def told(self) -> str:
        """The same in a sentence or two."""
        reasons = "; ".join(f"{why} ({number})" for why, number in self.left_out.most_common())
        counts = f"{counted(self.turns, 'turn')} of sessions taken, {self.left_out.total()} left out"
        return " ".join((f"{counts}: {reasons}." if reasons else f"{counts}.", *self.damaged))


@dataclass(frozen=True, slots=True)
class _Turn:
    """A turn that can be learned from, and what happened in its session before it, all without secrets."""

    task: Task
    observations: tuple[str, ...]
    past: tuple[Event, ...]

    @property
    def digest(self) -> str:
        content = (self.task.digest, self.task.attachments, self.observations, self.past)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def taken(
    local: LocalModel,
    ways: Sequence[Options],
    keep: Path | None = None,
    *,
    paths: Paths | None = None,
) -> Taken:
    """The examples of all sessions of the user, kept in a file as `played` does.

    Raises SettingsError, StoreError and UsageError.
    """
    paths, collected = paths or user_paths(), Taken()
    settings = load_settings(paths)
    notes = sources_of(settings, paths, Workspace(workspace_folder(None)), lambda _: None)
    schemas = {tool.schema.name: tool.schema for _, tool in notes}
    with closing(open_store(paths)) as store:
        turns = [*_all_turns(store, schemas, collected)]
    plays = [
        (f"{how.mode} {how.registration} {turn.digest}", partial(_play, turn, schemas, local, how))
        for turn in turns
        for how in ways
    ]
    reasons = [examples for _, examples in played(plays, keep)]
    for at in range(0, len(reasons), len(ways)):
        if any(of_turn := reasons[at : at + len(ways)]):
            collected.turns += 1
            collected.examples += [entry for examples in of_turn for entry in examples]
        else:
            collected.left_out["the shell would not serve it so again"] += 1
    return collected


def _all_turns(store: SessionStore, schemas: Mapping[str, ToolSchema], found: Taken) -> Iterator[_Turn]:
    for info in reversed(store.list(_ALL)):
        if places := store.damaged(info.id):
            found.damaged.append(f"Session {info.id} is left out: its event {places[0]} cannot be read.")
            continue
        before: list[Event] = []
        events = store.past(info.id)
        spoiled = {event.turn for event in events if isinstance(event, TurnUndone)}
        unhelpful = {event.id for event in events if isinstance(event, CallMarked) and event.helpful is False}
        for turn in _by_turn(events):
            clean = [mask_secrets(from_json(redacted_value(to_json(event), environ))) for event in turn]
            started = turn[0]
            if isinstance(started, TurnStarted):
                why = "it was undone" if started.turn in spoiled else _unfit(turn, clean, unhelpful, schemas)
                if why:
                    found.left_out[why] += 1
                else:
                    yield _learnable(clean, before)
            before += clean


def _by_turn(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The events from each question to the next; what happened before the first comes by itself."""
    logged: list[Event] = []
    for event in events:
        if isinstance(event, TurnStarted) and logged:
            yield logged
            logged = []
        logged.append(event)
    if logged:
        yield logged


def _unfit(
    turn: Sequence[Event], clean: Sequence[Event], unhelpful: set[str], schemas: Mapping[str, ToolSchema]
) -> str:
    """Why nothing is learned from a turn; empty where it can be."""
    started = cast("TurnStarted", turn[0])
    made = [event for event in turn if isinstance(event, CallStarted)]
    ended = [event for event in turn if isinstance(event, CallFinished)]
    status = next((event.status for event in turn if isinstance(event, TurnFinished)), "interrupted")
    answers = [event for event in turn if isinstance(event, Answer)]
    reasons = [event for event in turn if isinstance(event, (CallStarted, Answer, Rationale))]
    marked = [event for event in clean if isinstance(event, (CallStarted, Answer, Rationale))]
    thought = {event.model for event in turn if isinstance(event, BudgetSettled) and event.role in ("single", *ROLES)}
    why = {
        "it was not answered": status != "answered" or len(answers) != 1 or answers[0].partial,
        "a model of this machine answered it": any(map(is_local, (started.model, *thought))),
        "it was a search, or a tool graph": started.strategy != "react",
        "no tool was called": not made,
        "a call failed, or was refused": any(not event.ok or event.refused for event in ended)
        or [event.id for event in made] != [event.id for event in ended],
        "a result was marked unhelpful": any(event.id in unhelpful for event in made),
        "a secret stood in a call or the answer": reasons != marked or secrecy.MARK in repr(reasons),
        "a tool is not there any more": any(event.name not in schemas for event in made),
    }
    return next((reason for reason, holds in why.items() if holds), "")


def _learnable(clean: Sequence[Event], before: Sequence[Event]) -> _Turn:
    started, answer, rationale = cast("TurnStarted", clean[0]), "", ""
    steps: list[Step] = []
    observations: list[str] = []
    for event in clean:
        match event:
            case Rationale():
                rationale = event.text
            case CallStarted():
                steps.append(Step(rationale, Call(event.name, event.arguments)))
                rationale = ""
            case CallFinished():
                observations.append(event.observation)
            case Answer():
                answer = event.text
            case _:
                pass
    task = Task("session", "", started.question, {}, tuple(steps), lambda _: answer, attachments=started.attachments)
    return _Turn(task, tuple(observations), tuple(before))


async def _play(turn: _Turn, schemas: Mapping[str, ToolSchema], local: LocalModel, options: Options) -> list[Example]:
    def past(home: Path, workspace: Path) -> str | None:
        if not turn.past:
            return None
        here = str(workspace.resolve())
        events = [_moved(event, here) for event in turn.past]
        with closing(open_store(Paths.under(home))) as store:
            session = store.create(workspace=here, model=local.traits.name)
            store.append(session, events)
        return session

    results = [(text, True) for text in turn.observations]
    return await replayed(turn.task, results, [*schemas.values()], local, options, past=past)


def _moved(event: Event, workspace: str) -> Event:
    """An event as one of another workspace, and of one model."""
    match event:
        case ContextTold():  # else the model would be told that it is elsewhere now
            return replace(event, workspace=workspace)
        case TurnStarted():  # else the models of its roles would be asked
            return replace(event, roles=())
        case _:
            return event
