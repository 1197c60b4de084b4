"""A weak model answers questions about named files by writing one program, and otherwise by tool calls."""

import pytest
from agent_play import User, of, say, turn, with_traits

from ecoshell.agent.mentions import attach
from ecoshell.agent.rules import Rules
from ecoshell.events import CallFinished, TurnStarted
from ecoshell.tools.workspace import Workspace

COUNTS = say("```python\nprint(len(open('notes.txt').readlines()), 'lines')\n```")
BREAKS = say("```python\nopen('missing.txt')\n```")
OTHER = say("```python\nopen('missing.txt')\n# as before\n```")
FAILS = say("```python\nraise SystemExit(1)\n```")
QUESTION = "How many lines has notes.txt?"


def with_parameters(shell, parameters=1_500_000_000, **traits):
    """Give the scripted model this number of parameters."""
    return with_traits(shell, parameters=parameters, **{"small": False, **traits})


def ran(events):
    return [event.name for event in of(events, CallFinished)]


@pytest.mark.parametrize("registration", ["all", "auto"])
async def test_the_output_of_a_program_is_the_answer(play, registration):
    async with play([COUNTS], registration=registration, user=User(approval="once")) as shell:
        events = await turn(with_parameters(shell, calls_undeclared=True), QUESTION)
        (request,) = shell.requests
    assert (ran(events), events[-1].answer) == (["run_python"], "3 lines")
    assert request.tools == ()
    assert "notes.txt begins:\none\ntwo\nthree" in request.messages[1].text


async def test_a_failed_program_is_rewritten_with_its_error(play):
    async with play([BREAKS, COUNTS], registration="all", user=User(approval="once")) as shell:
        events = await turn(with_parameters(shell), QUESTION)
        messages = shell.requests[1].messages
    assert "open('missing.txt')" in messages[2].text
    assert "FileNotFoundError" in messages[3].text
    assert events[-1].answer == "3 lines"


@pytest.mark.parametrize(
    "programs",
    [
        [say("It has some lines.")],
        [BREAKS, BREAKS],
        [BREAKS, OTHER],
        [BREAKS, FAILS, say("```python\n1 / 0\n```")],
    ],
    ids=["no program", "the same program", "the same failure", "three programs that fail"],
)
async def test_tool_calls_follow_failed_programs(play, programs):
    lines = [*programs, say("", "count_text", path="notes.txt"), say("Three.")]
    async with play(lines, registration="all", user=User(approval="once")) as shell:
        events = await turn(with_parameters(shell), QUESTION)
    assert ran(events)[-1] == "count_text"
    assert events[-1].answer == "Three."


async def test_tool_calls_follow_a_program_the_user_refuses(play, home):
    wipes = say("```python\nimport os; os.remove('notes.txt')\n```")
    lines = [wipes, say("", "count_text", path="notes.txt"), say("Three.")]
    async with play(lines, registration="all", user=User(approval="no")) as shell:
        events = await turn(with_parameters(shell), QUESTION)
    assert [event.refused for event in of(events, CallFinished)] == ["unapproved", ""]
    assert events[-1].answer == "Three."
    assert (home / "notes.txt").exists()


@pytest.mark.parametrize(
    "options",
    [{}, {"yes": True}, {"read_only": True, "user": User(approval="once")}],
    ids=["no user", "yes", "read-only"],
)
async def test_no_program_is_requested_if_none_can_be_approved(play, options):
    async with play([say("Three.")], registration="all", **options) as shell:
        await turn(with_parameters(shell), QUESTION)
        assert shell.requests[0].tools


async def test_the_model_answers_after_a_program_without_output(play, home):
    writes = say("```python\nopen('notes.txt', 'a').write('four\\n')\n```")
    async with play(
        [writes, say("It is done.")], registration="all", user=User(approval="once")
    ) as shell:
        events = await turn(with_parameters(shell), "Add four to notes.txt")
        assert shell.requests[-1].purpose == "answer"
    assert events[-1].answer == "It is done."
    assert (home / "notes.txt").read_text().endswith("four\n")


@pytest.mark.parametrize(
    ("question", "traits"),
    [
        ("How many lines has my file?", {}),
        (QUESTION, {"parameters": 7_000_000_000}),
        (QUESTION, {"parameters": None}),
        (QUESTION, {"parameters": 135_000_000, "small": True}),
    ],
    ids=[
        "no named file",
        "a capable model",
        "a model of unknown size",
        "a model too small for programs",
    ],
)
async def test_other_questions_and_models_use_tool_calls(play, question, traits):
    async with play([say("Three.")], registration="all", user=User(approval="once")) as shell:
        events = await turn(with_parameters(shell, **traits), question)
        assert shell.requests[0].tools
    assert of(events, TurnStarted)[0].attachments == ()


