"""How known agents are configured for the gateway: environment variables and arguments."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ecoshell.models.keys import Keys, key_variables

_CODEX_PROVIDER = "ecoshell"
TOKEN_NAME = "ECOSHELL_GATEWAY_KEY"


@dataclass(frozen=True, slots=True)
class Target:
    """The gateway as a client sees it."""

    url: str
    """Without a version, such as `http://127.0.0.1:8377`."""
    token: str
    is_subscription: bool = False

    @property
    def base(self) -> str:
        """Anthropic's base URL; the token is part of it if the client keeps its own credentials."""
        return f"{self.url}/t/{self.token}" if self.is_subscription else self.url

    @property
    def openai_base(self) -> str:
        """OpenAI's base URL."""
        return f"{self.base}/v1"


@dataclass(frozen=True, slots=True)
class Preset:
    """What a program needs in addition to the common variables."""

    name: str
    about: str
    """One line for `ecoshell run --list`."""
    variables: Callable[[Target], Mapping[str, str | None]] = lambda _: {}
    """Variables to set, or to remove (None)."""
    arguments: Callable[[Target], Sequence[str]] = lambda _: ()
    """Arguments right after the program's name."""
    refusal: str = ""
    """Why the program cannot run under the gateway."""


def common_variables(target: Target) -> dict[str, str | None]:
    """Return the variables of every program: base URLs and, without a subscription, the token as every key."""
    variables: dict[str, str | None] = {
        "OPENAI_BASE_URL": target.openai_base,
        "OPENAI_API_BASE": target.openai_base,
        "ANTHROPIC_BASE_URL": target.base,
        "ANTHROPIC_API_BASE": target.base,
        TOKEN_NAME: target.token,
    }
    if target.is_subscription:
        return variables
    keys: dict[str, str | None] = dict.fromkeys(
        key_variables()
    )  # other providers' keys would be outside the cap
    keys |= {
        name: target.token
        for provider in ("openai", "anthropic")
        for name in Keys.variables(provider)
    }
    return {**keys, **variables, "ANTHROPIC_AUTH_TOKEN": None}


def _claude(target: Target) -> dict[str, str | None]:
    """A key would have to be approved on the screen first; a token is used as it is."""
    return (
        {}
        if target.is_subscription
        else {"ANTHROPIC_AUTH_TOKEN": target.token, "ANTHROPIC_API_KEY": None}
    )


def _codex(target: Target) -> list[str]:
    provider = f"model_providers.{_CODEX_PROVIDER}"
    settings = {
        "model_provider": _CODEX_PROVIDER,
        f"{provider}.name": _CODEX_PROVIDER,
        f"{provider}.base_url": target.openai_base,
        f"{provider}.env_key": TOKEN_NAME,
        f"{provider}.wire_api": "responses",
        "web_search": "disabled",
    }
    return [
        word for name, value in settings.items() for word in ("-c", f"{name}={json.dumps(value)}")
    ]


def _opencode(target: Target) -> dict[str, str | None]:
    options = {
        "baseURL": target.openai_base,
        **({} if target.is_subscription else {"apiKey": target.token}),
    }
    providers = {name: {"options": options} for name in ("openai", "anthropic")}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps({"provider": providers})}


def _crush(target: Target) -> dict[str, str | None]:
    return {"OPENAI_API_ENDPOINT": target.openai_base, "ANTHROPIC_API_ENDPOINT": target.base}


def _goose(target: Target) -> dict[str, str | None]:
    return {
        "OPENAI_HOST": target.base,
        "OPENAI_BASE_PATH": "v1/chat/completions",
        "ANTHROPIC_HOST": target.base,
    }


def _vibe(target: Target) -> dict[str, str | None]:
    provider = {
        "name": "mistral",
        "api_base": target.openai_base,
        "api_key_env_var": "MISTRAL_API_KEY",
    }
    return {"VIBE_PROVIDERS": json.dumps([provider]), "MISTRAL_API_KEY": target.token}


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("claude", "Claude Code: ANTHROPIC_BASE_URL, ANTHROPIC_AUTH_TOKEN", _claude),
        Preset(
            "codex",
            "Codex: a separate provider (-c model_providers…), no web search",
            arguments=_codex,
        ),
        Preset("aider", "aider: OPENAI_API_BASE, ANTHROPIC_API_BASE"),
        Preset("opencode", "OpenCode: OPENCODE_CONFIG_CONTENT", _opencode),
        Preset("crush", "Crush: OPENAI_API_ENDPOINT, ANTHROPIC_API_ENDPOINT", _crush),
        Preset("goose", "goose: OPENAI_HOST, ANTHROPIC_HOST", _goose),
        Preset(
            "vibe",
            "Mistral Vibe: VIBE_PROVIDERS; with --upstream-openai https://api.mistral.ai/v1",
            _vibe,
        ),
        Preset("llm", "llm: OPENAI_BASE_URL, ANTHROPIC_BASE_URL"),
        Preset(
            "gemini",
            "Gemini CLI: cannot be capped, because it speaks only Gemini's format",
            refusal="Gemini CLI speaks only Gemini's format, which the gateway does not, so no cap could hold.",
        ),
    )
}


def preset_of(program: str) -> Preset | None:
    """Return the preset of a program by its file name."""
    return PRESETS.get(PurePath(program).stem)
