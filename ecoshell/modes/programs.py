"""One program in the place of many calls (CodeAct, arXiv 2402.01030): what a weak model does with files it is named.

What it writes is run, and what that prints is the answer. A program that only defines what a named file of Python
defines is that file's new text: it is written there, and another named file that imports it is run to see whether it
is right.
"""

import ast
import re
from collections.abc import Callable
from pathlib import PurePosixPath

from ecoshell.agent.model_set import View
from ecoshell.messages import Attachment, Call, Message
from ecoshell.models import Reply, Request
from ecoshell.modes import prompt
from ecoshell.strategies import Step, Thought, same

_RUN, _WRITE = "run_python", "write_file"
_MOST = 3
"""Programs that are written for one request, each after another failure of the one before it."""
_MOST_PRINTED = 2_000
"""Characters of what a program printed that are its answer."""
_PYTHON = re.compile(r"```(?:python|py)?\n(.+?)(?:```|\Z)", re.DOTALL)
_TRYING = "import runpy, sys\nsys.path.insert(0, {folder!r})\nrunpy.run_path({file!r}, run_name='__main__')"
"""A program that runs another file as Python itself would."""
_TESTS = re.compile(r"^(?:(?:async )?def test_|class Test)", re.MULTILINE)
"""What does nothing where it is only run."""
_DEFINING = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
    *(ast.Assign, ast.AnnAssign),
)
_DEFINED = re.compile(r"^(?:async def|def|class) (\w+)", re.MULTILINE)
"""Also in a file that cannot be parsed."""


def by_program(
    view: View, conclusion: Callable[[], Request], *, max_tokens: int, temperature: float | None
) -> Thought | Request | None:
    """What is done next of a request on files: a run, or an answer; or the ask for a program, or for the answer.

    What a program printed is the answer, unless that is nothing or very much: then the model is asked, by the
    `conclusion`. None where no program may be written: something else was done, or the same failure came twice. The ask
    holds no document of a tool and no earlier turn: what a weak model needs is the beginnings of the files.
    """
    steps = view.path.steps
    usable = {document.name for document in view.registered} - view.forbidden
    if _RUN not in usable or view.closed or view.tried:
        return None
    ours = all(step.call.name in (_RUN, _WRITE) and not step.observation.refused for step in steps)
    done = any(step.call.name == _RUN and step.observation.ok for step in steps[:-1])
    failures = [step.observation.text for step in steps if not step.observation.ok]
    open_ = len(failures) < _MOST and len(set(failures)) == len(failures)
    if not ours or done or not open_:
        return None
    last = steps[-1] if steps else None
    if last is not None and last.call.name == _WRITE and last.observation.ok:
        # what imports it is run, unless that was tried before
        written_before = any(same(step.call, last.call) for step in steps[:-1])
        trial = None if written_before else _trial(str(last.call.arguments.get("path", "")), view)
        return None if trial is None else Thought("", trial)
    if last is not None and last.observation.ok:
        said = "" if _tries(last) else last.observation.text.strip()
        told = said and len(said) <= _MOST_PRINTED and not said.startswith("[no output")
        return Thought(said) if told and not last.observation.truncated else conclusion()
    files = "\n\n".join(f"{one.name} begins:\n{one.text}" for one in view.attachments)
    messages = [Message("system", prompt("program")), Message("user", f"{files}\n\n{view.path.question}")]
    for step in steps:
        if not _tries(step):
            code = step.call.arguments.get("content" if step.call.name == _WRITE else "code", "")
            messages.append(Message("assistant", f"```python\n{code}\n```"))
        if not step.observation.ok:
            # the file that was tried is asked for, where that is one, and else the program
            code = str(step.call.arguments.get("code"))
            sources = [one.name for one in view.attachments if one.name.endswith(".py") and _trial(one.name, view)]
            tried = _tries(step) or any(_imports(name, code) for name in sources)
            again = prompt("program_again")
            if tried and len(sources) == 1:
                again = prompt("program_file").format(file=sources[0])
            messages.append(Message("user", f"{step.observation.text}\n\n{again}"))
    return Request(tuple(messages), want="text", max_tokens=max_tokens, temperature=temperature)


def program_in(reply: Reply, view: View) -> Call | None:
    """The program in a reply, as a call; None where there is none, and where it was run or written already.

    One that defines all that a named file does, and does nothing else, is that file's new text: what comes after an
    import of that very file is no part of it, and of several files it is one that would be changed. Where it defines
    what is there already, what tries that file is run, and says what is wrong.
    """
    found = _PYTHON.search(reply.text)
    code = found[1].strip() if found else ""
    for one in view.attachments:
        code = code.partition(f"\n{one.name} begins:")[0].rstrip()  # copied from the request
    if not code:
        return None
    call = Call(_RUN, {"code": code})
    defining: list[tuple[Attachment, str]] = []
    for file in view.attachments if _WRITE in {document.name for document in view.registered} - view.forbidden else ():
        defined = set(_DEFINED.findall(file.text))
        if file.name.endswith(".py") and defined and not file.text.rpartition("\n")[2].startswith("[cut: "):
            text = _definitions(code, PurePosixPath(file.name).stem)
            if defined <= set(_DEFINED.findall(text)):
                defining.append((file, text))
    if changed := next((one for one in defining if _changes(one[0].text, one[1])), None):
        call = Call(_WRITE, {"path": changed[0].name, "content": changed[1]})
    elif defining:
        call = _trial(defining[0][0].name, view) or call
    return None if any(same(step.call, call) for step in view.path.steps) else call


def _tries(step: Step) -> bool:
    return str(step.call.arguments.get("code", "")).startswith(_TRYING.partition("{")[0])


def _trial(name: str, view: View) -> Call | None:
    """The run of a named file that imports this one, and does more than to define tests."""
    others = [one for one in view.attachments if one.name.endswith(".py") and one.name != name]
    tries = (one.name for one in others if _imports(name, one.text))
    silent = {one.name for one in others if _TESTS.search(one.text) and "__main__" not in one.text}
    file = next((one for one in tries if one not in silent), "")
    return Call(_RUN, {"code": _TRYING.format(folder=str(PurePosixPath(file).parent), file=file)}) if file else None


def _imports(name: str, code: str) -> bool:
    """Whether a program imports the module that this file is."""
    return bool(re.search(rf"^(?:from|import) {re.escape(PurePosixPath(name).stem)}\b", code, re.MULTILINE))


def _changes(old: str, new: str) -> bool:
    """Whether a program defines something else than another under one of its names."""
    before, after = _parts(old), _parts(new)
    return before is None or after is None or any(after.get(name) != before.get(name) for name in ("", *before))


def _definitions(code: str, module: str) -> str:
    """A program up to where it imports this module; empty for one that does anything before, or cannot be parsed."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    for statement in body:
        imported: list[str] = []
        if isinstance(statement, ast.ImportFrom):
            imported = [statement.module or ""]
        elif isinstance(statement, ast.Import):
            imported = [one.name for one in statement.names]
        if module in imported:
            lines = code.splitlines()[: statement.lineno - 1]
            while lines and (not lines[-1].strip() or lines[-1].startswith("#")):
                lines.pop()
            return "".join(f"{line}\n" for line in lines)
        text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not text and not isinstance(statement, _DEFINING):
            return ""
    return f"{code}\n"


def _parts(code: str) -> dict[str, str] | None:
    """What a program consists of, by the names of its functions and classes; None for what cannot be parsed."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    parts: dict[str, str] = {}
    for statement in body:
        name = getattr(statement, "name", "")
        parts[name] = parts.get(name, "") + ast.dump(statement)
    return parts
