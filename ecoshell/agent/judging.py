"""Who says whether a result helped: rules, the classifier the person has trained, or the model.

The model is asked only about what rules cannot tell without reading: failures, empty results and mistakes of the caller
cost nothing. Its call passes the gate like every other (BTP §2.1). Whatever keeps a judge from judging, the rules'
verdict stands, and the turn goes on.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.agent.model_set import ModelSet
from ecoshell.errors import EcoshellError, ModelBroken
from ecoshell.events import Emit, Notice
from ecoshell.messages import Call, Message, Observation
from ecoshell.models import Request, ScoreRequest
from ecoshell.models.metered import MeteredModel
from ecoshell.tools.running import clip
from ecoshell.untrusted import visible_line

if TYPE_CHECKING:
    from ecoshell.planning.classifier import Classifier
    from ecoshell.planning.judging import Verdict

JUDGES = ("rules", "classifier", "model")
"""Those that come with ecoshell; plugins may bring others."""
JudgeFunction = Callable[[str, Call, Observation], bool | None]
"""Takes a question, a call and its observation, and says whether the result helped; None is that it cannot tell."""
ROLE = "judge"
MAX_TOKENS = 16
_QUESTION = 800
_CALL = 300
_RESULT = 1_500
"""Characters of each that the model reads."""
_SMALL = 240
"""Characters of question and of result that a small model reads, which has to be quick."""
_WORD = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


@dataclass(kw_only=True)
class Judge:
    """Judges as `kind` says at the moment: with the model that leads (`models`), the classifier in `file`, or a
    plugin's judge of this name (`more`).
    """

    kind: Callable[[], str]
    models: Callable[[], ModelSet]
    file: Path
    more: Mapping[str, JudgeFunction] = field(default_factory=dict[str, JudgeFunction])
    _loaded: "tuple[tuple[int, int], Classifier] | None" = None
    _told: set[str] = field(default_factory=set[str])
    """Why judging fell back to rules, as far as the person has been told."""

    async def judge(self, query: str, call: Call, observation: Observation, emit: Emit) -> "Verdict":
        """The verdict on one result; never raises for a judge that cannot judge."""
        from ecoshell.planning.classifier import judgeable
        from ecoshell.planning.judging import Verdict, by_rules

        ruled = await asyncio.to_thread(by_rules, query, call, observation)
        kind = self.kind()
        try:
            if kind == "classifier" and judgeable(ruled):
                return await asyncio.to_thread(lambda: self._classifier().judge(query, call, observation))
            if kind in self.more and judgeable(ruled):
                helped = await asyncio.to_thread(self.more[kind], query, call, observation)
                said = "helped" if helped else "did not help"
                return ruled if helped is None else Verdict(bool(helped), "plugin", f"{kind} says that it {said}")
            if kind == "model" and not ruled.sure:
                model = self.models().model
                helpful = await _asked(model, query, call, observation, emit)
                said = "helped" if helpful else "did not help"
                return Verdict(helpful, "model", f"{model.traits.name} says that it {said}")
        except EcoshellError as error:
            if type(error).__name__ not in self._told:
                self._told.add(type(error).__name__)
                emit(Notice(f"Results are judged by rules: {visible_line(str(error))}"))
            why = f"{ruled.reason}; the {kind} could not judge it: {visible_line(error.message)}"
            return replace(ruled, reason=why)
        return ruled

    def _classifier(self) -> "Classifier":
        """The classifier in the file, read again once it has been trained again; raises UsageError and StoreError."""
        from ecoshell.planning.classifier import load

        try:
            found = self.file.stat()
        except OSError:
            return load(self.file)  # which says what is wrong with it
        state = (found.st_mtime_ns, found.st_size)
        if self._loaded is None or self._loaded[0] != state:
            self._loaded = (state, load(self.file))
        return self._loaded[1]


async def _asked(model: MeteredModel, query: str, call: Call, observation: Observation, emit: Emit) -> bool:
    """What the model says in a word; of one that is too small to be asked, which word it finds likelier."""
    from ecoshell.planning.judging import unwrapped

    result = unwrapped(observation.text)[0]
    if model.traits.small and model.can_score:
        shots = (files("ecoshell.agent") / "judge_shots.md").read_text(encoding="utf-8").strip()
        asked, told = _beginning(query, _SMALL), _beginning(result, _SMALL)
        prompt = f"{shots}\n\nQuestion: {asked}\nResult of {call.name}: {told}\nHelpful:"
        scored = await model.score(ScoreRequest(prompt, ("", ""), (" yes", " no")), emit, role=ROLE, purpose="judge")
        yes, no = scored.logprobs
        return yes >= no
    system = (files("ecoshell.agent") / "judge.md").read_text(encoding="utf-8").strip()
    asked = f"Question: {_beginning(query, _QUESTION)}\n\nCall: {_beginning(call.signature(), _CALL)}"
    told = f"{asked}\n\nResult:\n{clip(result, _RESULT)[0]}\n\nDid it help? yes or no"
    messages = (Message("system", system), Message("user", told))
    reply = await model.ask(Request(messages, want="text", max_tokens=MAX_TOKENS, purpose="judge"), emit, role=ROLE)
    said = _WORD.search(reply.text)
    if said is None:
        raise ModelBroken(f"{model.traits.name} answered neither yes nor no.")
    return said[1].lower() == "yes"


def _beginning(text: str, characters: int) -> str:
    return clip(" ".join(text.split()), characters)[0]
