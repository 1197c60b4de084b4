"""Rules of a run: allowed models, a cheaper model near the cap, limits per request and minute, the loop guard."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gateway_play import CHAT, message_of, playing
from odd_provider import OddProvider

from ecoshell.budget import CapState, Hold, parse_amount
from ecoshell.budget.caps import Account
from ecoshell_gateway.bodies import parse_body
from ecoshell_gateway.errors import Refused
from ecoshell_gateway.protocols import CHAT as CHAT_FORMAT
from ecoshell_gateway.protocols import MESSAGES, RequestFacts
from ecoshell_gateway.rules import Below, RuleOptions, Rules


def facts_of(messages: list[dict[str, Any]], *, is_claude: bool = False) -> RequestFacts:
    body = {"model": "m", "max_tokens": 10, "messages": messages}
    return (MESSAGES if is_claude else CHAT_FORMAT).read(parse_body(json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("allowed", "status"),
    [((CHAT,), 200), (("gpt-4.1-*",), 200), (("gpt-5*", CHAT), 200), (("claude-*",), 402)],
)
async def test_only_allowed_models_are_called(
    allowed: tuple[str, ...], status: int, tmp_path: Path
):
    async with (
        OddProvider() as provider,
        playing(tmp_path, provider.address, rules=RuleOptions(allowed=allowed)) as play,
    ):
        response = await play.chat()
        assert response.status_code == status
        assert len(provider.requests) == (status == 200)
        if status != 200:
            assert "not allowed under this cap" in message_of(response)


async def test_a_cheaper_model_is_used_near_the_cap(tmp_path: Path):
    below = Below(Decimal("0.5"), "gpt-4.1-nano")
    async with (
        OddProvider() as provider,
        playing(tmp_path, provider.address, budget="0.001", rules=RuleOptions(below=below)) as play,
    ):
        await play.chat("x")
        waiting = replace(facts_of([{"role": "user", "content": "y" * 1500}]), model=CHAT)
        await play.serving.meter.reserve(CHAT_FORMAT, waiting)
        await play.chat("z")
        assert [request["model"] for request in provider.requests] == [CHAT, "gpt-4.1-nano"]
        assert play.entries()[-1].model == "openai/gpt-4.1-nano"


async def test_each_request_has_a_cap_of_its_own(tmp_path: Path):
    rules = RuleOptions(max_request=parse_amount("0.001"))
    async with OddProvider() as provider, playing(tmp_path, provider.address, rules=rules) as play:
        assert (await play.chat(max_completion_tokens=20_000)).status_code == 200
        assert provider.requests[0]["max_completion_tokens"] < 1000
        held = play.entries()[0].held_nano
        assert held is not None
        assert held <= 1_000_000
        response = await play.chat("x" * 10_000)
        assert response.status_code == 402
        assert "the cap of each request is $0.001" in message_of(response)


@pytest.mark.parametrize(
    "options",
    [RuleOptions(requests_per_minute=2), RuleOptions(per_minute=parse_amount("500tok"))],
)
async def test_a_limit_per_minute_tells_clients_when_to_return(
    options: RuleOptions, tmp_path: Path
):
    async with (
        OddProvider() as provider,
        playing(tmp_path, provider.address, rules=options) as play,
    ):
        statuses = [(await play.chat()).status_code for _ in range(2)]
        response = await play.chat()
        assert (statuses, response.status_code) == ([200, 200], 429)
        assert 0 < int(response.headers["retry-after"]) <= 61
        assert response.headers["x-should-retry"] == "true"
        assert "per minute reached" in message_of(response)


def test_a_limit_per_minute_ends_with_the_minute():
    now = 0.0
    rules = Rules(RuleOptions(requests_per_minute=1), clock=lambda: now)
    facts = facts_of([{"role": "user", "content": "a"}])
    rules.check(facts)
    rules.count(Hold(1, 1, 1, 1, False, Account("s", 1, "r", "m", "p"), None))
    with pytest.raises(Refused):
        rules.check(facts)
    now = 60.0
    rules.check(facts)


@pytest.mark.parametrize(("left", "model"), [(30, "big"), (20, "big"), (19, "small"), (0, "small")])
def test_the_model_changes_below_the_share(left: int, model: str):
    rules = Rules(RuleOptions(below=Below(Decimal("0.2"), "small")))
    assert rules.model_for("big", [CapState("session", "usd", 100, 100 - left, 0)]) == model
    assert rules.model_for("big", [CapState("day", "usd", 100, 100 - left, 0)]) == "big"


def _conversation(steps: int, *, changes: bool) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the test."}]
    for step in range(steps):
        name = f"file_{'abcdefghijklmnopqrstuvwxyz'[step]}" if changes else "run_test"
        call = {
            "id": f"call_{step}",
            "type": "function",
            "function": {"name": name, "arguments": "{}"},
        }
        messages.append({"role": "assistant", "tool_calls": [call]})
        messages.append(
            {"role": "tool", "tool_call_id": f"call_{step}", "content": f"1 failed in 0.{step}s"}
        )
    return messages


def test_an_agent_that_repeats_one_step_is_paused_once():
    rules = Rules(RuleOptions(loop_steps=4))
    refusals: dict[int, str] = {}
    for steps in range(10):
        try:
            rules.check(facts_of(_conversation(steps, changes=False)))
        except Refused as refusal:
            refusals[steps] = f"{refusal.status} {refusal.message}"
    assert [*refusals] == [4, 8]
    assert refusals[4].startswith("402 ecoshell: loop guard")


def test_different_steps_and_repeated_requests_are_no_loop():
    rules, refusals = Rules(RuleOptions(loop_steps=3)), list[Refused]()
    requests = [facts_of(_conversation(steps, changes=True)) for steps in range(12)]
    repeated = (
        facts_of(_conversation(3, changes=False)),
        facts_of([{"role": "user", "content": "hi"}], is_claude=True),
    )
    for facts in (*requests, *repeated * 20):
        try:
            rules.check(facts)
        except Refused as refusal:
            refusals.append(refusal)
    assert refusals == []
