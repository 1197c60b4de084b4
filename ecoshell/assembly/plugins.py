"""The plugins that the settings select."""

from collections.abc import Callable

from ecoshell.paths import Paths
from ecoshell.plugin_discovery import find_plugins
from ecoshell.plugin_host import Plugins
from ecoshell.settings.schema import Settings


def plugins_of(settings: Settings, paths: Paths, warn: Callable[[str], None]) -> Plugins:
    """Return the user's plugins; `warn` receives a message about each that fails."""
    choice, folder = settings.plugins, paths.plugins_folder
    plugins = find_plugins(
        folder, enabled=choice.enabled, disabled=choice.disabled, settings=choice.named
    )
    return Plugins(plugins, warn)
