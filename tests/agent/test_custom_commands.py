"""Commands made from Markdown files: their questions, what holds for them only, and trust."""

import json
from contextlib import AsyncExitStack
from decimal import Decimal

import pytest
from agent_play import User, of, register, say, turn

from ecoshell import Agent
from ecoshell.agent import LimitChoice
from ecoshell.budget import amount_text
from ecoshell.errors import UsageError
from ecoshell.events import (
    BudgetChanged,
    ErrorHappened,
    LimitHit,
    Notice,
    TrustWanted,
    TurnFinished,
    TurnStarted,
)
from ecoshell.options import Options

DONE = [say("Done.")] * 3


def write(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.fixture
def own(tmp_path):
    """The user's folder of commands."""
    return tmp_path / "home" / "config" / "commands"


@pytest.mark.parametrize(
    ("body", "typed", "question"),
    [
        ("Fix $ARGUMENTS now", "/fix the 'two words' bug", "Fix the 'two words' bug now"),
        ("Fix $1 in $2, not $3.", "/fix 'two words' b.py", "Fix two words in b.py, not ."),
        ("Fix it.", "/fix", "Fix it."),
        ("Fix it.", "/fix at once", "Fix it.\n\nat once"),
        ("It costs $100 or $1.", "/fix 5", "It costs $100 or 5."),
        ("Say $1", "/fix $2 $ARGUMENTS", "Say $2"),
        ("Say $1 $2", "/fix it's late", "Say it's late"),
        ("Say $1", "/FIX hi", "Say hi"),
        ("Say $ARGUMENTS", "/fix\nthis\n\n  and that", "Say this\n\n  and that"),
        ("Say $1", "/fix\tthis", "Say this"),
    ],
)
async def test_arguments_take_their_places(play, own, body, typed, question):
    write(own, "fix.md", body)
    async with play(DONE) as shell:
        printed = await shell.command(typed)
        assert (printed.effect, printed.value) == ("ask", typed)
        started = of(await turn(shell, typed), TurnStarted)[0]
        assert started.question == question
        assert shell.requests[0].messages[-1].text.endswith(question)


async def test_a_command_attaches_the_files_that_it_mentions(play, own):
    write(
        own,
        "lines.md",
        "---\ndescription: count lines\nargument-hint: FILE\n---\nCount the lines of @$1",
    )
    async with play(DONE) as shell:
        started = of(await turn(shell, "/lines notes.txt"), TurnStarted)[0]
        assert [attachment.text for attachment in started.attachments] == ["one\ntwo\nthree\n"]
        assert ("/lines FILE", "count lines") in shell.overview()
        assert [(offer.text, offer.help) for offer in shell.complete("/li")] == [
            ("/lines", "count lines · FILE")
        ]
        assert "/lines FILE" in (await shell.command("/help")).text


async def test_model_effort_and_cap_hold_for_the_question_only(play, own, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(say("From the other model.")) + "\n")
    write(own, "design.md", f"---\nmodel: script:{other}\neffort: high\ncap: 0.25\n---\nDesign it.")
    async with play(DONE) as shell:
        deps, seen = shell.deps, []
        async for event in shell.ask("/design"):
            if isinstance(event, TurnStarted):
                caps = {cap.scope: cap.limit for cap in await deps.budget.caps()}
                seen.append((event.model, deps.settings.effort, caps["turn"]))
            elif isinstance(event, TurnFinished):
                assert event.answer == "From the other model."
        assert seen == [(f"script:{other}", "high", 250_000_000)]
        assert (deps.settings.effort, await deps.budget.caps()) == ("auto", ())
        assert deps.models.session_model == f"script:{tmp_path / 'script.jsonl'}"
        last = shell.store.last_choices(shell.session)
        assert (last.model, last.effort) == (deps.models.session_model, "auto")


@pytest.mark.parametrize("resumed", [False, True])
async def test_retry_applies_cap_model_and_effort_again(play, own, tmp_path, resumed):
    other = tmp_path / "other.jsonl"
    other.write_text(f"{json.dumps(say('From the other model.'))}\n" * 2)
    file = f"---\nmodel: script:{other}\neffort: high\ncap: 0.25\n---\nDesign $1."
    write(own, "design.md", file)
    async with AsyncExitStack() as stack:
        shell = await stack.enter_async_context(play(DONE))
        started = of(await turn(shell, "/design it"), TurnStarted)[0]
        assert (started.question, started.line) == ("Design it.", "/design it")
        if resumed:
            await stack.aclose()
            shell = await stack.enter_async_context(play(DONE, resume=shell.session))
        (own / "design.md").unlink()
        with pytest.raises(UsageError, match="The command /design was removed"):
            await shell.command("/retry")
        assert shell.conversation.memory.last_turn.question == "Design it."
        write(own, "design.md", file)
        printed = await shell.command("/retry")
        assert (printed.effect, printed.value) == ("ask", "/design it")
        seen = []
        async for event in shell.ask(printed.value, printed.attachments):
            if isinstance(event, TurnStarted):
                caps = {cap.scope: cap.limit for cap in await shell.deps.budget.caps()}
                effort = shell.deps.settings.effort
                seen.append((event.question, event.model, effort, caps["turn"]))
        assert seen == [("Design it.", f"script:{other}", "high", 250_000_000)]


async def test_retry_asks_typed_text_and_a_task_as_typed(play):
    async with play(DONE) as shell:
        for line in ("Design it.", "/task 0.05: Design it."):
            assert of(await turn(shell, line), TurnStarted)[0].line == ""
            assert (await shell.command("/retry")).value == line


@pytest.mark.parametrize(
    ("before", "during"),
    [("0.10", ["$0.10"]), ("0.90", ["$0.25"]), ("9tok", ["$0.25", "9 tokens"])],
)
async def test_a_cap_holds_besides_the_cap_of_the_turn(play, own, before, during):
    write(own, "design.md", "---\ncap: 0.25\n---\nDesign it.")
    async with play(DONE) as shell:

        async def cap():
            return [amount_text(cap.limit, cap.unit) for cap in await shell.deps.budget.caps()]

        await shell.command(f"/budget turn {before}")
        before, shown = await cap(), []
        for event in of(await turn(shell, "/design"), BudgetChanged):
            shown.append([amount_text(cap.limit, cap.unit) for cap in event.caps])
        assert (shown[0], shown[-1], await cap()) == (during, before, before)


@pytest.mark.parametrize(
    ("session_cap", "after"),
    [("", []), ("/budget turn 5", ["$5"]), ("/budget turn 0.01", ["$1"])],
)
async def test_a_cap_that_is_raised_at_the_limit_is_raised_for_its_turn(
    play, own, session_cap, after
):
    write(own, "design.md", "---\ncap: 0.000001\n---\nDesign it.")
    user = User(limit=LimitChoice("raise", "1.00"))
    async with play(DONE, user=user, price=(Decimal(1), Decimal(4))) as shell:
        if session_cap:
            await shell.command(session_cap)
        events = await turn(shell, "/design")
        assert [event.scope for event in of(events, LimitHit)] == ["turn"]
        assert of(events, TurnFinished)[0].answer == "Done."
        caps = await shell.deps.budget.caps()
    assert [amount_text(cap.limit, cap.unit) for cap in caps] == after


async def test_a_cap_that_the_user_sets_meanwhile_stays(play, own):
    write(own, "design.md", "---\ncap: 0.25\n---\nDesign it.")
    async with play(DONE) as shell:
        async for event in shell.ask("/design"):
            if isinstance(event, TurnStarted):
                await shell.command("/budget turn 0.10")
        (cap,) = await shell.deps.budget.caps()
    assert amount_text(cap.limit, cap.unit) == "$0.10"


async def test_a_file_of_the_project_needs_trust_until_it_changes(play, home):
    write(home / ".ecoshell/commands", "deploy.md", "Deploy to $1.")
    user = User("yes", "no")
    async with play(DONE, user=user) as shell:
        events = await turn(shell, "/deploy prod")
        assert of(events, TurnFinished)[0].status == "answered"
        assert not of(await turn(shell, "/deploy test"), TrustWanted)
        write(home / ".ecoshell/commands", "deploy.md", "Delete $1!")
        events = await turn(shell, "/deploy prod")
        assert of(events, TrustWanted)[0].changed
        assert "deploy.md is not trusted" in of(events, ErrorHappened)[0].message
        assert [wanted.text for wanted in user.asked] == ["Deploy to $1.", "Delete $1!"]
        assert len(shell.requests) == 2


@pytest.mark.parametrize("trust", [True, False])
async def test_without_a_user_an_option_trusts_the_file(play, home, trust):
    write(
        home / ".claude/commands",
        "review.md",
        "---\nmodel: sonnet\nallowed-tools: Bash(git diff:*)\n---\nReview.",
    )
    async with play(DONE, trust_project=trust) as shell:
        events = await turn(shell, "/review")
        assert of(events, TurnFinished)[0].status == ("answered" if trust else "error")
        assert len(shell.requests) == trust
        assert any("--trust-project" in note.text for note in of(events, Notice)) is not trust


async def test_a_file_replaces_no_command_and_the_users_own_comes_first(play, home, own):
    write(own, "help.md", "No help.")
    write(own, "mine.md", "Mine.")
    write(own, "not a name.md", "No.")
    write(home / ".ecoshell/commands", "mine.md", "Theirs.")
    async with play(DONE) as shell:
        assert "list the commands" in (await shell.command("/help")).text
        notes = [note.text for note in of(await turn(shell, "/mine"), Notice)]
        assert shell.requests[0].messages[-1].text.endswith("Mine.")
        assert any(
            "help.md is not used as a command: /help is a command of ecoshell." in note
            for note in notes
        )
        assert any("not a name.md is not used as a command" in note for note in notes)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"---\na: 'x\n---\nbody", "front matter"),
        (b"a\0b", "binary file"),
        (b"\xff\xfe", "not UTF-8"),
        (b"x" * 200_000, "too large"),
        (b"---\nname: x\n---\n", "has no text"),
        (b"---\neffort: huge\n---\nbody", "Unknown effort 'huge'"),
        (b"---\ncap: much\n---\nbody", "much"),
        (None, "outside the workspace"),
    ],
)
async def test_a_faulty_file_is_a_sentence_and_other_questions_go_on(
    play, home, tmp_path, content, reason
):
    folder = home / ".ecoshell/commands"
    folder.mkdir(parents=True)
    if content is None:
        (tmp_path / "secret.md").write_text("secret")
        (folder / "bad.md").symlink_to(tmp_path / "secret.md")
    else:
        (folder / "bad.md").write_bytes(content)
    async with play(DONE) as shell:
        with pytest.raises(UsageError, match=r"/bad cannot be used\.") as error:
            await turn(shell, "/bad")
        assert reason in str(error.value)
        with pytest.raises(UsageError, match=r"/bad cannot be used\."):
            await shell.command("/bad")
        assert any(
            about.startswith("cannot be used") for name, about in shell.overview() if name == "/bad"
        )
        assert of(await turn(shell, "/badly named?"), TurnFinished)[0].status == "answered"


