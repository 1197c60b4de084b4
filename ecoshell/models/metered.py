"""Calls models within the caps: reserve, stream, settle, and retry what failed before any part of a reply."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import cache, partial
from typing import Literal, TypeVar

from ecoshell.budget import Account, Ask, Hold, Settlement, time_is_up
from ecoshell.budget.gate import Gate, finished
from ecoshell.budget.working_time import TimeUp, WorkingTime
from ecoshell.errors import (
    BudgetError,
    ContextExceeded,
    LimitReached,
    ModelBroken,
    ModelError,
    ModelUnavailable,
    StoreError,
)
from ecoshell.events import BudgetHeld, BudgetSettled, Emit, ModelReplied, Notice
from ecoshell.messages import Message, Usage
from ecoshell.models import Model, PromptSize, Purpose, Reply, Request, Traits, request_bound
from ecoshell.models.prompt_counts import ReportedPrompts
from ecoshell.models.reply_listener import CONVERSATION, ReplyListener
from ecoshell.models.retrying import Retries, RetryPolicy
from ecoshell.options import Effort
from ecoshell.secrecy import mask_secrets

T = TypeVar("T")
AccountOf = Callable[[], Account]  # returns the session and turn; calls fill in the rest
_DECISIONS: frozenset[Purpose] = frozenset({"judge", "rank"})
"""Purposes of requests that are answered with a word."""
_DECISION_TOKENS = 1_024
"""Output of such a request to a model that may be unable to answer without reasoning."""


class MeteredModel:
    """A model behind the budget gate: every call is reserved before it is sent, and settled or released afterwards."""

    def __init__(
        self, model: Model, gate: Gate, account_of: AccountOf, *, retry: RetryPolicy | None = None
    ) -> None:
        self._model = model
        self.count = model.count  # counts the tokens of a plain text
        self._gate = gate
        self._account_of = account_of
        self._retry = retry or RetryPolicy()
        traits = model.traits
        self._reported = ReportedPrompts(
            f"{traits.name} {getattr(model, 'family', '')}",
            native_tools=traits.native_tools,
            defers_tools=traits.defers_tools,
        )
        self._context: int | None = None
        self.effort: Callable[[], Effort] = lambda: "auto"  # what the user has chosen

    @property
    def traits(self) -> Traits:
        """Facts about the model, with the context learned from its provider's errors."""
        traits = self._model.traits
        return traits if self._context is None else replace(traits, context=self._context)

    def restore(self, counted: Callable[[], Mapping[str, Usage]]) -> None:
        """Use the reports of earlier processes, by the digest of their prompts, to bound prompts."""
        self._reported.restored = counted

    @property
    def loaded(self) -> bool:
        """Whether counting tokens loads nothing large."""
        return bool(getattr(self._model, "loaded", True))

    @property
    def exact(self) -> bool:
        """Whether counts currently come from the model's own tokenizer."""
        return self._model.size(Request((Message("user", ""),))).exact

    def size(self, request: Request) -> PromptSize:
        """Tokens of the request's prompt, corrected by the provider's counts of earlier prompts."""
        request = self._adapted(request)
        size = self._model.size(request)
        reported = self._reported.size(request, self._model.size)
        if reported is None:
            return size
        bound = min(size.bound, reported.bound)
        count = size.count if size.exact else max(size.count, reported.count)
        return replace(size, bound=bound, count=min(count, bound))

    def bound(self, request: Request) -> int:
        """The bound of `size` without loading a tokenizer."""
        traits = self.traits

        def size_of(part: Request) -> PromptSize:
            bound = request_bound(part, native_tools=traits.native_tools, model=traits.name)
            return PromptSize(0, bound, exact=False)

        request = self._adapted(request)
        unread, reported = size_of(request), self._reported.bound(request, size_of)
        return unread.bound if reported is None else min(unread.bound, reported)

    async def count_prompt(self, request: Request) -> None:
        """Let the provider count a prompt before its first reply, if it can; later bounds use the count."""
        count_prompt = getattr(self._model, "count_prompt", None)
        request = self._adapted(replace(request, messages=mask_secrets(request.messages)))
        if count_prompt is None or self._reported.bound(request, self._model.size) is not None:
            return
        tokens: int | None = await count_prompt(request)
        if tokens is not None:
            size = await asyncio.to_thread(self._model.size, request)
            self._reported.record(request, Usage(input=tokens), size)

    def _adapted(self, request: Request) -> Request:
        """The request with the effort and the output that it is sent with.

        A model that reasons shall decide in few words without that, and has room for what it cannot do without. A
        summary that continues a step has the step's effort, because Anthropic caches messages by it.
        """
        if request.purpose in CONVERSATION or (request.purpose == "compact" and request.task):
            return replace(request, effort=self.effort())
        if request.purpose in _DECISIONS and self.traits.reasons:
            return replace(
                request, effort="off", max_tokens=max(request.max_tokens, _DECISION_TOKENS)
            )
        return request

    async def warm(self, ahead: Request | None = None) -> None:
        """Start loading the model, and let a local one evaluate the expected prompt; returns at once.

        Nothing is reserved, because local models are free.
        """
        if warm := getattr(self._model, "warm", None):
            await warm(ahead and replace(ahead, messages=mask_secrets(ahead.messages)))

    async def aclose(self) -> None:
        await self._model.aclose()

    def discard(self) -> None:
        """Close a model that was never called; returns at once."""
        if discard := getattr(self._model, "discard", None):
            discard()

    async def set_aside(
        self, make: Callable[[], Request], *, role: str = "single", slack: int = 0
    ) -> Hold:
        """Reserve a later call whose prompt may grow by `slack` tokens, replacing the turn's earlier reservation.

        `make` makes its request, in the thread that counts the prompt.
        """
        return await self._gate.set_aside(lambda: self.reservation(make(), role, slack))

    async def release(self, hold: Hold) -> None:
        await self._gate.release(hold)

    async def ask(
        self, request: Request, emit: Emit, *, role: str = "single", aside: Hold | None = None
    ) -> Reply:
        """Call the model within the caps and stream its text as events; `aside` is a reservation to use for the call.

        A transient failure before any part of a reply is retried, in the same reservation if it was not billed and
        otherwise in a new one. Raises BudgetError and ModelError; if a cap in time stops the call, the LimitReached
        holds the text so far.
        """
        request = self._adapted(replace(request, messages=mask_secrets(request.messages)))
        counted, place = cache(partial(self.reservation, request, role)), aside
        retries, failure = Retries(self._retry), None
        if load := getattr(self._model, "load", None):
            await load()  # before the reservation: it costs nothing, and is no working time
        while True:
            try:
                hold = await (
                    self._gate.hold_final(place, counted) if place else self._gate.hold(counted)
                )
            except (BudgetError, StoreError) as refusal:
                if place is not None and place is not aside:  # `aside` is released by its owner
                    await self._gate.release(place)
                if failure is None or not isinstance(refusal, BudgetError):
                    raise
                failure.message += f" No further attempt: {refusal.message}"
                raise failure from refusal
            granted = replace(request, max_tokens=hold.max_tokens, role=role)
            call = MeteredCall(self._gate, hold, emit, retries, local=self.traits.local)
            try:
                return await call.run(partial(self._stream, granted, call))
            except TimeUp:
                raise await self._out_of_time(hold.account, call.text()) from None
            except ContextExceeded as error:
                error.model = self.traits.name
                await asyncio.to_thread(self._learn_context, granted, error)
                raise
            except ModelError as error:
                error.model = self.traits.name
                if call.pause is None or not isinstance(error, ModelUnavailable):
                    raise
                failure = error
                emit(Notice(retries.notice(error, call.pause)))
                place = None if error.billed else hold
                try:
                    await self._retry.sleep(call.pause)
                except asyncio.CancelledError:
                    if place is not None:
                        await self._gate.release(place)
                    raise

    async def _out_of_time(self, account: Account, text: str) -> LimitReached:
        read = self._gate.ledger.caps
        caps = await asyncio.to_thread(read, account.session, account.turn, task=account.task)
        return time_is_up(caps, text)

    def _learn_context(self, refused: Request, error: ContextExceeded) -> None:
        """Remember the context of a model that rejected a request as too long; may block.

        It is in tokens as counted by `size`, which may count fewer than the provider.
        """
        size = self.size(refused)
        limits = (self.traits.context, error.limit, size.count + refused.max_tokens)
        self._context = min(filter(None, limits))
        if error.limit is not None and size.cautious_count < error.limit:
            error.fix = (
                f"The prompt fits, but not with {refused.max_tokens:,} tokens of output:"
                " ask again, or lower [agent] max_output_tokens."
            )

    def reservation(self, request: Request, role: str = "single", slack: int = 0) -> Ask:
        """The reservation for a request whose prompt may grow by `slack`; counts the prompt, so it may block."""
        traits = self.traits
        account = replace(self._account_of(), role=role, model=traits.name, purpose=request.purpose)
        max_tokens = min(request.max_tokens, traits.max_output or request.max_tokens)
        size, price = self.size(request), traits.price
        if price is not None and not size.cache_writes:
            price = replace(price, cache_writes=False)
        minimum, repeatable = request.min_tokens, request.repeatable
        return Ask(price, size.bound + slack, max_tokens, account, minimum, repeatable)

    async def _stream(self, request: Request, call: "MeteredCall") -> Reply:
        """Consume the model's stream, and cut it off if it exceeds the output limit."""
        traits, name = self.traits, self.traits.name
        listener = ReplyListener(request, call.hold.account.role, traits, call.emit)
        call.estimate = lambda: Usage(self.size(request).count, listener.tokens(self.count))
        call.text = lambda: "".join(listener.answers or listener.texts)
        async with aclosing(self._model.stream(request)) as pieces:
            async for piece in pieces:
                reply = listener.take(piece)
                call.usage, call.shown = listener.usage, listener.began
                if reply is not None:
                    call.tool = reply.calls[0].subject if reply.calls else ""
                    if call.usage is not None and not traits.local:
                        size = await asyncio.to_thread(self._model.size, request)
                        call.prompt = self._reported.record(request, call.usage, size)
                    reply = _grouped(reply, f"m{call.hold.entry}")
                    call.emit(_replied(reply, call.hold.account, request))
                    return reply
                if listener.endless:
                    # A model that ignores `max_tokens` cannot be kept within a cap; the whole reservation counts.
                    call.usage = None
                    reason = "continued past max_tokens and was cut off"
                    await finished(asyncio.to_thread(self._gate.ledger.bar, name, f"it {reason}"))
                    call.emit(Notice(f"{name} {reason}; it is not called under a cap from now on."))
                    return Reply("".join(listener.texts), cut=True, finish="endless")
        raise ModelBroken(f"{name} ended its stream without an answer.", fix="Ask again.")


