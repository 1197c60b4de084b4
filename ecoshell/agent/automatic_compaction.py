"""Keeps the prompts of a turn within their models' contexts: trims old results together, then summarizes.

Contexts below `LARGE_CONTEXT` are left to `in_context` of modes/requests.py, which makes no model call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from ecoshell.agent.compaction import Summary, extract, extract_of_steps, summarize, with_todo
from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.memory import Memory
from ecoshell.agent.turn_plan import TurnPlan
from ecoshell.agent.view import (
    LARGE_CONTEXT,
    View,
    is_trimmable,
    path_messages,
    reply_groups,
    summary_messages,
    trimmed_message,
)
from ecoshell.events import Compacted, Emit, ResultsTrimmed, TrimmedResult
from ecoshell.messages import Call, Message
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.strategies import Path, Sibling, Step

_DEFAULT_SHARE = 0.8
"""Share of the context if the setting is off and a provider refused a prompt."""
_GOAL_SHARE = 0.75
"""Share of the limit at which compaction stops, so that it lasts for several steps."""
_KEPT_SHARE = 0.3
"""Share of the context for the last steps when earlier ones are summarized."""
_HISTORY_SHARE = 0.1
"""Share of the context from which earlier turns are worth a summary."""
_LATEST_SHARE = 0.5
"""Share of the context for the results of the last reply."""
_RECENT_REPLIES = 3
"""Replies whose results are never trimmed."""
_TRIMMED_ABOVE = 4_000
"""Characters of a result from which it is trimmed."""
_TRIMMED_TO = 1_200


@dataclass(frozen=True, slots=True)
class Fullness:
    """The use of a context by the next request."""

    tokens: int
    context: int
    model: MeteredModel

    def tokens_of(self, messages: Iterable[Message]) -> int:
        """Tokens of messages; may block."""
        return self.model.size(Request(tuple(messages))).count


@dataclass(frozen=True, slots=True)
class ContextKeeper:
    """Compacts the context of one turn; each change is an event, so that a resumed session sends the same."""

    deps: Dependencies
    memory: Memory
    plan: TurnPlan
    emit: Emit
    begin_again: Callable[[View], Awaitable[View]]
    """Repeats the schemas and workspace facts of earlier turns in the view at the turn's beginning."""

    async def make_room(
        self,
        start: View,
        view: View,
        path: Path,
        siblings: tuple[Sibling, ...] = (),
        *,
        refused: bool = False,
    ) -> View:
        """Compact the next request of a path if it is over the limit; returns the new view at the turn's beginning.

        Without any change, that is `start`. `view` is the path's view, and `refused` says that a provider refused the
        request as too long. Raises BudgetError.
        """
        share = self.deps.settings.compact_at
        if share == "off" and not refused:
            return start
        full = await self._fullness(view, any_context=refused)
        if full is None:
            return start
        limit = int(full.context * (_DEFAULT_SHARE if share == "off" else share))
        if refused:
            limit = min(limit, full.tokens // 2)
        if full.tokens <= limit:
            return start
        goal = int(limit * _GOAL_SHARE)
        trimming = (self._trim_latest, self._trim_earlier)
        for reduce in (*trimming, self._summarize_turns, self._summarize_steps):
            if not await reduce(view, full, goal):
                continue
            if reduce == self._summarize_turns:
                start = await self.begin_again(start)
            history = self.memory.messages if start.history else ()
            start = replace(start, condensed=self.memory.condensed, history=history)
            forbidden = self.plan.forbidden
            view = start.at(path, siblings, catalog=self.deps.catalog, forbidden=forbidden)
            full = await self._fullness(view, any_context=refused) or full
            if full.tokens <= goal:
                break
        return start

    async def _fullness(self, view: View, *, any_context: bool) -> Fullness | None:
        """The fullest context among the next step's calls; None if none is large."""
        least = 1 if any_context else LARGE_CONTEXT

        def measure() -> list[Fullness]:
            return [
                Fullness(call.model.size(call.request).count, context, call.model)
                for call in self.deps.models.current.mode.forecast(view).steps
                if (context := call.model.traits.context) is not None and context >= least
            ]

        contexts = await asyncio.to_thread(measure)
        return max(contexts, key=lambda full: full.tokens / full.context, default=None)

    async def _trim_latest(self, view: View, full: Fullness, goal: int) -> bool:
        """Trim the unread results of the last reply if they alone fill half of the context."""
        groups = reply_groups(view.path.steps)
        latest = [step for step in (groups[-1] if groups else ()) if is_trimmable(step.call)]
        messages = [Message("tool", step.observation.text) for step in latest]
        tokens = await asyncio.to_thread(full.tokens_of, messages)
        if not latest or tokens <= full.context * _LATEST_SHARE:
            return False
        results = [(self.memory.number, step.call, step.observation.text) for step in latest]
        return await self._trim(results, full.context // (2 * len(latest)), full)

    async def _trim_earlier(self, view: View, full: Fullness, goal: int) -> bool:
        """Trim all large results before the last replies together, if that is enough."""
        earlier = chain.from_iterable(reply_groups(view.path.steps)[:-_RECENT_REPLIES])
        results = [*(self._past_results() if view.history else ()), *self._results_of(earlier)]
        large = [result for result in results if len(result[2]) > _TRIMMED_ABOVE]
        return await self._trim(large, _TRIMMED_TO, full, goal)

    def _past_results(self) -> Iterator[tuple[int, Call, str]]:
        for turn in self.memory.turns:
            for message in turn.messages:
                call = message.call if message.speaker == "tool" else None
                if call is not None and is_trimmable(call):
                    yield turn.number, call, message.text

    def _results_of(self, steps: Iterable[Step]) -> Iterator[tuple[int, Call, str]]:
        for step in steps:
            if is_trimmable(step.call):
                yield self.memory.number, step.call, step.observation.text

    async def _trim(
        self,
        results: list[tuple[int, Call, str]],
        characters: int,
        full: Fullness,
        goal: int | None = None,
    ) -> bool:
        """Trim these results in one event, but only if that reaches the `goal` in tokens."""

        def saving() -> int:
            messages = [Message("tool", text, (call,)) for _, call, text in results]
            shorter = [trimmed_message(message, characters) for message in messages]
            return full.tokens_of(messages) - full.tokens_of(shorter)

        results = [result for result in results if len(result[2]) > characters]
        after = full.tokens - await asyncio.to_thread(saving)
        if not results or (goal is not None and after > goal):
            return False
        identified = tuple(TrimmedResult(turn, call.id) for turn, call, _ in results)
        self.emit(ResultsTrimmed(identified, characters, full.tokens, after))
        return True

    async def _summarize_turns(self, view: View, full: Fullness, goal: int) -> bool:
        """Replace the earlier turns with a summary."""
        if not view.history or not any(turn.messages for turn in self.memory.turns):
            return False
        old_tokens = await asyncio.to_thread(full.tokens_of, view.history)
        if old_tokens < full.context * _HISTORY_SHARE:
            return False
        fallback = partial(extract, self.memory)
        summary = await summarize(self.deps, view, view.history, fallback, self.emit)
        summary = replace(summary, text=with_todo(summary.text, self.memory))
        new_tokens = await asyncio.to_thread(full.tokens_of, summary_messages(summary.text))
        if new_tokens >= old_tokens:
            return False
        self.emit(_compacted(summary, old_tokens, new_tokens, turns=len(self.memory.turns)))
        return True

    async def _summarize_steps(self, view: View, full: Fullness, goal: int) -> bool:
        """Replace the turn's earlier steps with a summary; the last ones stay, at least the last reply."""
        groups = reply_groups(view.path.steps)
        kept_groups, room = 1, int(full.context * _KEPT_SHARE)
        for number, group in enumerate(reversed(groups), 1):
            room -= await asyncio.to_thread(full.tokens_of, path_messages("", Path("", group))[1:])
            if room < 0:
                break
            kept_groups = number
        earlier = tuple(chain.from_iterable(groups[:-kept_groups]))
        if not earlier:
            return False
        condensed = view.condensed
        messages = path_messages(view.opening, replace(view.path, steps=earlier))
        fallback = partial(extract_of_steps, earlier, condensed.summary)
        history = (*view.history, *messages)
        summary = await summarize(self.deps, view, history, fallback, self.emit)
        summary = replace(summary, text=with_todo(summary.text, self.memory))
        replaced = (*messages[1:], Message("user", condensed.summary))
        old_tokens = await asyncio.to_thread(full.tokens_of, replaced)
        new_tokens = await asyncio.to_thread(full.tokens_of, (Message("user", summary.text),))
        if new_tokens >= old_tokens:
            return False
        calls = (*sorted(condensed.calls), *(step.call.id for step in earlier))
        self.emit(_compacted(summary, old_tokens, new_tokens, calls=calls))
        return True


def _compacted(
    summary: Summary,
    old_tokens: int,
    new_tokens: int,
    *,
    turns: int = 0,
    calls: tuple[str, ...] = (),
) -> Compacted:
    text, model, spent = summary.text, summary.model, summary.spent_nano
    return Compacted(
        text, model, turns, old_tokens, new_tokens, calls, automatic=True, spent_nano=spent
    )
