"""Makes the pages of docs/reference: settings, commands, events and hooks from the program, and plugins' tutorial."""

import argparse
import inspect
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from ecoshell import plugins
from ecoshell.agent.command_list import COMMANDS
from ecoshell.cli.manage.events import PRINTED, events_schema
from ecoshell.cli.parser import build_parser
from ecoshell.settings.overview import typed_value
from ecoshell.settings.schema import descriptions, section_words
from ecoshell.tui.commands import CHAT_COMMANDS

MADE = "<!-- made by `make docs` from the program -->"
_HELP = ("-h", "--help")


def settings() -> Iterator[str]:
    """Every setting, by its table."""
    yield "What the file is and how it is changed is in [configuration](../configuration.md)."
    about, table = section_words(), None
    for one in descriptions().values():
        if one.path[0] != table:
            table = one.path[0]
            yield from (f"## {table}", about.get(table, ""), "| key | default | |\n|---|---|---|")
        values = f" One of {', '.join(map(code, one.choices))}." if one.kind == "choice" else ""
        default = typed_value(one.default)
        yield row(code(one.key), code(default) if default else "", one.text + values)


def slash_commands() -> Iterator[str]:
    """Every command of the chat."""
    yield "What is done with them is in [the chat](../chat.md). A plugin may bring others."
    yield "| command | |\n|---|---|"
    for typed, about in sorted({**dict(COMMANDS.overview()), **dict(CHAT_COMMANDS.overview())}.items()):
        yield row(code(typed), f"{about[:1].upper()}{about[1:]}.")


def command_line() -> Iterator[str]:
    """Every command and every option, those of the plugins that come with the program included."""
    parser = build_parser()
    parser.add_plugins()
    for command in parser.commands.choices.values():
        command.load()
    yield from _of_parser(parser, "ecoshell")


def events() -> Iterator[str]:
    """Every kind of line that `ask --json` prints."""
    schema = events_schema()
    yield f"{schema['description']} How it is used is in [JSON](../json.md); `ecoshell events --schema` has the schema."
    for name, kind in PRINTED.items():
        one = schema["$defs"][kind.__name__]
        yield from (f"## {name}", one["description"], *_fields(one))
    yield "## Objects in fields"
    for name in sorted(schema["$defs"].keys() - {kind.__name__ for kind in PRINTED.values()}):
        one = schema["$defs"][name]
        yield from (f"### {name}", one.get("description", ""), *_fields(one))


def hooks() -> Iterator[str]:
    """Every hook of a plugin, and what it may return."""
    yield inspect.getdoc(plugins) or ""
    for name, function in vars(plugins.Hooks).items():
        if not name.startswith("_") and inspect.isfunction(function):
            yield _source(name, function)
    for name, kind in vars(plugins).items():
        if is_dataclass(kind) and kind.__module__ == plugins.__name__:
            yield _source(name, kind)


def tutorial() -> Iterator[str]:
    """The tutorial of plugins, which stands beside them."""
    text = (Path(__file__).parent.parent / "plugins" / "README.md").read_text(encoding="utf-8")
    yield text.partition("\n")[2].replace("../ecoshell/plugins.py", "hooks.md").replace("../docs/", "../").strip()


PAGES = {
    "settings.md": ("Settings", settings),
    "slash-commands.md": ("Slash commands", slash_commands),
    "command-line.md": ("The command line", command_line),
    "events.md": ("Events", events),
    "hooks.md": ("Hooks of plugins", hooks),
    "plugins.md": ("Plugins", tutorial),
}


def page(name: str) -> str:
    """A page as it has to be."""
    title, parts = PAGES[name]
    return f"{MADE}\n\n# {title}{_joined(parts())}\n"


def code(text: str) -> str:
    """Text as it is typed, in a table."""
    return f"`{text.replace('|', chr(92) + '|')}`"


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"


def _joined(parts: Iterable[str]) -> str:
    """Rows of a table stand together, anything else apart."""
    text = ""
    for part in filter(None, parts):
        text += ("\n" if part.startswith("| ") and text.endswith("|") else "\n\n") + part
    return text


def _of_parser(
    parser: argparse.ArgumentParser, name: str, about: str = "", shared: Container[str] = ()
) -> Iterator[str]:
    """A command and those below it; `shared` are options that are told of elsewhere."""
    told = [one for one in parser._actions if one.help != argparse.SUPPRESS and tuple(one.option_strings) != _HELP]
    below = [one for one in told if isinstance(one, argparse._SubParsersAction)]
    own = [one for one in told if one not in below and not shared_with(one, shared)]
    yield f"{'#' * min(4, 1 + len(name.split()))} `{name}`"
    yield parser.description or f"{about[:1].upper()}{about[1:]}."
    if len(own) + len(below) < len(told):
        yield "Takes the options of `ecoshell`, and:" if own else "Takes the options of `ecoshell`."
    if own:
        yield "| | |\n|---|---|"
        yield from (row(code(_typed(one)), (one.help or "") % {**vars(one), "prog": name}) for one in own)
    options = {option for one in own for option in one.option_strings} if name == "ecoshell" else shared
    for commands in below:
        words = {one.dest: one.help or "" for one in commands._choices_actions}
        for one, command in commands.choices.items():
            yield from _of_parser(command, f"{name} {one}", words.get(one, ""), options)


def shared_with(action: argparse.Action, shared: Container[str]) -> bool:
    """Whether an option is one of these."""
    return bool(action.option_strings) and all(option in shared for option in action.option_strings)


def _typed(action: argparse.Action) -> str:
    """An argument as it is typed."""
    shown = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    value = "" if action.nargs == 0 else " ".join(shown) if isinstance(shown, tuple) else shown
    if action.nargs in ("*", "+"):
        value += " …"
    return f"{', '.join(action.option_strings)} {value}".strip() if action.option_strings else value


def _fields(one: Mapping[str, Any]) -> Iterator[str]:
    yield "| field | type | |\n|---|---|---|"
    for name, field in one["properties"].items():
        yield row(code(name), _type(field), field.get("description", ""))


def _type(field: Mapping[str, Any]) -> str:
    """The type of a field in words."""
    if "$ref" in field:
        return field["$ref"].rpartition("/")[2]
    if "const" in field:
        return code(f'"{field["const"]}"')
    if "enum" in field:
        return ", ".join(code(f'"{value}"') for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(map(_type, field["anyOf"]))
    if field.get("type") == "array":
        inner = field.get("items") or next(iter(field.get("prefixItems", ())), {})
        return f"list of {_type(inner)}" if inner else "list"
    return str(field.get("type", "anything"))


def _source(name: str, of: Any) -> str:
    return f"## {name}\n\n```python\n{dedent(inspect.getsource(of)).strip()}\n```"


def main(folder: Path) -> None:
    """Write every page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        (folder / name).write_text(page(name), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
