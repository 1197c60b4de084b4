"""What plugins add, from their hooks; a plugin that fails is disabled."""

import errno
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ecoshell.errors import DependencyMissing, EcoshellError, ToolError
from ecoshell.messages import META_TOOLS, ToolSchema, visible_line
from ecoshell.paths import NO_ROOM
from ecoshell.plugin_discovery import HOOKS, Plugin
from ecoshell.tools import Tool, ToolOptions, ToolProvider

if TYPE_CHECKING:  # loaded only if a plugin provides such an object
    from ecoshell.agent.command_table import Command as SlashCommand
    from ecoshell.agent.command_table import Printed
    from ecoshell.agent.judge import JudgeFunction
    from ecoshell.agent.shell import Shell
    from ecoshell.budget import Price
    from ecoshell.budget.ledger import Ledger
    from ecoshell.models import Model
    from ecoshell.models.observed import ReplyObserver
    from ecoshell.paths import Paths
    from ecoshell.plugins import Command
    from ecoshell.strategies import StrategySpec, Thinking
    from ecoshell.tools.workspace import Workspace

T = TypeVar("T")
SHIPPED_JUDGES: Mapping[str, str] = {"train": "classifier"}
"""Judges that `[plan] judge` may name although the plugin that ships them provides only commands otherwise."""
_WITHOUT_ENABLING = ("cli_commands", "ledger")
"""Hooks of shipped plugins that need no `[plugins] enabled`: a command or `[budget] ledger` selects them."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_COMMAND_NAME = re.compile(rf"{_NAME.pattern}(?: {_NAME.pattern})?")
_TOOL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_PREFIX = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}[:/]")
_BUILTIN_PREFIXES = ("local:", "hf:", "script:")
"""Prefixes of ecoshell's own model names."""


@dataclass(eq=False)
class Plugins:
    """What plugins add; a plugin that fails on import or in a hook is reported to `warn` once and disabled."""

    _plugins: Sequence[Plugin]
    _warn: Callable[[str], None]

    def commands(self, reserved: Collection[str]) -> "dict[str, tuple[str, Command]]":
        """Return the commands by name, each with its plugin's name; `reserved` names are refused."""
        return self._collect("cli_commands", reserved)

    def tools(
        self, workspace: "Workspace", options: ToolOptions, reserved: Collection[str]
    ) -> "tuple[dict[str, tuple[str, Tool]], list[ToolProvider]]":
        """Return tools by name, each with its plugin's name, and tool providers."""
        names = {*reserved, *META_TOOLS}
        tools = self._collect("tools", names, workspace=workspace, options=options)
        providers = [name for name, (_, tool) in tools.items() if isinstance(tool, _Provider)]
        return tools, [tools.pop(name)[1] for name in providers]

    def strategies(self, reserved: Collection[str]) -> "dict[str, StrategySpec]":
        """Return strategies by name."""
        return {
            name: replace(spec, strategy=partial(_run_strategy, plugin, spec))
            for name, (plugin, spec) in self._collect("strategies", reserved).items()
        }

    def models(self) -> "dict[str, Callable[[str, Price | None], Model]]":
        """Return model factories by prefix of model names."""
        factories = self._collect("models", _BUILTIN_PREFIXES).items()
        return {prefix: partial(_make_model, plugin, make) for prefix, (plugin, make) in factories}

    def prices(self) -> "dict[str, Price]":
        """Return prices by model name."""
        return {name: price for name, (_, price) in self._collect("prices").items()}

    def judges(self, reserved: Collection[str]) -> "dict[str, JudgeFunction]":
        """Return judges of results by name; one of `SHIPPED_JUDGES` is imported when it first judges."""
        judges: dict[str, JudgeFunction] = {
            name: attribute_faults(plugin)(judge)
            for name, (plugin, judge) in self._collect("judges", reserved).items()
        }
        for plugin in self._plugins:
            name = SHIPPED_JUDGES.get(plugin.name, "")
            if name and plugin.state == "commands" and not plugin.fault:
                judges.setdefault(name, _lazy_judge(plugin, name))
        return judges

    def ledgers(self) -> "dict[str, Callable[[str, Path, str], Ledger]]":
        """Return the functions that open shared ledgers, by URL scheme."""
        return {scheme: opener for scheme, (_, opener) in self._collect("ledger").items()}

    def reply_observers(self, paths: "Paths") -> "list[tuple[str, ReplyObserver]]":
        """Return the observers of replies, each with its plugin's name."""
        return [*self._collect("reply_observers", paths=paths).values()]

    def slash_commands(self, reserved: Collection[str]) -> "list[SlashCommand[Shell]]":
        """Return slash commands."""
        commands: list[SlashCommand[Shell]] = []
        for plugin, command in self._collect("slash_commands", reserved).values():
            run, choices = partial(_run_command, plugin, command), partial(_choices, command)
            commands.append(replace(command, run=run, choices=choices))
        return commands

    def theme_folders(self) -> list[Path]:
        """Return folders of themes."""
        return [folder for _, folder in self._collect("themes").values()]

    def skill_folders(self) -> list[Path]:
        """Return folders of skills."""
        return [folder for _, folder in self._collect("skills").values()]

    def _collect(
        self, hook: str, reserved: Collection[str] = (), **offered: Any
    ) -> dict[str, tuple[str, Any]]:
        """Return the items of a hook by name, each with its plugin's name; a faulty plugin contributes none."""
        collected: dict[str, tuple[str, Any]] = {}
        for plugin in self._plugins:
            is_enabled = plugin.state in ("on", "optional")
            is_enabled = is_enabled or (plugin.state == "commands" and hook in _WITHOUT_ENABLING)
            if plugin.fault or not is_enabled:
                continue
            own: dict[str, tuple[str, Any]] = {}
            try:
                settings = {"settings": plugin.settings} if offered else {}
                for name, item in _named_items(hook, plugin.call_hook(hook, offered | settings)):
                    if name in reserved or name in collected or name in own:
                        raise ValueError(f"the {HOOKS[hook]} {name} already exists")
                    own[name] = plugin.name, item
            except (Exception, SystemExit) as failure:  # noqa: BLE001 - a faulty plugin does not end the shell
                plugin.incomplete = isinstance(failure, EcoshellError)
                kind = "" if plugin.incomplete else f"{type(failure).__name__}: "
                plugin.fault = visible_line(f"{kind}{failure}")
                if plugin.state != "optional" or not isinstance(failure, DependencyMissing):
                    self._warn(f"Plugin {plugin.name} disabled: {plugin.fault}")
            else:
                collected |= own
        return collected


