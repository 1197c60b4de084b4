"""Images in whole turns: mentioned, attached or returned by tools; stored in the session and shown by name."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from agent_play import User, finish, of, register, say, turn
from pictures import png

from ecoshell.agent.memory import Memory
from ecoshell.errors import UsageError
from ecoshell.events import CallFinished, Notice, SubagentFinished, TurnStarted, from_json, to_json
from ecoshell.images import attached, image_of
from ecoshell.paths import user_paths

IMAGE = image_of(png(), "photo.png")
LABEL = "[image photo.png 64×48]"
SERVER = '''
import base64
from mcp.server import MCPServer
from mcp_types import ImageContent, TextContent
server = MCPServer("camera")

@server.tool()
def photograph() -> list[TextContent | ImageContent]:
    """Take a picture."""
    bad = ImageContent(type="image", mime_type="image/png", data="no base64!")
    good = ImageContent(type="image", mime_type="image/png", data="DATA")
    return [TextContent(type="text", text="Taken:"), bad, good]

@server.resource("album://last", mime_type="image/png")
def last() -> bytes:
    """The last picture."""
    return base64.b64decode("DATA")

server.run("stdio")
'''


@pytest.fixture
def photo(home):
    (home / "photo.png").write_bytes(png())
    return home / "photo.png"


async def test_a_mentioned_image_is_sent_stored_and_shown_by_name(play, photo, tmp_path):
    async with play([say("A grey square."), say("Still grey.")]) as shell:
        events = await turn(shell, "What is in @photo.png?")
        (started,) = of(events, TurnStarted)
        assert started.attachments == (attached(IMAGE),)
        message = shell.requests[0].messages[-1]
        assert message.images == (IMAGE,)
        assert LABEL in message.text
        assert IMAGE.data not in message.text
        await turn(shell, "And now?")
        assert [message.images for message in shell.requests[1].messages if message.images] == [
            (IMAGE,)
        ]
        past = [event for _, event in shell.store.events(shell.session)]
        assert Memory(shell.deps.catalog, past).messages == shell.conversation.memory.messages
        await shell.archive.export(shell.session, tmp_path / "out.md")
        assert "photo.png" in (tmp_path / "out.md").read_text()
        assert IMAGE.data not in (tmp_path / "out.md").read_text()


async def test_a_retry_sends_the_same_image(play, photo):
    async with play([say("Grey."), say("Grey again.")]) as shell:
        await turn(shell, "What is in @photo.png?")
        photo.unlink()
        printed = await shell.command("/retry")
        assert printed.attachments == (attached(IMAGE),)
        async for _ in shell.ask(printed.value, printed.attachments):
            pass
        assert shell.requests[1].messages == shell.requests[0].messages


async def test_a_renamed_text_file_is_rejected_with_a_notice(play, home):
    (home / "photo.png").write_text("words")
    async with play([say("I see none.")]) as shell:
        events = await turn(shell, "What is in @photo.png?")
        assert any(
            "photo.png is not a PNG, JPEG, GIF or WebP image." in notice.text
            for notice in of(events, Notice)
        )
        assert not shell.requests[0].messages[-1].images


async def test_thirty_images_are_rejected_before_any_model_call(play):
    async with play([say("No.")]) as shell:
        with pytest.raises(UsageError, match="has 30 images; the limit is 20"):
            async for _ in shell.ask("What are these?", [attached(IMAGE)] * 30):
                pass
        assert shell.requests == []


async def test_a_model_without_vision_gets_no_image(play, monkeypatch):
    async with play([say("No.")]) as shell:
        blind = shell.deps.models.current.model
        monkeypatch.setattr(
            type(blind),
            "traits",
            property(lambda self: replace(self._model.traits, vision=False, local=False)),
        )
        with pytest.raises(UsageError, match="cannot see images") as refused:
            async for _ in shell.ask("What is this?", [attached(IMAGE)]):
                pass
        assert refused.value.fix.endswith("vision = true.")
        assert shell.requests == []


@pytest.mark.parametrize("blind", ["script.jsonl", "child.jsonl"])
async def test_images_of_the_command_task_need_vision_of_the_subagents_model(
    play, tmp_path, monkeypatch, blind
):
    child, config = tmp_path / "child.jsonl", tmp_path / "home/config"
    child.write_text(json.dumps(say("Grey.")))
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f"[agent]\ntask_model = 'script:{child}'\n")
    async with play([]) as shell:

        def traits(model):
            own = model._model.traits
            return replace(own, vision=not own.name.endswith(blind))

        monkeypatch.setattr(type(shell.deps.models.current.model), "traits", property(traits))
        question = shell.ask("/task What is this?", [attached(IMAGE)])
        if blind == "child.jsonl":
            with pytest.raises(UsageError, match="cannot see images") as refused:
                await anext(question)
            assert "[agent] task_model" in refused.value.fix
        else:
            (ended,) = of([event async for event in question], SubagentFinished)
            assert ended.status == "answered"


async def test_read_file_shows_an_image(play, photo):
    lines = [say("", "read_file", path="photo.png"), finish("Grey.")]
    async with play(lines, registration="all") as shell:
        events = await turn(shell, "What does the picture show?")
        (done,) = of(events, CallFinished)
        assert (done.ok, done.observation, done.images) == (True, LABEL, (IMAGE,))
        assert from_json(json.loads(json.dumps(to_json(done)))) == done
        result = shell.requests[-1].messages[-1]
        assert (result.speaker, result.images) == ("tool", (IMAGE,))


def saved_bytes(observation):
    return Path(observation.rpartition("saved as ")[2].rstrip("]")).read_bytes()


@pytest.fixture
def camera(home, tmp_path):
    """A server whose tool and resource return an image."""
    pytest.importorskip("mcp")
    script = tmp_path / "camera.py"
    script.write_text(SERVER.replace("DATA", IMAGE.data))
    file = user_paths().settings_file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'[mcp.servers.camera]\ncommand = "{sys.executable}"\nargs = ["{script}"]\n')


async def test_an_image_of_a_mentioned_resource_is_sent_to_the_model(play, camera):
    async with play([say("Grey.")]) as shell:
        await shell.deps.catalog.providers[0].connect()
        events = await turn(shell, "What is in @camera:album://last?")
        (message,) = [message for message in shell.requests[0].messages if message.images]
    assert message.images == (replace(IMAGE, name="camera:album://last"),)
    assert "[image camera:album://last 64×48]" in message.text
    saved, image = of(events, TurnStarted)[0].attachments
    assert "saved as" in saved.text
    assert (image.image, IMAGE.data in message.text) == (message.images[0], False)


async def test_an_image_from_a_server_is_sent_to_the_model(play, camera):
    lines = [register("camera.photograph"), say("", "camera.photograph"), finish("Grey.")]
    async with play(lines, user=User(approval="once"), presentation="grow") as shell:
        await shell.deps.catalog.providers[0].connect()
        events = await turn(shell, "Take a picture.")
        done = of(events, CallFinished)[-1]
        assert done.observation.startswith("Taken:")
        assert [(image.media_type, image.data) for image in done.images] == [
            ("image/png", IMAGE.data)
        ]
        assert IMAGE.data not in done.observation
        assert saved_bytes(done.observation) == png()
