"""The advisor: a stronger model that the session's model asks at decision points, under a share of the caps."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import CallContext, Guard
from ecoshell.agent.spending import charging
from ecoshell.budget import Account, Amount, nano_to_usd_text
from ecoshell.budget.gate import finished, sharing
from ecoshell.errors import BudgetError, EcoshellError, LimitReached
from ecoshell.events import (
    AdviceFollowed,
    AdvisorReplied,
    BudgetSettled,
    Emit,
    Event,
    Notice,
    Reasoned,
    TextArrived,
)
from ecoshell.messages import TOOL_REGISTER, Call, Message, Observation
from ecoshell.models import Request
from ecoshell.options import ADVISOR
from ecoshell.secrecy import mask_secrets
from ecoshell.strategies import Path, Step
from ecoshell.tools.builtin.advisor import ASK_ADVISOR, AdvisorTool
from ecoshell.tools.running import clip

STUCK_AFTER = 3
"""Consecutive calls without a result after which the advisor helps once in a turn."""
EMPTY_ANSWER = "I gave an empty answer. What is still missing, and what should the answer say?"
_STUCK = "My last calls failed or were refused. What is wrong with this approach, and what should I do next?"
_SYSTEM = (
    "You advise another model that works for a user with tools. You see the request, what it has done so far and its "
    "question. Say in a few sentences what it should do next and why: tool, arguments, file, or the answer. "
    "Point out wrong assumptions. You cannot call tools yourself."
)
_MAX_OUTPUT_TOKENS = 1_024
_REQUEST_CHARACTERS, _QUESTION_CHARACTERS = 6_000, 4_000
_MAX_STEPS = 16
_STEP_CHARACTERS = 800
"""Characters of a call, and of its result, that the advisor reads."""


def offer_advisor(deps: Dependencies) -> None:
    """Add the tool `ask_advisor` to the catalog if an advisor is set, otherwise remove it; only between turns."""
    is_offered = ASK_ADVISOR in deps.catalog
    if deps.settings.advisor and not is_offered:
        deps.catalog.include(AdvisorTool())
    elif is_offered and not deps.settings.advisor:
        deps.catalog.exclude(ASK_ADVISOR)
    else:
        return
    deps.ranker.update(deps.catalog.schemas)


@dataclass(eq=False)
class Advisor:
    """Asks the advisor of one session."""

    deps: Dependencies
    session: str
    _share: str = ""
    """The path of the turn's share in the ledger."""
    _stuck_turn: int = 0
    """The last turn in which it was asked without a call of the model."""
    _previous_call: str = ""
    """The call before the last advice, until the next call."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def may_help(self) -> bool:
        """Whether it may still be asked once without a call of the model in this turn."""
        return (
            bool(self.deps.settings.advisor) and self._stuck_turn != self.deps.budget.account().turn
        )

    def use_up(self) -> None:
        """Count a question that the model did not ask."""
        self._stuck_turn = self.deps.budget.account().turn

    async def ask(self, question: str, path: Path, emit: Emit, *, automatic: bool = False) -> str:
        """Return the advice; raises EcoshellError."""
        if automatic:
            self.use_up()
        async with self._asking:
            models = await asyncio.to_thread(
                self.deps.models.lend, self.deps.settings.advisor or ""
            )
            spending = _Spending(emit)
            try:
                with charging(await self._account()), sharing():
                    request = _request(question, path)
                    reply = await models.current.model.ask(
                        mask_secrets(request), spending.hear, role=ADVISOR
                    )
            except LimitReached as limit:
                share = f"{self.deps.settings.advisor_share:.0%} of the remaining budget"
                raise BudgetError(
                    f"The advisor's share ({share}) does not allow this question."
                ) from limit
            finally:
                await models.aclose()
        advice = reply.text.strip() or "(no advice)"
        self._previous_call = path.steps[-1].call.signature() if path.steps else ""
        emit(AdvisorReplied(question, advice, models.name, spending.usd, automatic))
        return advice

    def follow(self, call: Call, emit: Emit) -> None:
        """Report which call follows an advice."""
        if self._previous_call and call.name != ASK_ADVISOR:
            emit(AdviceFollowed(self._previous_call, call.signature()))
            self._previous_call = ""

    async def _account(self) -> Account:
        """The account of the turn's share, which is fixed when the advisor is first asked in it."""
        deps, account = self.deps, self.deps.budget.account()
        share = "/".join(filter(None, (account.task, f"{self.session}-advisor-{account.turn}")))
        if share != self._share:
            shares: dict[str, Amount] = {}
            for cap in await deps.budget.caps():
                value = int(cap.left * deps.settings.advisor_share)
                if cap.unit not in shares or value < shares[cap.unit].value:
                    shares[cap.unit] = Amount(value, cap.unit)
            await finished(
                asyncio.to_thread(deps.budget.gate.ledger.set_share, share, shares.values())
            )
            self._share = share
        return replace(account, task=share)


@dataclass(slots=True)
class _Spending:
    """Forwards the events of the call except its text, and adds up its price."""

    emit: Emit
    nano: int | None = 0

    @property
    def usd(self) -> str | None:
        return None if self.nano is None else nano_to_usd_text(self.nano)

    def hear(self, event: Event) -> None:
        if isinstance(event, BudgetSettled):
            self.nano = (
                None
                if self.nano is None or event.spent_nano is None
                else self.nano + event.spent_nano
            )
        if not isinstance(event, (TextArrived, Reasoned)):
            self.emit(event)


@dataclass(frozen=True)
class Advised(Guard):
    """Asks the advisor once in a turn if the last calls gave no result, and adds the advice to the observation."""

    advisor: Advisor

    async def execute(self, call: Call, context: CallContext) -> Observation:
        self.advisor.follow(call, context.emit)
        observation = await self.inner.execute(call, context)
        steps = (*context.path.steps, Step("", call, observation))
        if not (self.advisor.may_help and is_stuck(steps)):
            return observation
        try:
            advice = await self.advisor.ask(
                _STUCK, Path(context.path.question, steps), context.emit, automatic=True
            )
        except EcoshellError as failure:
            context.emit(Notice(f"The advisor gave no advice. {failure.message}"))
            return observation
        return replace(
            observation, text=f"{observation.text}\n\nAdvice from a stronger model: {advice}"
        )


def is_stuck(steps: Sequence[Step]) -> bool:
    """Whether the last calls failed or were refused, other than by the user."""
    calls = [step for step in steps if step.call.name != TOOL_REGISTER][-STUCK_AFTER:]
    fruitless = [
        step
        for step in calls
        if not step.observation.ok and step.observation.refused != "unapproved"
    ]
    return len(fruitless) == STUCK_AFTER


def _request(question: str, path: Path) -> Request:
    """What the advisor reads: the request, the latest steps and the question, each bounded."""
    lines = [
        f"{clip(step.call.signature(), _STEP_CHARACTERS)[0]}\n→ {clip(step.observation.text, _STEP_CHARACTERS)[0]}"
        for step in path.steps[-_MAX_STEPS:]
    ]
    left_out = len(path.steps) - len(lines)
    done = [f"({left_out} earlier steps omitted)"] if left_out else []
    text = "\n\n".join(
        (
            f"The request:\n{clip(path.question, _REQUEST_CHARACTERS)[0]}",
            "Done so far:\n" + ("\n".join((*done, *lines)) or "nothing"),
            f"The question:\n{clip(question, _QUESTION_CHARACTERS)[0]}",
        )
    )
    messages = (Message("system", _SYSTEM), Message("user", text))
    return Request(messages, want="text", max_tokens=_MAX_OUTPUT_TOKENS, purpose="sample")
