"""The front matter of skills, commands and agents, as this and other agents write it."""

import pytest

from ecoshell.errors import UsageError
from ecoshell.front_matter import MAX_CHARACTERS, parse_front_matter


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        (
            "name: pdf\ncap: 0.50\neffort: off\nyes: no",
            {"name": "pdf", "cap": "0.50", "effort": "off", "yes": "no"},
        ),
        ("tools: [read_file, 'run command']", {"tools": ("read_file", "run command")}),
        ("tools:\n  - read_file\n  - write_file", {"tools": ("read_file", "write_file")}),
        ("description: >\n  Fill forms,\n  and merge.", {"description": "Fill forms, and merge."}),
        ('description: "a: b # c"', {"description": "a: b # c"}),
        ("description: Use this: when\nname: x", {"description": "Use this: when", "name": "x"}),
        (
            "argument-hint: [pr] [priority]\ntools: [a, b]",
            {"argument-hint": "[pr] [priority]", "tools": ("a", "b")},
        ),
        ("metadata:\n  author: ann\nname: x", {"name": "x"}),
        ("", {}),
        ("# a comment", {}),
    ],
)
def test_fields_are_texts_and_lists_in_every_notation(source: str, fields: dict[str, object]):
    parsed = parse_front_matter(f"\ufeff---\r\n{source}\n--- \n\nbody\n---\nmore\n", "x.md")
    assert (dict(parsed.fields), parsed.body) == (fields, "body\n---\nmore")


def test_a_field_is_read_as_a_text_or_as_words():
    parsed = parse_front_matter("---\ntools: Read, Grep Bash\nmodel:\n- a b\n- c\n---", "x.md")
    assert parsed.words("tools") == ("Read", "Grep", "Bash")
    assert (parsed.words("model"), parsed.text("model")) == (("a b", "c"), "a b, c")
    assert (parsed.words("other"), parsed.text("other")) == ((), "")


@pytest.mark.parametrize("text", ["no front matter", "--- # title\ntext", "", "\n---\na: b\n---"])
def test_a_text_without_front_matter_is_all_body(text: str):
    parsed = parse_front_matter(text, "x.md")
    assert (dict(parsed.fields), parsed.body) == ({}, text.strip())


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("a: 'x\n---", "line 3: found unexpected end of stream"),
        ("- a\n- b\n---", "is not a list of fields"),
        ("? [a]\n: b\n---", "line 2: found unhashable key"),
        ("[" * 9_000 + "\n---", "did not find expected node content"),
        ("a: b", "has no end"),
        ("a: " + "b" * MAX_CHARACTERS + "\n---", "has no end within 16,384 characters"),
    ],
)
def test_a_faulty_front_matter_is_a_sentence_that_names_the_file(source: str, reason: str):
    with pytest.raises(UsageError, match=r"front matter of x\.md") as error:
        parse_front_matter(f"---\n{source}", "x.md")
    assert reason in str(error.value)
