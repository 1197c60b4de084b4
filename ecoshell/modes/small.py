"""Aids for small local models: which of them a model needs is decided once, and a capable model gets none."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ecoshell.agent.untrusted import is_trusted
from ecoshell.agent.view import View
from ecoshell.catalog import Presentation
from ecoshell.errors import LimitReached, ModelBroken
from ecoshell.events import Emit
from ecoshell.messages import TOOL_REGISTER, ToolSchema
from ecoshell.models import Reply, Request, Traits
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.requests import (
    UNUSABLE_CALL,
    broken_call,
    callable_schemas,
    prompt,
    repair_request,
    thought_of,
    warn_if_cut,
)
from ecoshell.modes.single import Single
from ecoshell.strategies import Path, Step, Thought, same

PROGRAM_PARAMETERS = 300_000_000  # a model with fewer writes no program worth running
_LISTED_NAMES = 100  # more names are not listed in a grammar
_REGISTRATIONS_IN_A_ROW = 2
_QUESTION_CHARACTERS = 600
_PROGRAM = re.compile(r"```(?:sh|shell|bash|zsh|console|python|py)\n(.+?)(?:```|\Z)", re.DOTALL)
"""A program shown instead of an answer."""


@dataclass(frozen=True, slots=True)
class SmallModelAids:
    """The aids that one small model gets.

    - `grammar`: a grammar limits what it may register, and excludes a call that it has just repeated.
    - `reminder`: each result ends with the question whether that is enough.
    - `concludes_on_repeat`: after a repeated call that had succeeded, the next request is for the answer.
    - `quotes_on_repeat`: after a repeated call that had succeeded, the earlier result is the answer.
    - `concludes`: it can write an answer at a limit; otherwise the last result is quoted.
    - `nudge`: if it stops at its first failure, it gets one request for another call.
    - `by_program`: requests about files are first tried by one program.
    """

    grammar: bool
    reminder: bool
    concludes_on_repeat: bool
    quotes_on_repeat: bool
    concludes: bool
    nudge: bool
    by_program: bool


def small_model_aids(traits: Traits) -> SmallModelAids | None:
    """The aids a model needs; None for a capable model."""
    if traits.capable and not traits.trained:
        return None
    parameters = traits.parameters
    trusted, grammar = is_trusted(traits), traits.calls_undeclared
    return SmallModelAids(
        grammar=grammar,
        reminder=not trusted and not traits.trained,
        concludes_on_repeat=not trusted,
        quotes_on_repeat=bool(traits.trained),
        concludes=not (traits.small and traits.trained),
        nudge=grammar and (parameters is None or parameters >= PROGRAM_PARAMETERS),
        by_program=not trusted and (parameters or 0) >= PROGRAM_PARAMETERS,
    )


def with_question(name: str, question: str) -> str:
    """A prompt's text, followed by the question or its beginning."""
    beginning = (
        question if len(question) <= _QUESTION_CHARACTERS else f"{question[:_QUESTION_CHARACTERS]}…"
    )
    return f"{prompt(name)}\n{beginning}"


def small_system_text(presentation: Presentation, *, searching: bool = False) -> str:
    """The system text of a small model in the single mode, the same throughout a session."""
    names = ["single"]
    names += ["registering"] if presentation.registers else []
    names += ["finishing"] if searching else []
    return "\n\n".join(map(prompt, names))


def limited_registration(view: View, schemas: Sequence[ToolSchema]) -> tuple[ToolSchema, ...]:
    """Limit `tool_register` to the names that are not registered yet, and remove it after two registrations in a row.

    Without this, a small model registers the same tool repeatedly, a word of the request, or tool after tool.
    """
    registered = {schema.name for schema in view.registered}
    names = [name for name in view.usable if name not in registered]
    if view.large or len(names) > _LISTED_NAMES:
        return tuple(schemas)
    properties = {"tool_name": {"type": "string", "enum": names}}
    last_steps = view.path.steps[-_REGISTRATIONS_IN_A_ROW:]
    in_a_row = sum(step.call.name == TOOL_REGISTER and step.observation.ok for step in last_steps)
    limited: list[ToolSchema] = []
    for schema in schemas:
        if schema.name != TOOL_REGISTER:
            limited.append(schema)
        elif names and in_a_row < _REGISTRATIONS_IN_A_ROW:
            limited.append(
                replace(schema, parameters={**schema.parameters, "properties": properties})
            )
    return tuple(limited)


def has_stopped_short(path: Path, reply: Reply) -> bool:
    """Whether the model ends right after its only failed step, or shows a program instead of running it."""
    failed = [step for step in path.steps if not step.observation.ok]
    if len(failed) == 1 and failed[0] is path.steps[-1] and not failed[0].observation.refused:
        return True
    if not path.steps or any(_PROGRAM.search(step.rationale) for step in path.steps):
        return False
    # a quoted program does not count
    results = "\n".join(step.observation.text for step in path.steps)
    return any(block.strip() not in results for block in _PROGRAM.findall(reply.text))


