"""Drafting tool graphs, and filling in the calls of their nodes."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ecoshell.agent.mode import DraftTask, FillTask
from ecoshell.messages import TOOL_CALL, Call, ToolSchema
from ecoshell.models import Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.requests import UNUSABLE_CALL, broken_call, prompt, repair_request, thought_of
from ecoshell.strategies import Thought

_ANSWER_LABEL = re.compile(r"^\W*answer\W*:(?:[*_`]+(?=\s))?\s*", re.IGNORECASE)
"""The label before an answer, with its markup but without any of the answer's own."""


async def ask_for_draft(
    model: MeteredModel,
    task: DraftTask,
    make: Callable[[str], Awaitable[Request]],
    ask: Callable[[Request], Awaitable[Reply]],
) -> Thought | str:
    """The tool graph that a model writes, or a thought if it makes a call or answers instead.

    A grammar of graphs and answers constrains a local model. `make` makes the request that ends with a text, and `ask`
    sends it.
    """
    grammar = ""
    plans = ""
    if task.grammar is not None and model.traits.local:
        plans = await asyncio.to_thread(task.grammar)
    if plans:
        from ecoshell.models.grammar import MAX_ANSWER

        answer = rf'root ::= plan | "Answer: " [^\x00]{{1,{MAX_ANSWER}}}'
        grammar = f"{answer}\n{plans.replace('root ::=', 'plan ::=', 1)}"
    request = await make(draft_text(task, numbered=bool(grammar)))
    reply = await ask(replace(request, grammar=grammar, temperature=0.0) if grammar else request)
    if reply.call is not None:
        return thought_of(reply)
    label = _ANSWER_LABEL.match(reply.text)
    return Thought(reply.text[label.end() :].strip()) if label else reply.text.strip()


def draft_text(task: DraftTask, *, numbered: bool = False) -> str:
    """The request for a tool graph, in labels or in numbers (the form that the grammar covers)."""
    parts = [prompt("draft"), prompt("draft_numbers" if numbered else "draft_labels")]
    if task.costs:
        parts.append(task.costs)
    if task.unfinished:
        done = ", ".join(task.finished) or "nothing"
        lines = "\n".join(f"- {line}" for line in task.unfinished)
        parts.append(f"{prompt('redraft')}\n{task.previous}\ndone: {done}\n{lines}")
    if task.fault:
        parts.append(
            f"This plan cannot be run:\n{task.faulty}\n{task.fault}\nWrite it again, correctly."
        )
    return "\n\n".join(parts)


def fill_text(task: FillTask) -> str:
    """The request for a node's call."""
    lines = [f"{prompt('fill')} {task.schema.name}", f"It is {task.label} in the plan {task.plan}."]
    if task.uses > 1:
        lines.append(
            f"It is use {task.use} of {task.uses} of the tool for what the question names, in that order."
        )
    if task.calls:
        lines.append(f"Called already: {'; '.join(call.signature() for call in task.calls)}.")
    return "\n".join(lines)


async def filled(
    request: Request,
    schema: ToolSchema,
    model: MeteredModel,
    ask: Callable[[Request], Awaitable[Reply]],
    call_in: Callable[[Reply, Request], tuple[Call | None, str]],
) -> Call:
    """The call that a model makes for a node; an unusable one is repaired once, then CallBroken is raised.

    Only the node's tool may be called, directly or through `tool_call`. `call_in` reads the call of a reply, or says
    what is wrong with it.
    """
    from ecoshell.models.protocol import call_fault

    carrier = (tool for tool in request.callable_now if tool.name == TOOL_CALL)
    request = attempt = replace(request, callable_now=(*carrier, schema))
    fault = ""
    for _ in range(2):
        reply = await ask(attempt)
        call, fault = call_in(reply, request)
        if call is None:
            fault = fault or "A call was wanted, and none was made."
        elif call.subject != schema.name:
            fault = f"A call of {schema.name} was wanted, not of {call.subject}."
        else:
            fault = call.fault or ("" if call.name != schema.name else call_fault(call, [schema]))
        if call is not None and not fault:
            return call
        attempt = repair_request(request, reply, UNUSABLE_CALL.format(fault))
    raise broken_call(model, f"for {schema.name}: {fault}")
