"""One program instead of many calls (CodeAct, arXiv 2402.01030), for small models and requests about named files.

The program is run, and its output is the answer. A program that only contains the definitions of a named Python file
is taken as that file's new text: it is written to the file, and another named file that imports it is run as a test.
"""

import ast
import re
from collections.abc import Callable
from pathlib import PurePosixPath

from ecoshell.agent.view import View
from ecoshell.messages import Call, Message
from ecoshell.models import Reply, Request
from ecoshell.modes.requests import prompt
from ecoshell.strategies import Step, Thought, same

_RUN, _WRITE = "run_python", "write_file"
_ATTEMPT_LIMIT = 3  # programs per request, each after a different failure
_OUTPUT_CHARACTERS = 2_000  # longer output is not used as the answer
_PYTHON = re.compile(r"```(?:python|py)?\n(.+?)(?:```|\Z)", re.DOTALL)
_TRIAL = "import runpy, sys\nsys.path.insert(0, {folder!r})\nrunpy.run_path({file!r}, run_name='__main__')"
"""A program that runs another file as Python would."""
_TESTS = re.compile(r"^(?:(?:async )?def test_|class Test)", re.MULTILINE)
"""Tests, which do nothing when their file is run as a program."""
_DEFINITIONS = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
    *(ast.Assign, ast.AnnAssign),
)
_DEFINED_NAME = re.compile(r"^(?:async def|def|class) (\w+)", re.MULTILINE)
"""Works for files that cannot be parsed, too."""


def by_program(
    view: View, conclusion: Callable[[], Request], *, max_tokens: int, temperature: float | None
) -> Thought | Request | None:
    """The next step for a request about files: a run or an answer, or a request for a program or for the answer.

    The output of a program is the answer unless it is empty or very long; then the `conclusion` asks for one. None if
    a program does not apply: other calls were made, or the same failure occurred twice. The request contains neither
    schemas nor earlier turns, only the beginnings of the files.
    """
    steps = view.path.steps
    names = view.usable if view.presentation.by_call else [tool.name for tool in view.registered]
    usable = set(names) - view.forbidden
    if _RUN not in usable or view.closed or view.siblings:
        return None
    by_programs = all(
        step.call.name in (_RUN, _WRITE) and not step.observation.refused for step in steps
    )
    done = any(step.call.name == _RUN and step.observation.ok for step in steps[:-1])
    failures = [step.observation.text for step in steps if not step.observation.ok]
    can_retry = len(failures) < _ATTEMPT_LIMIT and len(set(failures)) == len(failures)
    if not by_programs or done or not can_retry:
        return None
    last = steps[-1] if steps else None
    if last is None or not last.observation.ok:
        return _program_request(view, max_tokens=max_tokens, temperature=temperature)
    if last.call.name == _WRITE:
        written_before = any(same(step.call, last.call) for step in steps[:-1])
        trial = None if written_before else _trial(str(last.call.arguments.get("path", "")), view)
        return None if trial is None else Thought("", trial)
    output = "" if _is_trial(last) else last.observation.text.strip()
    is_answer = output and len(output) <= _OUTPUT_CHARACTERS and not output.startswith("[no output")
    return Thought(output) if is_answer and not last.observation.truncated else conclusion()


def _program_request(view: View, *, max_tokens: int, temperature: float | None) -> Request:
    """The request for a program, with the programs so far and their failures."""
    files = "\n\n".join(f"{file.name} begins:\n{file.text}" for file in view.attachments)
    messages = [
        Message("system", prompt("program")),
        Message("user", f"{files}\n\n{view.path.question}"),
    ]
    for step in view.path.steps:
        if not _is_trial(step):
            code = step.call.arguments.get("content" if step.call.name == _WRITE else "code", "")
            messages.append(Message("assistant", f"```python\n{code}\n```"))
        if not step.observation.ok:
            # if the only Python file that others import was tested, ask for that file
            code = str(step.call.arguments.get("code"))
            sources = [
                file.name
                for file in view.attachments
                if file.name.endswith(".py") and _trial(file.name, view)
            ]
            tests_file = _is_trial(step) or any(_imports(name, code) for name in sources)
            instruction = prompt("program_again")
            if tests_file and len(sources) == 1:
                instruction = prompt("program_file").format(file=sources[0])
            messages.append(Message("user", f"{step.observation.text}\n\n{instruction}"))
    return Request(tuple(messages), want="text", max_tokens=max_tokens, temperature=temperature)


