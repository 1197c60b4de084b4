"""Prompts of the three roles and how their replies are read, with a stand-in model."""

import itertools
from dataclasses import replace

import pytest

from ecoshell.agent.mode import DraftTask, FillTask
from ecoshell.agent.view import View
from ecoshell.catalog import GROW, PLAIN
from ecoshell.errors import CallBroken, LimitReached
from ecoshell.events import Notice, Rationale
from ecoshell.messages import FINISH, Call, Message, Observation, ProviderState, ToolSchema
from ecoshell.models import PromptSize, Reply, Traits
from ecoshell.models.chat_body import chat_body, mark_for_cache
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.single import Single
from ecoshell.modes.umi import Umi, lines, own_decision
from ecoshell.strategies import Path, Sibling, Step, Thought

READ = ToolSchema("read_file", "Reads a file.", {"type": "object", "properties": {}})
CALL = Call("read_file", {"path": "a"})
PATH = Path("What is in a?", (Step("Read a.", CALL, Observation("a poem")),))


class StandIn:
    """A model that gives fixed replies and counts four characters as one token."""

    def __init__(self, *replies, context=None, native=True, parameters=None):
        self.traits = Traits(
            "stand-in", None, context, None, native_tools=native, local=True, parameters=parameters
        )
        self.calls = []
        self.replies = list(replies)

    def size(self, request):
        count = sum(len(message.text) for message in request.messages) // 4
        return PromptSize(count, count, exact=True)

    async def ask(self, request, emit, *, role, aside=None):
        self.calls.append((role, request))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def release(self, hold):
        pass


def view(path=PATH, **more):
    return View(path, path.question, (), ("read_file",), (READ,), GROW, **more)


def play(*replies, **traits):
    model = StandIn(
        *(Reply(reply) if isinstance(reply, str) else reply for reply in replies), **traits
    )
    return model, Umi(model, model, model, ModeLimits(100, 50))  # type: ignore[arg-type]


def ignore(event):
    pass


SMALL = 1_500_000_000


async def test_small_roles_get_the_same_lines_and_their_own_task():
    call = Reply("", (CALL,))
    replies = ("Read b. Next: caller.", call, "Enough. Next: conclusion.", "conclusion: A poem.")
    model, mode = play(*replies, parameters=SMALL)
    assert await mode.think(view(), ignore) == Thought("Read b.", CALL)
    assert await mode.think(view(), ignore) == Thought(
        "Enough.", Call(FINISH, {"answer": "A poem."})
    )
    assert [role for role, _ in model.calls] == ["planner", "caller", "planner", "summarizer"]
    (_, planner), (_, caller), _, (_, summarizer) = model.calls
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
async def test_prompts_of_one_model_differ_only_in_the_task(native):
    call = Reply("", (CALL,))
    model, mode = play(
        "Read b. Next: caller.", call, "Enough. Next: conclusion.", "A poem.", native=native
    )
    await mode.think(view(), ignore)
    await mode.think(view(), ignore)
    requests = [request for _, request in model.calls]
    tools, (system, *_) = requests[0].tools, requests[0].messages
    assert (READ in tools, READ.as_text() in system.text) == (native, not native)
    for request in requests:
        assert (request.tools, request.messages[:3]) == (tools, requests[0].messages[:3])
    done = [request.messages[3].text for request in requests]
    shared = done[1]  # the caller's task is in a later message
    assert all(text.startswith(shared) for text in done)
    assert shared.endswith("a poem")


def replied(text, *calls):
    """A reply as a provider with native tool calls sends it."""
    tool_calls = [
        {"id": f"id-{call.arguments['path']}", "type": "function", "function": {}} for call in calls
    ]
    state = ProviderState(
        "provider",
        {"content": text or None, "tool_calls": tool_calls, "thinking_blocks": ["signed"]},
    )
    return Reply(
        text,
        tuple(replace(call, id=f"id-{call.arguments['path']}", group="m1") for call in calls),
        state=state,
    )


def read(path):
    return Call("read_file", {"path": path})


