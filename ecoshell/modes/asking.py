"""What modes share in asking a model: prompts cut to fit, calls repaired once, cut replies told of."""

from collections.abc import Callable
from dataclasses import replace

from ecoshell.agent.memory import fit
from ecoshell.errors import CallBroken, UsageError
from ecoshell.events import Emit, Notice
from ecoshell.messages import FINISH, Call, Message, Speaker
from ecoshell.models.base import PromptSize, Reply, Request
from ecoshell.models.metered import MeteredModel
from ecoshell.strategies.base import Thought

Messages = tuple[Message, ...]
Make = Callable[[Messages], Request]
"""Makes a request of what was said so far; the results in it may have been cut."""


def in_context(model: MeteredModel, said: Messages, make: Make, most: int | None = None, *, role: str = "") -> Request:
    """The request, its oldest observations cut until it fits into the model's context and a bound of `most` tokens.

    What is known of neither is not counted. Raises UsageError when no cut is enough for the context; it names the role,
    where there are several.
    """
    request, context = make(said), model.traits.context
    if context is None and most is None:
        return request
    room = None if context is None else context - request.max_tokens

    def fits(size: PromptSize) -> bool:
        return (room is None or size.count <= room) and (most is None or size.bound <= most)

    if fits(model.size(request)):
        return request
    cut = make(fit(said, lambda messages: fits(model.size(make(messages)))))
    count = model.size(cut).count
    if room is not None and count > room:
        whose = f"the {role}'s model {model.traits.name}" if role else model.traits.name
        other = f", or choose a model with a larger context{f' with /role {role} MODEL' if role else ''}."
        raise UsageError(
            f"This takes about {count:,} tokens, and the context of {whose} has room for {max(0, room):,}.",
            kept="It was not sent." if role else "Nothing was sent.",
            fix=f"Ask something shorter, put long text in a file{other}",
        )
    return cut


def thought_of(reply: Reply, *, by: str = "") -> Thought:
    """A reply as a thought: all of its calls, though none that would end the turn before the others have come back."""
    ends = reply.call is not None and reply.call.name == FINISH
    more = () if ends else tuple(call for call in reply.calls[1:] if call.name != FINISH)
    return Thought(reply.text.strip(), reply.call, by=by, more=more)


def repair_request(request: Request, reply: Reply, told: str) -> Request:
    """The same once more, the model told what was wrong with its reply: as the result of its call, if that was read."""
    answered: Speaker = "user" if reply.attempt is None else "tool"
    said = (Message("assistant", reply.text, reply.attempt), Message(answered, told, reply.attempt))
    return replace(request, messages=(*request.messages, *said), purpose="repair", temperature=0.0)


def unusable_call(fault: str) -> str:
    """What a model is told of a call that could not be used."""
    return f"That call could not be used: {fault} Make one that can be used."


def broken_call(model: MeteredModel, fault: str, attempt: Call | None = None) -> CallBroken:
    """The error for a model whose second attempt at a call is as useless as its first."""
    return CallBroken(
        f"{model.traits.name} twice made a call that cannot be used: {fault}",
        tool=attempt.name if attempt else "",
        arguments=attempt.arguments if attempt else None,
        kept="The session is kept.",
        fix="Ask again, or choose another model with /model.",
    )


def tell_if_cut(reply: Reply, emit: Emit) -> None:
    """Say so where a reply ended at its longest."""
    if reply.cut:
        emit(Notice("The reply was cut at its longest: [agent] max_output_tokens, or a cap, allows no more."))