def program_in(reply: Reply, view: View) -> Call | None:
    """The program in a reply as a call; None without a program, or if the same call was made already.

    A program that contains only definitions, among them all of a named file's, is that file's new text, up to an import
    of that file; among several files, the one it changes. If it changes none, the file's test is run.
    """
    block = _PYTHON.search(reply.text)
    code = block[1].strip() if block else ""
    for file in view.attachments:
        code = code.partition(f"\n{file.name} begins:")[0].rstrip()  # copied from the request
    if not code:
        return None
    call = Call(_RUN, {"code": code})
    may_write = _WRITE in {schema.name for schema in view.registered} - view.forbidden
    sources = [file for file in view.attachments if may_write and file.name.endswith(".py")]
    rewritten: list[str] = []
    changed: list[Call] = []
    for file in sources:
        names = set(_DEFINED_NAME.findall(file.text))
        is_whole = not file.text.rpartition("\n")[2].startswith("[cut: ")
        text = _definitions(code, PurePosixPath(file.name).stem)
        if names and is_whole and names <= set(_DEFINED_NAME.findall(text)):
            rewritten.append(file.name)
            if _changes(file.text, text):
                changed.append(Call(_WRITE, {"path": file.name, "content": text}))
    if changed:
        call = changed[0]
    elif rewritten:
        call = _trial(rewritten[0], view) or call
    return None if any(same(step.call, call) for step in view.path.steps) else call


def _is_trial(step: Step) -> bool:
    return str(step.call.arguments.get("code", "")).startswith(_TRIAL.partition("{")[0])


def _trial(name: str, view: View) -> Call | None:
    """The run of another named file that imports this one and does more than define tests."""
    files = [file for file in view.attachments if file.name.endswith(".py") and file.name != name]
    importers = [file for file in files if _imports(name, file.text)]
    trial = next(
        (file for file in importers if not _TESTS.search(file.text) or "__main__" in file.text),
        None,
    )
    if trial is None:
        return None
    return Call(
        _RUN, {"code": _TRIAL.format(folder=str(PurePosixPath(trial.name).parent), file=trial.name)}
    )


def _imports(name: str, code: str) -> bool:
    """Whether a program imports the module in this file."""
    return bool(
        re.search(rf"^(?:from|import) {re.escape(PurePosixPath(name).stem)}\b", code, re.MULTILINE)
    )


def _changes(old: str, new: str) -> bool:
    """Whether a program changes any of another's definitions."""
    old_parts, new_parts = _parts(old), _parts(new)
    if old_parts is None or new_parts is None:
        return True
    return any(new_parts.get(name) != old_parts.get(name) for name in ("", *old_parts))


def _definitions(code: str, module: str) -> str:
    """A program up to its import of `module`; empty if it contains more than definitions, or cannot be parsed."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    for statement in body:
        modules: list[str] = []
        if isinstance(statement, ast.ImportFrom):
            modules = [statement.module or ""]
        elif isinstance(statement, ast.Import):
            modules = [alias.name for alias in statement.names]
        if module in modules:
            lines = code.splitlines()[: statement.lineno - 1]
            while lines and (not lines[-1].strip() or lines[-1].startswith("#")):
                lines.pop()
            return "".join(f"{line}\n" for line in lines)
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_text and not isinstance(statement, _DEFINITIONS):
            return ""
    return f"{code}\n"


def _parts(code: str) -> dict[str, str] | None:
    """The statements of a program by the names of its functions and classes; None if it cannot be parsed."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    parts: dict[str, str] = {}
    for statement in body:
        name = getattr(statement, "name", "")
        parts[name] = parts.get(name, "") + ast.dump(statement)
    return parts
