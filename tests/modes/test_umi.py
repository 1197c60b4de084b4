"""What each role is shown, and what becomes of what it says, with a stand-in for the model."""

import itertools
from dataclasses import replace

import pytest

from ecoshell.agent.mode import DraftTask, FillTask, View
from ecoshell.catalog import GROW, PLAIN
from ecoshell.errors import CallBroken, LimitReached
from ecoshell.events import Notice, Rationale
from ecoshell.messages import FINISH, Call, Message, Observation, ProviderState, ToolSchema
from ecoshell.models import PromptSize, Reply, Traits
from ecoshell.models.protocol import chat_body, mark_for_cache
from ecoshell.modes.single import Single
from ecoshell.modes.umi import Umi, lines, own_decision
from ecoshell.strategies import Path, Step, Thought, Tried

READ = ToolSchema("read_file", "Reads a file.", {"type": "object", "properties": {}})
CALL = Call("read_file", {"path": "a"})
PATH = Path("What is in a?", (Step("Read a.", CALL, Observation("a poem")),))


class StandIn:
    """A model that gives fixed replies; four characters are a token."""

    def __init__(self, *replies, context=None, native=True, parameters=None):
        self.traits = Traits("stand-in", None, context, None, native_tools=native, local=True, parameters=parameters)
        self.asked = []
        self.replies = list(replies)

    def size(self, request):
        count = sum(len(message.text) for message in request.messages) // 4
        return PromptSize(count, count, exact=True)

    async def ask(self, request, emit, *, role, aside=None):
        self.asked.append((role, request))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def release(self, hold):
        pass


def view(path=PATH, **more):
    return View(path, path.question, (), ("read_file",), (READ,), GROW, **more)


def play(*replies, **traits):
    model = StandIn(*(Reply(one) if isinstance(one, str) else one for one in replies), **traits)
    return model, Umi(model, model, model, max_tokens=100, answer_tokens=50)  # type: ignore[arg-type]


def quiet(event):
    pass


SMALL = 1_500_000_000


async def test_each_small_role_sees_the_same_lines_and_what_is_its_own():
    call = Reply("", (CALL,))
    replies = ("Read b. Next: caller.", call, "Enough. Next: conclusion.", "conclusion: A poem.")
    model, mode = play(*replies, parameters=SMALL)
    assert await mode.think(view(), quiet) == Thought("Read b.", CALL)
    assert await mode.think(view(), quiet) == Thought("Enough.", Call(FINISH, {"answer": "A poem."}))
    assert [role for role, _ in model.asked] == ["planner", "caller", "planner", "summarizer"]
    (_, planner), (_, caller), _, (_, summarizer) = model.asked
    lines = "assistant: Read a. Next: caller."
    done = 'caller: Action: read_file\nAction Input: {"path": "a"}\nobservation: a poem'
    for request in (planner, caller, summarizer):
        assert request.messages[1].text == "user: What is in a?"
        assert request.messages[2] == Message("assistant", lines)
        assert request.messages[3].text.startswith(done)
    assert (planner.want, caller.want, summarizer.want) == ("text", "call", "text")
    assert caller.messages[-2].text == "assistant: Read b. Next: caller."
    assert caller.messages[-1].text.endswith("Read b.")
    assert FINISH not in [schema.name for schema in caller.callable_now]
    assert summarizer.messages[-2].text == "assistant: Enough. Next: conclusion."


@pytest.mark.parametrize("native", [True, False])
async def test_roles_of_one_model_are_sent_the_same_up_to_their_tasks(native):
    call = Reply("", (CALL,))
    model, mode = play("Read b. Next: caller.", call, "Enough. Next: conclusion.", "A poem.", native=native)
    await mode.think(view(), quiet)
    await mode.think(view(), quiet)
    requests = [request for _, request in model.asked]
    tools, (system, *_) = requests[0].tools, requests[0].messages
    assert (READ in tools, READ.as_text() in system.text) == (native, not native)
    for request in requests:
        assert (request.tools, request.messages[:3]) == (tools, requests[0].messages[:3])
    done = [request.messages[3].text for request in requests]
    shared = done[1]  # the caller's task is in a later message
    assert all(text.startswith(shared) for text in done)
    assert shared.endswith("a poem")


def replied(text, *calls):
    """A reply as a provider with tool calls of its own sends it."""
    made = [{"id": f"id-{call.arguments['path']}", "type": "function", "function": {}} for call in calls]
    state = ProviderState("provider", {"content": text or None, "tool_calls": made, "thinking_blocks": ["signed"]})
    return Reply(
        text, tuple(replace(call, id=f"id-{call.arguments['path']}", group="m1") for call in calls), state=state
    )


