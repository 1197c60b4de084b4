"""`ecoshell ask` with an image and an effort, up to a provider on loopback."""

import base64
import json
import os

import pytest
from hostile_server import hostile_server
from pictures import gif, png

SETTINGS = """
[agent]
context = "off"
[models."openai/good"]
base_url = "{address}"
native_tools = true
"""


@pytest.fixture
def server(tmp_path):
    with hostile_server() as running:
        (tmp_path / "home" / "config").mkdir(parents=True)
        (tmp_path / "home" / "config" / "config.toml").write_text(
            SETTINGS.format(address=running.openai)
        )
        yield running


def test_image_and_effort_reach_the_provider_and_only_the_name_is_printed(
    command, server, tmp_path
):
    (tmp_path / "photo.png").write_bytes(png())
    data = base64.b64encode(png()).decode()
    options = ("--model", "openai/good", "--effort", "high", "--image", str(tmp_path / "photo.png"))
    done = command("ask", "What is this?", *options, "--json")
    assert done.returncode == 0, done.stderr
    body = server.asked[0]
    assert body["reasoning_effort"] == "high"
    image, text = body["messages"][-1]["content"]
    assert image["image_url"]["url"] == f"data:image/png;base64,{data}"
    assert "[image photo.png 64×48]" in text["text"]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (started,) = [event for event in events if event["type"] == "turn_started"]
    assert started["attachments"][0]["text"] == "[image photo.png 64×48]"
    (replied,) = [event for event in events if event["type"] == "model_replied"]
    assert replied["reasoning_tokens"] == 5
    assert data not in done.stdout + done.stderr
    cost = command("cost", "--by", "session").stdout.splitlines()
    assert "reasoning" in cost[0]


def test_image_path_in_a_line_attaches_the_image(command, tmp_path):
    (tmp_path / "my photo.png").write_bytes(png())
    (tmp_path / "words.png").write_text("just words")
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "Grey."}\n')
    typed = f"what is '{tmp_path}/my photo.png' next to {tmp_path}/words.png\n"
    done = command("line", "--model", f"script:{script}", typed=typed)
    assert "attached: [image my photo.png 64×48]" in done.stdout
    assert "words.png was not attached: words.png is not a PNG" in done.stdout
    assert "Grey." in done.stdout


def test_invalid_images_are_refused_before_the_model_is_called(command, server, tmp_path):
    cases = {
        "words.png": b"just words",
        "cut.png": png()[:-20],
        "empty.gif": gif(0, 0),
        "large.png": png(),
    }
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
    os.truncate(tmp_path / "large.png", 100_000_000)
    for name in (*cases, "missing.png"):
        done = command("ask", "What?", "--model", "openai/good", "--image", str(tmp_path / name))
        assert (done.returncode, done.stdout) == (2, "")
        assert name in done.stderr
        assert "Nothing was asked." in done.stderr
    many = [part for _ in range(30) for part in ("--image", str(tmp_path / "fine.png"))]
    (tmp_path / "fine.png").write_bytes(png())
    done = command("ask", "What?", "--model", "openai/good", *many)
    assert done.returncode == 2
    assert "30 images; the limit is 20" in done.stderr
    done = command("ask", "What?", "--model", "embedded", "--image", str(tmp_path / "fine.png"))
    assert done.returncode == 2
    assert "embedded cannot see images." in done.stderr
    assert server.asked == []
