"""Which tools are loaded at the start of a turn."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshell.catalog import (
    GROW,
    PLAIN,
    STABLE,
    TEXT,
    Candidate,
    LoadingPolicy,
    Presentation,
    candidates_of,
    decide_loading,
    short_descriptions,
)
from ecoshell.messages import ToolSchema

READ = ToolSchema("read_file", "Read.", {})
CORE_NAMES = ("tool0", "tool1")
TEXT_MODEL = LoadingPolicy()
NATIVE = LoadingPolicy(native=True, core=frozenset(CORE_NAMES))
POLICIES = pytest.mark.parametrize("policy", [TEXT_MODEL, NATIVE], ids=["text", "native"])


def tool(name: str, chance: float = 0.1, tokens: int = 200) -> Candidate:
    return Candidate(name, tokens, chance)


def pool(size: int, *, tokens: int = 200, chance: float = 0.1) -> tuple[Candidate, ...]:
    return tuple(tool(f"tool{n}", chance, tokens) for n in range(size))


def decide(
    candidates: tuple[Candidate, ...], policy: LoadingPolicy
) -> tuple[Presentation, tuple[str, ...]]:
    decision = decide_loading(candidates, policy)
    return decision.presentation, decision.loaded


def loaded(candidates: tuple[Candidate, ...], policy: LoadingPolicy) -> tuple[str, ...]:
    return decide(candidates, policy)[1]


ROOM = st.none() | st.integers(0, 5000)
CANDIDATES = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 3000)), max_size=30).map(
    lambda rows: tuple(tool(f"tool{n}", *row) for n, row in enumerate(rows))
)


@POLICIES
@settings(deadline=None)
@given(candidates=CANDIDATES, room=ROOM)
def test_tool_that_is_not_loaded_is_unlikely_or_does_not_fit(
    policy: LoadingPolicy, candidates: tuple[Candidate, ...], room: int | None
) -> None:
    names = loaded(candidates, replace(policy, room=room))
    optional = [tool for tool in candidates if tool.name not in policy.core]
    used = sum(tool.tokens for tool in optional if tool.name in names)
    assert room is None or used <= room
    for tool in optional:
        if tool.name not in names and tool.chance >= policy.least_chance:
            assert room is not None
            likelier = sum(
                other.tokens
                for other in optional
                if other.name in names and other.chance >= tool.chance
            )
            assert likelier + tool.tokens > room


@POLICIES
@settings(deadline=None)
@given(candidates=CANDIDATES, data=st.data())
def test_loaded_tool_stays_loaded_if_it_becomes_likelier(
    policy: LoadingPolicy, candidates: tuple[Candidate, ...], data: st.DataObject
) -> None:
    if not candidates:
        return
    changed = data.draw(st.sampled_from(candidates))
    likelier = replace(changed, chance=data.draw(st.floats(changed.chance, 1)))
    later = replace(policy, is_first=False)
    if changed.name in loaded(candidates, later):
        assert changed.name in loaded(
            tuple(likelier if tool is changed else tool for tool in candidates), later
        )


@pytest.mark.parametrize(
    ("policy", "size", "presentation"), [(TEXT_MODEL, 6, TEXT), (NATIVE, 4, PLAIN)]
)
def test_small_catalog_is_loaded_completely(
    policy: LoadingPolicy, size: int, presentation: Presentation
) -> None:
    result, names = decide(pool(size), policy)
    assert (result, len(names)) == (presentation, size)


@pytest.mark.parametrize(
    ("policy", "size", "presentation"), [(TEXT_MODEL, 6, STABLE), (NATIVE, 4, GROW)]
)
def test_open_small_catalog_keeps_a_way_to_register(
    policy: LoadingPolicy, size: int, presentation: Presentation
) -> None:
    result, names = decide(pool(size), replace(policy, is_open=True))
    assert (result, len(names)) == (presentation, size)


def test_weak_model_gets_a_small_catalog_in_the_tool_array() -> None:
    assert decide(pool(6), replace(TEXT_MODEL, prefers_array=True))[0] is PLAIN


def test_native_calls_load_only_the_core_set_so_that_sessions_share_the_array() -> None:
    presentation, names = decide((*pool(5), tool("tool5", 0.99)), NATIVE)
    assert presentation is GROW
    assert names == CORE_NAMES
    later = decide_loading((tool("tool6", 0.99),), replace(NATIVE, is_first=False))
    assert (later.loaded, later.summary) == ((), "The other tools are known by name.")


def test_text_loads_more_tools_as_it_keeps_the_shared_prompt() -> None:
    presentation, names = decide((*pool(29), tool("tool29", 0.9), tool("tool30", 0.4)), TEXT_MODEL)
    assert presentation is STABLE
    assert names == ("tool29", "tool30")


def test_later_turns_load_more_as_text_as_registering_costs_more() -> None:
    tools = (*pool(30, chance=0.05), tool("tool30", 0.15))
    assert loaded(tools, TEXT_MODEL) == ()
    assert loaded(tools, replace(TEXT_MODEL, is_first=False)) == ("tool30",)


def test_loaded_schemas_fit_the_context() -> None:
    tools = pool(10, tokens=300, chance=0.8)
    presentation, names = decide(tools, replace(TEXT_MODEL, room=1000))
    assert not presentation.shows_all
    assert len(names) == 3
    assert loaded((*pool(10, chance=0.7), tool("best", 0.9)), replace(TEXT_MODEL, room=300)) == (
        "best",
    )


def test_names_have_descriptions_unless_there_are_many() -> None:
    def described(count: int) -> list[str]:
        schemas = [ToolSchema(f"tool{n}", "Says it.", {}) for n in range(count)]
        return [*short_descriptions(schemas, lambda texts: [*map(len, texts)])]

    assert described(30) == [f"tool{n}" for n in range(30)]
    assert described(60) == []
    assert decide_loading(pool(30), NATIVE).has_descriptions
    assert not decide_loading(pool(30), TEXT_MODEL).has_descriptions


@pytest.mark.parametrize(
    ("choices", "presentation"),
    [
        ({"registration": "all"}, PLAIN),
        ({"registration": "all", "presentation": "stable"}, TEXT),
        ({"registration": "all_text"}, TEXT),
    ],
)
def test_user_can_load_everything(choices: dict[str, Any], presentation: Presentation) -> None:
    result, names = decide(pool(500), LoadingPolicy(**choices))
    assert (result, len(names)) == (presentation, 500)


@pytest.mark.parametrize(
    ("choices", "presentation"),
    [
        ({"presentation": "stable"}, STABLE),
        ({"presentation": "grow"}, GROW),
        ({"native": True}, GROW),
        ({}, STABLE),
    ],
)
def test_user_can_list_all_tools_by_name(
    choices: dict[str, Any], presentation: Presentation
) -> None:
    policy = LoadingPolicy(registration="names", **choices)
    assert decide(pool(2, chance=0.9), policy) == (presentation, ())


@pytest.mark.parametrize(("name", "presentation"), [("stable", TEXT), ("grow", PLAIN)])
def test_chosen_presentation_decides_the_form_of_all_schemas(
    name: Any, presentation: Presentation
) -> None:
    result, names = decide(pool(3, chance=0.7), LoadingPolicy(presentation=name))
    assert (result, len(names)) == (presentation, 3)


def test_shortlist_always_leaves_a_way_to_register() -> None:
    assert not decide(pool(3), LoadingPolicy(has_all_tools=False))[0].shows_all


def test_empty_catalog_loads_nothing() -> None:
    assert loaded((), TEXT_MODEL) == ()


@pytest.mark.parametrize(
    ("policy", "state", "reason"),
    [
        (TEXT_MODEL, "loaded", "1 tool is loaded: those with a chance of 25%."),
        (NATIVE, "name only", "2 tools are loaded: the core set."),
    ],
)
def test_reasons_name_the_tool_and_its_chance(
    policy: LoadingPolicy, state: str, reason: str
) -> None:
    decision = decide_loading((*pool(30), tool("sure", 0.9)), policy)
    assert decision.why("sure").startswith(f"sure, used with a chance of 90%: {state}. {reason}")
    assert decision.why("tool3").startswith("tool3, used with a chance of 10%: name only.")
    assert decision.why("not_there") == decision.summary


def test_reason_for_a_likely_tool_that_does_not_fit() -> None:
    decision = decide_loading((*pool(30), tool("sure", 0.9)), replace(TEXT_MODEL, room=10))
    assert "name only" in decision.why("sure")
    assert "that fit" in decision.why("sure")


@pytest.mark.parametrize(
    ("policy", "size"),
    [
        (NATIVE, len(READ.entry)),
        (TEXT_MODEL, len(READ.as_text())),
        (replace(NATIVE, declared=frozenset({"read_file"})), len(READ.as_text())),
    ],
    ids=["array", "text", "declared"],
)
def test_candidates_have_the_size_of_the_schema_as_models_read_it(
    policy: LoadingPolicy, size: int
) -> None:
    chances = {"read_file": 0.25}
    (candidate,) = candidates_of([READ], chances, lambda texts: [*map(len, texts)], policy)
    assert candidate == Candidate("read_file", size, 0.25)


@POLICIES
def test_without_a_candidate_nothing_is_said_to_be_loaded(policy: LoadingPolicy) -> None:
    decision = decide_loading((), policy)
    assert (decision.loaded, decision.summary) == (
        (),
        "No further tool could be loaded.",
    )
