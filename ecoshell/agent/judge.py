"""Judging whether a result helped: by rules, a model, or a plugin."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING

from ecoshell.agent.model_set import ModelSet
from ecoshell.errors import EcoshellError, ModelBroken
from ecoshell.events import Emit, Notice
from ecoshell.messages import Call, Message, Observation, visible_line
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.tools.running import clip

if TYPE_CHECKING:  # loaded when a result is judged
    from ecoshell.planning.judging import Verdict

JUDGES = ("rules", "model")
"""The judges of the core; plugins provide others."""
JudgeFunction = Callable[[str, Call, Observation], "bool | Verdict | None"]
"""Judges the result of a call for a question; None means undecided."""
JUDGE = "judge"
JUDGE_TOKENS = 16
_QUESTION_CHARACTERS = 800
_CALL_CHARACTERS = 300
_RESULT_CHARACTERS = 1_500
_YES_OR_NO = 'root ::= "yes" | "no"'
_WORD = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


@dataclass(kw_only=True)
class Judge:
    """Judges results by rules, the leading model, or a judge of a plugin (`more`); `kind` names the current one.

    A model judges only if rules cannot decide: failures, empty results and wrong arguments cost nothing. Its call
    passes the gate like every other (BTP §2.1). If a judge fails, the verdict of the rules applies.
    """

    kind: Callable[[], str]
    models: Callable[[], ModelSet]
    more: Mapping[str, JudgeFunction] = field(default_factory=dict[str, JudgeFunction])
    _reported: set[str] = field(default_factory=set[str])
    """Kinds of errors that were reported as the reason for judging by rules."""

    async def judge(
        self, query: str, call: Call, observation: Observation, emit: Emit
    ) -> "Verdict":
        """The verdict on one result; never raises because of a judge."""
        from ecoshell.planning.judging import Verdict, by_rules, judgeable

        ruled = await asyncio.to_thread(by_rules, query, call, observation)
        kind = self.kind()
        try:
            if kind in self.more and judgeable(ruled):
                helped = await asyncio.to_thread(self.more[kind], query, call, observation)
                if isinstance(helped, Verdict):
                    return helped
                if helped is None:
                    return ruled
                return Verdict(bool(helped), "plugin", _reason(kind, helped=helped))
            if kind == "model" and not ruled.sure:
                model = self.models().model
                helped = await _model_verdict(model, query, call, observation, emit)
                return Verdict(helped, "model", _reason(model.traits.name, helped=helped))
        except EcoshellError as error:
            if type(error).__name__ not in self._reported:
                self._reported.add(type(error).__name__)
                emit(Notice(f"Results are judged by rules: {visible_line(str(error))}"))
            reason = f"{ruled.reason}; the {kind} could not judge it: {visible_line(error.message)}"
            return replace(ruled, reason=reason)
        return ruled


def _reason(judge: str, *, helped: bool) -> str:
    return f"{judge} says that it {'helped' if helped else 'did not help'}"


async def _model_verdict(
    model: MeteredModel, query: str, call: Call, observation: Observation, emit: Emit
) -> bool:
    """Ask the model whether the result helped; raises ModelBroken if the answer is neither yes nor no."""
    system = (files("ecoshell.agent") / "judge.md").read_text(encoding="utf-8").strip()
    question = _beginning(query, _QUESTION_CHARACTERS)
    call_text = _beginning(call.signature(), _CALL_CHARACTERS)
    excerpt = clip(observation.text, _RESULT_CHARACTERS)[0]
    text = (
        f"Question: {question}\n\nCall: {call_text}\n\nResult:\n{excerpt}\n\nDid it help? yes or no"
    )
    messages = (Message("system", system), Message("user", text))
    request = Request(
        messages, want="text", max_tokens=JUDGE_TOKENS, purpose="judge", grammar=_YES_OR_NO
    )
    reply = await model.ask(request, emit, role=JUDGE)
    word = _WORD.search(reply.text)
    if word is None:
        raise ModelBroken(f"{model.traits.name} answered neither yes nor no.")
    return word[1].lower() == "yes"


def _beginning(text: str, characters: int) -> str:
    return clip(" ".join(text.split()), characters)[0]
