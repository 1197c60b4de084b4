import os
import sys

import pytest

from ecoshell.agent.mentions import attach
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


def names(mentions):
    return [attachment.name for attachment in mentions.attachments]


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
def test_a_mentioned_file_or_folder_is_attached(workspace, question, name):
    mentions = attach(workspace, question)
    assert names(mentions) == [name]
    assert mentions.notices == []


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
def test_addresses_decorators_and_user_names_are_not_mentions(workspace, question):
    mentions = attach(workspace, question)
    assert (mentions.attachments, mentions.notices) == ([], [])


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("read @missing.txt", "no such file"),
        ("read @docs/missing", "no such file"),
        ('read @"missing"', "no such file"),
        ("read @../secret.txt", "outside the workspace"),
        ("read @link.txt", "outside the workspace"),
        ("read @picture.png", "is not a PNG"),
        ("read @latin.txt", "not UTF-8"),
        ("read @pipe.txt", "a pipe"),
        ("read @notes.db.", "binary"),
        ("read @outside", "outside the workspace"),
    ],
)
def test_a_path_that_cannot_be_read_is_reported(workspace, question, why):
    (workspace.root / "link.txt").symlink_to(workspace.root.parent / "secret.txt")
    (workspace.root / "outside").symlink_to(workspace.root.parent / "secret.txt")
    (workspace.root / "picture.png").write_bytes(b"\x89PNG\0")
    (workspace.root / "notes.db").write_bytes(b"SQLite\0")
    (workspace.root / "latin.txt").write_bytes(b"caf\xe9")
    os.mkfifo(workspace.root / "pipe.txt")
    mentions = attach(workspace, question)
    assert mentions.attachments == []
    assert len(mentions.notices) == 1
    assert why in mentions.notices[0]


def test_a_long_file_is_cut_between_characters_with_a_notice(workspace, monkeypatch):
    monkeypatch.setattr("ecoshell.agent.mentions.FILE_BYTES", 10)
    (workspace.root / "long.txt").write_text("é" * 9 + "\U0001f600")
    (attachment,) = attach(workspace, "@long.txt").attachments
    assert attachment.text == "ééééé\n[cut: the first 10 of 22 bytes]"
    (workspace.root / "long.txt").write_text("x" * 8 + "\U0001f600")
    mentions = attach(workspace, "@long.txt")
    assert mentions.attachments[0].text.startswith("x" * 8 + "\n[cut: the first 8 of 12 bytes]")
    assert mentions.notices == ["@long.txt was cut: the first 8 of 12 bytes are attached."]


def test_all_attached_files_together_have_a_size_limit(workspace, monkeypatch):
    monkeypatch.setattr("ecoshell.agent.mentions.ALL_BYTES", 5)
    (workspace.root / "b.txt").write_text("12345")
    mentions = attach(workspace, "@b.txt and @notes.txt")
    assert names(mentions) == ["b.txt"]
    assert "already has 5 bytes of files" in mentions.notices[0]


def test_a_file_is_attached_once_however_often_it_is_mentioned(workspace):
    assert names(attach(workspace, "@notes.txt @./notes.txt @notes.txt.")) == ["notes.txt"]


def test_an_existing_attachment_is_not_read_again(workspace):
    mentions = attach(workspace, "@notes.txt @docs/a.md", [Attachment("notes.txt", "as it was")])
    assert names(mentions) == ["docs/a.md"]


@pytest.mark.skipif(sys.platform == "darwin", reason="its names are UTF-8")
def test_a_file_name_that_is_not_utf8_is_listed_escaped(workspace):
    folder = workspace.root / "odd"
    folder.mkdir()
    (folder / os.fsdecode(b"\xff.txt")).write_text("x")
    assert attach(workspace, "@odd/").attachments[0].text.encode() == b"\\udcff.txt"


def test_a_folder_is_listed_recursively_up_to_a_limit(workspace, monkeypatch):
    (workspace.root / "docs" / "deep" / "deeper").mkdir(parents=True)
    (workspace.root / "docs" / "deep" / "b.md").write_text("")
    assert attach(workspace, "@docs/").attachments[0].text == "a.md\ndeep/\ndeep/b.md\ndeep/deeper/"
    monkeypatch.setattr("ecoshell.agent.mentions._MAX_ENTRIES", 2)
    assert attach(workspace, "@docs/").attachments[0].text.endswith("[there is more]")
