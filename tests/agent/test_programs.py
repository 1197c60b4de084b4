"""A weak model does by one program what is asked of files that the question names, and else goes on by calls."""

import pytest
from agent_play import of, say, turn, with_traits

from ecoshell.agent import Approval, NonInteractive
from ecoshell.agent.rules import Rules
from ecoshell.agent.workspace import attach
from ecoshell.events import CallFinished, TurnStarted
from ecoshell.tools.workspace import Workspace

COUNTS = say("```python\nprint(len(open('notes.txt').readlines()), 'lines')\n```")
BREAKS = say("```python\nopen('missing.txt')\n```")
OTHER = say("```python\nopen('missing.txt')\n# as before\n```")
FAILS = say("```python\nraise SystemExit(1)\n```")
ASKED = "How many lines has notes.txt?"


class Agrees(NonInteractive):
    """A user who approves every call."""

    async def approve(self, wanted):
        return Approval("once")


class Refuses(NonInteractive):
    """A user who refuses every call."""


def sized(shell, parameters=1_500_000_000, *, small=False):
    """The shell, its scripted model one of so many weights."""
    return with_traits(shell, parameters=parameters, small=small)


def ran(events):
    return [event.name for event in of(events, CallFinished)]


async def test_what_a_program_prints_is_the_answer(play):
    async with play([COUNTS], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), ASKED)
        (request,) = shell.requests
    assert (ran(events), events[-1].answer) == (["run_python"], "3 lines")
    assert request.tools == ()
    assert "notes.txt begins:\none\ntwo\nthree" in request.messages[1].text


async def test_a_program_that_fails_is_written_again_and_told_why(play):
    async with play([BREAKS, COUNTS], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), ASKED)
        told = shell.requests[1].messages
    assert "open('missing.txt')" in told[2].text
    assert "FileNotFoundError" in told[3].text
    assert events[-1].answer == "3 lines"


@pytest.mark.parametrize(
    "programs",
    [[say("It has some lines.")], [BREAKS, BREAKS], [BREAKS, OTHER], [BREAKS, FAILS, say("```python\n1 / 0\n```")]],
    ids=["no program", "the same program", "the same failure", "three programs that fail"],
)
async def test_where_programs_fail_it_goes_on_by_calls(play, programs):
    lines = [*programs, say("", "count_text", path="notes.txt"), say("Three.")]
    async with play(lines, registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), ASKED)
    assert ran(events)[-1] == "count_text"
    assert events[-1].answer == "Three."


async def test_a_program_that_a_person_forbids_does_not_run_and_it_goes_on_by_calls(play, home):
    wipes = say("```python\nimport os; os.remove('notes.txt')\n```")
    lines = [wipes, say("", "count_text", path="notes.txt"), say("Three.")]
    async with play(lines, registration="all", user=Refuses()) as shell:
        events = await turn(sized(shell), ASKED)
    assert [event.refused for event in of(events, CallFinished)] == ["unapproved", ""]
    assert events[-1].answer == "Three."
    assert (home / "notes.txt").exists()


@pytest.mark.parametrize(
    "options", [{}, {"yes": True}, {"read_only": True, "user": Agrees()}], ids=["no user", "yes", "read-only"]
)
async def test_where_no_program_can_be_allowed_none_is_asked_for(play, options):
    async with play([say("Three.")], registration="all", **options) as shell:
        await turn(sized(shell), ASKED)
        assert shell.requests[0].tools


async def test_a_program_without_output_is_answered_for_by_the_model(play, home):
    writes = say("```python\nopen('notes.txt', 'a').write('four\\n')\n```")
    async with play([writes, say("It is done.")], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "Add four to notes.txt")
        assert shell.requests[-1].purpose == "answer"
    assert events[-1].answer == "It is done."
    assert (home / "notes.txt").read_text().endswith("four\n")


