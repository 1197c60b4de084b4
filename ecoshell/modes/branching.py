"""What modes tell a model of a parallel plan, and what they take from its replies."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ecoshell.agent.mode import DraftTask, FillTask
from ecoshell.errors import ModelBroken
from ecoshell.messages import TOOL_CALL, Call, ToolDocument
from ecoshell.models.base import Reply, Request
from ecoshell.models.grammar import MAX_ANSWER
from ecoshell.models.metered import MeteredModel
from ecoshell.models.protocol import call_fault
from ecoshell.modes.asking import broken_call, repair_request, thought_of, unusable_call
from ecoshell.modes.prompts import prompt
from ecoshell.strategies.base import Thought

_OR_ANSWER = rf'root ::= plan | "Answer: " [^\x00]{{1,{MAX_ANSWER}}}' + "\n"
_ANSWER = re.compile(r"^\W*answer\W*:\W*", re.IGNORECASE)


def draft_grammar(task: DraftTask, model: MeteredModel) -> str:
    """The grammar of plans, and of answers in their place, that a local model is held to; empty for another."""
    if task.grammar is None or not model.traits.local:
        return ""
    plans = task.grammar()
    return plans and _OR_ANSWER + plans.replace("root ::=", "plan ::=", 1)


def draft_text(task: DraftTask, *, numbered: bool = False) -> str:
    """How a plan is asked for: in the form of labels, or in that of numbers, of which the grammar is."""
    parts = [prompt("draft"), prompt("draft_numbers" if numbered else "draft_labels")]
    if task.costs:
        parts.append(task.costs)
    if task.unfinished:
        done = ", ".join(task.finished) or "nothing"
        lines = "\n".join(f"- {line}" for line in task.unfinished)
        parts.append(f"{prompt('redraft')}\n{task.before}\ndone: {done}\n{lines}")
    if task.fault:
        parts.append(f"This plan cannot be run:\n{task.before}\n{task.fault}\nWrite it again, correctly.")
    return "\n\n".join(parts)


def drafted(reply: Reply) -> Thought | str:
    """The plan in a reply; a thought where the model made a call, or answered, in its place."""
    if reply.call is not None:
        return thought_of(reply)
    answer = _ANSWER.match(reply.text)
    return Thought(reply.text[answer.end() :].strip()) if answer else reply.text.strip()


def fill_text(task: FillTask) -> str:
    """How a node's call is asked for."""
    lines = [f"{prompt('fill')} {task.document.name}", f"It is {task.label} in the plan {task.plan}."]
    if task.uses > 1:
        lines.append(f"It is use {task.use} of {task.uses} of the tool for what the question names, in that order.")
    if task.calls:
        lines.append(f"Called already: {'; '.join(call.signature() for call in task.calls)}.")
    return "\n".join(lines)


def call_in_question(task: FillTask, question: str) -> Call | None:
    """The call that leaves no choice: one argument that can only be copied, and the question names one for each use."""
    properties: Mapping[str, Any] = task.document.parameters.get("properties") or {}
    required = task.document.parameters.get("required") or ()
    if task.given or len(properties) != 1 or not set(properties) <= set(required):
        return None
    from ecoshell.modes.stepwise import arguments  # another mode, which is not loaded for anything else

    (name,) = properties
    found = arguments.copied(task.document, name, question)
    return Call(task.document.name, {name: found[task.use - 1]}) if len(found) == task.uses else None


def fillable(request: Request, document: ToolDocument) -> tuple[ToolDocument, ...]:
    """What may be called to fill in a node: its tool, and what carries calls where the presentation has that."""
    carrier = (one for one in request.callable_now if one.name == TOOL_CALL)
    return (*carrier, document)


async def filled(
    request: Request,
    document: ToolDocument,
    ask: Callable[[Request], Awaitable[Reply]],
    made: Callable[[Reply, Request], tuple[Call | None, str]],
) -> tuple[Call | None, str]:
    """The call that a model makes for a node, asked once more where it cannot be used; and what is still wrong then."""
    reply = await ask(request)
    call, fault = made(reply, request)
    if fault := _fill_fault(call, document, fault):
        reply = await ask(repair_request(request, reply, unusable_call(fault)))
        call, fault = made(reply, request)
        fault = _fill_fault(call, document, fault)
    return call, fault


def _fill_fault(call: Call | None, document: ToolDocument, fault: str) -> str:
    """What is wrong with the call that was made for a node; empty when it can be made."""
    if call is None:
        return fault or "A call was wanted, and none was made."
    if call.subject != document.name:
        return f"A call of {document.name} was wanted, not of {call.subject}."
    return "" if call.name != document.name else call_fault(call, [document])


def unfilled(model: MeteredModel, document: ToolDocument, fault: str) -> ModelBroken:
    """The error for a node whose call failed twice."""
    return broken_call(model, f"for {document.name}: {fault}")
