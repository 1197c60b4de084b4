"""A full context: old results are trimmed together, earlier turns and steps become summaries, and nothing is lost."""

import itertools
import json
import time
from dataclasses import replace
from decimal import Decimal

import pytest
from agent_play import finish, of, say, turn
from context_play import CONTEXT, SUMMARY, play_until_killed, reads, small, write
from kill_play import FORKS
from ledger_totals import wrong_totals

from ecoshell.agent.memory import Memory
from ecoshell.agent.model_set import ModelSet
from ecoshell.budget.ledger import Ledger
from ecoshell.errors import ContextExceeded, ModelBroken
from ecoshell.events import (
    Answer,
    BudgetHeld,
    BudgetSettled,
    CallFinished,
    Compacted,
    ErrorHappened,
    LimitHit,
    Notice,
    ResultsTrimmed,
    TurnFinished,
)
from ecoshell.messages import TOOL_REGISTER, Usage
from ecoshell.models import Reply
from ecoshell.models.chat_body import chat_body
from ecoshell.models.protocol import exchanges
from ecoshell.modes.base import ModeLimits
from ecoshell.modes.umi import Umi
from ecoshell.options import ROLES
from ecoshell.sessions import SessionStore

PRICE = (Decimal(1), Decimal(4))


@pytest.fixture
def full(play, tmp_path):
    """Open a shell whose model has a context of 40,000 tokens."""

    def opened(lines, **options):
        return play(lines, **{"registration": "all", "max_steps": 200, **options})

    return opened


def assert_valid(requests):
    """Check that providers would accept every request: each call has its result and each result its call."""
    for request in requests:
        assert request.messages[0].speaker == "system"
        speakers = [message.speaker for message in request.messages[1:]]
        assert speakers[0] == "user"
        paired = sum(len(results) for _, results in exchanges(request.messages))
        assert paired == speakers.count("tool")
        calling = [
            message
            for message in request.messages
            if message.speaker == "assistant" and message.calls
        ]
        assert sum(len(message.calls) for message in calling) == paired
        body = chat_body(request, native=True)
        ids = [call["id"] for entry in body["messages"] for call in entry.get("tool_calls") or ()]
        answered = [entry["tool_call_id"] for entry in body["messages"] if entry["role"] == "tool"]
        assert ids == answered
        for pair in itertools.pairwise(speakers):
            assert pair != ("assistant", "assistant")


def resumed(shell):
    """The messages rebuilt from the stored events of the session."""
    return Memory(
        shell.deps.catalog, [event for _, event in shell.store.events(shell.session)]
    ).messages


async def test_sixty_steps_are_compacted_several_times_with_valid_requests(full, home, tmp_path):
    write(home, 60, 3_900)
    async with full([*reads(range(60)), finish("All read.")], price=PRICE, budget="20.00") as shell:
        model = small(shell, tmp_path)
        events = await turn(shell, "Read all files.")
        compacted = of(events, Compacted)
        assert of(events, TurnFinished)[0].status == "answered"
        assert len(of(events, CallFinished)) == 60
        assert len(compacted) >= 2
        assert all(event.automatic and event.model and event.calls for event in compacted)
        assert_valid(model.requests)
        assert all(model.size(request).count <= CONTEXT * 0.85 for request in model.steps)
        last = model.steps[-1].messages
        assert "Read all files." in last[1].text
        assert SUMMARY in last[1].text
        assert "file 59" in last[-1].text
        assert "file 58" in last[-3].text
        assert sum(event.role == "compact" for event in of(events, BudgetSettled)) == len(compacted)
        assert compacted[0].spent_nano > 0
        stored = [event for _, event in shell.store.events(shell.session)]
        results = [event.observation for event in of(stored, CallFinished)]
        assert len(results) == 60
        assert all(f"file {number}" in text for number, text in enumerate(results))
        assert resumed(shell) == shell.conversation.memory.messages
        assert shell.conversation.memory.messages[:-1] == last[1:]


async def test_large_old_results_are_trimmed_together(full, home, tmp_path):
    write(home, 18, 8_000)
    async with full([*reads(range(18)), finish("Done.")]) as shell:
        shell.deps.settings.compact_at = 0.7
        model = small(shell, tmp_path)
        events = await turn(shell, "Read all files.")
        (trimmed,) = of(events, ResultsTrimmed)
        assert len(trimmed.results) > 1
        assert trimmed.tokens_after < trimmed.tokens_before
        assert of(events, Compacted) == []
        pairs = zip(model.steps, model.steps[1:], strict=False)
        changed = [
            after
            for earlier, after in pairs
            if after.messages[: len(earlier.messages)] != earlier.messages
        ]
        assert len(changed) == 1
        text = next(message.text for message in changed[0].messages if message.speaker == "tool")
        assert "characters left out here to make room. Call read_file again" in text
        recent = [message.text for message in changed[0].messages if message.speaker == "tool"][-3:]
        assert not any("left out here" in text for text in recent)
        assert_valid(model.requests)
        assert resumed(shell) == shell.conversation.memory.messages