@pytest.mark.parametrize(
    ("question", "traits"),
    [
        ("How many lines has my file?", {}),
        (ASKED, {"parameters": 7_000_000_000}),
        (ASKED, {"parameters": None}),
        (ASKED, {"parameters": 135_000_000, "small": True}),
    ],
    ids=["no file is named", "a capable model", "a model of unknown size", "a model too small for programs"],
)
async def test_else_it_is_asked_for_calls(play, question, traits):
    async with play([say("Three.")], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell, **traits), question)
        assert shell.requests[0].tools
    assert of(events, TurnStarted)[0].attachments == ()


async def test_what_a_rule_keeps_from_being_read_is_not_attached(play, home):
    async with play([say("It is forbidden.")], registration="all", user=Agrees()) as shell:
        shell.deps.approvals.rules = Rules(deny=("read_file:notes.txt",), workspace=home)
        events = await turn(sized(shell), ASKED)
    assert of(events, TurnStarted)[0].attachments == ()


def test_of_files_that_are_only_named_the_beginning_is_attached(tmp_path):
    (tmp_path / "long.csv").write_text("a,b\n" * 1_000)
    (tmp_path / "kept.txt").write_text("kept")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "sea.jpg").write_bytes(b"\xff\xd8\x00")
    workspace = Workspace(tmp_path)
    question = "Is photos/sea.jpg, or photos, in long.csv? Not kept.txt, missing.csv, /etc/passwd or ../a.txt"
    assert attach(workspace, question).attachments == []
    found = {
        one.name: one.text for one in attach(workspace, question, named=lambda path: path != "kept.txt").attachments
    }
    assert found.keys() == {"photos/", "long.csv"}
    assert found["photos/"] == "sea.jpg"
    assert len(found["long.csv"]) < 1_000
    assert "4,000 bytes" in found["long.csv"]


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("move all the .jpg files here into a folder", ["./"]),
        ("how many *.csv are there?", ["./"]),
        ("is it .5 or e.g. 3.14, or none of ..., you know", []),
        ("what is in ./a.csv", ["a.csv"]),
    ],
)
def test_an_ending_names_the_folder(tmp_path, question, found):
    (tmp_path / "a.csv").write_text("a")
    (tmp_path / "b.jpg").write_text("b")
    made = attach(Workspace(tmp_path), question, named=lambda path: True).attachments
    assert [one.name for one in made] == found
    assert all(one.text == "a.csv\nb.jpg" for one in made if one.name == "./")


def test_a_word_that_can_be_no_name_is_passed_over(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    question = f"{'x' * 5_000}.csv \0/b {'y' * 300} a.txt"
    found = attach(Workspace(tmp_path), question, named=lambda path: True)
    assert [one.name for one in found.attachments] == ["a.txt"]
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
    "after", ["", f"\n# try_it.py\n{TRIES}"], ids=["definitions alone", "and the file that tries them"]
)
async def test_a_program_that_defines_what_a_named_file_does_is_its_new_text_and_is_tried(play, broken, after):
    async with play([code(BETTER + after), say("It gives 0 now.")], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "try_it.py fails, mend average.py")
    assert ran(events) == ["write_file", "run_python"]
    assert events[-1].answer == "It gives 0 now."
    assert (broken / "average.py").read_text() == BETTER
    assert (broken / "try_it.py").read_text() == TRIES


async def test_what_was_written_and_does_not_do_is_told_and_written_again(play, broken):
    async with play([code(WRONG), code(BETTER), say("Done.")], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "mend average.py so that try_it.py runs")
        told = [message.text for message in shell.requests[1].messages[2:]]
    assert told[0] == f"```python\n{WRONG}\n```"
    assert "AssertionError" in told[1]
    assert len(told) == 2
    assert ran(events) == ["write_file", "run_python"] * 2
    assert (broken / "average.py").read_text() == BETTER


