"""Training examples from the user's sessions: turns of remote models, replayed with the prompts of a local model.

No tool runs. The shell resumes the session before the turn with a scripted model that repeats the recorded replies, and
tools return their recorded results. Secrets are masked first.
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
from ecoshell_train.examples import ROLES, Example, played, replayed
from ecoshell_train.tasks import Step, Task

_MAX_SESSIONS = 1_000_000


@dataclass(slots=True)
class SessionExamples:
    """The examples of sessions: the number of used turns, skipped turns by reason, and notes on damaged sessions."""

    turns: int = 0
    examples: list[Example] = field(default_factory=list[Example])
    skipped: Counter[str] = field(default_factory=Counter[str])
    damaged: list[str] = field(default_factory=list[str])

    def summary(self) -> str:
        """Return the counts and reasons in one or two sentences."""
        reasons = "; ".join(f"{why} ({number})" for why, number in self.skipped.most_common())
        counts = f"{counted(self.turns, 'turn')} of sessions taken, {self.skipped.total()} skipped"
        return " ".join((f"{counts}: {reasons}." if reasons else f"{counts}.", *self.damaged))


@dataclass(frozen=True, slots=True)
class _Turn:
    """A suitable turn and the earlier events of its session, without secrets."""

    task: Task
    observations: tuple[str, ...]
    past: tuple[Event, ...]

    @property
    def digest(self) -> str:
        content = (self.task.digest, self.task.attachments, self.observations, self.past)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def session_examples(
    local: LocalModel,
    ways: Sequence[Options],
    keep: Path | None = None,
    *,
    paths: Paths | None = None,
) -> SessionExamples:
    """Return the examples of all sessions of the user; `keep` is the file of `played`.

    Raises SettingsError, StoreError and UsageError.
    """
    paths, collected = paths or user_paths(), SessionExamples()
    settings = load_settings(paths)
    sources = sources_of(settings, paths, Workspace(workspace_folder(None)), lambda _: None)
    schemas = {tool.schema.name: tool.schema for _, tool in sources}
    with closing(open_store(paths)) as store:
        turns = [*_all_turns(store, schemas, collected)]
    plays = [
        (f"{how.mode} {how.registration} {turn.digest}", partial(_play, turn, schemas, local, how))
        for turn in turns
        for how in ways
    ]
    results = [examples for _, examples in played(plays, keep)]
    for start in range(0, len(results), len(ways)):
        if any(of_turn := results[start : start + len(ways)]):
            collected.turns += 1
            collected.examples += [example for examples in of_turn for example in examples]
        else:
            collected.skipped["the shell would not serve it so again"] += 1
    return collected


def _all_turns(
    store: SessionStore, schemas: Mapping[str, ToolSchema], collected: SessionExamples
) -> Iterator[_Turn]:
    for info in reversed(store.list(_MAX_SESSIONS)):
        if numbers := store.damaged_events(info.id):
            collected.damaged.append(
                f"Session {info.id} was skipped: its event {numbers[0]} cannot be read."
            )
            continue
        earlier: list[Event] = []
        events = store.history(info.id)
        spoiled = {event.turn for event in events if isinstance(event, TurnUndone)}
        unhelpful = {
            event.id for event in events if isinstance(event, CallMarked) and event.helpful is False
        }
        for turn in _by_turn(events):
            clean = [
                mask_secrets(from_json(redacted_value(to_json(event), environ))) for event in turn
            ]
            started = turn[0]
            if isinstance(started, TurnStarted):
                why = (
                    "it was undone"
                    if started.turn in spoiled
                    else _unfit(turn, clean, unhelpful, schemas)
                )
                if why:
                    collected.skipped[why] += 1
                else:
                    yield _turn(clean, earlier)
            earlier += clean


def _by_turn(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield the events before the first question, then those of each turn."""
    events_of_turn: list[Event] = []
    for event in events:
        if isinstance(event, TurnStarted) and events_of_turn:
            yield events_of_turn
            events_of_turn = []
        events_of_turn.append(event)
    if events_of_turn:
        yield events_of_turn


def _unfit(
    turn: Sequence[Event],
    clean: Sequence[Event],
    unhelpful: set[str],
    schemas: Mapping[str, ToolSchema],
) -> str:
    """Return why a turn is unsuitable; empty if it is suitable."""
    started = cast("TurnStarted", turn[0])
    calls = [event for event in turn if isinstance(event, CallStarted)]
    results = [event for event in turn if isinstance(event, CallFinished)]
    status = next(
        (event.status for event in turn if isinstance(event, TurnFinished)), "interrupted"
    )
    answers = [event for event in turn if isinstance(event, Answer)]
    texts = [event for event in turn if isinstance(event, (CallStarted, Answer, Rationale))]
    masked = [event for event in clean if isinstance(event, (CallStarted, Answer, Rationale))]
    models = {
        event.model
        for event in turn
        if isinstance(event, BudgetSettled) and event.role in ("single", *ROLES)
    }
    why = {
        "it was not answered": status != "answered" or len(answers) != 1 or answers[0].partial,
        "a local model answered it": any(map(is_local, (started.model, *models))),
        "it was a search or a tool graph": started.strategy != "react",
        "no tool was called": not calls,
        "a call failed or was refused": any(not event.ok or event.refused for event in results)
        or [event.id for event in calls] != [event.id for event in results],
        "a result was marked unhelpful": any(event.id in unhelpful for event in calls),
        "a call or the answer contained a secret": texts != masked or secrecy.MARK in repr(texts),
        "a tool no longer exists": any(event.name not in schemas for event in calls),
    }
    return next((reason for reason, holds in why.items() if holds), "")


def _turn(clean: Sequence[Event], earlier: Sequence[Event]) -> _Turn:
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
    task = Task(
        "session",
        "",
        started.question,
        {},
        tuple(steps),
        lambda _: answer,
        attachments=started.attachments,
    )
    return _Turn(task, tuple(observations), tuple(earlier))


async def _play(
    turn: _Turn, schemas: Mapping[str, ToolSchema], local: LocalModel, options: Options
) -> list[Example]:
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
    """Return an event with another workspace, and with one model for all roles."""
    match event:
        case ContextTold():  # The prompt would report a change of the workspace.
            return replace(event, workspace=workspace)
        case TurnStarted():  # The models of its roles would be called.
            return replace(event, roles=())
        case _:
            return event
