"""Replies of a capable model that were cut by the output limit, in modes single and umi, with a stand-in model."""

from dataclasses import replace

import pytest

from ecoshell.agent.view import View
from ecoshell.catalog import PLAIN
from ecoshell.errors import CallBroken, LimitReached, ModelBroken
from ecoshell.events import Notice
from ecoshell.messages import FINISH, Call, Observation, ProviderState, ToolSchema, Usage
from ecoshell.models import PromptSize, Reply, Traits
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.continuing import CONTINUE, joined
from ecoshell.modes.single import Single
from ecoshell.modes.umi import Umi
from ecoshell.strategies import Path, Step, Thought

READ = ToolSchema("read_file", "Reads a file.", {"type": "object", "properties": {}})
CALL = Call("read_file", {"path": "a"})
CUT_CALL = Reply("", fault="The reply was cut.", cut=True, finish="length", usage=Usage(10, 100))
THINKING = Reply("", cut=True, finish="length", usage=Usage(10, 100, reasoning=100))
LIMIT = LimitReached(
    "The cap has no room for the call.", scope="session", need=2, left=1, unit="tokens"
)
ALL = "That is all the model can write at once: ask for less, or choose another with /model."


def cut(text):
    return Reply(
        text.strip(), cut=True, finish="length", state=ProviderState("p", {"content": text})
    )


class StandIn:
    """A model that gives fixed replies, or raises errors."""

    def __init__(self, *replies, context=None, max_output=None):
        self.traits = Traits("stand-in", None, context, max_output, native_tools=True, local=False)
        self.requests = []
        self.events = []
        self.reservations = []
        self.replies = list(replies)

    def size(self, request):
        return PromptSize(100, 100, exact=True)

    async def ask(self, request, emit, *, role, aside=None):
        self.requests.append(request)
        self.reservations.append(aside)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def set_aside(self, make, *, role, slack):
        self.aside_tokens = make().max_tokens
        return LIMIT  # any object

    async def release(self, hold):
        self.released = hold


def view(*steps, **more):
    return View(
        Path("What is in a?", steps), "What is in a?", (), ("read_file",), (READ,), PLAIN, **more
    )


async def think(*replies, path=(), **traits):
    """The thought of mode single, its requests and its notices."""
    model = StandIn(*replies, **traits)
    mode = Single(model, ModeLimits(100, 50))  # type: ignore[arg-type]
    thought = await mode.think(view(*path), model.events.append)
    return (
        thought,
        model.requests,
        [event.text for event in model.events if isinstance(event, Notice)],
    )


async def test_a_cut_text_is_continued_and_joined():
    thought, requests, notices = await think(
        cut("It is a long "), cut("and winding"), Reply(" road.", finish="stop")
    )
    assert thought == Thought("It is a long and winding road.")
    assert [message.text for message in requests[2].messages[-2:]] == [
        "It is a long and winding",
        CONTINUE,
    ]
    assert requests[2].messages[:-2] == requests[0].messages
    assert notices == []


async def test_a_text_still_cut_after_several_continuations_is_reported():
    thought, requests, notices = await think(*(cut(f"{number} ") for number in range(4)))
    assert thought.rationale == "0 1 2 3"
    assert len(requests) == 4
    assert "[agent] max_output_tokens" in notices[0]


async def test_a_cut_text_is_kept_if_the_cap_cannot_cover_its_continuation():
    thought, _, notices = await think(cut("It is"), LIMIT)
    assert thought.rationale == "It is"
    assert "The cap has no room" in notices[0]
    assert "/budget" in notices[0]


@pytest.mark.parametrize("reply", [THINKING, CUT_CALL])
async def test_an_unusable_cut_reply_is_retried_with_twice_the_output_limit(reply):
    thought, requests, (notice,) = await think(reply, Reply("", (CALL,), finish="tool_calls"))
    assert thought.call == CALL
    assert requests[1] == replace(requests[0], max_tokens=200, min_tokens=150, repeatable=False)
    assert "100 tokens" in notice


@pytest.mark.parametrize(
    ("traits", "max_tokens"), [({"max_output": 150}, 150), ({"context": 230}, 130)]
)
async def test_the_retry_stays_within_the_limits_of_the_model(traits, max_tokens):
    _, requests, _ = await think(THINKING, Reply("Yes."), **traits)
    assert requests[1].max_tokens == max_tokens