async def test_where_it_defines_what_is_there_what_tries_that_says_what_is_wrong(play, broken):
    lines = [code(f"{AVERAGE}\ntry_it.py begins:\n{TRIES}"), code(BETTER), say("It gives 0 now.")]
    async with play(lines, registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "try_it.py fails, mend average.py")
        told = shell.requests[1].messages
    assert "ZeroDivisionError" in told[-1].text
    assert ran(events) == ["run_python", "write_file", "run_python"]
    assert (broken / "average.py").read_text() == BETTER


async def test_where_it_only_tries_the_file_that_file_is_asked_for(play, broken):
    lines = [code(TRIES), code(BETTER), say("It gives 0 now.")]
    async with play(lines, registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "try_it.py fails, mend average.py")
        told = shell.requests[1].messages
    assert "ZeroDivisionError" in told[-1].text
    assert "Write the whole of average.py again" in told[-1].text
    assert ran(events) == ["run_python", "write_file", "run_python"]
    assert events[-1].answer == "It gives 0 now."


async def test_what_was_tried_is_not_tried_again(play, broken):
    write = say("", "write_file", path="average.py", content=WRONG)
    lines = [code(WRONG), code(WRONG), write, say("It is done.")]
    async with play(lines, registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "mend average.py so that try_it.py runs")
    assert ran(events) == ["write_file", "run_python", "write_file"]
    assert events[-1].answer == "It is done."


async def test_of_several_files_it_is_written_to_the_one_that_it_changes(play, broken):
    (broken / "first.py").write_text("def first(values):\n    return values[0]\n")
    both = f"def first(values):\n    return values[0]\n\n\n{BETTER}"
    async with play([code(both), say("It gives 0 now.")], registration="all", user=Agrees()) as shell:
        await turn(sized(shell), "mend average.py, not first.py; try_it.py tries it")
    assert (broken / "average.py").read_text() == both
    assert (broken / "first.py").read_text() == "def first(values):\n    return values[0]\n"


async def test_files_of_a_folder_find_each_other(play, home):
    (home / "src").mkdir()
    (home / "src" / "average.py").write_text(AVERAGE)
    (home / "src" / "try_it.py").write_text(TRIES)
    async with play([code(BETTER), say("It gives 0 now.")], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "src/try_it.py fails, mend src/average.py")
    assert [event.ok for event in of(events, CallFinished)] == [True, True]
    assert (home / "src" / "average.py").read_text() == BETTER


async def test_a_file_that_only_defines_tests_shows_nothing_and_it_goes_on_by_calls(play, broken):
    (broken / "try_it.py").write_text("from average import average\n\n\ndef test_it():\n    assert average([]) == 0\n")
    async with play([code(BETTER), say("It gives 0 now.")], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "try_it.py fails, mend average.py")
        assert shell.requests[1].tools
    assert ran(events) == ["write_file"]


async def test_what_nothing_tries_goes_on_by_calls(play, home):
    (home / "average.py").write_text(AVERAGE)
    async with play([code(BETTER), say("It gives 0 now.")], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "mend average.py for no values")
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
    ids=["what is there", "something else", "more than definitions", "work before the import"],
)
async def test_else_a_program_is_run_and_no_file_is_written(play, broken, program):
    async with play([code(program), say("That is it.")], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "what does average.py give for no values?")
    assert ran(events)[0] == "run_python"
    assert (broken / "average.py").read_text() == AVERAGE


async def test_a_file_of_which_the_end_was_not_shown_is_not_written_anew(play, broken):
    (broken / "average.py").write_text(AVERAGE + "\n# …\n" * 600)
    async with play([code(BETTER), say("That is it.")], registration="all", user=Agrees()) as shell:
        events = await turn(sized(shell), "mend average.py")
    assert ran(events) == ["run_python"]


async def test_a_file_that_cannot_be_parsed_is_written_anew(play, broken):
    (broken / "average.py").write_text(AVERAGE.replace("):", ")"))
    async with play([code(AVERAGE), say("It has a colon now.")], registration="all", user=Agrees()) as shell:
        await turn(sized(shell), "average.py does not start")
    assert (broken / "average.py").read_text() == AVERAGE