async def test_a_trimmed_result_can_be_read_again(full, home, tmp_path):
    write(home, 18, 8_000)
    lines = [*reads(range(18)), *reads([0]), finish("Done.")]
    async with full(lines) as shell:
        shell.deps.settings.compact_at = 0.7
        model = small(shell, tmp_path)
        events = await turn(shell, "Read all files.")
        assert of(events, ResultsTrimmed)
        assert of(events, CallFinished)[-1].refused == ""
        assert_valid(model.requests)


async def test_a_new_question_turns_earlier_turns_into_a_summary(full, home, tmp_path):
    answers = [finish(f"Answer {number}. " + "long " * 4_000) for number in range(7)]
    async with full([*answers, finish("Last.")], presentation="stable") as shell:
        model = small(shell, tmp_path)
        for number in range(7):
            await turn(shell, f"Question {number}?")
        events = await turn(shell, "And the last question?")
        (compacted,) = of([event for _, event in shell.store.events(shell.session)], Compacted)
        assert compacted.turns >= 5
        assert compacted.calls == ()
        last = model.steps[-1]
        assert SUMMARY in last.messages[1].text
        assert last.messages[-1].text.endswith("And the last question?")
        description = shell.conversation.known("read_file").description
        texts = [message.text for message in last.messages] + [
            tool.as_text() for tool in last.tools
        ]
        assert sum(text.count(description) for text in texts) == 1
        assert_valid(model.requests)
        assert resumed(shell) == shell.conversation.memory.messages
        assert of(events, Answer)[0].text == "Last."
        await shell.command("/undo")
        messages = shell.conversation.memory.messages
        assert SUMMARY in messages[0].text
        assert not any("And the last question?" in message.text for message in messages)
        assert resumed(shell) == messages


async def test_undo_and_export_work_after_steps_were_compacted(full, home, tmp_path):
    write(home, 40, 3_900)
    async with full(
        [finish("Hello."), *reads(range(40)), finish("All read."), finish("Fine.")]
    ) as shell:
        model = small(shell, tmp_path)
        await turn(shell, "Hello?")
        messages = shell.conversation.memory.messages
        events = await turn(shell, "Read all files.")
        assert of(events, Compacted)
        await shell.command(f"/export {tmp_path / 'out.md'}")
        exported = (tmp_path / "out.md").read_text()
        assert "earlier calls" in exported
        assert all(f"file {number}:" in exported for number in range(40))
        await shell.command("/undo")
        assert shell.conversation.memory.messages == messages
        await turn(shell, "And now?")
        assert_valid(model.requests)
        await shell.open(shell.session)
        assert shell.conversation.memory.messages == resumed(shell)


@pytest.mark.parametrize("summaries", [["   "] * 9, [ModelBroken("It broke.")] * 9])
async def test_a_failed_summary_is_replaced_by_a_labelled_extract(full, home, tmp_path, summaries):
    write(home, 40, 3_900)
    async with full([*reads(range(40)), finish("All read.")]) as shell:
        model = small(shell, tmp_path)
        model.summaries = iter(summaries)
        events = await turn(shell, "Read all files.")
        compacted = of(events, Compacted)
        assert compacted
        assert compacted[0].model == ""
        assert compacted[0].summary.startswith("[an extract, not a summary")
        assert "Called: read_file" in compacted[0].summary
        assert any("falling back to an extract" in notice.text for notice in of(events, Notice))
        assert of(events, TurnFinished)[0].status == "answered"
        assert_valid(model.requests)


async def test_a_summary_over_the_cap_ends_the_turn_at_the_limit(full, home, tmp_path):
    write(home, 40, 3_900)
    async with full(
        [*reads(range(40)), say("The files were read."), say("More.")], price=PRICE, budget="20.00"
    ) as shell:
        model = small(shell, tmp_path)
        measure = model.size
        summaries = []

        def costly(request):  # a summary costs more than the rest of the cap
            size = measure(request)
            if request.purpose == "compact":
                summaries.append(request)
                return replace(size, bound=30_000_000)
            return size

        model.size = costly
        events = await turn(shell, "Read all files.")
        assert summaries
        assert of(events, LimitHit)
        assert of(events, Compacted) == []
        assert of(events, TurnFinished)[0].status == "limit"
        assert all(cap.held == 0 for cap in await shell.deps.budget.caps())
        assert len(of(events, CallFinished)) > 5
        assert resumed(shell) == shell.conversation.memory.messages
        assert_valid(model.requests)


