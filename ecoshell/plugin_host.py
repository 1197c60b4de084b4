"""The host of plugins: finds them, asks them for what they add, and leaves out those that fail."""

import errno
import os
import re
import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from ecoshell.errors import EcoshellError, ToolError, closest_word
from ecoshell.messages import META_TOOLS, Call, Observation, ToolDocument, visible_line
from ecoshell.paths import NO_ROOM, is_special
from ecoshell.tools import Tool, ToolOptions, ToolProvider

if TYPE_CHECKING:  # not loaded where there is no plugin that gives such a thing
    from importlib.metadata import Distribution

    from ecoshell.agent.commands import Command as SlashCommand
    from ecoshell.agent.commands import Printed
    from ecoshell.agent.shell import Shell
    from ecoshell.budget import Price
    from ecoshell.models import Model
    from ecoshell.paths import Paths
    from ecoshell.plugins import Command
    from ecoshell.strategies import StrategySpec, Thinking
    from ecoshell.tools.workspace import Workspace

T = TypeVar("T")
State = Literal["on", "commands", "off"]
"""`commands`: it comes with ecoshell, and gives nothing but commands of the command line until the settings name it."""

GROUP = "ecoshell"
"""Of the entry points."""
HOOKS: Mapping[str, str] = {
    "tools": "tool",
    "strategies": "strategy",
    "models": "model",
    "prices": "price",
    "judges": "judge",
    "slash_commands": "slash command",
    "cli_commands": "command",
    "themes": "theme",
}
"""Every hook, and what one thing is called that it gives."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_TOOL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_PREFIX = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}[:/]")
_OURS = ("local:", "hf:", "script:")
"""How the names of models begin that are ecoshell's own."""


@dataclass(slots=True)
class Plugin:
    """A plugin that was found; its module is imported when it is first asked for something."""

    name: str
    place: "Path | str"
    """Its file or folder, or what an entry point names."""
    state: State = "on"
    package: "Distribution | None" = None
    """What was installed, where that has the entry point."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The table `[plugins.NAME]`."""
    fault: str = ""
    """Why it is left out."""
    incomplete: bool = False
    """Whether that is by its own word, as where something is not installed that it needs."""
    _hooks: Mapping[str, Callable[..., Any]] | None = None

    def give(self, hook: str, offered: Mapping[str, Any]) -> Any:
        """What a hook gives, nothing where there is no such hook; raises whatever it raises, or its module."""
        if self._hooks is None:
            from ecoshell.plugins import MARK

            module = _imported(self.place)
            members: dict[str, Any] = {name: getattr(module, name, None) for name in dir(module)}
            found = {name: one for name, one in members.items() if getattr(one, MARK, None) is True}
            if strange := next((name for name in found if name not in HOOKS), ""):
                raise TypeError(f"there is no hook {strange}; did you mean {closest_word(strange, HOOKS) or 'tools'}?")
            self._hooks = found
        if hook not in self._hooks:
            return ()
        import inspect

        wanted = inspect.signature(self._hooks[hook]).parameters
        if strange := next((name for name in wanted if name not in offered), ""):
            raise TypeError(f"{hook}() is given {' and '.join(offered) or 'nothing'}, but asks for {strange}")
        return self._hooks[hook](**{name: offered[name] for name in wanted})


