"""Writing settings into the user's file."""

import os
import threading
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ecoshell.errors import SettingsError
from ecoshell.settings import dotted, edit, parse_key
from ecoshell.settings.edit import edited_text, write_settings

OWN = """\
# My settings.
model = "embedded"   # the small one

[agent]
max_steps = 5        # enough
# registration = "names"

# What I am ready to pay.
[budget]
day = "2.00"

[models."openai/x".price]   # from their page
input  = "0.20"
output = "0.80"

[tui]
theme = 'light'
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def refused(file: Path, key: str, typed: str | None) -> SettingsError:
    content = file.read_bytes() if file.exists() else None
    with pytest.raises(SettingsError) as caught:
        write_settings(file, {parse_key(key): typed})
    assert (file.read_bytes() if file.exists() else None) == content
    return caught.value


def test_value_is_replaced_and_the_rest_is_unchanged(file: Path) -> None:
    file.write_text(OWN)
    settings = write_settings(file, {("agent", "max_steps"): "12"})
    assert settings.agent.max_steps == 12
    assert file.read_text() == OWN.replace("max_steps = 5 ", "max_steps = 12 ")


def test_new_key_follows_the_last_key_of_its_table(file: Path) -> None:
    file.write_text(OWN)
    write_settings(file, {("agent", "answer_tokens"): "99"})
    assert file.read_text() == OWN.replace('names"\n', 'names"\nanswer_tokens = 99\n')


def test_top_level_key_precedes_the_tables(file: Path) -> None:
    file.write_text("# first\n\n[agent]\nmax_steps = 5\n")
    assert write_settings(file, {("model",): "openai/gpt-4o-mini"}).model == "openai/gpt-4o-mini"
    assert file.read_text().startswith("# first\n")
    assert file.read_text().endswith("[agent]\nmax_steps = 5\n")


def test_new_table_follows_an_empty_line_at_the_end(file: Path) -> None:
    file.write_text("[agent]\nmax_steps = 5")
    write_settings(file, {("tui", "theme"): "dusk"})
    assert file.read_text() == '[agent]\nmax_steps = 5\n\n[tui]\ntheme = "dusk"\n'


def test_missing_file_is_created_with_its_folders_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "config.toml"
    write_settings(file, {("tui", "theme"): "dusk"})
    assert file.read_text() == '[tui]\ntheme = "dusk"\n'
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("key", "typed", "written"),
    [
        ("agent.max_steps", "7", 7),
        ("agent.registration", "names", "names"),
        ("tools.allow_private_addresses", "true", True),
        ("tools.command_seconds", "30", 30),
        ("registration.names_share", "0.1", 0.1),
        ("agent.compact_at", "off", "off"),
        ("agent.compact_at", "0.6", 0.6),
        ("agent.temperature", "auto", "auto"),
        ("agent.temperature", "0.7", 0.7),
        ("local.threads", "auto", "auto"),
        ("local.threads", "4", 4),
        ("budget.session", "0.50", "0.50"),
        ("budget.session", "1", "1"),
        ("tui.theme", "2024", "2024"),
        ("approval.deny", "run_command:rm *", ["run_command:rm *"]),
        (
            "approval.allow",
            '["read_file", "run_command:git *"]',
            ["read_file", "run_command:git *"],
        ),
        ("plugins.web.hosts", '["a", "b"]', ["a", "b"]),
        ("plugins.web.weights", "[0.1, 2]", [0.1, 2]),
        ("mcp.servers.x.env.PHONE", "+4912345", "+4912345"),
        ("mcp.servers.x.env.HOSTS", '["a"]', '["a"]'),
        ("mcp.servers.x.headers.Pad", " x ", " x "),
        ("tools.prices.fetch_url", "2", "2"),
        ('models."a/b.c".base_url', "http://localhost:1/v1", "http://localhost:1/v1"),
    ],
)
def test_typed_value_is_written_with_the_type_of_its_key(
    file: Path, key: str, typed: str, written: object
) -> None:
    file.write_text("[mcp.servers.x]\ncommand = 'x'\n")
    write_settings(file, {parse_key(key): typed})
    value: object = tomllib.loads(file.read_text())
    for part in parse_key(key):
        assert isinstance(value, dict)
        value = value[part]
    assert value == written
    assert type(value) is type(written)


def test_dependent_keys_are_written_together(file: Path) -> None:
    price = ("models", "openai/x", "price")
    assert (
        "price.output is missing" in refused(file, 'models."openai/x".price.input', "0.20").message
    )
    settings = write_settings(file, {(*price, "input"): "0.20", (*price, "output"): "0.80"})
    price = settings.models.named["openai/x"].price
    assert price is not None
    assert (price.input, price.output) == (Decimal("0.20"), Decimal("0.80"))
    assert file.read_text() == '[models."openai/x".price]\ninput = "0.20"\noutput = "0.80"\n'


def test_removed_key_has_its_default_and_the_rest_is_unchanged(file: Path) -> None:
    file.write_text(OWN)
    assert write_settings(file, {("budget", "day"): None}).budget.day is None
    assert file.read_text() == OWN.replace('day = "2.00"\n', "")


def test_removing_a_missing_key_changes_nothing(file: Path) -> None:
    file.write_text(OWN)
    write_settings(file, {("local", "context"): None, ("models", "y", "context"): None})
    assert file.read_text() == OWN


@pytest.mark.parametrize(
    ("key", "typed", "reason"),
    [
        (
            "agent.max_steps",
            "many",
            'agent.max_steps must be "auto" or a whole number of at least 1',
        ),
        ("agent.max_steps", "0", 'agent.max_steps must be "auto" or a whole number of at least 1'),
        ("agent.registration", "some", "must be 'auto', 'names', 'all' or 'all_text', not 'some'"),
        ("budget.day", "-3", "budget.day must be dollars"),
        ("agent.max_step", "3", "unknown key agent.max_step"),
        ("agent", "3", "agent must be a table"),
        ("model", "", "model must not be empty"),
        ("models.x.base_url", "ftp://x", "must be an address"),
        ("openai_api_key", "sk-1", "unknown key openai_api_key"),
        ('models."\udcff".context', "8", "is not UTF-8 text"),
    ],
)
def test_invalid_change_is_refused_with_its_key(
    file: Path, key: str, typed: str, reason: str
) -> None:
    file.write_text(OWN)
    error = refused(file, key, typed)
    assert reason.partition(", unable")[0] in error.message
    assert error.kept == "Nothing was written."
    assert error.fix


def test_file_with_another_problem_is_unchanged_and_the_line_is_reported(file: Path) -> None:
    file.write_text("[agent]\nmax_steps = 'many'\n")
    assert f"{file} line 2: agent.max_steps must be" in refused(file, "tui.theme", "dusk").message
    file.write_text("[agent\n")
    assert f"{file} line 1: this is not TOML" in refused(file, "tui.theme", "dusk").message
    file.write_bytes(b'model = "\xff"\n')
    assert "line 1: this is not UTF-8" in refused(file, "tui.theme", "dusk").message


def test_invalid_key_can_be_corrected_or_removed(file: Path) -> None:
    file.write_text("[agent]\nmax_steps = 'many' # hm\n")
    write_settings(file, {("agent", "max_steps"): "3"})
    assert file.read_text() == "[agent]\nmax_steps = 3 # hm\n"
    file.write_text("modle = 'x'\nmodel = 'y'\n")
    write_settings(file, {("modle",): None})
    assert file.read_text() == "model = 'y'\n"


def test_concurrent_writers_keep_each_others_changes(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, fsync, started = edit.write_settings, os.fsync, threading.Event()
    other = threading.Thread(target=write, args=(file, {("tui", "theme"): "moss"}))

    def while_another_writes(descriptor: int) -> None:
        if not started.is_set():
            started.set()
            other.start()
            other.join(0.2)  # it waits for this one, or is done
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", while_another_writes)
    write(file, {("agent", "max_steps"): "7"})
    other.join()
    assert tomllib.loads(file.read_text()) == {"agent": {"max_steps": 7}, "tui": {"theme": "moss"}}


def test_file_saved_in_the_meantime_keeps_its_content(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = edit.edited

    def while_an_editor_saves(of: Path, content: bytes, changes: edit.Changes):
        file.write_bytes(content + b"# more\n")
        return changed(of, content, changes)

    monkeypatch.setattr(edit, "edited", while_an_editor_saves)
    with pytest.raises(SettingsError, match="is being changed by another program"):
        write_settings(file, {("agent", "max_steps"): "6"})
    assert file.read_text() == "# more\n"
    assert [entry.name for entry in file.parent.iterdir()] == ["config.toml"]


def test_symbolic_link_and_file_mode_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    real.write_text("model = 'x'\n")
    real.chmod(0o640)
    link.symlink_to(real)
    write_settings(link, {("model",): "y"})
    assert link.is_symlink()
    assert real.read_text() == 'model = "y"\n'
    assert real.stat().st_mode & 0o777 == 0o640


def test_line_endings_and_byte_order_mark_are_kept(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf[agent]\r\nmax_steps = 5\r\n")
    write_settings(file, {("agent", "answer_tokens"): "9", ("tui", "theme"): "dusk"})
    assert file.read_bytes() == (
        b'\xef\xbb\xbf[agent]\r\nmax_steps = 5\r\nanswer_tokens = 9\r\n\r\n[tui]\r\ntheme = "dusk"\r\n'
    )


def test_folder_instead_of_the_file_is_reported(file: Path) -> None:
    file.mkdir()
    with pytest.raises(SettingsError, match=r"config\.toml: it cannot be read"):
        write_settings(file, {("tui", "theme"): "dusk"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_folder_is_reported(file: Path) -> None:
    file.write_text("model = 'x'\n")
    file.parent.chmod(0o500)
    try:
        assert "cannot be written" in refused(file, "model", "y").message
    finally:
        file.parent.chmod(0o700)


@pytest.mark.parametrize(
    "text",
    [
        "agent.max_steps = 5\nmodel = 'x'\n",
        "agent = { max_steps = 5, answer_tokens = 3 }\n",
        "[models.x]\ncontext = 1\n[agent]\nmax_steps = 5\n[models.y]\ncontext = 2\n",
        "[models]\n[models.x]\n[models.x.price]\ninput = 1\noutput = 2\n",
        "[approval]\nallow = [ # mine\n  'read_file', # harmless\n]\n",
        "models = { y = { context = 1 } }\n",
    ],
    ids=["dotted", "inline", "out of order", "empty tables", "list over lines", "inline in inline"],
)
@pytest.mark.parametrize(
    "key", ["agent.answer_tokens", "agent.max_steps", "models.x.context", "tui.theme", "model"]
)
def test_layout_of_tables_is_kept(file: Path, text: str, key: str) -> None:
    file.write_text(text)
    expected = tomllib.loads(text)
    write_settings(file, {parse_key(key): "7"})
    after = tomllib.loads(file.read_text())
    table = after
    for part in parse_key(key)[:-1]:
        table = table[part]
    assert table.pop(parse_key(key)[-1]) in (7, "7")
    for part in parse_key(key)[:-1]:
        expected = expected.setdefault(part, {})
    expected.pop(parse_key(key)[-1], None)
    assert table == expected
    assert all(line in file.read_text() for line in text.splitlines() if "#" in line)


KEYS = some.sampled_from(["a", "b", "c d"])
VALUES = some.one_of(
    some.integers(), some.text(alphabet="ab'\"\\ é\u202e", max_size=6), some.booleans()
)
TABLES = some.dictionaries(KEYS, VALUES, max_size=3)
COMMENTS = some.sampled_from(["", "# note\n", "\n", "\n# note\n\n"])


@given(
    some.dictionaries(KEYS, some.tuples(COMMENTS, TABLES, COMMENTS), max_size=3), KEYS, KEYS, VALUES
)
def test_one_key_changes_and_all_comments_stay(tables, table, key, value) -> None:
    import tomlkit

    text = "".join(
        f"{comment}[{dotted([name])}]\n{tomlkit.dumps(values)}{after}"
        for name, (comment, values, after) in tables.items()
    )
    done = edited_text(text, {(table, key): value})
    expected = tomllib.loads(text)
    expected.setdefault(table, {})[key] = value
    assert tomllib.loads(done) == expected
    assert done.count("# note") == text.count("# note")
    assert [line for line in done.splitlines() if line in text.splitlines()].count(
        f"[{dotted([table])}]"
    ) <= 1


@pytest.mark.parametrize("key", ["", "a..b", "a = 1 #", "a = 0 #", "a\nb", "[a] #", "'open"])
def test_invalid_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is not a key"):
        parse_key(key)


def test_dotted_key_is_parsed_back() -> None:
    for path in (("model",), ("agent", "max_steps"), ("models", 'a/"b".c', "price", "input")):
        assert parse_key(dotted(path)) == path
