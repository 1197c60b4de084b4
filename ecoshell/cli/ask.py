"""`ecoshell ask`: one question with piped text and images, one answer, and an exit status."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshell.api import Agent
from ecoshell.cli.answer_output import AnswerOutput, print_json_line
from ecoshell.cli.run_options import add_run_options, prepared_options
from ecoshell.cli.signals import Interrupted, hangups_interrupt, stopping
from ecoshell.cli.standard_input import decode, read_attachment, read_question_text
from ecoshell.errors import EcoshellError, ToolError, UsageError
from ecoshell.events import ErrorHappened, Event
from ecoshell.images import MAX_IMAGES, attached, open_image
from ecoshell.messages import Attachment

if TYPE_CHECKING:  # imported only if a user can be asked
    from ecoshell.cli.line_user import LineUser

_NOT_ASKED = "Nothing was asked."
_APPROVAL_FIX = (
    "--yes skips approval prompts; [approval] allow in the settings allows single tools."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run_options(parser)
    parser.add_argument(
        "question",
        nargs="+",
        help="the question; piped text is attached. - reads the question from standard input",
    )
    image = "attach an image; repeatable"
    parser.add_argument(
        "--image", action="append", default=[], metavar="FILE", type=Path, help=image
    )
    parser.add_argument(
        "--json", action="store_true", help="print every event, and the result, as JSON lines"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="print only the answer and errors; ask nothing"
    )
    force = "with --yes: allow overwriting a file with less content"
    parser.add_argument("--force", action="store_true", help=force)


def run(args: argparse.Namespace) -> int:
    """Ask the question and return the exit status.

    Raises EcoshellError if no turn could start; with `--json` the error is printed as an event.
    """
    options, words = prepared_options(args), args.question
    json: bool = args.json
    quiet: bool = args.quiet
    warn = partial(print, "ecoshell:", file=sys.stderr)
    user = None if json or quiet or words[-1:] == ["-"] else _user_at_terminal()
    agent = Agent(user=user, options=options)
    report = (
        partial(print_json_line, file=sys.stdout)
        if json
        else AnswerOutput(lambda: agent.outcome.session, quiet=quiet).show
    )
    # plugins' tools may print, which must not mix with the answer
    with hangups_interrupt(), redirect_stdout(sys.stderr):
        try:
            images = read_images(args.image)
            question, attachments = read_question(words, (lambda _: None) if quiet else warn)
            _require_question(question, options.workspace)
            asyncio.run(follow(agent, question, (*images, *attachments), report=report, user=user))
        except EcoshellError as error:
            if not json:
                raise
            report(ErrorHappened.of(error))
            report(agent.outcome.result())
            return error.exit_status
        except KeyboardInterrupt:
            agent.outcome.status = "interrupted"
    outcome = agent.outcome
    report(outcome.result())
    even, fix = (" even with --yes", "") if options.yes else ("", f" {_APPROVAL_FIX}")
    for call in outcome.refused:
        warn(f"{call} was not run: it needs an approval{even}, and no user is available.{fix}")
    return outcome.exit_status


def read_images(files: Sequence[Path]) -> tuple[Attachment, ...]:
    """Read the images to attach; raises UsageError for an invalid file and for too many."""
    if len(files) > MAX_IMAGES:
        message = f"The question has {len(files)} images; the limit is {MAX_IMAGES}."
        raise UsageError(message, kept=_NOT_ASKED, fix="Ask about fewer images.")
    try:
        return tuple(attached(open_image(file)) for file in files)
    except ToolError as error:
        fix = "Give a PNG, JPEG, GIF or WebP file."
        raise UsageError(f"--image: {error.message}", kept=_NOT_ASKED, fix=fix) from error


def read_question(
    words: Sequence[str], warn: Callable[[str], None]
) -> tuple[str, Sequence[Attachment]]:
    """Return the question and the piped text that accompanies it.

    `-` as the only word reads the question from standard input; as the last word it waits for the piped text. Raises
    UsageError if the question is empty or the input is not text.
    """
    if [*words] == ["-"]:
        question, attachment = read_question_text(warn).strip(), None
        _require_text(question)
    else:
        announced = len(words) > 1 and words[-1] == "-"
        typed = " ".join(words[:-1] if announced else words)
        question = decode(typed.encode("utf-8", errors="surrogateescape"), warn).strip()
        _require_text(question)
        attachment = read_attachment(warn, announced=announced)
    return question, () if attachment is None else (attachment,)


async def follow(
    agent: Agent,
    question: str,
    attachments: Sequence[Attachment],
    *,
    report: Callable[[Event], None],
    user: "LineUser | None",
) -> None:
    """Ask the question and report every event of the turn; raises EcoshellError if no turn could start."""
    stop_tasks: list[asyncio.Task[None]] = []  # the event loop keeps only weak references

    def stop() -> None:
        stop_tasks.append(asyncio.ensure_future(agent.stop()))

    agent.on_event = report
    async with agent:
        if agent.resumed is not None:
            report(agent.resumed)
        with stopping(stop):
            async with aclosing(agent.stream(question, attachments)) as events:
                async for event in events:
                    report(event)
                    try:
                        if user is not None:
                            await user.answer(event)
                    except Interrupted:
                        stop()


def _require_text(text: str) -> None:
    if not text:
        raise UsageError("The question is empty.", fix='Try: ecoshell ask "What is 17 * 23?"')


def _user_at_terminal() -> "LineUser | None":
    """Return the user to ask, on standard error so that standard output holds only the answer."""
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return None
    from ecoshell.cli.inputs import Keyboard
    from ecoshell.cli.line_user import LineUser

    return LineUser(Keyboard(output=sys.stderr).word, partial(print, file=sys.stderr))


def _require_question(question: str, workspace: Path | None) -> None:
    """Raise UsageError for a command of the chat before the agent opens."""
    if question.startswith("/"):
        from ecoshell.agent.question_line import require_question

        require_question(question, _custom_commands(workspace))


def _custom_commands(workspace: Path | None) -> Collection[str]:
    """The names of the commands that are made from files."""
    from ecoshell.agent.custom_commands import CustomCommands
    from ecoshell.paths import user_paths
    from ecoshell.tools.workspace import Workspace, workspace_folder

    folder, ground = user_paths().commands_folder, Workspace(workspace_folder(workspace))
    return CustomCommands(folder, ground, frozenset[str], lambda _: None).current()