@dataclass(eq=False)
class Plugins:
    """What plugins add. One that fails, when it is imported or in a hook, is named to `warn` once and left out."""

    _found: Sequence[Plugin]
    _warn: Callable[[str], None]

    def commands(self, taken: Collection[str]) -> "dict[str, tuple[str, Command]]":
        """The commands of all plugins by their names, each with its plugin's; none of them has a name that is taken."""
        return self._gathered("cli_commands", taken)

    def tools(
        self, workspace: "Workspace", options: ToolOptions, taken: Collection[str]
    ) -> "tuple[dict[str, tuple[str, Tool]], list[ToolProvider]]":
        """Tools by name, each with its plugin's, and providers."""
        found = self._gathered("tools", {*taken, *META_TOOLS}, workspace=workspace, options=options)
        tools = {name: (plugin, one) for name, (plugin, one) in found.items() if not isinstance(one, _Provider)}
        return tools, [one for _, one in found.values() if isinstance(one, _Provider)]

    def strategies(self, taken: Collection[str]) -> "dict[str, StrategySpec]":
        """Strategies by name."""
        found: dict[str, tuple[str, StrategySpec]] = self._gathered("strategies", taken)
        return {
            name: replace(spec, strategy=partial(_blamed_strategy, plugin, spec))
            for name, (plugin, spec) in found.items()
        }

    def models(self) -> "dict[str, Callable[[str, Price | None], Model]]":
        """What makes models, by the beginning of their names."""
        found: dict[str, tuple[str, Callable[[str, Price | None], Model]]] = self._gathered("models", _OURS)
        return {prefix: partial(_blamed_model, plugin, make) for prefix, (plugin, make) in found.items()}

    def prices(self) -> "dict[str, Price]":
        """Prices by the names of models."""
        return {name: price for name, (_, price) in self._gathered("prices").items()}

    def judges(self, taken: Collection[str]) -> "dict[str, Callable[[str, Call, Observation], bool | None]]":
        """What says whether a result helped, by name."""
        return {name: attribute_faults(plugin)(one) for name, (plugin, one) in self._gathered("judges", taken).items()}

    def slash_commands(self, taken: Collection[str]) -> "list[SlashCommand[Shell]]":
        """Commands of the chats."""
        found: dict[str, tuple[str, SlashCommand[Shell]]] = self._gathered("slash_commands", taken)
        return [
            replace(one, run=partial(_blamed_command, plugin, one), choices=partial(_choices, one))
            for plugin, one in found.values()
        ]

    def theme_folders(self) -> list[Path]:
        """Folders of themes."""
        return [folder for _, folder in self._gathered("themes").values()]

    def _gathered(self, hook: str, taken: Collection[str] = (), **offered: Any) -> dict[str, tuple[str, Any]]:
        """What all plugins give by a hook, by name and each with its plugin's; of a plugin all or nothing."""
        found: dict[str, tuple[str, Any]] = {}
        for plugin in self._found:
            if plugin.fault or plugin.state == "off" or (plugin.state == "commands" and hook != "cli_commands"):
                continue
            own: dict[str, tuple[str, Any]] = {}
            try:
                settings = {"settings": plugin.settings} if offered else {}
                for name, one in _named(hook, plugin.give(hook, offered | settings)):
                    if name in taken or name in found or name in own:
                        raise ValueError(f"there is a {HOOKS[hook]} {name} already")
                    own[name] = plugin.name, one
            except (Exception, SystemExit) as failure:  # noqa: BLE001 - whatever a stranger's code does, the shell goes on
                plugin.incomplete = isinstance(failure, EcoshellError)
                said = str(failure) if plugin.incomplete else f"{type(failure).__name__}: {failure}"
                plugin.fault = visible_line(said)
                self._warn(f"The plugin {plugin.name} is left out: {plugin.fault}")
            else:
                found |= own
        return found


# -- finding them


def find_plugins(
    folder: Path, *, enabled: Collection[str], disabled: Collection[str], settings: Mapping[str, Any]
) -> list[Plugin]:
    """The plugins there are: of installed packages, then those in the user's folder; none is imported.

    `settings` has the settings of plugins by their names.
    """
    from importlib.metadata import distributions

    there: list[Plugin] = []
    seen: set[str] = set()  # of a package that lies on the path twice, the first counts
    for one in distributions():
        with suppress(Exception):  # a fence: a package that cannot be read has no plugin
            if f"[{GROUP}]" in (one.read_text("entry_points.txt") or "") and one.name not in seen:
                seen.add(one.name)
                state: State = "commands" if one.name == GROUP else "on"
                entries = [entry for entry in sorted(one.entry_points) if entry.group == GROUP]
                there += [Plugin(entry.name, entry.value, state, one) for entry in entries]
    with suppress(OSError):
        for entry in sorted(folder.iterdir()):
            package = (entry / "__init__.py").is_file()
            if not entry.name.startswith((".", "_")) and (package or entry.suffix == ".py"):
                there.append(Plugin((entry.name if package else entry.stem).removeprefix("ecoshell_"), entry))
    found: dict[str, Plugin] = {}
    for plugin in there:
        if plugin.name in disabled:
            plugin.state = "off"
        elif plugin.name in enabled:
            plugin.state = "on"
        plugin.settings = settings.get(plugin.name, {})
        found.setdefault(plugin.name, plugin)
    return [*found.values()]