async def test_several_calls_of_a_capable_caller_are_one_thought_with_the_planners_words():
    words = "I need b and c.\nBoth **at once**."
    reply = replied("", read("b"), read("c"))
    model, mode = play(f"{words} Next: caller.", reply, "Enough. Next: conclusion.", "Done.")
    thought = await mode.think(view(), ignore)
    assert (thought.rationale, thought.call, thought.more) == (
        words,
        reply.calls[0],
        reply.calls[1:],
    )
    assert thought.state == reply.state
    caller = model.calls[1][1]
    assert (caller.want, caller.several) == ("call", True)
    assert caller.messages[-2] == Message("assistant", words)
    steps = [
        Step(words if not at else "", call, Observation(f"text {at}"))
        for at, call in enumerate(reply.calls)
    ]
    path = PATH.then(replace(steps[0], state=thought.state), steps[1])
    await mode.think(view(path), ignore)
    planner, summarizer = (request for _, request in model.calls[2:])
    for request in (planner, summarizer):
        sent = chat_body(request, native=True, family="provider")["messages"]
        roles = [message["role"] for message in sent]
        assert roles[:8] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "tool",
            roles[7],
        ]
        assert (sent[4]["content"], sent[4]["thinking_blocks"]) == (words, ["signed"])
        assert [message["tool_call_id"] for message in sent[5:7]] == ["id-b", "id-c"]
    assert (
        summarizer.max_tokens == planner.max_tokens == 100
    )  # rather than the 50 reserved for an answer


async def test_a_faulty_call_of_a_provider_is_left_to_the_guards():
    wrong = replace(read("b"), fault="The arguments do not fit.")
    model, mode = play("Read b. Next: caller.", replied("", wrong))
    thought = await mode.think(view(), ignore)
    assert thought.call is not None
    assert thought.call.fault
    assert len(model.calls) == 2


@pytest.mark.parametrize(("presentation", "is_mentioned"), [(GROW, True), (PLAIN, False)])
async def test_the_prompt_mentions_registration_only_if_tools_can_be_registered(
    presentation, is_mentioned
):
    model, mode = play("Enough. Next: conclusion.", "Done.")
    await mode.think(replace(view(), presentation=presentation), ignore)
    assert all(
        ("tool_register" in request.messages[0].text) is is_mentioned for _, request in model.calls
    )


async def test_roles_of_different_models_get_different_prompts():
    capable, small = (
        StandIn(Reply("Read b. Next: caller.")),
        StandIn(Reply("", (read("b"),)), parameters=SMALL),
    )
    mode = Umi(capable, small, capable, ModeLimits(100, 50))  # type: ignore[arg-type]
    await mode.think(view(), ignore)
    ((_, planner),), ((_, caller),) = capable.calls, small.calls
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
def test_the_last_decision_of_a_capable_planner_counts_and_its_words_stay(
    text, rationale, following
):
    decided = own_decision(text)
    assert decided.next == following
    assert rationale is None or decided.rationale == rationale


def test_several_calls_of_a_reply_follow_one_line_of_the_planner():
    calls = (read("b"), read("c"))
    results = [Message("tool", f"text {call.arguments['path']}", (call,)) for call in calls]
    messages = lines((Message("user", "Go."), Message("assistant", "Both.", calls), *results))
    assert [message.speaker for message in messages] == ["user", "assistant", "user"]
    assert messages[2].text.count("caller: Action") == 2
    assert (
        messages[2].text.index("text b")
        < messages[2].text.index('"c"')
        < messages[2].text.index("text c")
    )


async def test_a_summarizer_with_a_separate_model_gets_no_tools():
    planner, other = (
        StandIn(Reply("Enough. Next: conclusion.")),
        StandIn(Reply("A poem."), native=False),
    )
    mode = Umi(planner, planner, other, ModeLimits(100, 50))  # type: ignore[arg-type]
    await mode.think(view(), ignore)
    ((_, request),) = other.calls
    assert request.tools == ()
    assert "Reads a file." not in request.messages[0].text


async def test_a_planner_that_gives_up_gives_its_reason():
    _, mode = play("The file does not exist. Next: give up.")
    thought = await mode.think(view(), ignore)
    assert thought.call == Call(FINISH, {"answer": "The file does not exist.", "give_up": True})


