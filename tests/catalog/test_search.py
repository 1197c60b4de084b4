import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshell.catalog.search import TOOLS_PER_TASK, Ranker, shortlist
from ecoshell.messages import ToolSchema


def tool(name: str, description: str = "", *parameters: str, server: str = "") -> ToolSchema:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return ToolSchema(name, description, {"type": "object", "properties": properties}, server)


TOOLS = (
    tool("get_weather", "Weather forecast of a city.", "city"),
    tool("searchFlights", "Find flights between two airports.", "origin", "destination"),
    tool("count_text", "Count lines, words and characters of a file.", "path"),
    tool("calculate", "Evaluate an arithmetic expression.", "expression"),
    tool("fetch_url", "The readable text of a web page.", "url"),
)


def best(question: str) -> str:
    return Ranker(TOOLS).rank(question)[0][0]


@pytest.mark.parametrize(
    ("question", "name"),
    [
        pytest.param("the weather in Paris", "get_weather", id="part of a snake_case name"),
        pytest.param("flight to Oslo", "searchFlights", id="part of a camelCase name"),
        pytest.param("forecasts", "get_weather", id="another form of a word"),
        pytest.param("my destination is Oslo", "searchFlights", id="parameter name"),
        pytest.param("What is 17 * 23?", "calculate", id="calculation"),
        pytest.param("How many are in README.md?", "count_text", id="file name"),
        pytest.param("https://example.org/a.html, please", "fetch_url", id="URL"),
        pytest.param('weather" OR name:* NEAR(x) AND NOT ^city -', "get_weather", id="operators"),
    ],
)
def test_rank_finds_the_tool(question: str, name: str) -> None:
    assert best(question) == name


def test_rank_finds_a_tool_by_its_server() -> None:
    ranker = Ranker(
        [tool("search", "Search.", server="wikipedia"), tool("lookup", "Search.", server="arxiv")]
    )
    assert ranker.rank("on arXiv")[0][0] == "lookup"


def test_stop_words_match_nothing() -> None:
    assert Ranker(TOOLS).rank("what is it that you can do for me?") == []


def test_empty_catalog_matches_nothing() -> None:
    assert Ranker(()).rank("weather") == []
    assert Ranker(()).chances("weather") == {}
    assert Ranker(()).search("weather") == []


def test_limit_keeps_the_best() -> None:
    question = "weather flights arithmetic"
    assert Ranker(TOOLS).rank(question, 2) == Ranker(TOOLS).rank(question)[:2]


def test_search_finds_tools_for_each_sentence() -> None:
    request = "I have written a long letter about flights from airports and airports to flights. Count its words."
    assert set(Ranker(TOOLS).search(request)[:2]) == {"searchFlights", "count_text"}
    assert Ranker(TOOLS).search("The weather.\nThe web page.")[:2] != []


def test_search_includes_the_siblings_of_a_match() -> None:
    web = (tool("open_page", "Open.", server="web"), tool("click", "Press it.", server="web"))
    ranker = Ranker((*TOOLS, *web))
    assert ranker.search("open the page")[:2] == ["open_page", "click"]
    assert ranker.rank("open the page")[0][0] == "open_page"
    assert "click" not in dict(ranker.rank("open the page"))


def test_server_with_many_tools_does_not_hide_others() -> None:
    mail = [tool(f"mail_{number}", "Send mail.", server="mail") for number in range(40)]
    names = Ranker([*mail, tool("post_letter", "Send a letter by post.")]).search("send mail")
    assert names[0].startswith("mail_")
    assert names.index("post_letter") < 40


def test_search_without_a_match_is_empty() -> None:
    assert Ranker([tool("open_page", "Open.", server="web")]).search("weather") == []


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_any_text_can_be_ranked(question: str) -> None:
    scores = [score for _, score in Ranker(TOOLS).rank(question)]
    assert scores == sorted(scores, reverse=True)


def test_rank_reads_the_beginning_of_a_long_question() -> None:
    assert best("weather " + "flights " * 2_000_000) in {"get_weather", "searchFlights"}
    assert best("weather " + "x " * 30_000 + "flights") == "get_weather"


def test_index_works_in_another_thread() -> None:
    ranker = Ranker(TOOLS)
    ranker.rank("weather")
    names: list[str] = []
    thread = threading.Thread(
        target=lambda: names.extend(name for name, _ in ranker.rank("weather"))
    )
    thread.start()
    thread.join()
    assert names == ["get_weather"]


def test_chances_are_probabilities_in_catalog_order() -> None:
    chances = Ranker(TOOLS).chances("weather forecast for the city")
    assert all(0 < chance < 1 for chance in chances.values())
    assert max(chances, key=chances.__getitem__) == "get_weather"
    assert list(chances) == [schema.name for schema in TOOLS]


@pytest.mark.parametrize("size", [5, 20, 200])
def test_chances_sum_to_the_tools_per_task(size: int) -> None:
    chances = Ranker([tool(f"tool{n}", f"word{n}") for n in range(size)]).chances("word3 and word4")
    assert 0.8 * TOOLS_PER_TASK < sum(chances.values()) <= TOOLS_PER_TASK + 0.001


def test_chances_are_equal_without_a_match() -> None:
    chances = Ranker(TOOLS).chances("hello there")
    assert len({round(chance, 9) for chance in chances.values()}) == 1


def test_sibling_of_a_match_is_likelier_than_other_tools() -> None:
    tools = [
        tool("find_route", "Route between places.", server="maps"),
        tool("zoom", server="maps"),
        tool("pan", server="camera"),
        *(tool(f"other{n}") for n in range(20)),
    ]
    chances = Ranker(tools).chances("a route to the station")
    assert chances["find_route"] > chances["zoom"] > chances["pan"]


def test_shortlist_has_all_names_if_they_fit() -> None:
    sizes = {schema.name: 3 for schema in TOOLS}
    assert shortlist("weather", Ranker(TOOLS), sizes, room=15) == tuple(sizes)


def test_shortlist_has_the_best_names_that_fit() -> None:
    sizes = {schema.name: 3 for schema in TOOLS}
    names = shortlist("weather and flights", Ranker(TOOLS), sizes, room=7)
    assert set(names) == {"get_weather", "searchFlights"}
    assert shortlist("weather and flights", Ranker(TOOLS), sizes, room=3) == names[:1]
