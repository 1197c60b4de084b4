"""The slash commands for sessions: resume, export, undo, compact and delegate."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ecoshell.agent.command_table import (
    CommandTable,
    Printed,
    dollars,
    required,
    split_first_word,
    table,
)
from ecoshell.agent.conversation import Stopped
from ecoshell.agent.past_turn import PastTurn
from ecoshell.agent.shell import Shell
from ecoshell.budget import counted
from ecoshell.errors import ToolError, UsageError
from ecoshell.events import TurnUndone
from ecoshell.events.work import todo_headline, todo_lines
from ecoshell.messages import visible, visible_line
from ecoshell.tools import LASTING
from ecoshell.tools.background import BackgroundCommand
from ecoshell.tools.builtin.files import RESTORABLE
from ecoshell.tools.builtin.task import PROJECT_FOLDERS
from ecoshell.tools.restore import Changed

SESSION_COMMANDS: CommandTable[Shell] = CommandTable()
_UNWRITTEN = (
    "The last events are not written yet; they are lost if ecoshell ends before there is room."
)
_QUESTION_LIMIT = 60
"""Characters of a question that identify its turn."""
_OUTPUT_LINES = 20
"""Last lines of a background command's output."""


@SESSION_COMMANDS.add(
    "task",
    "[AGENT] [AMOUNT]: TEXT",
    "let a subagent do a piece of work; without a text, list the agents",
    lambda shell: (f"{name}: " for name, _, _ in shell.deps.agents().rows()),
)
async def _task(shell: Shell, argument: str) -> Printed:
    """`/task Check the links in docs`, `/task reviewer 0.05: Check the last commit`, `/task`."""
    if argument:
        return Printed("", effect="ask", value=f"/task {argument}")
    rows = await asyncio.to_thread(shell.deps.agents().rows)
    if not rows:
        fix = f"{PROJECT_FOLDERS[0]}/NAME.md defines one; /task TEXT needs none."
        return Printed(f"No agent is defined. {fix}")
    cells = [tuple(map(visible_line, row)) for row in rows]
    return Printed(table(("agent", "description", "file"), cells))


@SESSION_COMMANDS.add("sessions", "", "list earlier sessions")
async def _sessions(shell: Shell, argument: str) -> Printed:
    sessions = await asyncio.to_thread(shell.store.list, 20)
    rows = [(info.id, info.updated_text, visible(info.title), info.model) for info in sessions]
    return Printed(table(("session", "last used", "title", "model"), rows))


@SESSION_COMMANDS.add(
    "resume", "ID", "resume a session", lambda shell: (info.id for info in shell.store.list(20))
)
async def _resume(shell: Shell, argument: str) -> Printed:
    await shell.open(required(argument, "/resume ID (see /sessions)"))
    await shell.restore_choices()
    return Printed("", effect="session")


@SESSION_COMMANDS.add("new", "", "start a new session")
async def _new(shell: Shell, argument: str) -> Printed:
    await shell.open()
    kept = "The previous session is kept; /sessions lists it."
    old = kept if await shell.flush() is None else _UNWRITTEN
    return Printed(f"New session {shell.session}. {old}", effect="session")


@SESSION_COMMANDS.add(
    "export",
    "[FILE]",
    "export this session to a new file, as Markdown or, with the suffix .json, as JSON",
    lambda shell: (f"{shell.session}.md", f"{shell.session}.json"),
)
async def _export(shell: Shell, argument: str) -> Printed:
    """`/export`, `/export FILE.md`, `/export FILE.json`."""
    file = Path(shell.workspace, f"{shell.session}.md")
    number = 1
    while not argument and await asyncio.to_thread(file.exists):
        number += 1
        file = file.with_name(f"{shell.session}-{number}.md")
    file = shell.archive.file(argument) if argument else file
    await shell.archive.export(shell.session, file, running=shell.conversation.busy)
    return Printed(f"Exported to {file}.")


@SESSION_COMMANDS.add("undo", "[FILE]", "undo the last turn and its changes to files")
async def _undo(shell: Shell, argument: str) -> Printed:
    """`/undo`, or `/undo FILE` for a file that changed after the turn."""
    if argument:
        undone = await shell.conversation.undo_over(argument)
        name = visible_line(argument)
        if not undone.restored:
            return Printed(f"{name} was not restored; it may be unchanged.")
        return Printed(f"Removed: {name}." if undone.removed else f"Restored: {name}.")
    turn, undone, changed = await shell.conversation.undo()
    return Printed(_undo_text(shell, turn, undone, changed))


@SESSION_COMMANDS.add("retry", "", "undo the last turn and ask its question again")
async def _retry(shell: Shell, argument: str) -> Printed:
    """`/retry`; a custom command runs with its settings again, and an accepted plan under its quote."""
    from ecoshell.agent.plan_mode import accepted_text

    line = shell.conversation.memory.last_turn.line
    if line and await shell.expansion(line) is None:
        word, _ = split_first_word(line)
        fix = "/undo undoes the turn; then ask in other words."
        raise UsageError(f"The command {word} was removed.", kept="Nothing was undone.", fix=fix)
    turn, undone, changed = await shell.conversation.undo()
    text = _undo_text(shell, turn, undone, changed)
    question = turn.line or turn.question
    accepted = accepted_text(shell.conversation.memory.plan, question)
    if accepted is not None and shell.approval_mode != "plan":
        question = await shell.accept_plan(accepted, edits=shell.approval_mode == "edits")
    return Printed(text, effect="ask", value=question, attachments=turn.attachments)