def _named_items(hook: str, result: Any) -> Iterator[tuple[str, Any]]:
    """Yield each item of a hook's result with its name; raises for wrong types and invalid names."""
    match hook:
        case "tools":
            for item in result:
                if isinstance(item, Tool):
                    yield _tool_name(item), item
                elif hasattr(item, "connect"):
                    yield str(item.name), _Provider(item)
                else:
                    hint = ": mark it with @ecoshell.tool" if callable(item) else ""
                    name = getattr(item, "__name__", None) or repr(item)[:60]
                    raise TypeError(f"{name} is not a tool{hint}")
            return
        case "themes" | "skills":
            if result != () and not Path(result).is_dir():
                raise ValueError(f"the folder {result} does not exist")
            yield from [] if result == () else [(str(result), Path(result))]
            return
        case "models" | "prices" | "judges" | "ledger" | "reply_observers":
            from ecoshell.budget import Price

            for name, item in dict(result).items():
                if hook == "models" and not _PREFIX.fullmatch(name):
                    raise ValueError(f"{name!r} is not a prefix of model names, such as 'echo:'")
                if hook == "prices" and not isinstance(item, Price):
                    raise TypeError(f"{name}: {item!r:.60} is not a Price")
                if hook in ("judges", "ledger") and not (_NAME.fullmatch(name) and callable(item)):
                    what = f"a {HOOKS[hook]} with a valid name"
                    raise ValueError(f"{name!r:.60}: {item!r:.60} is not {what}")
                yield str(name), item
            return
        case "strategies":
            from ecoshell.strategies import StrategySpec as Kind
        case "slash_commands":
            from ecoshell.agent.command_table import Command as Kind
        case _:
            from ecoshell.plugins import Command as Kind
    for item in result:
        if not isinstance(item, Kind):
            raise TypeError(f"{item!r:.60} is not an {Kind.__module__}.{Kind.__name__}")
        name_pattern = _COMMAND_NAME if hook == "cli_commands" else _NAME
        if not isinstance(cast("object", item.name), str) or not name_pattern.fullmatch(item.name):
            raise ValueError(f"invalid name {item.name!r:.60}: use small letters, digits, - and _")
        yield item.name, item


