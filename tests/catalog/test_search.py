import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshell.catalog.search import TOOLS_PER_TASK, Ranker, shortlist
from ecoshell.messages import ToolSchema


def tool(name: str, description: str = "", *parameters: str, server: str = "") -> ToolSchema:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return ToolSchema(name, description, {"type": "object", "properties": properties}, server)


SHOP = (
    tool("get_weather", "Weather forecast of a city.", "city"),
    tool("searchFlights", "Find flights between two airports.", "origin", "destination"),
    tool("count_text", "Count lines, words and characters of a file.", "path"),
    tool("calculate", "Evaluate an arithmetic expression.", "expression"),
    tool("fetch_url", "The readable text of a web page.", "url"),
)


def best(question: str) -> str:
    return Ranker(SHOP).rank(question)[0][0]


def test_a_tool_is_found_by_the_parts_of_its_snake_case_name() -> None:
    assert best("the weather in Paris") == "get_weather"


def test_a_tool_is_found_by_the_parts_of_its_camel_case_name() -> None:
    assert best("flight to Oslo") == "searchFlights"


def test_a_tool_is_found_by_another_form_of_a_word() -> None:
    assert best("forecasts") == "get_weather"


def test_a_tool_is_found_by_the_name_of_a_parameter() -> None:
    assert best("my destination is Oslo") == "searchFlights"


def test_a_tool_is_found_by_the_name_of_its_server() -> None:
    ranker = Ranker([tool("search", "Search.", server="wikipedia"), tool("lookup", "Search.", server="arxiv")])
    assert ranker.rank("on arXiv")[0][0] == "lookup"


def test_a_sum_in_figures_finds_the_calculator() -> None:
    assert best("What is 17 * 23?") == "calculate"


def test_the_name_of_a_file_finds_a_tool_for_files() -> None:
    assert best("How many are in README.md?") == "count_text"


def test_an_address_finds_the_tool_that_fetches_pages() -> None:
    assert best("https://example.org/a.html, please") == "fetch_url"


def test_a_question_of_stop_words_alone_finds_nothing() -> None:
    assert Ranker(SHOP).rank("what is it that you can do for me?") == []


def test_an_empty_catalog_finds_nothing_and_gives_no_chances() -> None:
    assert Ranker(()).rank("weather") == []
    assert Ranker(()).chances("weather") == {}


def test_the_limit_keeps_the_best() -> None:
    question = "weather flights arithmetic"
    assert Ranker(SHOP).rank(question, 2) == Ranker(SHOP).rank(question)[:2]


def test_a_search_names_what_fits_any_sentence_of_a_request() -> None:
    request = "I have written a long letter about flights from airports and airports to flights. Count its words."
    assert set(Ranker(SHOP).search(request)[:2]) == {"searchFlights", "count_text"}
    assert Ranker(SHOP).search("The weather.\nThe web page.")[:2] != []


def test_a_search_names_the_others_of_a_server_that_fits() -> None:
    shop = (*SHOP, tool("open_page", "Open.", server="web"), tool("click", "Press it.", server="web"))
    assert Ranker(shop).search("open the page")[:2] == ["open_page", "click"]
    assert Ranker(shop).rank("open the page")[0][0] == "open_page"
    assert "click" not in dict(Ranker(shop).rank("open the page"))


def test_a_server_with_many_tools_leaves_room_for_others() -> None:
    mail = [tool(f"mail_{number}", "Send mail.", server="mail") for number in range(40)]
    found = Ranker([*mail, tool("post_letter", "Send a letter by post.")]).search("send mail")
    assert found[0].startswith("mail_")
    assert found.index("post_letter") < 40


def test_a_search_without_a_fit_names_nothing() -> None:
    assert Ranker([tool("open_page", "Open.", server="web")]).search("weather") == []
    assert Ranker(()).search("weather") == []


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_no_text_breaks_the_search(question: str) -> None:
    scores = [score for _, score in Ranker(SHOP).rank(question)]
    assert scores == sorted(scores, reverse=True)


def test_operators_of_the_index_are_words_like_others() -> None:
    assert best('weather" OR name:* NEAR(x) AND NOT ^city -') == "get_weather"


def test_a_pasted_book_is_ranked_by_its_beginning() -> None:
    assert best("weather " + "flights " * 2_000_000) in {"get_weather", "searchFlights"}
    assert best("weather " + "x " * 30_000 + "flights") == "get_weather"


def test_an_index_built_in_one_thread_answers_in_another() -> None:
    ranker = Ranker(SHOP)
    ranker.rank("weather")
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(name for name, _ in ranker.rank("weather")))
    thread.start()
    thread.join()
    assert found == ["get_weather"]


def test_chances_lie_between_none_and_certainty_and_follow_the_ranking() -> None:
    ranker = Ranker(SHOP)
    chances = ranker.chances("weather forecast for the city")
    assert all(0 < chance < 1 for chance in chances.values())
    assert max(chances, key=chances.__getitem__) == "get_weather"
    assert list(chances) == [schema.name for schema in SHOP]


def test_the_tools_of_a_pool_of_any_size_are_expected_to_be_used_as_often_as_a_task_uses_tools() -> None:
    for size in (5, 20, 200):
        chances = Ranker([tool(f"tool{n}", f"word{n}") for n in range(size)]).chances("word3 and word4")
        assert sum(chances.values()) <= TOOLS_PER_TASK + 0.001
        assert sum(chances.values()) > 0.8 * TOOLS_PER_TASK


def test_without_any_match_all_tools_are_equally_likely() -> None:
    assert len({round(chance, 9) for chance in Ranker(SHOP).chances("hello there").values()}) == 1


def test_a_tool_whose_server_has_a_fitting_tool_is_likelier_than_a_stranger() -> None:
    pool = [
        tool("find_route", "Route between places.", server="maps"),
        tool("zoom", server="maps"),
        tool("pan", server="camera"),
    ]
    chances = Ranker([*pool, *(tool(f"other{n}") for n in range(20))]).chances("a route to the station")
    assert chances["find_route"] > chances["zoom"] > chances["pan"]


def test_all_names_are_shown_while_they_fit() -> None:
    sizes = {schema.name: 3 for schema in SHOP}
    assert shortlist("weather", Ranker(SHOP), sizes, room=15) == tuple(sizes)


def test_when_names_do_not_fit_the_best_ones_are_shown() -> None:
    sizes = {schema.name: 3 for schema in SHOP}
    names = shortlist("weather and flights", Ranker(SHOP), sizes, room=7)
    assert set(names) == {"get_weather", "searchFlights"}
    assert shortlist("weather and flights", Ranker(SHOP), sizes, room=3) == names[:1]
