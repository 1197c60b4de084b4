"""`ecoshell bench speed --path`: the code that one question with one tool call runs through.

The child process (`python -m ecoshell_bench.speed.path`) runs `ecoshell ask` with a scripted model and counts calls of
named functions in the package `ecoshell`, in all threads, from the start of the turn to its end. Resuming a generator
or a coroutine counts as a call; lambdas, comprehensions and imports do not count. The environment has one API key, as
that of a user who pays: events and prompts are searched for it.
"""

import inspect
import io
import json
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager, redirect_stdout
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import ecoshell
from ecoshell.errors import EcoshellError
from ecoshell.events import CallFinished, Event
from ecoshell.secrecy import SECRET_NAME
from ecoshell_bench.speed.measuring import completed, new_home

PACKAGE = Path(ecoshell.__file__).parent
QUESTION = "What is on the list in notes.txt?"
_SCRIPT = (
    {"call": {"name": "read_file", "arguments": {"path": "notes.txt"}}},
    {"text": "Milk and bread."},
)
_KEY = {"OPENAI_API_KEY": "sk-not-a-real-key"}


def measure_path() -> dict[str, Any]:
    """Return the number of files, distinct functions and calls, in total, for each file and for each function."""
    with new_home() as home:
        (home.folder / "notes.txt").write_text("milk\nbread\n", encoding="utf-8")
        model = home.scripted(*_SCRIPT)
        options = ("--model", model, "--workspace", str(home.folder))
        command = (sys.executable, "-m", __name__, "ask", QUESTION, *options)
        environ = {
            name: value for name, value in home.environ.items() if not SECRET_NAME.search(name)
        }
        return json.loads(completed(command, {**environ, **_KEY}))


class CallCounter:
    """A profile function that counts calls of a package's named functions while it is `active`."""

    def __init__(self, package: Path) -> None:
        self.active = False
        self.calls = Counter[CodeType]()
        self._prefix = f"{package}/"

    @contextmanager
    def counting(self) -> Generator[None]:
        """Count the calls of this thread, and of all threads started after threading.setprofile."""
        self.active = True
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.active = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a call; see sys.setprofile."""
        if not self.active or event != "call":
            return
        code = frame.f_code
        is_class_body = not code.co_flags & inspect.CO_NEWLOCALS
        is_named = not code.co_name.startswith("<")  # unlike <module>, <lambda>, <listcomp>
        if is_named and not is_class_body and code.co_filename.startswith(self._prefix):
            self.calls[code] += 1

    def record(self) -> dict[str, Any]:
        """Return the totals, and a row for each file and each function, the most calls first."""
        calls, functions = Counter[str](), Counter[str]()
        by_function: list[dict[str, Any]] = []
        for code, count in self.calls.most_common():
            file = code.co_filename.removeprefix(self._prefix)
            calls[file] += count
            functions[file] += 1
            by_function.append({"file": file, "function": code.co_qualname, "calls": count})
        rows = [
            {"file": file, "functions": functions[file], "calls": count}
            for file, count in calls.most_common()
        ]
        return {
            "files": len(rows),
            "functions": len(self.calls),
            "calls": calls.total(),
            "rows": rows,
            "by_function": by_function,
        }


def main() -> None:
    """Run the command of `sys.argv` and print the counts of its turn as JSON."""
    counter = CallCounter(PACKAGE)
    threading.setprofile(counter)  # before the command starts any thread
    from ecoshell.agent.shell import Shell
    from ecoshell.cli import main as run_command

    ask, tool_results = Shell.ask, list[bool]()

    async def counted(self: Shell, *question: Any, **options: Any) -> AsyncGenerator[Event]:
        with counter.counting():
            async with aclosing(ask(self, *question, **options)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, CallFinished):
                        tool_results.append(event.ok)

    Shell.ask = counted
    with redirect_stdout(io.StringIO()):
        status = run_command(sys.argv[1:])
    if status != 0 or tool_results != [True]:
        raise EcoshellError(f"The turn ended with status {status} and tool results {tool_results}.")
    sys.stdout.write(json.dumps(counter.record()))


if __name__ == "__main__":
    main()