async def test_a_file_that_a_rule_protects_is_not_attached(play, home):
    async with play(
        [say("It is forbidden.")], registration="all", user=User(approval="once")
    ) as shell:
        shell.deps.approvals.rules = Rules(deny=("read_file:notes.txt",), workspace=home)
        events = await turn(with_parameters(shell), QUESTION)
    assert of(events, TurnStarted)[0].attachments == ()


def test_the_start_of_a_named_file_is_attached(tmp_path):
    (tmp_path / "long.csv").write_text("a,b\n" * 1_000)
    (tmp_path / "kept.txt").write_text("kept")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "sea.jpg").write_bytes(b"\xff\xd8\x00")
    workspace = Workspace(tmp_path)
    question = "Is photos/sea.jpg, or photos, in long.csv? Not kept.txt, missing.csv, /etc/passwd or ../a.txt"
    assert attach(workspace, question).attachments == []
    mentions = attach(workspace, question, may_read=lambda path: path != "kept.txt")
    texts = {attachment.name: attachment.text for attachment in mentions.attachments}
    assert texts.keys() == {"photos/", "long.csv"}
    assert texts["photos/"] == "sea.jpg"
    assert len(texts["long.csv"]) < 1_000
    assert "4,000 bytes" in texts["long.csv"]


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("move all the .jpg files here into a folder", ["./"]),
        ("how many *.csv are there?", ["./"]),
        ("is it .5 or e.g. 3.14, or any of ..., you know", []),
        ("what is in ./a.csv", ["a.csv"]),
    ],
)
def test_a_file_suffix_refers_to_the_folder(tmp_path, question, names):
    (tmp_path / "a.csv").write_text("a")
    (tmp_path / "b.jpg").write_text("b")
    attachments = attach(Workspace(tmp_path), question, may_read=lambda path: True).attachments
    assert [attachment.name for attachment in attachments] == names
    assert all(
        attachment.text == "a.csv\nb.jpg" for attachment in attachments if attachment.name == "./"
    )