async def test_changed_and_new_files_count_at_once(play, own):
    async with play(DONE) as shell:
        write(own, "a.md", "First.")
        await turn(shell, "/a")
        write(own, "a.md", "Second, longer.")
        await turn(shell, "/a")
        assert [request.messages[-1].text.splitlines()[-1] for request in shell.requests] == [
            "First.",
            "Second, longer.",
        ]


async def test_the_python_api_asks_a_command_with_skills_and_hooks(home, own, tmp_path):
    write(own, "fix.md", "Fix $1.")
    write(own.parent / "skills" / "pdf", "SKILL.md", "Use pypdf.")
    (own.parent / "config.toml").write_text(
        '[hooks.commands.log]\non = "turn_end"\ncommand = "cat > log.json"\n'
    )
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in [register("pdf"), say("Done.")]))
    async with Agent(model=f"script:{script}", options=Options(workspace=home)) as agent:
        outcome = await agent.ask("/fix it")
    assert (outcome.answer, "pdf" in outcome.registered) == ("Done.", True)
    assert json.loads((home / "log.json").read_text())["answer"] == "Done."


def test_commands_of_the_screen_are_reserved():
    from ecoshell.agent.command_table import SCREEN_COMMANDS
    from ecoshell.tui.commands import CHAT_COMMANDS

    assert CHAT_COMMANDS.keys() | {"exit"} == SCREEN_COMMANDS
