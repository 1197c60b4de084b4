"""What a run starts with: settings that a session can change, caps, rules and roles."""

import functools
from collections.abc import Container
from typing import Any

from ecoshell.agent.rules import Rules, full_rule
from ecoshell.agent.session_settings import SETTING_KEYS, SessionSettings
from ecoshell.budget import Amount, Scope, parse_amount
from ecoshell.options import NO_ROLE_MODELS, Options, RoleModels
from ecoshell.paths import Paths
from ecoshell.settings.schema import RoleSettings, Settings
from ecoshell.tools.workspace import workspace_folder


def session_settings(settings: Settings, options: Options) -> SessionSettings:
    """Return the settings that a session can change; options of the run take precedence."""
    values: dict[str, Any] = {}
    for key, name in SETTING_KEYS.items():
        value: Any = getattr(options, name, None)
        if value is None:
            value = functools.reduce(getattr, key.split("."), settings)
        if name.endswith("_nano"):
            value = None if value in (None, "off") else parse_amount(value).value
        values[name] = value
    presets, models = presets_of(settings), tuple(settings.models.named)
    return SessionSettings(**values, presets=presets, named_models=models)


def first_caps(settings: Settings, options: Options) -> dict[Scope, Amount]:
    """Return the caps that each session starts with; `--budget` takes precedence."""
    session = options.budget or settings.budget.session
    texts: dict[Scope, str | None] = {"turn": settings.budget.turn, "session": session}
    return {scope: parse_amount(text) for scope, text in texts.items() if text is not None}


def rules_of(settings: Settings, options: Options, paths: Paths, tools: Container[str]) -> Rules:
    """Return the approval rules of the settings and the options; `tools` holds the names of all tools."""
    approval, models = settings.approval, settings.models.named
    full = functools.partial(full_rule, tools=tools)
    trusted = {name: model.trusted for name, model in models.items() if model.trusted is not None}
    return Rules(
        allow=tuple(map(full, approval.allow)),
        ask=tuple(map(full, approval.ask)),
        deny=tuple(map(full, approval.deny)),
        read_only=options.read_only,
        yes=options.yes,
        force=options.force,
        trusted=trusted,
        workspace=workspace_folder(options.workspace),
        auto_accept=settings.sandbox.auto_accept,
        network=settings.sandbox.network,
        outside=settings.sandbox.outside,
        own=(paths.config, paths.data),
    )


def presets_of(settings: Settings) -> dict[str, RoleModels]:
    """Return the presets of role models by name."""
    presets = settings.modes.umi.presets
    return {name: _role_models(preset).over(NO_ROLE_MODELS) for name, preset in presets.items()}


def roles_of(settings: Settings, options: Options) -> RoleModels:
    """Return the models of roles: from the options, else the role's setting, else the preset."""
    umi = settings.modes.umi
    preset = NO_ROLE_MODELS if umi.preset is None else presets_of(settings)[umi.preset]
    return options.roles.over(_role_models(umi).over(preset))


def _role_models(roles: RoleSettings) -> RoleModels:
    return RoleModels(roles.planner, roles.caller, roles.summarizer)
