import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.modes.stepwise import spans


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        ("What is 17 * 23?", ["17 * 23"]),
        ("What does 12% of 80 make?", ["12% of 80"]),
        ("Work out (4 + 5) * 12.", ["(4 + 5) * 12"]),
        ("What is sqrt(16)?", ["sqrt(16)"]),
        ("Compute the square root of 2025.", ["square root of 2025"]),
        ("What is 144 divided by 12?", ["144 divided by 12"]),
        ("How many lines has README.md?", []),
        ("Convert 5 miles to km.", []),
        ("Open http://localhost:80/4*5", []),
    ],
)
def test_arithmetic_is_found_as_it_is_written(request_, found):
    assert spans.expressions(request_) == found


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        ("How many lines has README.md?", ["README.md"]),
        ("Open LICENSE and show me what it says.", ["LICENSE"]),
        ("Show me docs/guide.md.", ["docs/guide.md"]),
        ("What is in the folder src?", ["src"]),
        ("Which files are in docs?", ["docs"]),
        ("Search for TODO in the folder.", []),
        ("Find the word budget in all files.", []),
        ("Fetch https://example.org/a.txt", []),
        ("Add 3.5 and 4.", []),
    ],
)
def test_paths_are_found_by_how_they_look_and_where_they_stand(request_, found):
    assert spans.paths(request_) == found


def test_files_are_told_from_folders():
    assert spans.folder_paths("Read a/b.txt in the folder src") == ["src"]
    assert spans.file_paths("Read a/b.txt in the folder src") == ["a/b.txt"]


def test_quantities_have_a_unit_and_a_target():
    for request in ("Convert 70 kg to pounds.", "How many pounds are 70 kg?", "Turn 70 kg into pounds!"):
        assert (spans.numbers(request), spans.measured_units(request), spans.target_units(request)) == (
            ["70"],
            ["kg"],
            ["pounds"],
        )


def test_quoted_text_urls_numbers_and_names_are_found():
    request = "Save 'buy milk' from https://a.org/x?y=1, 1,234 times, in New York."
    assert spans.quoted(request) == ["buy milk"]
    assert spans.urls(request) == ["https://a.org/x?y=1"]
    assert spans.numbers("It is 1,234 or -5.5.") == ["1234", "-5.5"]
    assert spans.names("What time is it in New York?") == ["New York"]


@pytest.mark.parametrize(
    ("request_", "without", "found"),
    [
        ("Write hello world to hello.txt.", ["hello.txt"], ["hello world"]),
        ("Replace cat with dog in animals.txt.", ["animals.txt"], ["cat", "dog", "cat with dog"]),
        ("Search for TODO in the folder.", [], ["TODO", "TODO in the folder"]),
        ("Find the word budget in all files.", [], ["budget", "budget in all files"]),
        ("Run the command git log --oneline", [], ["git log --oneline"]),
        ("Run this Python code: print(6 * 7)", [], ["print(6 * 7)"]),
        ("Make a new file called a.txt containing 123.", ["a.txt"], ["123"]),
        ("Go", [], []),
    ],
)
def test_phrases_are_bare_and_never_reach_over_what_another_argument_takes(request_, without, found):
    assert spans.phrases(request_, without=without) == found


@given(st.text(max_size=200))
def test_everything_offered_to_copy_stands_in_the_request(text):
    for find in (spans.urls, spans.quoted, spans.paths, spans.expressions, spans.names, spans.words, spans.phrases):
        assert all(found and found in text for found in find(text))