def find_user_plugins(paths: "Paths") -> list[Plugin]:
    """The same, as the settings have it: read before they are checked, which whoever asks for help does not wait for.

    What is wrong with them is told elsewhere.
    """
    import tomllib

    given = {name.replace("__", "_"): text.strip() for name, text in os.environ.items() if name.startswith("ECOSHELL_")}
    file, both = paths.settings_file, dict[str, Any]()
    with suppress(OSError, ValueError, TypeError, RecursionError):  # also of a table that is none
        both |= tomllib.loads(file.read_text(encoding="utf-8-sig")).get("plugins", {}) if file.is_file() else {}
    for key in ("enabled", "disabled"):
        with suppress(ValueError, RecursionError):
            if text := given.get(f"ECOSHELL_PLUGINS_{key.upper()}"):
                both |= tomllib.loads(f"{key} = {text}\n")
    named: dict[str, list[Any]] = {key: value for key, value in both.items() if isinstance(value, list)}
    own: dict[str, dict[str, Any]] = {key: value for key, value in both.items() if isinstance(value, dict)}
    enabled, disabled = named.get("enabled", ()), named.get("disabled", ())
    return find_plugins(paths.plugins_folder, enabled=enabled, disabled=disabled, settings=own)


def _imported(place: "Path | str") -> Any:
    """The module of a file or a package, or what an entry point names."""
    if isinstance(place, str):
        from importlib.metadata import EntryPoint

        return EntryPoint("", place, GROUP).load()
    from importlib.util import module_from_spec, spec_from_file_location

    name, file = (place.name, place / "__init__.py") if place.is_dir() else (place.stem, place)
    if is_special(file):
        raise ImportError(f"{file} is not a file")
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(file):
        return loaded
    if loaded is not None or name in sys.stdlib_module_names:
        raise ImportError(f"there is a module {name} already; give {place} another name")
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


# -- what they give


def _named(hook: str, given: Any) -> Iterator[tuple[str, Any]]:
    """Each thing that a hook has given, with its name; raises for what is none, and for a name that cannot be typed."""
    match hook:
        case "tools":
            for one in given:
                if isinstance(one, Tool):
                    yield _name_of(one), one
                elif hasattr(one, "connect"):
                    yield str(one.name), _Provider(one)
                else:
                    mark = ": mark it with @ecoshell.tool" if callable(one) else ""
                    raise TypeError(f"{getattr(one, '__name__', None) or repr(one)[:60]} is no tool{mark}")
            return
        case "themes":
            if given != () and not Path(given).is_dir():
                raise ValueError(f"there is no folder {given}")
            yield from [] if given == () else [(str(given), Path(given))]
            return
        case "models" | "prices" | "judges":
            from ecoshell.budget import Price

            for name, one in dict(given).items():
                if hook == "models" and not _PREFIX.fullmatch(name):
                    raise ValueError(f"{name!r} is no beginning of a model's name, such as 'echo:'")
                if hook == "prices" and not isinstance(one, Price):
                    raise TypeError(f"{name}: {one!r:.60} is no Price")
                if hook == "judges" and not (_NAME.fullmatch(name) and callable(one)):
                    raise ValueError(f"{name!r:.60}: {one!r:.60} is no judge and its name")
                yield str(name), one
            return
        case "strategies":
            from ecoshell.strategies import StrategySpec as Kind
        case "slash_commands":
            from ecoshell.agent.commands import Command as Kind
        case _:
            from ecoshell.plugins import Command as Kind
    for one in given:
        if not isinstance(one, Kind):
            raise TypeError(f"{one!r:.60} is no {Kind.__module__}.{Kind.__name__}")
        if not isinstance(cast("object", one.name), str) or not _NAME.fullmatch(one.name):
            raise ValueError(f"{one.name!r:.60} is no name: it takes small letters, digits, - and _")
        yield one.name, one


