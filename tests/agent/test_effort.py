from dataclasses import replace

import pytest

from ecoshell.cli.parser import build_parser
from ecoshell.cli.run_options import options_from
from ecoshell.errors import UsageError
from ecoshell.messages import Message
from ecoshell.models import Request


async def test_the_effort_is_shown_set_and_sent_with_steps_only(play):
    async with play([{"text": "Hello."}, {"text": "A"}], effort="low") as shell:
        model = shell.deps.models.current.model
        model.effort = lambda: shell.deps.settings.effort
        assert (await shell.command("/effort")).text == "effort low: a little."
        assert (await shell.command("/effort high")).text.startswith("effort high")
        assert (await shell.status()).effort == "high"
        async for _ in shell.ask("Hello?"):
            pass
        assert [request.effort for request in shell.requests] == ["high"]
        ranking = Request((Message("user", "Which?"),), want="text", max_tokens=16, purpose="rank")
        await model.ask(ranking, lambda _: None)
        assert shell.requests[-1].effort == "auto"
        with pytest.raises(UsageError, match="Unknown effort 'huge'"):
            await shell.command("/effort huge")


@pytest.mark.parametrize("purpose", ["rank", "judge"])
async def test_a_model_that_reasons_decides_without_it_where_it_can(play, purpose):
    async with play([{"text": "A"}, {"text": "A"}], effort="high") as shell:
        model = shell.deps.models.current.model
        request = Request((Message("user", "?"),), want="text", max_tokens=16, purpose=purpose)
        await model.ask(request, lambda _: None)
        model._model.traits = replace(model._model.traits, reasons=True)
        await model.ask(request, lambda _: None)
    assert [(sent.effort, sent.max_tokens) for sent in shell.requests] == [
        ("auto", 16),
        ("off", 1_024),
    ]


@pytest.mark.parametrize("command", ["chat", "line", "ask"])
def test_effort_is_a_command_line_option(command):
    args = build_parser().parse_args(
        [command, "--effort", "max", *(["why?"] if command == "ask" else [])]
    )
    assert options_from(args).effort == "max"