class SmallSingle(Single):
    """One small model in every role, with the aids it needs."""

    def __init__(self, model: MeteredModel, limits: ModeLimits, aids: SmallModelAids) -> None:
        super().__init__(model, limits)
        self.by_program = aids.by_program
        self._aids = aids

    async def think(self, view: View, emit: Emit) -> Thought:
        if thought := await self._by_program(view, emit):
            return thought
        step, last = self._request(view), _repeated(view)
        has_result = last is not None and last.observation.ok
        if last is not None and has_result and self._aids.quotes_on_repeat:
            results = (
                step.observation for step in reversed(view.path.steps) if same(step.call, last.call)
            )
            if text := next((result.text.strip() for result in results if not result.refused), ""):
                return Thought(text)
        if view.closed or (has_result and self._aids.concludes_on_repeat):
            step = self._conclusion(step, view, self._max_tokens)
        else:
            step = self._reminded(step, view)
        request = await asyncio.to_thread(self._fitted, step)
        reply = await self._model.ask(request, emit, role=self.role)
        if reply.fault and not view.closed:
            repair = repair_request(request, reply, UNUSABLE_CALL.format(reply.fault))
            reply = await self._model.ask(repair, emit, role=self.role)
            if reply.fault:
                raise broken_call(self._model, reply.fault, reply.attempt)
        elif (
            reply.call is None
            and self._aids.nudge
            and has_stopped_short(view.path, reply)
            and view.usable
        ):
            reply = await self._nudged(view, request, reply, emit)
        warn_if_cut(reply, emit)
        return thought_of(reply)

    async def _nudged(self, view: View, request: Request, reply: Reply, emit: Emit) -> Reply:
        """Ask once for a call of a tool that was not called yet; the reply itself if none comes."""
        names = {step.call.subject for step in view.path.steps}
        schemas = tuple(schema for schema in request.callable_now if schema.name not in names)
        if schemas:
            nudge = replace(
                repair_request(request, reply, prompt("nudge")), want="call", callable_now=schemas
            )
            # without room for it, the reply is the answer
            with suppress(LimitReached, ModelBroken):
                second = await self._model.ask(nudge, emit, role=self.role)
                if not second.fault and second.call is not None:
                    return replace(second, text=reply.text)
        return reply

    async def conclude(self, view: View, emit: Emit) -> str:
        return await super().conclude(view, emit) if self._aids.concludes else ""

    async def _by_program(self, view: View, emit: Emit) -> Thought | None:
        """The program for a request about files; after it ran, its output or the answer.

        None if a program does not apply, or if the model wrote none that works.
        """
        if not view.attachments:
            return None
        from ecoshell.modes.programs import by_program, program_in

        following = by_program(
            view,
            lambda: self._conclusion(self._request(view), view, self._answer_tokens),
            max_tokens=self._max_tokens,
            temperature=self._temperature,
        )
        if not isinstance(following, Request):
            return following
        request = await asyncio.to_thread(self._fitted, following)
        reply = await self._model.ask(request, emit, role=self.role)
        warn_if_cut(reply, emit)
        if following.purpose == "answer":
            return Thought(reply.text.strip())
        call = program_in(reply, view)
        return None if call is None else Thought("", call)

    @property
    def _longest_answer(self) -> int:
        return self._answer_tokens

    async def _completed(
        self, reply: Reply, request: Request, model: MeteredModel, emit: Emit, *, role: str
    ) -> Reply:
        warn_if_cut(reply, emit)
        return reply

    def _closing(self, view: View) -> str:
        return with_question("conclude", view.path.question)

    def _system(self, view: View) -> str:
        return small_system_text(view.presentation, searching=view.searching)

    def _request(self, view: View) -> Request:
        request = super()._request(view)
        if not self._aids.grammar:
            return request
        callable_now = limited_registration(view, callable_schemas(view, request.tools))
        if (last := _repeated(view)) is not None:
            callable_now = tuple(
                schema for schema in callable_now if schema.name != last.call.subject
            )
        return replace(request, callable_now=callable_now)

    def _reminded(self, step: Request, view: View) -> Request:
        """The step, with the question after its last result whether that is enough.

        Earlier results do not have it, so that each prompt is a prefix of the next.
        """
        last, steps = step.messages[-1], view.path.steps
        if not (
            self._aids.reminder and last.speaker == "tool" and steps and steps[-1].observation.ok
        ):
            return step
        text = f"{last.text}\n\n{with_question('enough', view.path.question)}"
        return replace(step, messages=(*step.messages[:-1], replace(last, text=text)))


def _repeated(view: View) -> Step | None:
    """The last step, if it repeated an earlier call."""
    last = view.path.steps[-1] if view.path.steps else None
    return last if last is not None and last.observation.refused == "repeated" else None


def single_mode(model: MeteredModel, limits: ModeLimits) -> Single:
    """One model in every role, with the aids it needs."""
    aids = small_model_aids(model.traits)
    return Single(model, limits) if aids is None else SmallSingle(model, limits, aids)