def _undo_text(shell: Shell, turn: PastTurn, undone: TurnUndone, changed: Sequence[Changed]) -> str:
    """What was undone, what was not, and why."""
    question = visible_line(turn.question, _QUESTION_LIMIT)
    lines = [f"Turn {turn.number} is undone: “{question}”. Models no longer see it."]
    if undone.put_back:
        lines.append(f"Restored: {_listed(undone.put_back)}.")
    if undone.removed:
        lines.append(f"Removed, because the turn created them: {_listed(undone.removed)}.")
    if undone.kept:
        why = "they changed later, cannot be written, or have no copy"
        lines.append(f"Not restored, because {why}: {_listed(undone.kept)}.")
    for change in changed:
        name = visible_line(change.path)
        fix = f"To restore it anyway, use /undo {name}, with this effect:"
        lines.append(f"{name} changed later. {fix}")
        lines.append(visible(change.changes) or "(The change is too long, or not text.)")
    writers = _listed(sorted(turn.ran & RESTORABLE))
    if writers and not undone.restored and not undone.kept:
        lines.append(f"No file was restored: {writers} left no change, or too long ago.")
    catalog = shell.deps.catalog
    others = sorted(name for name in turn.ran - RESTORABLE if name in catalog)
    if lasting := [name for name in others if catalog.tool(name).effects & LASTING]:
        lines.append(f"Changes by {_listed(lasting)} cannot be restored.")
    if turn.registered:
        lines.append(f"Registered tools stay registered: {_listed(turn.registered)}.")
    if turn.spent_nano is None:
        lines.append("Its cost, which is unknown, stays spent.")
    elif turn.spent_nano:
        lines.append(f"Its cost of {dollars(turn.spent_nano)} stays spent.")
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(visible_line, names))


@SESSION_COMMANDS.add("todo", "", "show the agent's task list")
async def _todo(shell: Shell, argument: str) -> Printed:
    items = shell.conversation.memory.shown.todo
    if not items:
        return Printed("There is no task list; the agent makes one for longer work.")
    return Printed("\n".join((todo_headline(items), *todo_lines(items))))


@SESSION_COMMANDS.add(
    "background",
    "[ID | stop ID]",
    "list background commands, show the last output of one, or stop it",
    lambda shell: (
        f"{action}{command.id}"
        for command in shell.deps.workspace.background.running
        for action in ("", "stop ")
    ),
)
async def _background(shell: Shell, argument: str) -> Printed:
    """`/background`, `/background b1`, `/background stop b1`."""
    background = shell.deps.workspace.background
    if not argument:
        running = map(_background_line, background.running)
        return Printed("\n".join(running) or "No command runs in the background.")
    action, name = split_first_word(argument)
    try:
        command = background.get(name if action == "stop" else argument)
    except ToolError as error:
        fix = "Write /background, /background b1 or /background stop b1."
        raise UsageError(error.message, fix=fix) from error
    if action == "stop":
        await background.stop(command)
        return Printed(f"{command.id} is {command.state}: {visible_line(command.command)}")
    output = visible(command.output.last_lines(_OUTPUT_LINES)) or "It has printed nothing."
    return Printed(f"{_background_line(command)}\n{output}")


def _background_line(command: BackgroundCommand) -> str:
    return f"{command.id}  {command.state}  {visible_line(command.command)}"


@SESSION_COMMANDS.add("compact", "", "replace all turns with a summary for models")
async def _compact(shell: Shell, argument: str) -> Printed:
    try:
        compacted = await shell.conversation.compact()
    except Stopped:
        return Printed("Stopped. Nothing was compacted; /cost includes the call.")
    reason = "" if compacted.model else " This model is too small for summaries."
    return Printed(f"{compacted.render().words}.{reason} The transcript is unchanged.")


@SESSION_COMMANDS.add("context", "", "show the use of the model's context")
async def _context(shell: Shell, argument: str) -> Printed:
    from ecoshell.agent.context_report import report_text

    return Printed(report_text(await shell.context_report()))


@SESSION_COMMANDS.add(
    "copy", "[N]", "copy the last answer, or the Nth from the end", lambda _: ("1", "2", "3")
)
async def _copy(shell: Shell, argument: str) -> Printed:
    """`/copy`, or `/copy 2` for the answer before the last."""
    answers = shell.conversation.memory.answers
    if argument and (not argument.isdecimal() or int(argument) < 1):
        fix = "Use /copy, or /copy 2 for an earlier answer."
        raise UsageError(f"Unknown argument of /copy: {argument}.", fix=fix)
    back = int(argument or 1)
    if back > len(answers):
        fix = "N counts from the last answer." if answers else "Ask something first."
        raise UsageError(f"This session has {counted(len(answers), 'answer')}.", fix=fix)
    answer = answers[-back]
    subject = "The last answer" if back == 1 else f"Answer {back} from the end"
    text = f"{subject} was copied: {len(answer):,} characters."
    return Printed(text, effect="copy", value=answer)


@SESSION_COMMANDS.add("clear", "", "clear the screen; the session is kept")
async def _clear(shell: Shell, argument: str) -> Printed:
    return Printed("", effect="clear")


@SESSION_COMMANDS.add("quit", "", "leave; the session is kept")
async def _quit(shell: Shell, argument: str) -> Printed:
    return Printed("" if await shell.flush() is None else _UNWRITTEN, effect="quit")
