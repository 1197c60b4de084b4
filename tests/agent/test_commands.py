from ecoshell.agent.commands import CommandTable, Printed

TABLE: CommandTable[list[str]] = CommandTable()


@TABLE.add("say", "TEXT", "say it", lambda said: said)
async def _say(said: list[str], argument: str) -> Printed:
    said.append(argument)
    return Printed(argument)


async def test_a_slash_command_is_one_function_that_says_how_it_is_typed_and_what_completes_it():
    said: list[str] = []
    assert (await TABLE.run(said, "/say hello you")).text == "hello you"
    assert said == ["hello you"]
    assert TABLE.overview() == [("/say TEXT", "say it")]
    assert [found.text for found in TABLE.complete(said, "/say he")] == ["/say hello you"]
