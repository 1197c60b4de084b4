"""The plugins that the settings select."""

from collections.abc import Callable

from ecoshell.paths import Paths
from ecoshell.plugin_discovery import Plugin, find_plugins
from ecoshell.plugin_host import Plugins
from ecoshell.settings.schema import Settings


def plugins_of(settings: Settings, paths: Paths, warn: Callable[[str], None]) -> Plugins:
    """Return the user's plugins; `warn` receives a message about each that fails."""
    return Plugins(selected_plugins(settings, paths), warn)


def selected_plugins(settings: Settings, paths: Paths) -> list[Plugin]:
    """Return all plugins, each with the state and the settings that it has under these settings; imports none."""
    choice, folder = settings.plugins, paths.plugins_folder
    return find_plugins(
        folder, enabled=choice.enabled, disabled=choice.disabled, settings=choice.named
    )
