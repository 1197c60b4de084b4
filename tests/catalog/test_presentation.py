from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ecoshell.catalog import GROW, PLAIN, STABLE, TEXT, Presentation, few_words, listed_parts
from ecoshell.messages import FINISH, TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, ToolSchema

SCHEMAS = tuple(
    ToolSchema(name, f"Does {name}.", {"type": "object", "properties": {"path": {"type": "string"}}})
    for name in ("read_file", "list_files", "count_text")
)
NAMES = tuple(schema.name for schema in SCHEMAS)


def array(presentation: Presentation, *registered: ToolSchema, large: bool = False) -> list[str]:
    return [schema.name for schema in presentation.array(registered, large=large)]


def everything_shown(presentation: Presentation, upfront: tuple[ToolSchema, ...]) -> str:
    """All a model reads of the tools before its first step."""
    shown = "\n".join(schema.as_text() for schema in presentation.array(upfront))
    return f"{shown}\n{presentation.opening(NAMES, upfront)}"


def test_at_first_the_model_has_the_meta_tools_alone() -> None:
    assert array(GROW) == [TOOL_REGISTER, FINISH]
    assert array(STABLE) == [TOOL_REGISTER, TOOL_CALL, FINISH]


def test_grow_begins_with_the_core_set_and_appends_what_is_registered_later() -> None:
    late = [replace(SCHEMAS[0], name=name) for name in ("git_log", "data_query")]
    core = array(GROW, SCHEMAS[0], SCHEMAS[1])
    assert core == ["list_files", "read_file", TOOL_REGISTER, FINISH]
    assert array(GROW, late[0], SCHEMAS[1], SCHEMAS[0], late[1]) == [*core, "git_log", "data_query"]


@given(st.lists(st.sampled_from(SCHEMAS), unique_by=lambda schema: schema.name), st.booleans())
def test_the_stable_array_is_the_same_to_the_byte_whatever_is_registered(
    registered: list[ToolSchema], large: bool
) -> None:
    before = [schema.as_text().encode() for schema in STABLE.array((), large=large)]
    assert [schema.as_text().encode() for schema in STABLE.array(registered, large=large)] == before


def test_a_large_catalog_brings_the_search_tool() -> None:
    assert TOOL_SEARCH in array(GROW, large=True)
    assert TOOL_SEARCH in array(STABLE, large=True)
    assert "tool_search" in GROW.opening(NAMES, large=True)


def test_the_search_tool_stands_before_what_is_registered_so_that_the_array_only_grows() -> None:
    late = replace(SCHEMAS[0], name="git_log")
    assert array(GROW, late, large=True)[:-1] == array(GROW, large=True)


def test_plain_shows_documents_and_finish_and_nothing_to_register() -> None:
    assert array(PLAIN, *SCHEMAS) == [FINISH, *NAMES]
    assert PLAIN.opening(NAMES, SCHEMAS) == ""


def test_the_opening_lists_names_without_descriptions() -> None:
    for presentation in (GROW, STABLE):
        opening = presentation.opening(NAMES)
        assert all(name in opening for name in NAMES)
        assert "Does" not in opening


def test_registering_in_stable_returns_the_document_and_in_grow_an_acknowledgment() -> None:
    assert STABLE.registration_result(SCHEMAS[0]) == SCHEMAS[0].as_text()
    assert "Does" not in GROW.registration_result(SCHEMAS[0])


def test_a_document_stands_in_the_context_once() -> None:
    for presentation in (GROW, STABLE):
        upfront = (SCHEMAS[0],)
        assert everything_shown(presentation, upfront).count("Does read_file.") == 1
    assert everything_shown(PLAIN, SCHEMAS).count("Does read_file.") == 1


def test_a_document_that_is_shown_needs_no_place_among_the_names() -> None:
    for presentation in (GROW, STABLE):
        listing = presentation.opening(NAMES, (SCHEMAS[0],)).splitlines()[0]
        assert "read_file" not in listing
        assert "list_files" in listing


def test_without_names_and_documents_there_is_nothing_to_say() -> None:
    assert GROW.opening(()) == ""
    assert STABLE.opening(()) == ""
    assert TEXT.opening(()) == ""


def test_everything_as_text_takes_one_array_for_good_and_nothing_to_register() -> None:
    assert array(TEXT, *SCHEMAS) == array(TEXT) == [TOOL_CALL, FINISH]
    shown = everything_shown(TEXT, SCHEMAS)
    assert all(shown.count(schema.as_text()) == 1 for schema in SCHEMAS)
    assert TOOL_REGISTER not in shown


def test_names_may_come_with_a_few_words_of_what_they_do() -> None:
    about = {"read_file": "Does read_file", "list_files": ""}
    for presentation in (GROW, STABLE):
        listing = presentation.opening(NAMES, about=about)
        assert listing.endswith(": read_file (Does read_file), list_files, count_text")
        assert "Does" not in presentation.opening(NAMES)


SERVERS = {"git.status": "git", "git.log": "git", "hg.log": "hg", "hg.status": "hg", "time.now": "time"}


def test_a_server_stands_once_above_its_tools_and_equal_names_are_told_apart() -> None:
    names = ("read_file", "git.status", "hg.log", "time.now", "git.log", "hg.status")
    for presentation in (GROW, STABLE):
        assert presentation.opening(names, servers=SERVERS, about={"hg.log": "Shows commits"}) == (
            "Tools to register: read_file, time.now\n"
            "Of servers, as server.tool:\n"
            "git: status, log\n"
            "hg: log (Shows commits), status"
        )
        assert presentation.opening(("git.status", "git.log"), servers=SERVERS, large=True) == (
            "Tools to register (tool_search finds more), as server.tool:\ngit: status, log"
        )


def test_without_several_tools_of_a_server_the_names_are_one_line_as_ever() -> None:
    names = ("read_file", "time.now", "git.log")
    assert GROW.opening(names, servers=SERVERS) == GROW.opening(names) == f"Tools to register: {', '.join(names)}"


def test_what_a_listing_weighs_is_about_what_it_says() -> None:
    parts = "".join(listed_parts(("read_file", *SERVERS), SERVERS))
    listing = GROW.opening(("read_file", *SERVERS), servers=SERVERS)
    assert 0 < len(listing) - len(parts) < len("Tools to register, as server.tool: Of servers:\n")


@given(st.text(max_size=300))
def test_a_few_words_are_at_most_eight_and_one_line(description: str) -> None:
    words = few_words(ToolSchema("tool", description, {}))
    assert len(words.split()) <= 8
    assert len(words) <= 60
    assert "\n" not in words


def test_a_few_words_are_how_the_description_begins() -> None:
    for description, words in {
        "Read a text file: open it and show what it says.": "Read a text file",
        "Run a shell command or program in the workspace (build, test).": "Run a shell command or program in the",
        "获取必应搜索结果。然后返回": "获取必应搜索结果",
        "": "",
    }.items():
        assert few_words(ToolSchema("tool", description, {})) == words
