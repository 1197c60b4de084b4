"""The plugins that the settings select."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ecoshell.paths import Paths
from ecoshell.plugin_discovery import find_plugins
from ecoshell.plugin_host import Plugins

if TYPE_CHECKING:  # Importing this module must not load pydantic.
    from ecoshell.settings.schema import Settings


def plugins_of(settings: "Settings", paths: Paths, warn: Callable[[str], None]) -> Plugins:
    """Return the user's plugins; `warn` receives a message about each that fails."""
    choice = settings.plugins
    plugins = find_plugins(
        paths.plugins_folder,
        enabled=choice.enabled,
        disabled=choice.disabled,
        settings=choice.model_extra or {},
    )
    return Plugins(plugins, warn)