def read(path):
    return Call("read_file", {"path": path})


async def test_a_capable_caller_makes_several_calls_as_one_thought_and_the_planners_words_stay():
    words = "I need b and c.\nBoth **at once**."
    said = replied("", read("b"), read("c"))
    model, mode = play(f"{words} Next: caller.", said, "Enough. Next: conclusion.", "Done.")
    thought = await mode.think(view(), quiet)
    assert (thought.rationale, thought.call, thought.more) == (words, said.calls[0], said.calls[1:])
    assert thought.state == said.state
    caller = model.asked[1][1]
    assert (caller.want, caller.several) == ("call", True)
    assert caller.messages[-2] == Message("assistant", words)
    steps = [Step(words if not at else "", call, Observation(f"text {at}")) for at, call in enumerate(said.calls)]
    path = PATH.then(replace(steps[0], state=thought.state), steps[1])
    await mode.think(view(path), quiet)
    planner, summarizer = (request for _, request in model.asked[2:])
    for request in (planner, summarizer):
        sent = chat_body(request, native=True, family="provider")["messages"]
        roles = [message["role"] for message in sent]
        assert roles[:8] == ["system", "user", "assistant", "tool", "assistant", "tool", "tool", roles[7]]
        assert (sent[4]["content"], sent[4]["thinking_blocks"]) == (words, ["signed"])
        assert [message["tool_call_id"] for message in sent[5:7]] == ["id-b", "id-c"]
    assert summarizer.max_tokens == planner.max_tokens == 100  # and not the 50 that are set aside for an answer


async def test_a_call_that_a_provider_made_wrongly_is_for_the_guards_to_answer():
    wrong = replace(read("b"), fault="The arguments do not fit.")
    model, mode = play("Read b. Next: caller.", replied("", wrong))
    thought = await mode.think(view(), quiet)
    assert thought.call is not None
    assert thought.call.fault
    assert len(model.asked) == 2


@pytest.mark.parametrize(("registers", "shown"), [(GROW, True), (PLAIN, False)])
async def test_a_capable_model_is_told_of_registering_only_where_there_is_something_to_register(registers, shown):
    model, mode = play("Enough. Next: conclusion.", "Done.")
    await mode.think(replace(view(), presentation=registers), quiet)
    assert all(("tool_register" in request.messages[0].text) is shown for _, request in model.asked)


async def test_a_mixed_trio_is_asked_each_in_its_own_form():
    capable, small = StandIn(Reply("Read b. Next: caller.")), StandIn(Reply("", (read("b"),)), parameters=SMALL)
    mode = Umi(capable, small, capable, max_tokens=100, answer_tokens=50)  # type: ignore[arg-type]
    await mode.think(view(), quiet)
    ((_, planner),), ((_, caller),) = capable.asked, small.asked
    assert planner.messages[1].text == "What is in a?"
    assert caller.messages[1].text == "user: What is in a?"
    assert caller.messages[-2].text == "assistant: Read b. Next: caller."
    assert not caller.several


@pytest.mark.parametrize(
    ("text", "rationale", "following"),
    [
        ("Read a. Next: caller.", "Read a.", "caller"),
        ("Next: caller. Read a and b.", "Read a and b.", "caller"),
        ("If it is long, next: conclusion. It is not.\nNext: caller.", None, "caller"),
        ("Observation: none.\n**Next: give up.**", "Observation: none.", "give up"),
        ("Read a.\ncaller", "Read a.", "caller"),
        ("Hm.", "Hm.", None),
    ],
)
def test_the_last_sign_of_a_capable_planner_decides_and_its_words_stay(text, rationale, following):
    decided = own_decision(text)
    assert decided.next == following
    assert rationale is None or decided.rationale == rationale


def test_several_calls_of_one_reply_are_lines_after_one_line_of_the_planner():
    calls = (read("b"), read("c"))
    results = [Message("tool", f"text {call.arguments['path']}", (call,)) for call in calls]
    told = lines((Message("user", "Go."), Message("assistant", "Both.", calls), *results))
    assert [message.speaker for message in told] == ["user", "assistant", "user"]
    assert told[2].text.count("caller: Action") == 2
    assert told[2].text.index("text b") < told[2].text.index('"c"') < told[2].text.index("text c")


