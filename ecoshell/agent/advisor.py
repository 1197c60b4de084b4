"""The advisor: a stronger model that the session's model asks at decision points, under a share of the caps."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ecoshell.agent.dependencies import Dependencies
from ecoshell.agent.guards import CallContext, Guard
from ecoshell.agent.spending import QuietSpending, charging
from ecoshell.budget import Account, Amount, Unit, nano_to_usd_text
from ecoshell.budget.gate import finished, sharing
from ecoshell.catalog import few_words
from ecoshell.errors import BudgetError, EcoshellError, LimitReached, ModelBroken
from ecoshell.events import AdviceFollowed, AdvisorReplied, Emit, Notice
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
_MAX_OUTPUT_TOKENS = 8_192
"""Nearly all of it for reasoning: the advice is a few sentences."""
_MAX_TOOLS = 40
"""Tools that the advisor reads of, the registered ones first."""
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
        turn = self.deps.budget.account().turn
        return bool(self.deps.settings.advisor) and self._stuck_turn != turn

    def use_up(self) -> None:
        """Count a question that the model did not ask."""
        self._stuck_turn = self.deps.budget.account().turn

    async def ask(self, question: str, path: Path, emit: Emit, *, automatic: bool = False) -> str:
        """Return the advice; raises EcoshellError."""
        if automatic:
            self.use_up()
        async with self._asking:
            name = self.deps.settings.advisor or ""
            models = await asyncio.to_thread(self.deps.models.lend, name)
            spending = QuietSpending(emit)
            request = mask_secrets(_request(question, path, self._tools(path)))
            try:
                with charging(await self._account()), sharing():
                    reply = await models.current.model.ask(request, spending.hear, role=ADVISOR)
            except LimitReached as limit:
                share = f"{self.deps.settings.advisor_share:.0%} of the remaining budget"
                reason = f"The advisor's share ({share}) does not allow this question."
                raise BudgetError(reason) from limit
            finally:
                await models.aclose()
        advice = reply.text.strip()
        if not advice:
            reason = " before its reasoning ended" if reply.cut else ""
            raise ModelBroken(f"{name} wrote no advice{reason}.")
        self._previous_call = path.steps[-1].call.signature() if path.steps else ""
        nano = spending.consumption.nano
        spent_usd = None if nano is None else nano_to_usd_text(nano)
        emit(AdvisorReplied(question, advice, models.name, spent_usd, automatic))
        return advice

    def follow(self, call: Call, emit: Emit) -> None:
        """Report which call follows an advice."""
        if self._previous_call and call.name != ASK_ADVISOR:
            emit(AdviceFollowed(self._previous_call, call.signature()))
            self._previous_call = ""

    def _tools(self, path: Path) -> list[str]:
        """The tools that the model may use, a line each."""
        schemas = [schema for schema in self.deps.catalog.schemas if schema.name != ASK_ADVISOR]
        schemas.sort(key=lambda schema: schema.name not in path.registered)
        lines = [
            f"{schema.name}({', '.join(schema.parameters.get('properties', ()))}): {few_words(schema)}"
            for schema in schemas[:_MAX_TOOLS]
        ]
        left_out = len(schemas) - len(lines)
        return [*lines, f"(and {left_out} more)"] if left_out else lines

    async def _account(self) -> Account:
        """The account of the turn's share, which is fixed when the advisor is first asked in it."""
        deps, account = self.deps, self.deps.budget.account()
        share = "/".join(filter(None, (account.task, f"{self.session}-advisor-{account.turn}")))
        if share != self._share:
            shares: dict[Unit, int] = {}
            for cap in await deps.budget.caps():
                value = int(cap.left * deps.settings.advisor_share)
                shares[cap.unit] = min(value, shares.get(cap.unit, value))
            amounts = [Amount(value, unit) for unit, value in shares.items()]
            await finished(asyncio.to_thread(deps.budget.gate.ledger.set_share, share, amounts))
            self._share = share
        return replace(account, task=share)


@dataclass(frozen=True)
class Advised(Guard):
    """Asks the advisor once in a turn if the last calls gave no result, and adds the advice to the observation.

    It answers after all calls of a reply, since those were written without the advice.
    """

    advisor: Advisor

    async def execute(self, call: Call, context: CallContext) -> Observation:
        self.advisor.follow(call, context.emit)
        observation = await self.inner.execute(call, context)
        step, reply = Step("", call, observation), context.reply
        if call.id in reply.pending:
            reply.pending.discard(call.id)
            reply.steps.append(step)
        earlier = {step.call.id for step in context.path.steps}
        together = [step for step in reply.steps if step.call.id not in earlier] or [step]
        steps = (*context.path.steps, *together)
        if reply.pending or not (self.advisor.may_help and is_stuck(steps)):
            return observation
        path = Path(context.path.question, steps)
        try:
            advice = await self.advisor.ask(_STUCK, path, context.emit, automatic=True)
        except EcoshellError as failure:
            context.emit(Notice(f"The advisor gave no advice. {failure.message}"))
            return observation
        text = f"{observation.text}\n\nAdvice from a stronger model: {advice}"
        return replace(observation, text=text)


def is_stuck(steps: Sequence[Step]) -> bool:
    """Whether the last calls failed or were refused, other than by the user."""
    calls = [step for step in steps if step.call.name != TOOL_REGISTER][-STUCK_AFTER:]
    results = [step.observation for step in calls]
    return len(calls) == STUCK_AFTER and not any(
        result.ok or result.refused == "unapproved" for result in results
    )


def _request(question: str, path: Path, tools: Sequence[str]) -> Request:
    """What the advisor reads: the tools, the request, the latest steps and the question, each bounded."""
    lines = [
        f"{clip(step.call.signature(), _STEP_CHARACTERS)[0]}\n→ {clip(step.observation.text, _STEP_CHARACTERS)[0]}"
        for step in path.steps[-_MAX_STEPS:]
    ]
    left_out = len(path.steps) - len(lines)
    done = [f"({left_out} earlier steps omitted)"] if left_out else []
    parts = (
        "The tools of the model:\n" + "\n".join(tools),
        f"The request:\n{clip(path.question, _REQUEST_CHARACTERS)[0]}",
        "Done so far:\n" + ("\n".join((*done, *lines)) or "nothing"),
        f"The question:\n{clip(question, _QUESTION_CHARACTERS)[0]}",
    )
    messages = (Message("system", _SYSTEM), Message("user", "\n\n".join(parts)))
    return Request(messages, want="text", max_tokens=_MAX_OUTPUT_TOKENS, purpose="sample")