async def test_a_reply_at_the_maximum_of_the_model_is_not_retried():
    with pytest.raises(ModelBroken, match="output limit") as error:
        await think(THINKING, max_output=100)
    assert error.value.fix == ALL
    thought, requests, notices = await think(
        THINKING, max_output=100, path=[Step("", CALL, Observation("a poem"))]
    )
    assert thought == Thought("")  # the turn has a result for the answer
    assert len(requests) == 1
    assert notices == [
        f"The reply reached its limit of 100 tokens, 100 of them reasoning, before an answer came. {ALL}"
    ]


async def test_a_call_cut_at_the_maximum_of_the_model_is_no_second_call():
    with pytest.raises(CallBroken) as error:
        await think(CUT_CALL, max_output=100)
    assert error.value.message == "stand-in reached its output limit in the middle of a call."
    assert error.value.fix == ALL


async def test_a_reply_below_the_maximum_of_the_model_can_be_given_more_room():
    with pytest.raises(ModelBroken, match="output limit") as error:
        await think(THINKING, replace(THINKING, usage=Usage(10, 200)), max_output=1_000)
    assert "[agent] max_output_tokens, or the cap with /budget" in error.value.fix
    _, _, (notice,) = await think(*(cut(f"{number} ") for number in range(4)), max_output=100)
    assert notice.endswith(ALL)
    _, _, (notice,) = await think(cut("It is"), LIMIT, max_output=100)
    assert "/budget" in notice


async def test_a_retry_over_the_cap_is_a_limit():
    with pytest.raises(LimitReached):
        await think(THINKING, LIMIT)


async def test_a_call_cut_twice_is_a_broken_call():
    with pytest.raises(CallBroken, match="reached its output limit in the middle of a call"):
        await think(CUT_CALL, replace(CUT_CALL, usage=Usage(10, 200)))


async def test_complete_calls_before_a_cut_one_are_kept():
    thought, requests, _ = await think(Reply("", (CALL,), cut=True, finish="length"))
    assert thought.call == CALL
    assert len(requests) == 1


async def test_a_call_after_a_continued_text_has_the_whole_text():
    state = ProviderState("p", {"content": "now.", "tool_calls": [{"id": "one"}]})
    thought, _, _ = await think(
        cut("I read it "), Reply("now.", (CALL,), state=state, finish="tool_calls")
    )
    assert (thought.rationale, thought.call) == ("I read it now.", CALL)
    assert thought.state is not None
    assert thought.state.message == {**state.message, "content": "I read it now."}


async def test_the_continuation_of_an_answer_has_its_own_reservation():
    model = StandIn(cut("A po"), Reply("em."))
    mode = Single(model, ModeLimits(100, 50))  # type: ignore[arg-type]
    await mode.hold_answer(view())
    mode.answer_hold = aside = type("Aside", (), {"prompt_tokens": 1_000})()  # type: ignore[assignment]
    assert await mode.conclude(view(), model.events.append) == "A poem."
    assert model.reservations == [aside, None]
    assert [request.max_tokens for request in model.requests] == [100, 100]
    assert model.aside_tokens == 50
    assert mode.answer_hold is None


async def test_cut_replies_of_every_role_are_completed():
    replies = [cut("I need "), Reply("a. Next: caller."), CUT_CALL, Reply("", (CALL,))]
    model = StandIn(*replies, Reply("Enough. Next: conclusion."), cut("A po"), Reply("em."))
    mode = Umi(model, model, model, ModeLimits(100, 50))  # type: ignore[arg-type]
    assert await mode.think(view(), model.events.append) == Thought("I need a.", CALL)
    thought = await mode.think(view(), model.events.append)
    assert thought.call == Call(FINISH, {"answer": "A poem."})
    repeated = model.requests[3]
    assert [request for request in model.requests if not request.repeatable] == [repeated]


def test_words_repeated_by_a_continuation_are_dropped():
    assert joined("The quick brown fox", "e quick brown fox jumps") == "The quick brown fox jumps"
    assert joined("a b", "b c") == "a bb c"