class MeteredCall:
    """One reserved call, from its hold until it is settled or released."""

    def __init__(
        self, gate: Gate, hold: Hold, emit: Emit, retries: Retries, *, local: bool
    ) -> None:
        """The hold of an unbilled attempt is kept for the next attempt.

        Calls that leave this machine or cost money start only after their reservation is on disk in the session.
        """
        self.hold = hold
        self.emit = emit
        self.usage: Usage | None = None
        self.estimate: Callable[[], Usage] | None = None  # counts tokens; may block
        self.text: Callable[[], str] = lambda: ""  # the text received so far
        self.prompt = ""  # digest of the prompt, if its reported count is reused
        self.tool = ""
        self.pause: float | None = None  # seconds until the next attempt; None without one
        self.shown = False  # whether a part of the reply arrived
        self._ended = "no usage was reported"
        self._gate = gate
        self._retries = retries
        self._outside = not local or hold.nano != 0
        self._time = WorkingTime(hold.ms, lambda: gate.extend(hold.entry))

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work and end the hold: settled once anything was sent, otherwise released."""
        ending: Literal["settle", "release", "keep"] = "release"
        try:
            self.emit(_reserved(self.hold))
            if self._outside:
                await self._gate.logged()
            ending = "settle"
            return await self._time.spend(work)
        except TimeUp:
            self._ended = "its time was up"
            raise
        except asyncio.CancelledError:
            self._ended = "the call was stopped"
            raise
        except ModelError as error:
            self._ended, error.shown = "the call failed", self.shown
            if isinstance(error, ModelUnavailable):
                self.pause = self._retries.next_pause(error)
            if not error.billed:
                ending = "release" if self.pause is None else "keep"
            raise
        finally:
            if ending == "settle":
                await finished(self._settle())
            elif ending == "release":
                await self._gate.release(self.hold, self._time.ms or None)
            elif self._time.ms:
                await self._gate.end_attempt(self.hold, self._time.ms)

    async def _settle(self) -> None:
        hold, ms = self.hold, self._time.ms
        estimate = None
        if self.usage is None and self.estimate is not None:
            estimate = await asyncio.to_thread(self.estimate)
        try:
            settlement = await self._gate.settle(
                hold, self.usage, tool=self.tool, ms=ms, estimate=estimate
            )
        except StoreError as error:  # the answer is kept, and the hold counts in full
            self.emit(Notice(f"The call could not be settled. {error}"))
            worst = Usage(hold.prompt_tokens, hold.max_tokens)
            settlement = Settlement(hold.entry, hold.nano, worst, reported=False, estimate=estimate)
            self._ended = "it could not be settled"
        self.emit(
            BudgetSettled(
                entry=hold.entry,
                role=hold.account.role,
                model=hold.account.model,
                spent_nano=settlement.spent_nano,
                usage=settlement.usage,
                reported=settlement.reported,
                seconds=ms / 1_000,
                overrun_nano=settlement.overrun_nano,
                estimate=settlement.estimate,
                estimate_nano=settlement.estimate_nano,
                why="" if settlement.reported else self._ended,
                prompt=self.prompt if settlement.reported else "",
            )
        )
        if settlement.overran:
            from ecoshell.events.budget import overrun_text

            self.emit(Notice(overrun_text(hold.account.model, settlement.overrun_text)))


def _reserved(hold: Hold) -> BudgetHeld:
    return BudgetHeld(
        entry=hold.entry,
        role=hold.account.role,
        model=hold.account.model,
        held_nano=hold.nano,
        held_tokens=hold.tokens,
        max_tokens=hold.max_tokens,
        clamped=hold.clamped,
        held_ms=hold.ms,
    )


def _grouped(reply: Reply, group: str) -> Reply:
    calls = tuple(replace(call, group=group) for call in reply.calls)
    return replace(reply, group=group, calls=calls)


def _replied(reply: Reply, account: Account, request: Request) -> ModelReplied:
    """The event of a complete reply; only replies of the conversation keep their provider state."""
    state = reply.state if request.purpose in CONVERSATION else None
    return ModelReplied(
        group=reply.group,
        role=account.role,
        model=account.model,
        finish=reply.finish or ("length" if reply.cut else "tool_calls" if reply.calls else "stop"),
        calls=len(reply.calls),
        reasoning_tokens=reply.usage.reasoning if reply.usage else None,
        family=state.family if state else "",
        message=state.message if state else {},
        has_unusable_call=bool(reply.fault),
    )