def test_a_word_that_cannot_be_a_file_name_is_ignored(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    question = f"{'x' * 5_000}.csv \0/b {'y' * 300} a.txt"
    mentions = attach(Workspace(tmp_path), question, may_read=lambda path: True)
    assert [attachment.name for attachment in mentions.attachments] == ["a.txt"]
    assert attach(Workspace(tmp_path), f"@{'x' * 5_000}.csv").attachments == []


AVERAGE = "def average(values):\n    return sum(values) / len(values)\n"
TRIES = "from average import average\n\nassert average([]) == 0\nprint('ok')\n"
BETTER = "def average(values):\n    return sum(values) / len(values) if values else 0\n"
WRONG = "def average(values):\n    return sum(values) / len(values) if values else None\n"


def code(text):
    return say(f"```python\n{text}```")


@pytest.fixture
def broken(home):
    (home / "average.py").write_text(AVERAGE)
    (home / "try_it.py").write_text(TRIES)
    return home


@pytest.mark.parametrize(
    "suffix",
    ["", f"\n# try_it.py\n{TRIES}"],
    ids=["definitions only", "with the script that uses them"],
)
async def test_a_program_with_the_definitions_of_a_named_file_replaces_it_and_is_tested(
    play, broken, suffix
):
    async with play(
        [code(BETTER + suffix), say("It gives 0 now.")],
        registration="all",
        user=User(approval="once"),
    ) as shell:
        events = await turn(with_parameters(shell), "try_it.py fails, mend average.py")
    assert ran(events) == ["write_file", "run_python"]
    assert events[-1].answer == "It gives 0 now."
    assert (broken / "average.py").read_text() == BETTER
    assert (broken / "try_it.py").read_text() == TRIES


async def test_a_written_file_that_fails_is_written_again(play, broken):
    async with play(
        [code(WRONG), code(BETTER), say("Done.")], registration="all", user=User(approval="once")
    ) as shell:
        events = await turn(with_parameters(shell), "mend average.py so that try_it.py runs")
        texts = [message.text for message in shell.requests[1].messages[2:]]
    assert texts[0] == f"```python\n{WRONG}\n```"
    assert "AssertionError" in texts[1]
    assert len(texts) == 2
    assert ran(events) == ["write_file", "run_python"] * 2
    assert (broken / "average.py").read_text() == BETTER


async def test_an_unchanged_file_is_run_to_show_its_error(play, broken):
    lines = [code(f"{AVERAGE}\ntry_it.py begins:\n{TRIES}"), code(BETTER), say("It gives 0 now.")]
    async with play(lines, registration="all", user=User(approval="once")) as shell:
        events = await turn(with_parameters(shell), "try_it.py fails, mend average.py")
        messages = shell.requests[1].messages
    assert "ZeroDivisionError" in messages[-1].text
    assert ran(events) == ["run_python", "write_file", "run_python"]
    assert (broken / "average.py").read_text() == BETTER


async def test_a_program_that_only_uses_the_file_leads_to_a_request_for_it(play, broken):
    lines = [code(TRIES), code(BETTER), say("It gives 0 now.")]
    async with play(lines, registration="all", user=User(approval="once")) as shell:
        events = await turn(with_parameters(shell), "try_it.py fails, mend average.py")
        messages = shell.requests[1].messages
    assert "ZeroDivisionError" in messages[-1].text
    assert "Write the whole of average.py again" in messages[-1].text
    assert ran(events) == ["run_python", "write_file", "run_python"]
    assert events[-1].answer == "It gives 0 now."


async def test_the_same_program_is_not_run_twice(play, broken):
    write = say("", "write_file", path="average.py", content=WRONG)
    lines = [code(WRONG), code(WRONG), write, say("It is done.")]
    async with play(lines, registration="all", user=User(approval="once")) as shell:
        events = await turn(with_parameters(shell), "mend average.py so that try_it.py runs")
    assert ran(events) == ["write_file", "run_python", "write_file"]
    assert events[-1].answer == "It is done."


async def test_of_several_files_only_the_changed_one_is_written(play, broken):
    (broken / "first.py").write_text("def first(values):\n    return values[0]\n")
    both = f"def first(values):\n    return values[0]\n\n\n{BETTER}"
    async with play(
        [code(both), say("It gives 0 now.")], registration="all", user=User(approval="once")
    ) as shell:
        await turn(with_parameters(shell), "mend average.py, not first.py; try_it.py tries it")
    assert (broken / "average.py").read_text() == both
    assert (broken / "first.py").read_text() == "def first(values):\n    return values[0]\n"


async def test_files_in_a_folder_can_import_each_other(play, home):
    (home / "src").mkdir()
    (home / "src" / "average.py").write_text(AVERAGE)
    (home / "src" / "try_it.py").write_text(TRIES)
    async with play(
        [code(BETTER), say("It gives 0 now.")], registration="all", user=User(approval="once")
    ) as shell:
        events = await turn(with_parameters(shell), "src/try_it.py fails, mend src/average.py")
    assert [event.ok for event in of(events, CallFinished)] == [True, True]
    assert (home / "src" / "average.py").read_text() == BETTER


async def test_tool_calls_follow_a_script_that_only_defines_tests(play, broken):
    (broken / "try_it.py").write_text(
        "from average import average\n\n\ndef test_it():\n    assert average([]) == 0\n"
    )
    async with play(
        [code(BETTER), say("It gives 0 now.")], registration="all", user=User(approval="once")
    ) as shell:
        events = await turn(with_parameters(shell), "try_it.py fails, mend average.py")
        assert shell.requests[1].tools
    assert ran(events) == ["write_file"]


async def test_tool_calls_follow_a_file_without_a_script(play, home):
    (home / "average.py").write_text(AVERAGE)
    async with play(
        [code(BETTER), say("It gives 0 now.")], registration="all", user=User(approval="once")
    ) as shell:
        events = await turn(with_parameters(shell), "mend average.py for no values")
        assert shell.requests[1].tools
    assert ran(events) == ["write_file"]
    assert events[-1].answer == "It gives 0 now."


@pytest.mark.parametrize(
    "program",
    [
        AVERAGE,
        "def other():\n    return 1\n",
        f"{BETTER}print(average([]))\n",
        "import os\nos.environ['A'] = 'b'\nfrom average import average\n",
    ],
    ids=["unchanged", "another function", "more than definitions", "work before the import"],
)
async def test_any_other_program_runs_without_writing_files(play, broken, program):
    async with play(
        [code(program), say("That is it.")], registration="all", user=User(approval="once")
    ) as shell:
        events = await turn(with_parameters(shell), "what does average.py give for no values?")
    assert ran(events)[0] == "run_python"
    assert (broken / "average.py").read_text() == AVERAGE


async def test_a_file_that_was_sent_in_part_is_not_replaced(play, broken):
    (broken / "average.py").write_text(AVERAGE + "\n# …\n" * 600)
    async with play(
        [code(BETTER), say("That is it.")], registration="all", user=User(approval="once")
    ) as shell:
        events = await turn(with_parameters(shell), "mend average.py")
    assert ran(events) == ["run_python"]


async def test_a_file_that_cannot_be_parsed_is_replaced(play, broken):
    (broken / "average.py").write_text(AVERAGE.replace("):", ")"))
    async with play(
        [code(AVERAGE), say("It has a colon now.")], registration="all", user=User(approval="once")
    ) as shell:
        await turn(with_parameters(shell), "average.py does not start")
    assert (broken / "average.py").read_text() == AVERAGE