def _name_of(tool: Tool) -> str:
    """The name of a tool that models can be shown; raises whatever its document raises, and ValueError."""
    import json

    document: Any = tool.document
    if not isinstance(document, ToolDocument) or not _TOOL.fullmatch(document.name):
        raise ValueError(f"{getattr(document, 'name', None)!r:.80} is no name of a tool")
    json.dumps(dict(document.parameters))
    listed: tuple[Any, ...] = (document.parameters.get("properties"), document.parameters.get("required"))
    if not isinstance(listed[0] or {}, Mapping) or not isinstance(listed[1] or [], Sequence):
        raise ValueError(f"{document.name}'s parameters are no JSON schema of an object")
    return document.name


class _Provider:
    """A plugin's provider of tools, which raises nothing that it must not raise."""

    def __init__(self, provider: ToolProvider) -> None:
        self.name = str(provider.name)
        self._provider = provider
        self._fault = ""

    @property
    def tools(self) -> Sequence[Tool]:
        return self._told(lambda: [one for one in self._provider.tools if _name_of(one)], [])

    @property
    def known(self) -> bool:
        return self._told(lambda: bool(self._provider.known), True)

    @property
    def status(self) -> str:
        status = self._told(lambda: str(self._provider.status), "")
        return f"failed: {self._fault}" if self._fault else status

    async def connect(self) -> None:
        """Connect it; raises ToolError."""
        try:
            await self._provider.connect()
        except ToolError:
            raise
        except Exception as failure:
            self._fault = visible_line(f"{type(failure).__name__}: {failure}")
            raise ToolError(f"{self.name} failed: {self._fault}.") from failure

    async def aclose(self) -> None:
        with suppress(Exception):  # a fence: the shell ends all the same
            await self._provider.aclose()

    def _told(self, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except Exception as failure:  # noqa: BLE001 - a fence: a stranger's provider fails, and the session goes on
            self._fault = visible_line(f"{type(failure).__name__}: {failure}")
            return otherwise


def _blamed_strategy(plugin: str, spec: "StrategySpec", question: str, max_steps: int) -> "Thinking":
    from ecoshell.strategies import Outcome

    with attribute_faults(plugin):
        outcome = yield from spec.strategy(question, max_steps)
        if not isinstance(cast("object", outcome), Outcome):
            raise TypeError(f"{spec.name} gave {type(outcome).__name__} in the place of Outcome")
        return outcome


def _blamed_model(
    plugin: str, make: "Callable[[str, Price | None], Model]", name: str, price: "Price | None"
) -> "Model":
    from ecoshell.models import Model

    with attribute_faults(plugin):
        model = make(name, price)
        if not isinstance(cast("object", model), Model):
            raise TypeError(f"{model!r:.60} is no model")
        return model


async def _blamed_command(plugin: str, command: "SlashCommand[Shell]", shell: "Shell", argument: str) -> "Printed":
    from ecoshell.agent.commands import Printed

    with attribute_faults(plugin):
        try:
            printed = await command.run(shell, argument)
        except SystemExit as ended:  # as argparse does where it cannot read what was typed
            raise RuntimeError("it tried to end the program") from ended
        if not isinstance(cast("object", printed), Printed):
            raise TypeError(f"/{command.name} gave {type(printed).__name__} in the place of Printed")
        if not isinstance(cast("object", printed.text), str):
            raise TypeError(f"/{command.name} gave Printed({type(printed.text).__name__}) in the place of a text")
        return printed


def _choices(command: "SlashCommand[Shell]", shell: "Shell") -> Sequence[str]:
    try:
        return [str(one) for one in command.choices(shell)]
    except Exception:  # noqa: BLE001 - a fence: what cannot be offered keeps nobody from typing
        return []


@contextmanager
def attribute_faults(plugin: str) -> Generator[None]:
    """A stranger's code at work: a fault in it is told with its place and the plugin's name, and not as one of ours."""
    try:
        yield
    except EcoshellError:
        raise
    except Exception as fault:
        if isinstance(fault, OSError) and fault.errno in {*NO_ROOM, errno.EIO, errno.EPIPE}:
            raise
        import traceback

        place = traceback.extract_tb(fault.__traceback__)[-1]
        raise EcoshellError(
            f"The plugin {plugin} failed: {type(fault).__name__}: {fault} ({place.filename}, line {place.lineno}).",
            fix="It is a fault of the plugin; whoever made it should be told.",
        ) from fault
