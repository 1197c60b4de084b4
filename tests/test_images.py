"""Image files: accepted formats, limits and token counts."""

import os

import pytest
from pictures import gif, jpeg, png, webp

from ecoshell import secrecy
from ecoshell.errors import ToolError
from ecoshell.images import (
    MAX_BYTES,
    MAX_IMAGES,
    image_bound,
    image_of,
    image_of_base64,
    image_tokens,
    label,
    only_paths,
    open_image,
    within_limits,
    without_images,
)
from ecoshell.messages import Image, Message


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(), "image/png"),
        (gif(), "image/gif"),
        (jpeg(), "image/jpeg"),
        (webp(b"VP8 "), "image/webp"),
        (webp(b"VP8L"), "image/webp"),
        (webp(b"VP8X"), "image/webp"),
    ],
)
def test_the_format_of_an_image_follows_its_bytes_and_not_its_name(tmp_path, data, kind):
    file = tmp_path / "photo.txt"
    file.write_bytes(data)
    image = open_image(file)
    assert (image.media_type, image.width, image.height) == (kind, 64, 48)
    assert label(image) == "[image photo.txt 64×48]"
    assert image_of_base64(image.data, "again") == Image("again", kind, image.data, 64, 48)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"just words\n", "is not a PNG, JPEG, GIF or WebP image"),
        (b"", "is not a PNG"),
        (png()[:20], "is damaged or cut off"),
        (png()[:-20], "is damaged or cut off"),
        (jpeg()[:12], "is damaged or cut off"),
        (jpeg()[:-2], "is damaged or cut off"),
        (webp(b"VP8X")[:-4], "is damaged or cut off"),
        (b"RIFF\xff\xff\xff\xffWEBPVP8X", "is damaged or cut off"),
        (gif(0, 48), "is empty: it has 0×48 pixels"),
        (gif(9_000, 48), "may have 8,000 on each side"),
        (png() + b"\0" * MAX_BYTES, "an image may have 5,000,000"),
    ],
)
def test_images_that_providers_refuse_are_refused_with_the_reason(tmp_path, data, why):
    file = tmp_path / "photo.png"
    file.write_bytes(data)
    with pytest.raises(ToolError, match=why):
        open_image(file)


def test_a_file_of_100_mb_is_refused_after_its_first_bytes(tmp_path):
    file = tmp_path / "photo.png"
    file.write_bytes(png())
    os.truncate(file, 100_000_000)
    with pytest.raises(ToolError, match="has 100,000,000 bytes"):
        open_image(file)
    os.truncate(file, 0)
    os.truncate(file, 100_000_000)
    with pytest.raises(ToolError, match="is not a PNG"):
        open_image(file)


@pytest.mark.parametrize(
    "text", ["no base64!", "not even ascii: ü", "cGljdHVyZQ==", "A" * 7_000_000]
)
def test_invalid_base64_images_are_refused(text):
    with pytest.raises(ToolError):
        image_of_base64(text, "image 1")


def test_only_absolute_paths_of_image_files_are_taken_from_a_paste(tmp_path):
    file = tmp_path / "my photo.png"
    file.write_bytes(png())
    assert only_paths(f"'{file}'") == [file]
    assert only_paths(str(file).replace(" ", "\\ ") + " ") == [file]
    assert only_paths(f"file://{str(file).replace(' ', '%20')}") == [file]
    for other in (
        f"look at '{file}'",
        "photo.png",
        str(tmp_path),
        f"'{tmp_path}/none.png'",
        "it's",
        "",
    ):
        assert only_paths(other) == []


def test_a_request_keeps_the_newest_images_within_its_limits():
    image = image_of(png(), "a.png")
    messages = [Message("user", f"{number}", images=(image,)) for number in range(MAX_IMAGES + 10)]
    limited = within_limits(messages)
    assert [bool(message.images) for message in limited] == [False] * 10 + [True] * MAX_IMAGES
    assert [message.text for message in limited] == [message.text for message in messages]
    large = Image("large", "image/png", "A" * 6_000_000, 100, 100)
    assert (
        sum(
            bool(message.images)
            for message in within_limits([Message("user", "", images=(large,))] * 9)
        )
        == 4
    )
    assert not any(message.images for message in without_images(messages))


@pytest.mark.parametrize(
    ("width", "height"), [(1, 1), (640, 480), (1568, 1568), (8000, 8000), (8000, 100)]
)
def test_the_bound_covers_the_token_counts_of_providers(width, height):
    image = Image("a", "image/png", "", width, height)
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    tiles = -(-int(width * scale) // 512) * -(-int(height * scale) // 512)
    assert image_tokens(image) <= image_bound(image)
    assert 85 + 170 * tiles <= image_bound(image)
    assert 2_833 + 5_667 * tiles <= image_bound(image, "openai/gpt-4o-mini")
    assert min(4_784, -(-width // 28) * -(-height // 28)) <= image_bound(image)


def test_image_data_is_not_masked(monkeypatch):
    monkeypatch.setattr(secrecy, "_added_secrets", set())
    secrecy.add_secret("AAAAAAAAAAAA")
    image = Image("AAAAAAAAAAAA.png", "image/png", "AAAAAAAAAAAA", 1, 1)
    assert secrecy.mask_secrets(image) == Image(
        f"{secrecy.MARK}.png", "image/png", "AAAAAAAAAAAA", 1, 1
    )
    monkeypatch.undo()
    secrecy.protect_secrets()