async def test_a_result_larger_than_the_context_is_trimmed_before_it_is_sent(
    full, home, tmp_path, monkeypatch
):
    (home / "huge.txt").write_text("0123456789 " * 40_000)
    from ecoshell.agent.guards import Runner
    from ecoshell.messages import Observation

    async def execute(self, call, context):
        return Observation("BEGIN " + "0123456789 " * 40_000 + " END")

    monkeypatch.setattr(Runner, "execute", execute)
    lines = [say("", "read_file", path="huge.txt"), finish("Seen.")]
    async with full(lines) as shell:
        model = small(shell, tmp_path)
        events = await turn(shell, "Read it.")
        assert of(events, TurnFinished)[0].status == "answered"
        (trimmed,) = of(events, ResultsTrimmed)
        assert len(trimmed.results) == 1
        text = model.steps[-1].messages[-1].text
        assert text.startswith("BEGIN")
        assert text.endswith("END")
        assert model.size(model.steps[-1]).count < CONTEXT
        assert len(of(events, CallFinished)[0].observation) > 400_000
        assert resumed(shell) == shell.conversation.memory.messages


@pytest.mark.parametrize(("context", "limit"), [(None, 30_000), (None, None), (1_000_000, 30_000)])
async def test_a_prompt_rejected_as_too_long_is_compacted_and_retried(
    full, home, tmp_path, context, limit
):
    write(home, 12, 6_000)
    async with full([*reads(range(12)), finish("All read.")]) as shell:
        model = small(shell, tmp_path, context=context)
        model.limit = limit
        ask, refused = model.stream, []

        async def stream(request):
            if request.purpose != "compact" and len(request.messages) > 20 and not refused:
                refused.append(request)
                model.refusals = 1
            async for piece in ask(request):
                yield piece

        model.stream = stream
        events = await turn(shell, "Read all files.")
        assert refused
        assert of(events, TurnFinished)[0].status == "answered"
        assert of(events, Compacted)
        learned = shell.deps.models.current.model.traits.context
        sent = model.size(refused[0]).count + refused[0].max_tokens
        assert learned == min(sent, limit or sent)
        assert_valid(model.requests)
        assert resumed(shell) == shell.conversation.memory.messages


async def test_a_prompt_rejected_twice_ends_the_turn_with_the_reason(full, home, tmp_path):
    write(home, 12, 6_000)
    async with full([*reads(range(12)), finish("All read.")]) as shell:
        model = small(shell, tmp_path)
        ask = model.stream

        async def stream(request):
            too_long = len(request.messages) > 20 or model.compactions
            model.refusals = int(request.purpose != "compact" and bool(too_long))
            async for piece in ask(request):
                yield piece

        model.stream = stream
        events = await turn(shell, "Read all files.")
        (error,) = of(events, ErrorHappened)
        assert error.kind == "ContextExceeded"
        assert "too long" in error.message
        assert len(of(events, CallFinished)) >= 9


