"""A caller and a summarizer too small for a protocol, beside a planner that is not: asked one small thing at a time.

The planner's thought takes the place of what modes/stepwise asks for first, which tool and why; the rest is as there.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from ecoshell.agent.model_set import FillTask, ForeseenCall, View
from ecoshell.events import Emit
from ecoshell.messages import META_TOOLS, TOOL_REGISTER, Call, ToolDocument
from ecoshell.models.metered import MeteredModel
from ecoshell.modes import CALLER, SUMMARIZER
from ecoshell.modes.stepwise import answering, arguments, choosing, filling, talking
from ecoshell.modes.stepwise.choosing import Chooser, Rank
from ecoshell.modes.stepwise.drafting import Part, taken_apart
from ecoshell.modes.stepwise.looking import gist, registered, results


class SmallCaller:
    """Calls the tool that the planner names or means; the model fills in what the request leaves open."""

    def __init__(self, model: MeteredModel, *, rank: Rank, document: Callable[[str], ToolDocument]) -> None:
        """`rank` is local ranking; `document` gives any known tool's document."""
        self._model = model
        self._rank = rank
        self._chooser = Chooser(model, rank=rank, document=document, guarded=lambda _: False)
        self._document = document

    def foresee(self, view: View) -> tuple[ForeseenCall, ...]:
        """Choosing among the names, and filling in the largest document's arguments."""
        names = _names(view)
        if not names:
            return ()
        largest = max(map(self._document, names), key=lambda document: len(document.as_text()))
        scoring = choosing.score_request(gist(view), choosing.shortlist(names, {}))
        requests = (choosing.as_foreseen(scoring), arguments.call_request(largest, gist(view)))
        return tuple(ForeseenCall(request, self._model, CALLER) for request in requests)

    async def call(self, view: View, rationale: str, emit: Emit) -> tuple[Call | None, str]:
        """The call, which registers the tool where it is not yet; or None, and what is wrong.

        The tool is the one that the thought names; else the one whose name makes it likeliest.
        """
        thought, names = rationale or gist(view), _names(view)
        if not names:
            return None, "There is no tool to call."
        named = [name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", thought)]
        if len(named) == 1:
            name = named[0]
        else:
            among = named or choosing.shortlist(names, dict(self._rank(thought)))
            within = f"{thought}\n{gist(view)}"
            scores = await self._chooser.scores(Part(thought), among, emit, role=CALLER, within=within)
            name = max(scores, key=scores.__getitem__)
        document = registered(view, name)
        if document is None:
            return Call(TOOL_REGISTER, {"tool_name": name}), ""
        last = view.path.steps[-1] if view.path.steps else None
        error = last.observation.text if last and last.call.name == name and not last.observation.ok else ""
        return await self._filled(arguments.narrowed(document, thought, gist(view)), thought, error, emit)

    async def fill(self, view: View, task: FillTask, emit: Emit) -> tuple[Call | None, str]:
        """The call of a node of a parallel plan, for the part of the question that fits its tool; as `call` else.

        Of the parts that fit the tool best, as many as it has uses, it is the one for this use; of parts that fit
        alike, a node that waits for results takes one that speaks of some. Raises CallBroken where the part speaks of
        results that do not give what is to be filled in.
        """
        parts = taken_apart(gist(view))
        fits = [dict(self._rank(part.text)).get(task.document.name, 0.0) for part in parts]
        waits = bool(task.given)
        best = sorted(range(len(parts)), key=lambda at: (-fits[at], bool(parts[at].after) != waits))[: task.uses]
        part = parts[sorted(best)[task.use - 1]] if len(best) == task.uses else Part(gist(view))
        wanted = filling.filling(task.document, part, task.given, part.text)
        call, fault = await self._filled(wanted.document, wanted.text, "", emit)
        return call and wanted.checked(call), fault

    async def _filled(self, document: ToolDocument, thought: str, error: str, emit: Emit) -> tuple[Call | None, str]:
        """The call to a narrowed tool; `error` is what came of an earlier one."""
        only = arguments.only_call(document)
        if only is not None:
            return only, ""
        reply = await self._model.ask(arguments.call_request(document, thought, error), emit, role=CALLER)
        if reply.call is None:
            reply = await self._model.ask(arguments.call_request(document, thought, reply.fault), emit, role=CALLER)
        return reply.call, reply.fault


@dataclass(frozen=True, slots=True)
class SmallSummarizer:
    """Words a result where that can be checked, quotes it elsewhere, and talks where there is none."""

    model: MeteredModel
    answer_tokens: int

    def foresee(self, view: View) -> ForeseenCall:
        """An answer without results, which is the longest that is asked for."""
        request = talking.request(view, self.model.traits.context, self.answer_tokens)
        return ForeseenCall(request, self.model, SUMMARIZER)

    async def answer(self, view: View, emit: Emit) -> str:
        """The answer from what the path has found."""
        seen = results(view.path.steps)
        if seen:
            return await answering.answered(self.model, gist(view), seen, emit, role=SUMMARIZER)
        return await talking.talked(self.model, view, emit, answer_tokens=self.answer_tokens, role=SUMMARIZER)


@dataclass(frozen=True, slots=True)
class SmallRoles:
    """Those of a trio that are played by small models; None is a role whose model follows the protocol."""

    caller: SmallCaller | None = None
    summarizer: SmallSummarizer | None = None


NONE_SMALL = SmallRoles()


def _names(view: View) -> list[str]:
    """Tools that may be registered or called now."""
    known = dict.fromkeys((*view.usable, *(document.name for document in view.registered)))
    return [name for name in known if name not in META_TOOLS and name not in view.forbidden]