async def test_a_malformed_decision_is_repaired_once():
    model, mode = play("Hm.", "Read it. Next: caller.", Reply("", (CALL,)))
    assert await mode.think(view(), ignore) == Thought("Read it.", CALL)
    assert [(role, request.purpose) for role, request in model.calls][1] == ("planner", "repair")


async def test_a_decision_that_stays_malformed_goes_to_the_caller_or_ends_the_turn():
    events = []
    _, mode = play("Hm.", "Read it.", Reply("", (CALL,)))
    assert await mode.think(view(), events.append) == Thought("Read it.", CALL)
    assert isinstance(events[0], Notice)
    _, mode = play("Hm.", "Read it.", "no", "no")
    thought = await mode.think(view(), ignore)
    assert thought.call is not None
    assert thought.call.arguments["give_up"]
    assert "twice did not say how to go on" in thought.call.arguments["answer"]


async def test_a_call_in_the_text_format_is_read_and_an_invalid_one_is_retried():
    action = 'Action: read_file\nAction Input: {"path": "a"}'
    model, mode = play("Read. Next: caller.", "I cannot.", action, native=False)
    assert await mode.think(view(), ignore) == Thought("Read.", CALL)
    assert "read_file: Reads a file." in model.calls[0][1].messages[0].text
    _, mode = play("Read. Next: caller.", "no", "no")
    with pytest.raises(CallBroken, match="twice made a call") as broken:
        await mode.think(view(), ignore)
    assert broken.value.tool == ""
    wrong = Reply("", fault="no such tool", attempt=Call("raed_file", {"path": "a"}))
    _, mode = play("Read. Next: caller.", wrong, wrong)
    with pytest.raises(CallBroken, match="no such tool") as broken:
        await mode.think(view(), ignore)
    assert (broken.value.tool, broken.value.arguments) == ("raed_file", {"path": "a"})


async def test_forbidden_tools_cannot_be_called():
    model, mode = play("Next: caller.", Reply("", (CALL,)), "That is all.")
    await mode.think(view(forbidden=frozenset({"read_file"})), ignore)
    assert "read_file" not in [schema.name for schema in model.calls[1][1].callable_now]
    thought = await mode.think(view(closed=True), ignore)
    assert thought.call == Call(FINISH, {"answer": "That is all."})
    assert model.calls[-1][0] == "summarizer"


async def test_an_answer_by_finish_loses_its_label():
    _, mode = play(
        "Enough. Next: conclusion.", Reply("", (Call(FINISH, {"answer": "conclusion: Done."}),))
    )
    thought = await mode.think(view(), ignore)
    assert thought.call == Call(FINISH, {"answer": "Done."})


async def test_old_results_are_cut_in_a_short_context_and_schemas_are_not():
    schema = "read_file: " + "d" * 800
    register = Step(
        "Need it.", Call("tool_register", {"tool_name": "read_file"}), Observation(schema)
    )
    path = replace(
        PATH, steps=(register, replace(PATH.steps[0], observation=Observation("x" * 9_000)))
    )
    model, mode = play("Enough. Next: conclusion.", "Done.", context=1_500)
    await mode.think(view(path), ignore)
    assert [role for role, _ in model.calls] == ["planner", "summarizer"]
    for _, request in model.calls:
        text = "\n".join(message.text for message in request.messages)
        assert schema in text
        assert "[cut: " in text


async def test_planner_and_caller_get_earlier_attempts():
    model, mode = play("Other. Next: caller.", Reply("", (Call("read_file", {"path": "b"}),)))
    await mode.think(view(siblings=(Sibling(CALL, "given up: empty"),)), ignore)
    assert [role for role, _ in model.calls] == ["planner", "caller"]
    for _, request in model.calls:
        assert "given up: empty" in "\n".join(message.text for message in request.messages)


LIMIT = LimitReached(
    "The cap has no room for the call.", scope="session", need=2, left=1, unit="tokens"
)


