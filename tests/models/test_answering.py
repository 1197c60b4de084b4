"""The answer of a call of `finish` while its arguments are still being written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell.models.replying import AnswerText

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
VALUE = st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3))
CUTS = st.lists(st.integers(1, 7), min_size=1, max_size=8)


def pieces(text: str, cuts: list[int]) -> list[str]:
    found, place = list[str](), 0
    while place < len(text):
        size = cuts[len(found) % len(cuts)]
        found.append(text[place : place + size])
        place += size
    return found


def fed(text: str, cuts: list[int]) -> str:
    reader = AnswerText()
    return "".join(reader.feed(piece) for piece in pieces(text, cuts))


@given(TEXT, st.dictionaries(TEXT, VALUE | st.dictionaries(st.just("answer"), TEXT), max_size=3), CUTS, st.booleans())
def test_in_whatever_pieces_arguments_come_the_answer_is_given_out_whole_and_once(
    answer: str, others: dict[str, object], cuts: list[int], escaped: bool
) -> None:
    others.pop("answer", None)
    for arguments in ({**others, "answer": answer}, {"answer": answer, **others}):
        assert fed(json.dumps(arguments, ensure_ascii=escaped, indent=1), cuts) == answer


@given(TEXT, CUTS)
def test_halves_of_a_pair_that_come_in_two_pieces_are_one_character(answer: str, cuts: list[int]) -> None:
    halves = json.dumps({"answer": answer}, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
    units = "".join(chr(int.from_bytes(halves[at : at + 2], "little")) for at in range(0, len(halves), 2))
    assert fed(units, cuts) == answer


@given(TEXT, CUTS)
def test_all_that_was_given_out_so_far_is_the_beginning_of_the_answer(answer: str, cuts: list[int]) -> None:
    reader, said = AnswerText(), ""
    for piece in pieces(json.dumps({"answer": answer}), cuts):
        said += reader.feed(piece)
        assert answer.startswith(said)
    assert said == answer


@given(st.text('{}[]":,\\ua0d8answer \n'), CUTS)
def test_what_is_no_json_breaks_nothing(text: str, cuts: list[int]) -> None:
    assert fed(text, cuts) == fed(text, [len(text) or 1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"answer": null, "give_up": true}', ""),
        ('{"answer": ["a"]}', ""),
        ('{"result": {"answer": "inner"}}', ""),
        ('{"\\u0061nswer": "spelled"}', "spelled"),
        ('{"answer": "one", "answer": "two"}', "one"),
        ('{"answer": "half of \\ud83d a pair"}', "half of "),
        ('{"answer": "an \\x escape"}', "an "),
        ('{"answer": "cut sho', "cut sho"),
    ],
)
def test_only_the_text_of_the_answer_is_given_out(arguments: str, said: str) -> None:
    assert fed(arguments, [3]) == said
