import json
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ecoshell.budget import ZERO_PRICE, Price, Rates
from ecoshell.errors import ModelBroken, ModelMissing, UsageError
from ecoshell.messages import Call, Message, ToolSchema, Usage
from ecoshell.models import Delta, Model, Reply, Request
from ecoshell.models.script import ScriptModel

Write = Callable[..., Path]
HELLO = Request((Message("user", "hello"),))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a script from records or raw lines."""

    def writing(*lines: dict[str, Any] | str) -> Path:
        file = tmp_path / "replies.jsonl"
        text = "".join(
            (line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines
        )
        file.write_text(text, encoding="utf-8")
        return file

    return writing


async def listen(model: ScriptModel, request: Request = HELLO) -> tuple[list[Delta], Reply]:
    pieces = [piece async for piece in model.stream(request)]
    reply = pieces.pop()
    assert isinstance(reply, Reply)
    return [piece for piece in pieces if isinstance(piece, Delta)], reply


async def test_lines_are_streamed_in_order_word_by_word(write: Write) -> None:
    model = ScriptModel(write({"text": "Two short words"}, {"text": "Then  this."}))
    deltas, reply = await listen(model)
    assert [delta.text for delta in deltas] == ["Two ", "short ", "words"]
    assert reply.text == "Two short words"
    deltas, reply = await listen(model)
    assert "".join(delta.text for delta in deltas) == reply.text == "Then  this."


async def test_a_line_can_call_a_tool_and_report_usage(write: Write) -> None:
    usage = {"input": 120, "cached": 20, "output": 30}
    call = {"name": "read_file", "arguments": {"path": "README.md"}}
    _, reply = await listen(ScriptModel(write({"call": call, "usage": usage})))
    assert reply.call == Call("read_file", {"path": "README.md"})
    assert reply.usage == Usage(input=120, cached=20, output=30)


async def test_a_token_is_four_bytes_by_default(write: Write) -> None:
    model = ScriptModel(write({"text": "zwölf Byte"}))
    _, reply = await listen(model)
    assert reply.usage == Usage(input=2, output=3)  # "hello" is 5 bytes, "zwölf Byte" is 11
    assert model.count("12345678") == 2
    assert model.count("") == 0


def test_the_bound_of_a_prompt_is_its_bytes_plus_eight_per_message(write: Write) -> None:
    model = ScriptModel(write())
    tool = ToolSchema("t", "does", {"type": "object"})
    request = Request(
        (Message("user", "äöü"), Message("assistant", calls=(Call("t", {"x": 1}),))), tools=(tool,)
    )
    size = model.size(request)
    total = 6 + len("t(x=1)") + len(tool.entry)
    assert (size.count, size.bound, size.exact) == (-(-total // 4), total + 24, False)


async def test_a_reply_after_the_last_line_is_an_error_with_their_number(write: Write) -> None:
    model = ScriptModel(write({"text": "only"}))
    await listen(model)
    with pytest.raises(
        ModelBroken, match="has only 1 replies, and another one was requested"
    ) as ended:
        await listen(model)
    assert not ended.value.billed


async def test_max_tokens_cuts_text_and_usage(write: Write) -> None:
    long = {"text": "word " * 50, "call": {"name": "t"}, "usage": {"input": 5, "output": 99}}
    _, reply = await listen(
        ScriptModel(write(long)), Request((Message("user", "x"),), max_tokens=10)
    )
    assert reply.cut
    assert reply.call is None
    assert len(reply.text.encode()) <= 40
    assert reply.usage == Usage(input=5, output=10)


async def test_each_delta_reports_the_usage_so_far(write: Write) -> None:
    deltas, _ = await listen(ScriptModel(write({"text": "four more or less words"})))
    outputs = [delta.usage.output for delta in deltas if delta.usage is not None]
    assert len(outputs) == len(deltas)
    assert outputs == sorted(outputs)


def test_a_script_is_free_unless_it_has_a_price(write: Write) -> None:
    price = Price(Rates(*[Decimal(2)] * 5))
    file = write({"text": "x"})
    assert ScriptModel(file).traits.price == ZERO_PRICE
    assert ScriptModel(file, price=price).traits.price == price
    assert ScriptModel(file).traits.name == f"script:{file}"
    assert ScriptModel(file, name="script:./r.jsonl").traits.name == "script:./r.jsonl"


def test_a_script_implements_the_model_protocol(write: Write) -> None:
    assert isinstance(ScriptModel(write()), Model)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{not json", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "not of type 'object'"),
        ("{}", "not valid under any"),
        ('{"text": 5}', "text: 5 is not of type 'string'"),
        ('{"txet": "x", "text": ""}', "'txet' was unexpected"),
        ('{"call": {"arguments": {}}}', "'name' is a required property"),
        ('{"call": {"name": "t", "arguments": []}}', "call.arguments: [] is not of type 'object'"),
        ('{"call": "t"}', "call: 't' is not of type"),
        ('{"text": "x", "usage": {"input": -1}}', "usage.input: -1 is less than the minimum"),
        ('{"text": "x", "usage": {"input": 1.5}}', "usage.input: 1.5 is not of type 'integer'"),
        ('{"text": "x", "usage": {"output": true}}', "usage.output: True is not of type"),
        ('{"text": "x", "usage": {"prompt": 1}}', "'prompt' was unexpected"),
    ],
)
def test_an_invalid_line_is_refused_with_file_and_line(line: str, why: str, write: Write) -> None:
    file = write({"text": "fine"}, "", line)
    with pytest.raises(UsageError) as refused:
        ScriptModel(file)
    assert f"{file}, line 3 " in refused.value.message
    assert why in refused.value.message


def test_a_script_that_is_missing_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="No such file"):
        ScriptModel(tmp_path / "none.jsonl")
    with pytest.raises(ModelMissing, match="directory"):
        ScriptModel(tmp_path)
    (tmp_path / "latin.jsonl").write_bytes(b'{"text": "\xe9"}')
    with pytest.raises(UsageError, match="not UTF-8"):
        ScriptModel(tmp_path / "latin.jsonl")


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelMissing, match="not a regular file"):
        ScriptModel(tmp_path / "pipe")