async def test_a_decision_interrupted_by_a_limit_is_executed_later_without_another_call():
    replies = (
        "Read b. Next: caller.",
        LIMIT,
        Reply("", (CALL,)),
        "Enough. Next: conclusion.",
        LIMIT,
        "A poem.",
    )
    model, mode = play(*replies)
    for answer in (
        Thought("Read b.", CALL),
        Thought("Enough.", Call(FINISH, {"answer": "A poem."})),
    ):
        with pytest.raises(LimitReached):
            await mode.think(view(), ignore)
        assert await mode.think(view(), ignore) == answer
    roles = [role for role, _ in model.calls]
    assert roles == ["planner", "caller", "caller", "planner", "summarizer", "summarizer"]


async def test_a_decision_is_kept_for_its_own_path_and_turn_only():
    call = Reply("", (CALL,))
    model, mode = play(
        "One. Next: caller.", LIMIT, "Two. Next: caller.", call, "Three. Next: caller.", LIMIT
    )
    with pytest.raises(LimitReached):
        await mode.think(view(), ignore)
    elsewhere = view(Path("What is in a?"))
    assert await mode.think(elsewhere, ignore) == Thought("Two.", CALL)
    with pytest.raises(LimitReached):
        await mode.think(elsewhere, ignore)
    await mode.release()
    model.replies += [Reply("Four. Next: caller."), call]
    assert await mode.think(elsewhere, ignore) == Thought("Four.", CALL)


async def test_a_conclusion_instead_of_a_plan_is_kept_as_well():
    model, mode = play("Enough. Next: conclusion.", LIMIT, "A poem.")
    with pytest.raises(LimitReached):
        await mode.draft(view(), DraftTask(), ignore)
    assert await mode.draft(view(), DraftTask(), ignore) == Thought(
        "Enough.", Call(FINISH, {"answer": "A poem."})
    )
    assert [role for role, _ in model.calls] == ["planner", "summarizer", "summarizer"]


async def test_the_planners_reason_is_reported_once_before_the_answer_is_requested():
    model, mode = play("Enough. Next: conclusion.", LIMIT, "A poem.")
    reports = []

    def report(event):
        reports.append((event, len(model.calls)))

    with pytest.raises(LimitReached):
        await mode.think(view(), report)
    thought = await mode.think(view(), report)
    assert reports == [(Rationale("Enough.", "planner"), 1)]
    assert thought.announced


def marked_blocks(request):
    """The request as blocks of role and text, and the number of blocks up to the last cache mark."""
    body = chat_body(request, native=True)
    mark_for_cache(body, request)
    blocks, marked = [], 0
    for message in body["messages"]:
        content = message["content"]
        for part in [{"text": content}] if isinstance(content, str) else content:
            blocks.append((message["role"], part["text"]))
            marked = len(blocks) if "cache_control" in {**part, **message} else marked
    return blocks, marked


async def test_each_role_and_step_reads_the_cached_prefix_of_the_previous():
    lines, call = ["Read b. Next: caller.", "Enough. Next: conclusion."], Reply("", (CALL,))
    model, mode = play(lines[0], call, lines[0], call, lines[1], "A poem.")
    further = PATH.then(Step("Read b.", CALL, Observation("two lines\n")))
    for path in (PATH, further, further):
        await mode.think(view(path), ignore)
    sent = [marked_blocks(request) for _, request in model.calls]
    for (blocks, marked), (following, later) in itertools.pairwise(sent):
        assert following[:marked] == blocks[:marked]
        assert later >= marked
    assert [blocks[marked - 1][1][-6:] for blocks, marked in sent] == ["a poem"] * 2 + [
        "lines\n"
    ] * 4
    assert [len(blocks) - marked for blocks, marked in sent] == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize("is_single", [False, True])
async def test_drafts_nodes_and_repairs_share_the_cached_prefix(is_single):
    model, mode = play("[]", Reply("", fault="no"), Reply("", (CALL,)))
    mode = Single(model, ModeLimits(100, 50)) if is_single else mode
    await mode.draft(view(), DraftTask(), ignore)
    await mode.fill(view(), FillTask("read_file", READ, "[]", inputs=PATH.steps), ignore)
    sent = [marked_blocks(request) for _, request in model.calls]
    assert len(sent) == 3
    assert len({tuple(blocks[:marked]) for blocks, marked in sent}) == 1
    assert all(blocks[marked - 1][1].endswith("a poem") for blocks, marked in sent)
