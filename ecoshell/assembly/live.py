"""Applies changed settings to a running shell."""

import asyncio

from ecoshell.agent.session_settings import SETTING_KEYS
from ecoshell.agent.shell import Shell
from ecoshell.assembly import first_caps, presets_of, roles_of, rules_of, session_settings
from ecoshell.budget import SCOPES, Scope, parse_amount
from ecoshell.budget.gate import finished
from ecoshell.options import ROLES, Options, role_named
from ecoshell.paths import user_paths
from ecoshell.settings.schema import Settings

Path = tuple[str, ...]
AT_ONCE: frozenset[Path] = frozenset(
    {
        ("model",),
        *(("budget", scope) for scope in SCOPES),
        *(tuple(key.split(".")) for key in SETTING_KEYS),
        ("agent", "mode"),
        ("local", "ask_servers"),
        *(("modes", "umi", role) for role in ROLES),
        ("modes", "umi", "preset"),
        ("approval", "allow"),
        ("approval", "deny"),
        ("approval", "ask"),
    }
)
"""The settings that apply at once; all others apply after a restart."""

_MODEL_SETTINGS = ("advisor", "task_model")
"""The fields of SessionSettings that name a model."""


async def apply(shell: Shell, settings: Settings, path: Path, options: Options) -> bool:
    """Apply the value of this key to the shell; returns whether it applies at once.

    A cap removed from the settings stays in the open session. Raises EcoshellError, such as ModelMissing for an
    unavailable model.
    """
    deps, models = shell.deps, shell.deps.models
    match path:
        case ("model",) | ("agent", "mode") | ("modes", *_):
            if shell.conversation.busy:
                return False
            with shell.conversation.occupying():
                if path == ("model",):
                    await models.change(model=settings.model)
                elif path == ("agent", "mode"):
                    await models.change(mode=settings.agent.mode)
                else:
                    role, roles = role_named(path[-1]), roles_of(settings, Options())
                    deps.settings.presets = presets_of(settings)
                    if role is not None:  # a preset sets all roles
                        roles = models.roles.with_role(role, roles.of(role))
                    await models.give(roles)
        case _ if name := SETTING_KEYS.get(".".join(path)):
            value = getattr(session_settings(settings, Options()), name)
            deps.require(name, value)
            if name in _MODEL_SETTINGS and value:
                await asyncio.to_thread(models.lend, value)
            setattr(deps.settings, name, value)
        case ("budget", name):
            shell.first_caps = first_caps(settings, options)
            scope: Scope | None = next((scope for scope in SCOPES if scope == name), None)
            text = None if scope is None else getattr(settings.budget, scope)
            if scope is None or text is None:
                return False
            cap = parse_amount(text)
            # recorded as a setting, so that the next start does not apply it again
            if scope in ("day", "month"):
                await finished(asyncio.to_thread(shell.ledger.adopt_cap, scope, cap))
            await shell.set_cap(scope, cap)
        case ("local", "ask_servers"):
            models.factory.ask_servers = settings.local.ask_servers
        case ("approval", _):
            deps.approvals.rules = rules_of(settings, options, user_paths(), deps.catalog.names)
        case _:
            return False
    return True