async def test_a_context_is_compacted_by_the_counts_that_its_provider_reports(full, home, tmp_path):
    write(home, 60, 3_900)
    async with full([*reads(range(60)), finish("All read.")], effort="low") as shell:
        model = small(shell, tmp_path, local=False)
        answer, prompts = model.stream, []

        async def stream(request):  # its tokenizer makes 40 % more tokens
            prompts.append(model.size(request).count * 7 // 5)
            if prompts[-1] > CONTEXT:
                raise ContextExceeded("The prompt is too long.", limit=CONTEXT)
            async for piece in answer(request):
                if isinstance(piece, Reply):
                    yield replace(piece, usage=Usage(prompts[-1], 50))

        model.stream = stream
        events = await turn(shell, "Read all files.")
        assert of(events, TurnFinished)[0].status == "answered"
        assert of(events, Compacted)
        assert max(prompts) < CONTEXT * 0.85
        report = await shell.context_report()
        assert report.used >= prompts[-1]
        assert_valid(model.requests)


async def test_compaction_can_be_turned_off(full, home, tmp_path):
    write(home, 20, 6_000)
    async with full([*reads(range(20)), finish("All read.")]) as shell:
        model = small(shell, tmp_path)
        shell.deps.settings.compact_at = "off"
        events = await turn(shell, "Read all files.")
        assert of(events, Compacted) == []
        assert of(events, ResultsTrimmed) == []
        assert of(events, TurnFinished)[0].status == "answered"
        assert_valid(model.requests)


async def test_the_three_roles_compact_as_well(full, home, tmp_path):
    write(home, 40, 3_900)
    async with full([*reads(range(40)), say("Next: conclusion."), say("All read.")]) as shell:
        model = small(shell, tmp_path)
        metered = shell.deps.models.current.model
        mode = Umi(metered, metered, metered, ModeLimits(200, 100))
        shell.deps.models.current = ModelSet(metered, mode, dict.fromkeys(ROLES, metered))
        events = await turn(shell, "Read all files.")
        assert of(events, TurnFinished)[0].status == "answered"
        assert of(events, Answer)[0].text == "All read."
        assert of(events, Compacted)
        assert len(of(events, CallFinished)) == 40
        assert all(model.size(request).count <= CONTEXT * 0.85 for request in model.steps)
        assert resumed(shell) == shell.conversation.memory.messages


async def test_schemas_registered_in_summarized_steps_stay_registered(full, home, tmp_path):
    write(home, 40, 3_900)
    lines = [say("", TOOL_REGISTER, tool_name="read_file"), *reads(range(40)), finish("All read.")]
    async with full(lines, registration="names", presentation="stable") as shell:
        model = small(shell, tmp_path)
        events = await turn(shell, "Read all files.")
        assert of(events, Compacted)
        description = shell.conversation.known("read_file").description
        last = model.steps[-1]
        texts = [message.text for message in last.messages] + [
            tool.as_text() for tool in last.tools
        ]
        assert sum(text.count(description) for text in texts) == 1
        assert_valid(model.requests)


async def test_the_context_command_shows_consistent_sizes(full, home, tmp_path):
    write(home, 3, 3_000)
    async with full([*reads(range(3)), finish("All read.")]) as shell:
        model = small(shell, tmp_path)
        empty = await shell.context_report()
        await turn(shell, "Read all files.")
        report = await shell.context_report()
        assert report.context == CONTEXT
        assert report.compact_at == CONTEXT * 0.8
        assert empty.tokens_of("results") == 0
        texts = sum(
            model.count(message.text)
            for message in model.steps[-1].messages
            if message.speaker == "tool"
        )
        assert report.tokens_of("results") == texts
        assert report.tokens_of("system") == model.count(model.steps[-1].messages[0].text)
        assert sum(use.tokens for use in report.uses) == report.used
        assert {tool.name for tool in model.steps[-1].tools} <= {
            use.name for use in report.uses if use.kind == "tools"
        }
        printed = (await shell.command("/context")).text
        assert f"{report.used:,} of 40,000 tokens" in printed
        bar = next(line for line in printed.split("\n") if line.startswith("["))
        assert set(bar[1:-1]) == set("stqr·|") - ({"t"} if not report.tokens_of("tools") else set())
        assert "r results  read_file" in printed
        model.traits = replace(model.traits, context=None)
        assert "its context is unknown" in (await shell.command("/context")).text


async def test_the_context_report_of_a_running_turn_grows(full, home, tmp_path):
    write(home, 20, 3_900)
    async with full([*reads(range(20)), finish("All read.")]) as shell:
        small(shell, tmp_path)
        sizes = []
        async for event in shell.ask("Read all files."):
            if isinstance(event, CallFinished):
                sizes.append((await shell.context_report()).used)
        assert sizes[0] < sizes[10] < sizes[18]


def test_a_session_killed_during_a_summary_resumes_and_compacts_again(tmp_path):
    (tmp_path / "workspace").mkdir()
    write(tmp_path / "workspace", 40, 3_900)
    lines = [*reads(range(40)), finish("All read.")]
    (tmp_path / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    process = FORKS.Process(target=play_until_killed, args=(tmp_path, "Read all files."))
    process.start()
    reached = tmp_path / "summarizing"
    deadline = time.monotonic() + 120
    while not reached.exists() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert reached.exists()
    process.kill()
    process.join()
    store = SessionStore(tmp_path / "home/data/sessions.sqlite")
    session = store.list(1)[0].id
    events = [event for _, event in store.events(session)]
    assert of(events, Compacted) == []
    results = len(of(events, CallFinished))
    assert results > 20
    assert any(event.role == "compact" for event in of(events, BudgetHeld))
    store.close()
    (tmp_path / "script.jsonl").write_text(json.dumps(finish("It continues.")) + "\n")
    again = FORKS.Process(target=play_until_killed, args=(tmp_path, "And now?", session))
    again.start()
    again.join(120)
    assert again.exitcode == 0
    store = SessionStore(tmp_path / "home/data/sessions.sqlite")
    after = [event for _, event in store.events(session)]
    assert after[: len(events)] == events
    (compacted,) = of(after, Compacted)
    assert compacted.turns == 1
    assert of(after, Answer)[-1].text == "It continues."
    store.close()
    ledger = Ledger(tmp_path / "home/data/ledger.sqlite")
    assert wrong_totals(ledger) == ()
    assert all(cap.spent + cap.held <= cap.limit for cap in ledger.caps(session, 2))
    ledger.close()
