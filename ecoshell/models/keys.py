"""API keys: found in the environment or the OS keyring, and removed from all texts."""

import re
from collections.abc import Mapping
from typing import Any

from ecoshell.errors import StoreError, UsageError
from ecoshell.secrecy import MARK, MIN_KEY_CHARACTERS, SECRET_NAME, add_secret, environ

KEYRING_SERVICE = "ecoshell"  # service name; the user name is the environment variable

_ONE_VARIABLE = """
ai21 anthropic anyscale cerebras codestral cohere deepinfra deepseek featherless_ai groq mistral moonshot nebius novita
nvidia_nim openai openrouter replicate vercel_ai_gateway xai
"""
"""Providers whose variable has their name, such as MISTRAL_API_KEY."""
_VARIABLES: dict[str, tuple[str, ...]] = {
    **{provider: (f"{provider.upper()}_API_KEY",) for provider in _ONE_VARIABLE.split()},
    "ai21_chat": ("AI21_API_KEY",),
    "cohere_chat": ("COHERE_API_KEY",),
    "fireworks_ai": (
        "FIREWORKS_AI_API_KEY",
        "FIREWORKS_API_KEY",
        "FIREWORKSAI_API_KEY",
        "FIREWORKS_AI_TOKEN",
    ),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "text-completion-openai": ("OPENAI_API_KEY",),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHER_API_KEY"),
}
"""Variables of providers that need only a key; other ways to sign in (AWS, Azure) are left to litellm."""


_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:sk|pk|rk)-[\w-]{6,}"
    r"|(?<![A-Za-z0-9])(?:gsk|xai|hf|r8|pplx|nvapi|fw|csk|ghp|gho|github_pat)[-_][\w-]{12,}"
    r"|AIza[\w-]{20,}"
    r"|AKIA[A-Z0-9]{12,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?i:(?<=bearer )|(?<=basic ))[\w.~+/=*-]{6,}"
    r"|(?i:(?<=api_key=)|(?<=api-key: )|(?<=key=))[^\s&'\"]{6,}",
)


def key_variables() -> tuple[str, ...]:
    """Variables that hold a provider's key, sorted."""
    return tuple(sorted({variable for variables in _VARIABLES.values() for variable in variables}))


def key_prefixes() -> tuple[str, ...]:
    """Prefixes of these providers' variables, such as `OPENAI_`, which their other settings share."""
    prefixes = {re.sub("_(?:API_KEY|TOKEN)$", "", name) for name in key_variables()}
    return tuple(f"{prefix}_" for prefix in sorted(prefixes))


class Keys:
    """Finds API keys and removes them from texts. `vault` replaces the `keyring` module."""

    def __init__(self, environment: Mapping[str, str] = environ, vault: Any = None) -> None:
        self._environ = environment
        self._vault = vault
        self._known_keys: set[str] = set()
        self._in_keyring: set[str] = set()  # variables whose keys came from the keyring
        self._typed: dict[str, str] = {}  # keys the user typed, by variable

    @staticmethod
    def variables(provider: str) -> tuple[str, ...]:
        """The variables that may hold this provider's key; empty if it needs none, or more than a key."""
        return _VARIABLES.get(provider, ())

    def find(self, provider: str) -> str | None:
        """The provider's key from the environment or the OS keyring; may block while the keyring is unlocked."""
        for variable in self.variables(provider):
            key = self._typed.get(variable) or self._environ.get(variable, "").strip()
            if not key:
                try:
                    key = (self._ring().get_password(KEYRING_SERVICE, variable) or "").strip()
                except Exception:  # noqa: BLE001 - backends are third-party code found by entry points; a broken one is no keyring
                    continue
                if key:
                    self._in_keyring.add(variable)
            if key:
                self._remember(key)
                return key
        return None

    def keep(self, provider: str, key: str) -> None:
        """Use a key from now on and store it in the OS keyring; may block.

        Raises UsageError for an invalid key, and StoreError if the keyring fails; the key is then used for this run.
        """
        key, variable = key.strip(), self.variables(provider)[0]
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            fix = "Paste it exactly as the provider shows it."
            raise UsageError("That is not an API key.", fix=fix)
        self._remember(key)
        self._typed[variable] = key
        try:
            self._ring().set_password(KEYRING_SERVICE, variable, key)
        except Exception as error:
            raise StoreError(
                f"The key could not be stored in the system's keyring: {self.redact(str(error))}",
                kept="It is used until ecoshell ends.",
                fix=f"Set {variable} to keep it.",
            ) from error

    def _ring(self) -> Any:
        if self._vault is None:
            import keyring  # slow, and needed only if the environment has no key

            self._vault = keyring
        return self._vault

    def _remember(self, key: str) -> None:
        """Remove the key from all texts from now on."""
        self._known_keys.add(key)
        if self._environ is environ:
            add_secret(key)

    def at_hand(self) -> tuple[str, ...]:
        """Providers whose key is known without asking the keyring."""
        names = {name for name, value in self._environ.items() if value.strip()}
        names |= self._in_keyring | self._typed.keys()
        return tuple(name for name in sorted(_VARIABLES) if names.intersection(_VARIABLES[name]))

    def how_to_give(self, provider: str) -> str:
        variable = self.variables(provider)[0]
        return f"Set {variable}, or store the key with: keyring set {KEYRING_SERVICE} {variable}"

    def redact(self, text: str) -> str:
        """The text without known keys and without anything shaped like a key."""
        environment = self._environ.items()
        values = {value.strip() for name, value in environment if SECRET_NAME.search(name)}
        values |= self._known_keys
        secrets = {value for value in values if len(value) >= MIN_KEY_CHARACTERS}
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, MARK)
        return _SHAPES.sub(MARK, text)
