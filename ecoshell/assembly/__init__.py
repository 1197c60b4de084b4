"""Settings become objects; no other package does this."""

from ecoshell.assembly.plugins import plugins_of, selected_plugins
from ecoshell.assembly.prices import base_url, price_book
from ecoshell.assembly.run_settings import (
    first_caps,
    presets_of,
    roles_of,
    rules_of,
    session_settings,
)
from ecoshell.assembly.stores import (
    experience_of,
    load_settings,
    open_ledger,
    open_store,
    profiles_of,
    undo_log,
)
from ecoshell.assembly.tools import (
    plugin_tools,
    priced,
    server_of,
    servers_of,
    similar_tool,
    sources_of,
    tool_named,
    tool_options,
    tools_of,
    usable_skills,
)

__all__ = [
    "base_url",
    "experience_of",
    "first_caps",
    "load_settings",
    "open_ledger",
    "open_store",
    "plugin_tools",
    "plugins_of",
    "presets_of",
    "price_book",
    "priced",
    "profiles_of",
    "roles_of",
    "rules_of",
    "selected_plugins",
    "server_of",
    "servers_of",
    "session_settings",
    "similar_tool",
    "sources_of",
    "tool_named",
    "tool_options",
    "tools_of",
    "undo_log",
    "usable_skills",
]
