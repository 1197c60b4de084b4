"""Settings that were changed while a shell runs, made to hold in it where they can."""

from typing import TYPE_CHECKING

from ecoshell.agent.dependencies import Kit
from ecoshell.agent.shell import Shell
from ecoshell.assembly.parts import ask_above, presets_of, roles_of, rules_of
from ecoshell.assembly.planning import follow_plan
from ecoshell.budget.caps import SCOPES, Scope
from ecoshell.budget.money import parse_amount
from ecoshell.options import ROLES, Options, RoleName, role_named

if TYPE_CHECKING:  # pydantic comes with it, and is not needed to import this module
    from ecoshell.settings.schema import Settings

Path = tuple[str, ...]
AT_ONCE: frozenset[Path] = frozenset(
    {
        ("model",),
        *(("budget", scope) for scope in SCOPES),
        ("budget", "ask_above"),
        ("agent", "registration"),
        ("agent", "presentation"),
        ("agent", "max_steps"),
        ("agent", "mode"),
        ("agent", "strategy"),
        ("agent", "compact_model"),
        ("registration", "names_share"),
        ("local", "ask_servers"),
        *(("modes", "umi", role) for role in ROLES),
        ("modes", "umi", "preset"),
        ("plan", "mode"),
        ("plan", "threshold"),
        ("plan", "strict"),
        ("plan", "earned_uses"),
        ("plan", "judge"),
        ("plan", "time_price"),
        ("graph", "alpha"),
        ("graph", "most"),
        ("graph", "checker"),
        ("experience", "record"),
        ("approval", "allow"),
        ("approval", "deny"),
        ("approval", "ask"),
    }
)
"""The settings that a running shell takes up; all others hold when it is started again."""


async def take_up(shell: Shell, settings: "Settings", path: Path, options: Options) -> bool:
    """Make what the settings now say of this key hold in the shell; says whether it does.

    A cap that was taken out of the settings still holds in the session that runs. Raises EcoshellError, such as
    ModelMissing for a model that cannot be had.
    """
    kit = shell.kit
    match path:
        case ("model",) | ("agent", "mode") | ("modes", *_):
            return await _cast(shell, settings, path)
        case ("budget", "ask_above"):
            kit.ask_above_nano = ask_above(settings)
        case ("budget", scope):
            return await _cap(shell, settings, scope)
        case ("agent", "registration" | "presentation" | "strategy" | "max_steps" | "compact_model" as name):
            setattr(kit, name, getattr(settings.agent, name))
        case ("registration", "names_share"):
            kit.names_share = settings.registration.names_share
        case ("local", "ask_servers"):
            kit.caster.ask_servers(settings.local.ask_servers)
        case ("plan" | "graph" | "experience", _):
            follow_plan(kit.planning, settings)
        case ("approval", _):
            kit.approvals.follow(rules_of(settings, options))
        case _:
            return False
    return True


async def _cast(shell: Shell, settings: "Settings", path: Path) -> bool:
    if shell.conversation.busy:
        return False
    with shell.conversation.occupying():
        match path:
            case ("model",):
                await shell.kit.switch(settings.model)
            case ("modes", *_):
                await _give_roles(shell.kit, settings, role_named(path[-1]))
            case _:
                await shell.kit.think_as(settings.agent.mode)
    return True


async def _give_roles(kit: Kit, settings: "Settings", role: RoleName | None) -> None:
    """One role's model, or those of all once another preset is named."""
    kit.presets, told = presets_of(settings), roles_of(settings, Options())
    await kit.give(told if role is None else kit.roles.giving(role, told.of(role)))


async def _cap(shell: Shell, settings: "Settings", name: str) -> bool:
    scope: Scope | None = next((known for known in SCOPES if known == name), None)
    text = None if scope is None else getattr(settings.budget, scope)
    if scope is None or text is None:
        return False
    await shell.set_cap(scope, parse_amount(text))
    return True