def _tool_name(tool: Tool) -> str:
    """Return a tool's name; raises what its schema raises, and ValueError for an invalid schema."""
    import json

    schema: Any = tool.schema
    if not isinstance(schema, ToolSchema) or not _TOOL.fullmatch(schema.name):
        raise ValueError(f"{getattr(schema, 'name', None)!r:.80} is not a valid tool name")
    json.dumps(dict(schema.parameters))
    properties: Any = schema.parameters.get("properties") or {}
    required: Any = schema.parameters.get("required") or []
    if not isinstance(properties, Mapping) or not isinstance(required, Sequence):
        raise ValueError(f"the parameters of {schema.name} are not a JSON schema of an object")
    return schema.name


class _Provider:
    """Wraps a plugin's tool provider and contains its errors."""

    def __init__(self, provider: ToolProvider) -> None:
        self.name = str(provider.name)
        self._provider = provider
        self._fault = ""

    @property
    def tools(self) -> Sequence[Tool]:
        return self._guard(lambda: [tool for tool in self._provider.tools if _tool_name(tool)], [])

    @property
    def known(self) -> bool:
        return self._guard(lambda: bool(self._provider.known), True)

    @property
    def status(self) -> str:
        status = self._guard(lambda: str(self._provider.status), "")
        return f"failed: {self._fault}" if self._fault else status

    async def connect(self) -> None:
        """Connect the provider; raises ToolError."""
        try:
            await self._provider.connect()
        except ToolError:
            raise
        except Exception as failure:
            self._fault = visible_line(f"{type(failure).__name__}: {failure}")
            raise ToolError(f"{self.name} failed: {self._fault}.") from failure

    async def aclose(self) -> None:
        with suppress(Exception):  # a failing plugin does not keep the shell from closing
            await self._provider.aclose()

    def _guard(self, read: Callable[[], T], default: T) -> T:
        try:
            return read()
        except Exception as failure:  # noqa: BLE001 - a failing provider does not end the session
            self._fault = visible_line(f"{type(failure).__name__}: {failure}")
            return default


def _lazy_judge(plugin: Plugin, name: str) -> "JudgeFunction":
    """A judge whose plugin is imported when it first judges."""

    @cache
    def load() -> "JudgeFunction":
        with attribute_faults(plugin.name):
            judge: JudgeFunction = plugin.call_hook("judges", {})[name]
            return attribute_faults(plugin.name)(judge)

    return lambda query, call, observation: load()(query, call, observation)  # noqa: PLW0108 - load() imports


def _run_strategy(plugin: str, spec: "StrategySpec", question: str, max_steps: int) -> "Thinking":
    from ecoshell.strategies import Outcome

    with attribute_faults(plugin):
        outcome = yield from spec.strategy(question, max_steps)
        if not isinstance(cast("object", outcome), Outcome):
            raise TypeError(f"{spec.name} returned {type(outcome).__name__} instead of Outcome")
        return outcome


def _make_model(
    plugin: str, make: "Callable[[str, Price | None], Model]", name: str, price: "Price | None"
) -> "Model":
    from ecoshell.models import Model

    with attribute_faults(plugin):
        model = make(name, price)
        if not isinstance(cast("object", model), Model):
            raise TypeError(f"{model!r:.60} is not a model")
        return model


async def _run_command(
    plugin: str, command: "SlashCommand[Shell]", shell: "Shell", argument: str
) -> "Printed":
    from ecoshell.agent.command_table import Printed

    with attribute_faults(plugin):
        try:
            printed = await command.run(shell, argument)
        except SystemExit as ended:  # raised by argparse for invalid input
            raise RuntimeError("it tried to exit the program") from ended
        if not isinstance(cast("object", printed), Printed):
            raise TypeError(f"/{command.name} returned {type(printed).__name__} instead of Printed")
        if not isinstance(cast("object", printed.text), str):
            kind = type(printed.text).__name__
            raise TypeError(f"/{command.name} returned Printed({kind}) instead of a text")
        return printed


def _choices(command: "SlashCommand[Shell]", shell: "Shell") -> Sequence[str]:
    try:
        return [str(choice) for choice in command.choices(shell)]
    except Exception:  # noqa: BLE001 - failing completion does not prevent typing
        return []


@contextmanager
def attribute_faults(plugin: str) -> Generator[None]:
    """Report an exception in a plugin's code with the plugin's name and the place of the fault."""
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
            fix="Report it to the plugin's author.",
        ) from fault
