"""Finds plugins in installed packages and in the user's folder, and imports them when a hook is called."""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from ecoshell.errors import SettingsError, closest_word
from ecoshell.paths import is_special

if TYPE_CHECKING:  # loaded only if a plugin provides such an object
    from importlib.metadata import Distribution

    from ecoshell.paths import Paths

State = Literal["on", "optional", "commands", "off"]
"""`commands`: a shipped plugin that adds only command line commands until the settings enable it. `optional`: one whose
tools are known by default, unless a library that it needs is not installed."""

ENTRY_POINT_GROUP = "ecoshell"
HOOKS: Mapping[str, str] = {
    "tools": "tool",
    "strategies": "strategy",
    "models": "model",
    "prices": "price",
    "judges": "judge",
    "ledger": "ledger",
    "reply_observers": "reply observer",
    "slash_commands": "slash command",
    "cli_commands": "command",
    "themes": "theme",
    "skills": "folder of skills",
}
"""Every hook, and the word for one of its items in messages."""
ON_BY_DEFAULT = frozenset({"git", "data", "web"})
"""Shipped plugins whose tools are known by name unless the settings disable them."""


@dataclass(slots=True)
class Plugin:
    """A plugin; its module is imported on the first hook call."""

    name: str
    place: "Path | str"
    """Its file or folder, or the value of its entry point."""
    state: State = "on"
    package: "Distribution | None" = None
    """The installed distribution with the entry point."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The table `[plugins.NAME]`."""
    fault: str = ""
    """Why the plugin is disabled; empty if it is not."""
    incomplete: bool = False
    """Whether the plugin reported the fault itself, for example a missing dependency."""
    _hooks: Mapping[str, Callable[..., Any]] | None = None

    def call_hook(self, hook: str, offered: Mapping[str, Any]) -> Any:
        """Return a hook's result, or an empty tuple without such a hook; raises what the hook or its module raises."""
        hooks = self._loaded_hooks()
        if hook not in hooks:
            return ()
        parameters = _parameters(hooks[hook])
        if unknown := next((name for name in parameters if name not in offered), ""):
            received = " and ".join(offered) or "no arguments"
            raise TypeError(f"{hook}() receives {received}, but expects {unknown}")
        return hooks[hook](**{name: offered[name] for name in parameters})

    def has_settings(self) -> bool:
        """Return whether a hook takes the table `[plugins.NAME]`; raises what the module raises."""
        return any("settings" in _parameters(hook) for hook in self._loaded_hooks().values())

    def _loaded_hooks(self) -> Mapping[str, Callable[..., Any]]:
        if self._hooks is None:
            from ecoshell.plugins import MARK

            module = _import_plugin(self.place)
            members: dict[str, Any] = {name: getattr(module, name, None) for name in dir(module)}
            hooks = {
                name: member
                for name, member in members.items()
                if getattr(member, MARK, None) is True
            }
            if unknown := next((name for name in hooks if name not in HOOKS), ""):
                closest = closest_word(unknown, HOOKS) or "tools"
                raise TypeError(f"unknown hook {unknown}; did you mean {closest}?")
            self._hooks = hooks
        return self._hooks


def _parameters(hook: Callable[..., Any]) -> Collection[str]:
    import inspect

    return inspect.signature(hook).parameters


# -- discovery


def find_plugins(
    folder: Path,
    *,
    enabled: Collection[str],
    disabled: Collection[str],
    settings: Mapping[str, Any],
) -> list[Plugin]:
    """Return the plugins of installed packages, then those in the user's folder; imports none.

    `settings` holds the settings of plugins by name.
    """
    candidates = [*_installed_plugins()]
    with suppress(OSError):
        for entry in sorted(folder.iterdir()):
            is_package = (entry / "__init__.py").is_file()
            if not entry.name.startswith((".", "_")) and (is_package or entry.suffix == ".py"):
                name = (entry.name if is_package else entry.stem).removeprefix("ecoshell_")
                candidates.append(Plugin(name, entry))
    plugins: dict[str, Plugin] = {}
    for plugin in candidates:
        if plugin.name in disabled:
            plugin.state = "off"
        elif plugin.name in enabled:
            plugin.state = "on"
        plugin.settings = settings.get(plugin.name, {})
        plugins.setdefault(plugin.name, plugin)
    return [*plugins.values()]


def _installed_plugins() -> Iterator[Plugin]:
    """Yield the plugins of installed packages; the first copy of a package on the path counts."""
    from importlib.metadata import distributions

    packages: set[str] = set()
    for package in distributions():
        with suppress(Exception):  # an unreadable package has no plugin
            points = package.read_text("entry_points.txt") or ""
            if f"[{ENTRY_POINT_GROUP}]" not in points or package.name in packages:
                continue
            packages.add(package.name)
            for entry in sorted(package.entry_points.select(group=ENTRY_POINT_GROUP)):
                state: State = "on"
                if package.name == ENTRY_POINT_GROUP:
                    state = "optional" if entry.name in ON_BY_DEFAULT else "commands"
                yield Plugin(entry.name, entry.value, state, package)


def find_user_plugins(paths: "Paths") -> list[Plugin]:
    """Return the plugins under the user's settings; invalid settings are ignored here and reported elsewhere."""
    from ecoshell.settings import Source, read_bytes

    table: Any = None
    with suppress(SettingsError):
        source = Source(paths.settings_file, read_bytes(paths.settings_file))
        source.add_environment(os.environ)
        table = source.data.get("plugins")
    values = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    names: dict[str, list[Any]] = {
        key: value for key, value in values.items() if isinstance(value, list)
    }
    return find_plugins(
        paths.plugins_folder,
        enabled=names.get("enabled", ()),
        disabled=names.get("disabled", ()),
        settings={key: value for key, value in values.items() if isinstance(value, dict)},
    )


def _import_plugin(place: "Path | str") -> Any:
    """Import the module of a file, a package or an entry point."""
    if isinstance(place, str):
        from importlib.metadata import EntryPoint

        return EntryPoint("", place, ENTRY_POINT_GROUP).load()
    from importlib.util import module_from_spec, spec_from_file_location

    name, file = (place.name, place / "__init__.py") if place.is_dir() else (place.stem, place)
    if is_special(file):
        raise ImportError(f"{file} is not a file")
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(file):
        return loaded
    if loaded is not None or name in sys.stdlib_module_names:
        raise ImportError(f"the module {name} already exists; rename {place}")
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
