from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.catalog import GROW, PLAIN, STABLE, TEXT, Presentation, few_words, listing_text
from ecoshell.messages import FINISH, TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, ToolSchema

SCHEMAS = tuple(
    ToolSchema(
        name, f"Does {name}.", {"type": "object", "properties": {"path": {"type": "string"}}}
    )
    for name in ("read_file", "list_files", "count_text")
)
NAMES = tuple(schema.name for schema in SCHEMAS)
SERVERS = {
    "git.status": "git",
    "git.log": "git",
    "hg.log": "hg",
    "hg.status": "hg",
    "time.now": "time",
}
by_name = pytest.mark.parametrize("presentation", [GROW, STABLE], ids=lambda each: each.name)


def array(presentation: Presentation, *registered: ToolSchema, large: bool = False) -> list[str]:
    return [schema.name for schema in presentation.array(registered, large=large)]


def prompt_about_tools(presentation: Presentation, loaded: tuple[ToolSchema, ...]) -> str:
    """Return everything a model reads about tools before its first step."""
    schemas = "\n".join(schema.as_text() for schema in presentation.array(loaded))
    return f"{schemas}\n{presentation.opening(NAMES, loaded)}"


def test_array_begins_with_meta_tools_only() -> None:
    assert array(GROW) == [TOOL_REGISTER, FINISH]
    assert array(STABLE) == [TOOL_REGISTER, TOOL_CALL, FINISH]


def test_grow_begins_with_the_core_set_and_appends_later_registrations() -> None:
    later = [replace(SCHEMAS[0], name=name) for name in ("git_log", "data_query")]
    core = array(GROW, SCHEMAS[0], SCHEMAS[1])
    assert core == ["list_files", "read_file", TOOL_REGISTER, FINISH]
    registered = (later[0], SCHEMAS[1], SCHEMAS[0], later[1])
    assert array(GROW, *registered) == [*core, "git_log", "data_query"]


@given(
    st.lists(st.sampled_from(SCHEMAS), unique_by=lambda schema: schema.name),
    st.booleans(),
)
def test_stable_array_does_not_change_with_registrations(
    registered: list[ToolSchema], large: bool
) -> None:
    expected = [schema.as_text().encode() for schema in STABLE.array((), large=large)]
    after = [schema.as_text().encode() for schema in STABLE.array(registered, large=large)]
    assert after == expected


def test_large_catalog_adds_tool_search() -> None:
    assert TOOL_SEARCH in array(GROW, large=True)
    assert TOOL_SEARCH in array(STABLE, large=True)
    assert "tool_search" in GROW.opening(NAMES, large=True)


def test_tool_search_precedes_registered_tools() -> None:
    later = replace(SCHEMAS[0], name="git_log")
    assert array(GROW, later, large=True)[:-1] == array(GROW, large=True)


def test_plain_has_schemas_and_finish_and_no_registration() -> None:
    assert array(PLAIN, *SCHEMAS) == [FINISH, *NAMES]
    assert PLAIN.opening(NAMES, SCHEMAS) == ""


@by_name
def test_opening_lists_names_without_descriptions(presentation: Presentation) -> None:
    opening = presentation.opening(NAMES)
    assert all(name in opening for name in NAMES)
    assert "Does" not in opening


def test_registration_returns_the_schema_in_stable_and_a_confirmation_in_grow() -> None:
    assert STABLE.registration_result(SCHEMAS[0]) == SCHEMAS[0].as_text()
    assert "Does" not in GROW.registration_result(SCHEMAS[0])


@pytest.mark.parametrize(
    ("presentation", "loaded"), [(GROW, SCHEMAS[:1]), (STABLE, SCHEMAS[:1]), (PLAIN, SCHEMAS)]
)
def test_context_contains_a_schema_once(
    presentation: Presentation, loaded: tuple[ToolSchema, ...]
) -> None:
    assert prompt_about_tools(presentation, loaded).count("Does read_file.") == 1


@by_name
def test_loaded_tool_is_not_listed_by_name(presentation: Presentation) -> None:
    listing = presentation.opening(NAMES, (SCHEMAS[0],)).splitlines()[0]
    assert "read_file" not in listing
    assert "list_files" in listing


@pytest.mark.parametrize("presentation", [GROW, STABLE, TEXT])
def test_opening_without_tools_is_empty(presentation: Presentation) -> None:
    assert presentation.opening(()) == ""


def test_text_has_a_constant_array_and_no_registration() -> None:
    assert array(TEXT, *SCHEMAS) == array(TEXT) == [TOOL_CALL, FINISH]
    prompt = prompt_about_tools(TEXT, SCHEMAS)
    assert all(prompt.count(schema.as_text()) == 1 for schema in SCHEMAS)
    assert TOOL_REGISTER not in prompt


@by_name
def test_opening_lists_names_with_short_descriptions(presentation: Presentation) -> None:
    descriptions = {"read_file": "Does read_file", "list_files": ""}
    listing = presentation.opening(NAMES, descriptions=descriptions)
    assert listing.endswith(": read_file (Does read_file), list_files, count_text")


@by_name
def test_opening_groups_tools_by_server(presentation: Presentation) -> None:
    names = ("read_file", "git.status", "hg.log", "time.now", "git.log", "hg.status")
    descriptions = {"hg.log": "Shows commits"}
    assert presentation.opening(names, servers=SERVERS, descriptions=descriptions) == (
        "Tools to register: read_file, time.now\n"
        "Of servers, as server.tool:\n"
        "git: status, log\n"
        "hg: log (Shows commits), status"
    )
    assert presentation.opening(("git.status", "git.log"), servers=SERVERS, large=True) == (
        "Tools to register (tool_search finds more), as server.tool:\ngit: status, log"
    )


def test_opening_is_one_line_if_no_server_has_several_tools() -> None:
    names = ("read_file", "time.now", "git.log")
    expected = f"Tools to register: {', '.join(names)}"
    assert GROW.opening(names, servers=SERVERS) == GROW.opening(names) == expected


def test_counted_listing_is_about_as_long_as_the_listing() -> None:
    text = listing_text(("read_file", *SERVERS), SERVERS)
    listing = GROW.opening(("read_file", *SERVERS), servers=SERVERS)
    headings = "Tools to register, as server.tool: Of servers:\n"
    assert 0 < len(listing) - len(text) <= len(headings)


@given(st.text(max_size=300))
def test_few_words_are_at_most_eight_and_one_line(description: str) -> None:
    words = few_words(ToolSchema("tool", description, {}))
    assert len(words.split()) <= 8
    assert len(words) <= 60
    assert "\n" not in words


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ("Read a text file: open it and show what it says.", "Read a text file"),
        (
            "Run a shell command or program in the workspace (build, test).",
            "Run a shell command or program",
        ),
        (
            "Fetch a web page (website, link, URL, internet address) and show its text.",
            "Fetch a web page",
        ),
        (
            "Stop a background command (kill, end) and show what it has printed.",
            "Stop a background command (kill, end)",
        ),
        ("Run Python code or a script and show what it prints.", "Run Python code or a script"),
        ("获取必应搜索结果。然后返回", "获取必应搜索结果"),
        ("", ""),
    ],
)
def test_few_words_are_the_beginning_of_the_description(description: str, words: str) -> None:
    assert few_words(ToolSchema("tool", description, {})) == words
