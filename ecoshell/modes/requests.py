"""Requests to models: the parts that all modes share, fitted to the model's context."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files

from ecoshell.agent.view import LARGE_CONTEXT, View, is_trimmable, trimmed_message
from ecoshell.catalog import Presentation
from ecoshell.errors import CallBroken, ContextExceeded, ModelBroken
from ecoshell.events import Emit, Notice
from ecoshell.messages import FINISH, Call, Message, Speaker, ToolSchema
from ecoshell.models import PromptSize, Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.strategies import Thought

Messages = tuple[Message, ...]
MakeRequest = Callable[[Messages], Request]  # from the conversation, perhaps with shortened results

UNUSABLE_CALL = "That call could not be used: {} Make one that can be used."
LEAST_OUTPUT = 1_024  # output tokens for which a request in a large context must have room
_CUT_CHARACTERS = 80  # kept of an observation that is cut
_TRIM_STEPS = (4_000, 1_200, 400, _CUT_CHARACTERS)  # characters kept of each result, in turn
_CALL_SKIPPED = "This call was not made, because the one before it could not be used."


@cache
def prompt(name: str) -> str:
    """The text of a prompt file."""
    return (files("ecoshell.modes") / f"{name}.md").read_text(encoding="utf-8").strip()


def system_text(presentation: Presentation, *, searching: bool = False) -> str:
    """The system text of a capable model, the same throughout a session."""
    parts = [prompt("system")]
    if presentation.registers:
        parts.append(prompt("registering_by_name"))
    if searching:
        parts.append(prompt("finishing"))
    return "\n\n".join(parts)


def siblings_message(view: View, introduction: str = "tried") -> Message:
    """List the steps already tried from here and the registered tools that are now forbidden.

    `introduction` names the prompt file that comes first.
    """
    steps = [
        f"- {step.call.signature()}: {step.outcome or 'proposed, and not made yet'}"
        for step in view.siblings
    ]
    lines = [prompt(introduction), *steps]
    forbidden = [schema.name for schema in view.registered if schema.name in view.forbidden]
    if forbidden:
        lines.append(f"Not to be used any more: {', '.join(forbidden)}.")
    return Message("user", "\n".join(lines))


def callable_schemas(view: View, array: tuple[ToolSchema, ...]) -> tuple[ToolSchema, ...]:
    """The tools that may be called now: the tool array, other registered tools, and those a first call registers."""
    array_names = {schema.name for schema in array}
    others = (*view.registered, *(view.deferrable if view.presentation.by_call else ()))
    added = {schema.name: schema for schema in others if schema.name not in array_names}
    schemas = (*array, *added.values())
    return tuple(schema for schema in schemas if schema.name not in view.forbidden)


def thought_of(reply: Reply, *, by: str = "") -> Thought:
    """Convert a reply to a thought with all of its calls; drops `finish` if it is not the first call."""
    ends = reply.call is not None and reply.call.name == FINISH
    more = () if ends else tuple(call for call in reply.calls[1:] if call.name != FINISH)
    return Thought(reply.text.strip(), reply.call, by=by, more=more, state=reply.state)


def repair_request(request: Request, reply: Reply, problem: str) -> Request:
    """Repeat the request, followed by the faulty reply and a description of the problem.

    The problem is reported as the result of the call if one was read. After a call of an unknown tool, the reply must
    be a call.
    """
    exchange: Messages
    if reply.state is not None and reply.calls:
        results = (
            Message("tool", _CALL_SKIPPED if index else problem, (call,))
            for index, call in enumerate(reply.calls)
        )
        exchange = (Message("assistant", reply.text, reply.calls, state=reply.state), *results)
    else:
        speaker: Speaker = "user" if reply.attempt is None else "tool"
        calls = (reply.attempt,) if reply.attempt else ()
        exchange = (Message("assistant", reply.text, calls), Message(speaker, problem, calls))
    names = {schema.name for schema in request.callable_now}
    is_unknown = reply.attempt is not None and reply.attempt.name not in names
    want = "call" if is_unknown else request.want
    return replace(
        request,
        messages=(*request.messages, *exchange),
        want=want,
        purpose="repair",
        temperature=0.0,
    )


def broken_call(model: MeteredModel, fault: str, attempt: Call | None = None) -> CallBroken:
    """The error for a model whose second attempt at a call is unusable as well."""
    return CallBroken(
        f"{model.traits.name} twice made a call that cannot be used: {fault}",
        tool=attempt.name if attempt else "",
        arguments=attempt.arguments if attempt else None,
        kept="The session is kept.",
        fix="Ask again, or choose another model with /model.",
    )


def cut_call(model: MeteredModel, attempt: Call | None, advice: str) -> CallBroken:
    """The error for a model whose output limit cut its call."""
    return CallBroken(
        f"{model.traits.name} reached its output limit in the middle of a call.",
        tool=attempt.name if attempt else "",
        arguments=attempt.arguments if attempt else None,
        kept="The session is kept.",
        fix=advice,
    )


def exhausted(model: MeteredModel, advice: str) -> ModelBroken:
    """The error for a model whose output limit left no room for anything but reasoning."""
    return ModelBroken(
        f"{model.traits.name} reached its output limit before it answered.",
        kept="The session is kept.",
        fix=advice,
    )


def warn_if_cut(reply: Reply, emit: Emit) -> None:
    """Emit a notice if the output limit cut a small model's reply; replies of capable models are completed instead."""
    if reply.cut:
        emit(Notice("The reply was cut: [agent] max_output_tokens, or a cap, allows no more."))


