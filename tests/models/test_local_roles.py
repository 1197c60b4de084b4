"""Roles of one local model: a prompt cache for each role, and constrained decisions of planners."""

from importlib.util import find_spec

import pytest

from ecoshell.agent.view import View
from ecoshell.budget import ZERO_PRICE
from ecoshell.catalog import GROW
from ecoshell.messages import Message, ToolSchema, Usage
from ecoshell.models import Reply, Request, Traits

if find_spec("llama_cpp") is None:
    pytest.skip("the local extra is not installed", allow_module_level=True)

from ecoshell.agent.mode import DraftTask
from ecoshell.models.embedded import embedded_path
from ecoshell.models.engine import EngineOptions
from ecoshell.models.local import LocalModel
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.single import Single
from ecoshell.modes.umi import ENDINGS, Umi, decision
from ecoshell.planning.catp.masking import plan_grammar
from ecoshell.planning.catp.rules import Problem, validate
from ecoshell.planning.catp.tpl import parse
from ecoshell.planning.catp.types import signature
from ecoshell.strategies import Path, Thought

ROLES = ("planner", "caller", "summarizer")
READ = ToolSchema(
    "read_file",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


@pytest.fixture
async def model():
    loaded = LocalModel(embedded_path(), options=EngineOptions(context=512))
    yield loaded
    await loaded.aclose()


async def reply_of(model: LocalModel, request: Request) -> Reply:
    pieces = [piece async for piece in model.stream(request)]
    assert isinstance(pieces[-1], Reply)
    return pieces[-1]


async def usage_of(model: LocalModel, role: str, text: str) -> Usage:
    request = Request((Message("user", text),), want="text", max_tokens=4, role=role)
    usage = (await reply_of(model, request)).usage
    assert usage is not None
    return usage


def numbers(first: int, count: int = 90) -> str:
    """A text of about two tokens per number; each `first` gives another prefix."""
    return " ".join(str((first + number) % 10) for number in range(count))


@pytest.mark.slow
async def test_roles_whose_prompts_fit_one_context_all_reuse_them(model):
    texts = [numbers(first, 60) for first in range(3)]
    sizes = [
        (await usage_of(model, role, text)).input for role, text in zip(ROLES, texts, strict=True)
    ]
    assert 400 < sum(sizes) < 500
    for role, text in zip(ROLES, texts, strict=True):
        usage = await usage_of(model, role, text)
        assert usage.cached == usage.input - 1


async def test_many_prompts_of_one_role_do_not_evict_the_prompt_of_another(model):
    await usage_of(model, "planner", "Say hello to everybody here.")
    for number in range(12):
        await usage_of(model, "judge", f"{number} is a number.")
    usage = await usage_of(model, "planner", "Say hello to everybody here.")
    assert usage.cached == usage.input - 1


async def test_a_role_reuses_a_prefix_read_by_another(model):
    history = "It was said that the cat sat on the mat all day long. " * 8
    await usage_of(model, "planner", f"{history}Plan.")
    usage = await usage_of(model, "caller", f"{history}Call.")
    assert usage.cached > usage.input * 0.9


@pytest.mark.slow
async def test_prompts_of_other_roles_do_not_change_the_answer(model):
    request = Request(
        (Message("user", "Name three colours."),), want="text", max_tokens=10, role="planner"
    )
    expected = await reply_of(model, request)
    for number, role in enumerate(("caller", "summarizer")):
        await usage_of(model, role, numbers(number))
    assert (await reply_of(model, request)).text == expected.text


@pytest.mark.parametrize(
    ("question", "temperature"),
    [("What is in a.txt?", 0.0), ("Erzähle mir einen Witz.", 1.5), ("Next: what? Next: who?", 1.5)],
)
async def test_every_text_of_a_planner_decodes_to_a_decision(
    model, question: str, temperature: float
):
    messages = (Message("system", "You are the planner."), Message("user", question))
    request = Request(
        messages, want="text", max_tokens=70, temperature=temperature, endings=ENDINGS
    )
    reply = await reply_of(model, request)
    assert not reply.cut
    assert reply.text.endswith(ENDINGS)
    assert "\n\n" not in reply.text
    assert decision(reply.text).next is not None


async def test_a_planner_with_few_tokens_still_decides(model):
    request = Request(
        (Message("user", "Tell a story."),), want="text", max_tokens=18, endings=ENDINGS
    )
    assert (await reply_of(model, request)).text.endswith(ENDINGS)


class Unmetered:
    """The model without a budget gate; scripted replies come first."""

    def __init__(self, model: LocalModel, *replies: str) -> None:
        self.traits, self.size = model.traits, model.size
        self.roles: list[str] = []
        self._model = model
        self._replies = list(replies)

    async def ask(self, request, emit, *, role, aside=None):
        self.roles.append(role)
        return (
            Reply(self._replies.pop(0)) if self._replies else await reply_of(self._model, request)
        )


@pytest.mark.parametrize("replies", [(), ("I read a.txt. Next: caller.",)])
async def test_planner_and_caller_decode_under_grammars(replies: tuple[str, ...]):
    loaded = LocalModel(embedded_path(), options=EngineOptions(context=2048))
    model, path = Unmetered(loaded, *replies), Path("What is in the file a.txt?", ())
    view = View(path, path.question, (), ("read_file",), (READ,), GROW)
    mode = Umi(model, model, model, ModeLimits(400, 10))  # type: ignore[arg-type]
    try:
        thought = await mode.think(view, lambda _: None)
    finally:
        await loaded.aclose()
    assert isinstance(thought, Thought)
    assert thought.call is not None
    assert model.roles.count("planner") == 1  # its first decision was valid
    assert model.roles.count("caller") <= 1  # and so was its first call
    if replies:
        assert model.roles == ["planner", "caller"]
        assert thought.call.name in {"read_file", "tool_register", "tool_search", "tool_unregister"}


PLANS = Problem({"read_file": signature(READ), "odd.name": signature(READ)}, max_nodes=3)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
async def test_a_tool_graph_decodes_to_a_valid_plan(model, temperature: float):
    question = (Message("user", "How many words have a.txt and b.txt?"),)
    grammar = plan_grammar(PLANS)
    request = Request(
        question, want="text", max_tokens=200, temperature=temperature, grammar=grammar
    )
    plan = parse((await reply_of(model, request)).text)
    validate(plan, PLANS)
    assert 1 <= len(plan.nodes) <= 3


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("mode", ["single", "umi"])
async def test_only_a_local_model_gets_a_plan_grammar_and_numbered_nodes(mode: str, local: bool):
    model, path = Planning(local=local), Path("How many words have a.txt and b.txt?", ())
    view = View(path, path.question, (), ("read_file",), (READ,), GROW)
    models = (model,) if mode == "single" else (model,) * 3
    planner = (Single if mode == "single" else Umi)(*models, ModeLimits(30, 10))  # type: ignore[arg-type]
    await planner.draft(view, DraftTask(grammar=lambda: plan_grammar(PLANS)), lambda _: None)
    (request,) = model.requests
    assert ("[[1, " in request.messages[-1].text) == local
    assert bool(request.grammar) == local
    if local:
        assert request.grammar.startswith('root ::= plan | "Answer: "')


class Planning:
    """A model that writes a plan and records its requests."""

    def __init__(self, *, local: bool) -> None:
        self.traits = Traits("one", ZERO_PRICE, None, None, native_tools=False, local=local)
        self.requests: list[Request] = []

    async def ask(self, request, emit, *, role, aside=None):
        self.requests.append(request)
        return Reply('["read_file", ["<task>"]]')