async def test_a_summarizer_with_a_model_of_its_own_sees_no_tools():
    planner, other = StandIn(Reply("Enough. Next: conclusion.")), StandIn(Reply("A poem."), native=False)
    mode = Umi(planner, planner, other, max_tokens=100, answer_tokens=50)  # type: ignore[arg-type]
    await mode.think(view(), quiet)
    ((_, request),) = other.asked
    assert request.tools == ()
    assert "Reads a file." not in request.messages[0].text


async def test_a_planner_that_gives_up_says_why():
    _, mode = play("There is no such file. Next: give up.")
    thought = await mode.think(view(), quiet)
    assert thought.call == Call(FINISH, {"answer": "There is no such file.", "give_up": True})


async def test_a_malformed_plan_is_repaired_once():
    model, mode = play("Hm.", "Read it. Next: caller.", Reply("", (CALL,)))
    assert await mode.think(view(), quiet) == Thought("Read it.", CALL)
    assert [(role, request.purpose) for role, request in model.asked][1] == ("planner", "repair")


async def test_a_plan_that_stays_malformed_is_for_the_caller_or_the_turn_ends_and_says_so():
    told = []
    _, mode = play("Hm.", "Read it.", Reply("", (CALL,)))
    assert await mode.think(view(), told.append) == Thought("Read it.", CALL)
    assert isinstance(told[0], Notice)
    _, mode = play("Hm.", "Read it.", "no", "no")
    thought = await mode.think(view(), quiet)
    assert thought.call is not None
    assert thought.call.arguments["give_up"]
    assert "twice did not say how to go on" in thought.call.arguments["answer"]


async def test_a_call_in_the_callers_own_format_is_read_and_one_that_cannot_be_used_is_asked_for_again():
    action = 'Action: read_file\nAction Input: {"path": "a"}'
    model, mode = play("Read. Next: caller.", "I cannot.", action, native=False)
    assert await mode.think(view(), quiet) == Thought("Read.", CALL)
    assert "read_file: Reads a file." in model.asked[0][1].messages[0].text
    _, mode = play("Read. Next: caller.", "no", "no")
    with pytest.raises(CallBroken, match="twice made a call") as broken:
        await mode.think(view(), quiet)
    assert broken.value.tool == ""
    wrong = Reply("", fault="no such tool", attempt=Call("raed_file", {"path": "a"}))
    _, mode = play("Read. Next: caller.", wrong, wrong)
    with pytest.raises(CallBroken, match="no such tool") as broken:
        await mode.think(view(), quiet)
    assert (broken.value.tool, broken.value.arguments) == ("raed_file", {"path": "a"})


async def test_what_is_forbidden_is_not_to_be_called_and_where_all_is_only_the_answer_is_left():
    model, mode = play("Next: caller.", Reply("", (CALL,)), "That is all.")
    await mode.think(view(forbidden=frozenset({"read_file"})), quiet)
    assert "read_file" not in [schema.name for schema in model.asked[1][1].callable_now]
    thought = await mode.think(view(closed=True), quiet)
    assert thought.call == Call(FINISH, {"answer": "That is all."})
    assert model.asked[-1][0] == "summarizer"


async def test_an_answer_that_comes_by_finish_loses_the_name_of_its_line_too():
    _, mode = play("Enough. Next: conclusion.", Reply("", (Call(FINISH, {"answer": "conclusion: Done."}),)))
    thought = await mode.think(view(), quiet)
    assert thought.call == Call(FINISH, {"answer": "Done."})


async def test_old_results_are_cut_where_the_context_is_short_and_documents_never():
    schema = "read_file: " + "d" * 800
    register = Step("Need it.", Call("tool_register", {"tool_name": "read_file"}), Observation(schema))
    path = replace(PATH, steps=(register, replace(PATH.steps[0], observation=Observation("x" * 9_000))))
    model, mode = play("Enough. Next: conclusion.", "Done.", context=1_500)
    await mode.think(view(path), quiet)
    assert [role for role, _ in model.asked] == ["planner", "summarizer"]
    for _, request in model.asked:
        shown = "\n".join(message.text for message in request.messages)
        assert schema in shown
        assert "[cut: " in shown


async def test_what_was_tried_is_told_to_the_planner_and_the_caller():
    model, mode = play("Other. Next: caller.", Reply("", (Call("read_file", {"path": "b"}),)))
    await mode.think(view(tried=(Tried(CALL, "given up: empty"),)), quiet)
    assert [role for role, _ in model.asked] == ["planner", "caller"]
    for _, request in model.asked:
        assert "given up: empty" in "\n".join(message.text for message in request.messages)