def fit(messages: Messages, enough: Callable[[Messages], bool]) -> Messages:
    """Cut the oldest observations until `enough` returns True; schemas are never cut (SPEC §4)."""
    if enough(messages):
        return messages
    shortened = list(messages)
    for index, message in enumerate(messages):
        if message.speaker != "tool" or not is_trimmable(message.call):
            continue
        if len(message.text) > 2 * _CUT_CHARACTERS:
            removed = len(message.text) - _CUT_CHARACTERS
            text = f"{message.text[:_CUT_CHARACTERS]} [cut: {removed} characters, to make room]"
            shortened[index] = replace(message, text=text, images=())
        elif message.images:
            shortened[index] = replace(message, images=())
        if enough(tuple(shortened)):
            break
    return tuple(shortened)


def fit_together(messages: Messages, enough: Callable[[Messages], bool]) -> Messages:
    """Trim all results to the same length, as long as `enough` allows; schemas are never trimmed."""
    shortened = messages
    for characters in _TRIM_STEPS:
        if enough(shortened):
            break
        shortened = tuple(
            trimmed_message(message, characters)
            if message.speaker == "tool" and is_trimmable(message.call)
            else message
            for message in messages
        )
    return shortened


def in_context(
    model: MeteredModel,
    conversation: Messages,
    make: MakeRequest,
    prompt_limit: int | None = None,
    *,
    role: str = "",
) -> Request:
    """Fit a request to the model's context and to `prompt_limit` tokens; unknown limits do not apply.

    In a small context (below `LARGE_CONTEXT`), the oldest results are shortened one by one. In a large one, results are
    shortened only to keep to `prompt_limit`. Output shrinks to the room left by the prompt. Raises ContextExceeded,
    which names the role, if too little room is left, so that the turn is compacted.
    """
    request, context = make(conversation), model.traits.context
    if context is None and prompt_limit is None:
        return request
    is_small = context is not None and context < LARGE_CONTEXT
    least_output = max(LEAST_OUTPUT, context // 8) if context and is_small else LEAST_OUTPUT
    room = None if context is None else context - min(request.max_tokens, least_output)

    def fits(size: PromptSize) -> bool:
        if is_small and room is not None and size.count > room:
            return False
        return prompt_limit is None or size.bound <= prompt_limit

    size = model.size(request)
    if not fits(size):
        trim = fit if is_small else fit_together
        request = make(trim(conversation, lambda messages: fits(model.size(make(messages)))))
        size = model.size(request)
    if context is None or room is None:
        return request
    if size.count > room:
        owner = f"the {role}'s model {model.traits.name}" if role else model.traits.name
        command = f" with /role {role} MODEL" if role else ""
        raise ContextExceeded(
            f"This takes about {size.count:,} tokens, and the context of {owner} has room for {max(0, room):,}.",
            kept="It was not sent." if role else "Nothing was sent.",
            fix="Ask something shorter, put long text in a file, or choose a model with a larger"
            f" context{command}.",
        )
    output = context - min(size.cautious_count, room)
    return replace(request, max_tokens=min(request.max_tokens, output))
