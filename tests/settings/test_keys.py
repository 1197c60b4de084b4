import tomllib

from hypothesis import given
from hypothesis import strategies as st

from ecoshell.settings.keys import closest_key, dotted, key_lines

names = st.text("abcdefgh_", min_size=1, max_size=6)
values = st.sampled_from(
    [
        '"text"',
        "3",
        "2.50",
        "true",
        '[\n  "a", # one\n  "]",\n]',
        '"""\nmodel = 3\n[fake]\n"""',
        "{ in = 1, out = 2 }",
    ]
)
fillers = st.sampled_from(["", "# [comment]", "   "])


@st.composite
def toml_texts(draw: st.DrawFn) -> tuple[str, dict[tuple[str, ...], int]]:
    """Draw a TOML text of tables and keys, with the line of each."""
    lines: list[str] = []
    expected: dict[tuple[str, ...], int] = {}
    for table in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        lines.append(draw(fillers))
        lines.append(f"[{table}]")
        expected[table,] = len(lines)
        for key in draw(st.lists(names, max_size=4, unique=True)):
            lines.append(draw(fillers))
            value = draw(values)
            expected[table, key] = len(lines) + 1
            lines.extend(f"{key} = {value}".split("\n"))
    return "\n".join(lines), expected


@given(toml_texts(), st.sampled_from(["\n", "\r\n"]))
def test_key_lines_are_found(written: tuple[str, dict[tuple[str, ...], int]], ending: str) -> None:
    text, expected = written
    tomllib.loads(text)
    lines = key_lines(text.replace("\n", ending))
    assert {path: line for path, line in lines.items() if path[-1] not in {"in", "out"}} == expected


def test_lines_of_inline_tables_and_dotted_keys_are_found() -> None:
    text = 'budget.day = "1"\n[models."gpt 4"]\nprice = { input = 1 }\n'
    assert key_lines(text) == {
        ("budget",): 1,
        ("budget", "day"): 1,
        ("models",): 2,
        ("models", "gpt 4"): 2,
        ("models", "gpt 4", "price"): 3,
        ("models", "gpt 4", "price", "input"): 3,
    }


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_dotted_path_is_read_back_by_toml(path: list[str]) -> None:
    read: object = tomllib.loads(f"{dotted(path)} = 1")
    for part in path:
        assert isinstance(read, dict)
        read = read[part]
    assert read == 1


def test_closest_key_matches_the_path_or_its_last_part() -> None:
    keys = [("agent",), ("agent", "max_steps"), ("budget", "day")]
    assert closest_key(("agent", "max_step"), keys) == ("agent", "max_steps")
    assert closest_key(("max_steps",), keys) == ("agent", "max_steps")
    assert closest_key(("xyzzy",), keys) is None
