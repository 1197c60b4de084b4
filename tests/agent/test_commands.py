import pytest

from ecoshell.agent.command_table import CommandTable, Printed
from ecoshell.errors import UsageError
from ecoshell.models.model_rows import StartingModel

TABLE: CommandTable[list[str]] = CommandTable()


@TABLE.add("say", "TEXT", "say it", lambda texts: texts)
async def _say(texts: list[str], argument: str) -> Printed:
    texts.append(argument)
    return Printed(argument)


async def test_a_slash_command_is_one_function_with_its_usage_and_completions():
    texts: list[str] = []
    assert (await TABLE.run(texts, "/say hello you")).text == "hello you"
    assert texts == ["hello you"]
    assert TABLE.overview() == [("/say TEXT", "say it")]
    assert [completion.text for completion in TABLE.complete(texts, "/say he")] == [
        "/say hello you"
    ]


async def test_any_whitespace_ends_the_name_of_a_command():
    assert TABLE.knows("/say\nhello")
    assert (await TABLE.run([], "/Say\thello\n\nyou ")).text == "hello\n\nyou"


async def test_model_names_the_models_to_change_to(play, monkeypatch):
    offers = (
        StartingModel("openai/gpt-5-mini", "key", "your openai key"),
        StartingModel("hf:unsloth/Qwen3-4B-GGUF:Q4_K_M", "download", "download: 2.5 GB"),
    )
    async with play([]) as shell:
        monkeypatch.setattr(shell.deps.models.factory, "starting_models", lambda: offers)
        printed = (await shell.command("/model")).text
    assert "/model openai/gpt-5-mini " in printed
    assert "/model pull unsloth/Qwen3-4B-GGUF:Q4_K_M  download: 2.5 GB" in printed


async def test_a_cap_of_nothing_is_refused_with_the_word_that_removes_it(play):
    async with play([]) as shell:
        with pytest.raises(UsageError) as caught:
            await shell.command("/budget day 0")
    assert caught.value.fix.endswith(" /budget day off removes the cap.")
