"""Images in the chat: a pasted path becomes an attachment, a draft keeps it, and only its name is shown."""

import pytest
from pictures import png
from prompt_play import PromptApp, until
from telling import told
from tui_play import STARTED

from ecoshell.events import TurnStarted
from ecoshell.images import attached, image_of
from ecoshell.messages import Attachment
from ecoshell.tui.prompt.drafts import Draft, DraftFile, Pastes

IMAGE = image_of(png(), "photo.png")
LABEL = "[image photo.png 64×48]"


@pytest.fixture
def photo(tmp_path):
    (tmp_path / "photo.png").write_bytes(png())
    return tmp_path / "photo.png"


async def test_pasted_path_of_an_image_becomes_an_attachment(tmp_path, photo):
    app = PromptApp(tmp_path)
    async with app.run_test() as pilot:
        app.paste(f"'{photo}'")
        await until(pilot, lambda: app.prompt.text)
        assert app.prompt.text == LABEL
        await pilot.press("?", "enter")
        assert app.sent == [Draft(f"{LABEL}?", (attached(IMAGE),))]


async def test_pasted_path_of_another_file_stays_text(tmp_path):
    (tmp_path / "photo.png").write_text("words")
    app = PromptApp(tmp_path)
    async with app.run_test() as pilot:
        app.paste(str(tmp_path / "photo.png"))
        await until(pilot, lambda: app.prompt.text)
        assert app.prompt.draft == Draft(str(tmp_path / "photo.png"))


async def test_image_mention_is_typed_like_any_other(tmp_path):
    app = PromptApp(tmp_path, names=("photo.png",))
    async with app.run_test() as pilot:
        await pilot.press(*"see @pho")
        await until(pilot, lambda: app.offered)
        await pilot.press("tab", "enter")
        assert app.sent == [Draft("see @photo.png ")]


def test_images_with_the_same_name_get_distinct_names():
    pastes, other = Pastes(), image_of(png() + b"IEND", "photo.png")
    markers = [pastes.add_image(image) for image in (IMAGE, other, IMAGE)]
    assert markers == [LABEL, "[image photo.png (2) 64×48]", LABEL]
    listed_names = pastes.attachments_of(" ".join(markers))
    assert [item.image.data for item in listed_names if item.image] == [IMAGE.data, other.data]


def test_draft_keeps_its_images(tmp_path):
    draft = Draft(
        f"{LABEL} and [paste-1 · 9 lines]", (attached(IMAGE), Attachment("paste-1", "text"))
    )
    file = DraftFile(tmp_path / "draft.txt")
    file.write(draft)
    assert file.read() == draft
    pastes = Pastes()
    pastes.adopt(draft.text, draft.attachments)
    assert pastes.attachments_of(draft.text) == draft.attachments


def test_only_the_name_of_an_image_is_shown():
    started = TurnStarted(
        1, "What is this?", "m", "single", "react", attachments=(attached(IMAGE),)
    )
    output = "\n".join(told(started))
    assert LABEL in output
    assert IMAGE.data[:20] not in output
    assert STARTED.question not in output