LIMIT = LimitReached("The cap has no room for it.", scope="session", need=2, left=1, unit="tokens")


async def test_a_decision_that_a_limit_stood_in_the_way_of_is_carried_out_later_and_not_bought_again():
    replies = ("Read b. Next: caller.", LIMIT, Reply("", (CALL,)), "Enough. Next: conclusion.", LIMIT, "A poem.")
    model, mode = play(*replies)
    for answer in (Thought("Read b.", CALL), Thought("Enough.", Call(FINISH, {"answer": "A poem."}))):
        with pytest.raises(LimitReached):
            await mode.think(view(), quiet)
        assert await mode.think(view(), quiet) == answer
    roles = [role for role, _ in model.asked]
    assert roles == ["planner", "caller", "caller", "planner", "summarizer", "summarizer"]


async def test_a_decision_is_kept_for_its_own_path_and_turn_alone():
    call = Reply("", (CALL,))
    model, mode = play("One. Next: caller.", LIMIT, "Two. Next: caller.", call, "Three. Next: caller.", LIMIT)
    with pytest.raises(LimitReached):
        await mode.think(view(), quiet)
    elsewhere = view(Path("What is in a?"))
    assert await mode.think(elsewhere, quiet) == Thought("Two.", CALL)
    with pytest.raises(LimitReached):
        await mode.think(elsewhere, quiet)
    await mode.release()
    model.replies += [Reply("Four. Next: caller."), call]
    assert await mode.think(elsewhere, quiet) == Thought("Four.", CALL)


async def test_a_conclusion_drafted_in_the_place_of_a_plan_is_kept_as_well():
    model, mode = play("Enough. Next: conclusion.", LIMIT, "A poem.")
    with pytest.raises(LimitReached):
        await mode.draft(view(), DraftTask(), quiet)
    assert await mode.draft(view(), DraftTask(), quiet) == Thought("Enough.", Call(FINISH, {"answer": "A poem."}))
    assert [role for role, _ in model.asked] == ["planner", "summarizer", "summarizer"]


async def test_why_the_planner_concludes_is_told_once_and_before_the_answer_is_asked_for():
    model, mode = play("Enough. Next: conclusion.", LIMIT, "A poem.")
    told = []

    def hear(event):
        told.append((event, len(model.asked)))

    with pytest.raises(LimitReached):
        await mode.think(view(), hear)
    thought = await mode.think(view(), hear)
    assert told == [(Rationale("Enough.", "planner"), 1)]
    assert thought.announced


def marked_blocks(request):
    """The request as it goes out, in blocks of a role and a text, and how many of them stand up to the last mark."""
    body = chat_body(request, native=True)
    mark_for_cache(body, request)
    blocks, marked = [], 0
    for message in body["messages"]:
        content = message["content"]
        for part in [{"text": content}] if isinstance(content, str) else content:
            blocks.append((message["role"], part["text"]))
            marked = len(blocks) if "cache_control" in {**part, **message} else marked
    return blocks, marked


async def test_what_one_role_has_cached_is_read_by_the_next_and_at_the_next_step():
    lines, call = ["Read b. Next: caller.", "Enough. Next: conclusion."], Reply("", (CALL,))
    model, mode = play(lines[0], call, lines[0], call, lines[1], "A poem.")
    further = PATH.then(Step("Read b.", CALL, Observation("two lines\n")))
    for path in (PATH, further, further):
        await mode.think(view(path), quiet)
    sent = [marked_blocks(request) for _, request in model.asked]
    for (blocks, marked), (following, later) in itertools.pairwise(sent):
        assert following[:marked] == blocks[:marked]
        assert later >= marked
    assert [blocks[marked - 1][1][-6:] for blocks, marked in sent] == ["a poem"] * 2 + ["lines\n"] * 4
    assert [len(blocks) - marked for blocks, marked in sent] == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize("alone", [False, True])
async def test_a_plan_its_nodes_and_a_repair_read_what_was_cached_before_their_tasks(alone):
    model, mode = play("[]", Reply("", fault="no"), Reply("", (CALL,)))
    mode = Single(model, max_tokens=100, answer_tokens=50) if alone else mode
    await mode.draft(view(), DraftTask(), quiet)
    await mode.fill(view(), FillTask("read_file", READ, "[]", given=PATH.steps), quiet)
    sent = [marked_blocks(request) for _, request in model.asked]
    assert len(sent) == 3
    assert len({tuple(blocks[:marked]) for blocks, marked in sent}) == 1
    assert all(blocks[marked - 1][1].endswith("a poem") for blocks, marked in sent)
