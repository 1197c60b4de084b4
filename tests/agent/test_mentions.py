import os
import sys

import pytest

from ecoshell.agent.workspace import attach
from ecoshell.messages import Attachment
from ecoshell.tools.workspace import Workspace


@pytest.fixture
def workspace(tmp_path):
    root = tmp_path / "workspace"
    (root / "docs").mkdir(parents=True)
    (root / "notes.txt").write_text("one\ntwo\n")
    (root / "my notes.txt").write_text("three\n")
    (root / "docs" / "a.md").write_text("# A\n")
    (tmp_path / "secret.txt").write_text("secret")
    return Workspace(root)


def names(found):
    return [attachment.name for attachment in found.attachments]


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("what is in @notes.txt?", "notes.txt"),
        ("@notes.txt", "notes.txt"),
        ("(see @notes.txt)", "notes.txt"),
        ("read @notes.txt.", "notes.txt"),
        ("read @notes.txt: it is short", "notes.txt"),
        ("read @./docs/../notes.txt", "notes.txt"),
        ('read @"my notes.txt" now', "my notes.txt"),
        ("what is in @docs/?", "docs/"),
        ("what is in @docs", "docs/"),
        ("read @docs/a.md, please", "docs/a.md"),
        ("read “@notes.txt”", "notes.txt"),
        ("read @notes.txt…", "notes.txt"),
    ],
)
def test_what_is_mentioned_is_attached_by_its_name(workspace, question, name):
    found = attach(workspace, question)
    assert names(found) == [name]
    assert found.notices == []


@pytest.mark.parametrize(
    "question",
    [
        "write to me@notes.txt",
        "why does @dataclass(frozen=True) fail?",
        "@pytest.fixture is a decorator",
        "@app.route is a decorator",
        "ask @alice",
        "two @ signs @@notes.txt",
        "this code:\n```\n@docs/missing.py\n```",
        "the line `@docs/missing.py`",
    ],
)
def test_an_address_a_decorator_or_a_name_is_no_mention(workspace, question):
    found = attach(workspace, question)
    assert (found.attachments, found.notices) == ([], [])


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("read @missing.txt", "there is no such file"),
        ("read @docs/missing", "there is no such file"),
        ('read @"missing"', "there is no such file"),
        ("read @../secret.txt", "outside the workspace"),
        ("read @link.txt", "outside the workspace"),
        ("read @picture.png", "is not a PNG"),
        ("read @latin.txt", "not UTF-8"),
        ("read @pipe.txt", "a pipe"),
        ("read @notes.db.", "binary"),
        ("read @outside", "outside the workspace"),
    ],
)
def test_a_path_that_cannot_be_read_is_told_and_stays_text(workspace, question, why):
    (workspace.root / "link.txt").symlink_to(workspace.root.parent / "secret.txt")
    (workspace.root / "outside").symlink_to(workspace.root.parent / "secret.txt")
    (workspace.root / "picture.png").write_bytes(b"\x89PNG\0")
    (workspace.root / "notes.db").write_bytes(b"SQLite\0")
    (workspace.root / "latin.txt").write_bytes(b"caf\xe9")
    os.mkfifo(workspace.root / "pipe.txt")
    found = attach(workspace, question)
    assert found.attachments == []
    assert len(found.notices) == 1
    assert why in found.notices[0]


def test_a_long_file_is_cut_between_characters_and_says_so(workspace, monkeypatch):
    monkeypatch.setattr("ecoshell.agent.workspace.FILE_BYTES", 10)
    (workspace.root / "long.txt").write_text("é" * 9 + "\U0001f600")
    (attachment,) = attach(workspace, "@long.txt").attachments
    assert attachment.text == "ééééé\n[cut: the first 10 of 22 bytes]"
    (workspace.root / "long.txt").write_text("x" * 8 + "\U0001f600")
    found = attach(workspace, "@long.txt")
    assert found.attachments[0].text.startswith("x" * 8 + "\n[cut: the first 8 of 12 bytes]")
    assert found.notices == ["@long.txt was cut: the first 8 of 12 bytes are attached."]


def test_all_files_together_have_a_bound(workspace, monkeypatch):
    monkeypatch.setattr("ecoshell.agent.workspace.ALL_BYTES", 5)
    (workspace.root / "b.txt").write_text("12345")
    found = attach(workspace, "@b.txt and @notes.txt")
    assert names(found) == ["b.txt"]
    assert "5 bytes of files already" in found.notices[0]


def test_a_thing_is_attached_once_however_often_it_is_named(workspace):
    assert names(attach(workspace, "@notes.txt @./notes.txt @notes.txt.")) == ["notes.txt"]


def test_what_is_given_already_is_not_read_again(workspace):
    found = attach(workspace, "@notes.txt @docs/a.md", [Attachment("notes.txt", "as it was")])
    assert names(found) == ["docs/a.md"]


@pytest.mark.skipif(sys.platform == "darwin", reason="its names are UTF-8")
def test_a_folder_with_a_name_that_is_no_text_is_listed(workspace):
    folder = workspace.root / "odd"
    folder.mkdir()
    (folder / os.fsdecode(b"\xff.txt")).write_text("x")
    assert attach(workspace, "@odd/").attachments[0].text.encode() == b"\\udcff.txt"


def test_a_folder_is_listed_with_what_is_below_and_says_what_it_leaves_out(workspace, monkeypatch):
    (workspace.root / "docs" / "deep" / "deeper").mkdir(parents=True)
    (workspace.root / "docs" / "deep" / "b.md").write_text("")
    assert attach(workspace, "@docs/").attachments[0].text == "a.md\ndeep/\ndeep/b.md\ndeep/deeper/"
    monkeypatch.setattr("ecoshell.agent.workspace._LISTED", 2)
    assert attach(workspace, "@docs/").attachments[0].text.endswith("[there is more]")
