from ecoshell.agent.command_table import CommandTable, Printed

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
