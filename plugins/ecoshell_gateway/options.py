"""The options that `ecoshell gateway` and `ecoshell run` share."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from ecoshell.budget import SCOPES, Amount, Scope, parse_amount
from ecoshell.errors import UsageError
from ecoshell_gateway.rules import Below, RuleOptions

TOKEN_VARIABLE = "ECOSHELL_GATEWAY_TOKEN"
DEFAULT_LOOP_STEPS = 10
_MAX_PORT = 65_535
_OFF = "off"


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """What a gateway is started with."""

    caps: dict[Scope, Amount] = field(default_factory=dict["Scope", Amount])
    rules: RuleOptions = field(default_factory=RuleOptions)
    port: int = 0
    token: str = ""
    """Empty for a random token."""
    upstream_openai: str | None = None
    upstream_anthropic: str | None = None
    allow_unpriced: bool = False
    is_subscription: bool = False
    ask_seconds: float = 0.0


def add_gateway_options(parser: argparse.ArgumentParser) -> None:
    """Add the shared options."""
    add = parser.add_argument
    budget = "cap of this run, such as 2.00 or 500000tok; day=20 and month=100 cap all sessions; repeatable"
    add("--budget", action="append", default=[], metavar="AMOUNT", help=budget)
    add(
        "--allow",
        action="append",
        default=[],
        metavar="MODEL",
        help="allow only this model or pattern; repeatable",
    )
    below = "use MODEL when less than this share of the cap is left: --below 20%% use MODEL"
    add("--below", nargs=3, metavar=("SHARE", "use", "MODEL"), help=below)
    add("--max-request", metavar="USD", help="cap of each request")
    add(
        "--per-minute",
        metavar="AMOUNT",
        help="cap per minute: dollars, tokens, or requests such as 30req",
    )
    loop = f"pause after this many repetitions of a step, or off (default: {DEFAULT_LOOP_STEPS})"
    add("--loop-guard", default=str(DEFAULT_LOOP_STEPS), metavar="N", help=loop)
    ask = "at the limit, wait this long for `ecoshell budget raise` (default: 300 seconds)"
    add("--ask", nargs="?", const="300", metavar="SECONDS", help=ask)
    add(
        "--allow-unpriced",
        action="store_true",
        help="count only the tokens of models without a known price",
    )
    subscription = (
        "the client signs in with its own subscription: pass its credentials on and count tokens"
    )
    add("--subscription", action="store_true", help=subscription)
    for name, title in (("openai", "OpenAI's"), ("anthropic", "Anthropic's")):
        add(
            f"--upstream-{name}",
            metavar="URL",
            help=f"base URL for {title} format (default: the official one)",
        )


def gateway_options(args: argparse.Namespace) -> GatewayOptions:
    """Return the options of a command line; raises UsageError."""
    caps, budgets = dict[Scope, Amount](), list[str](args.budget)
    for text in budgets:
        scope, amount = scoped_amount(text)
        caps[scope] = amount
    ask = None if args.ask is None else _number(args.ask, "--ask", "seconds", 86_400)
    token = str(getattr(args, "token", None) or os.environ.get(TOKEN_VARIABLE, "")).strip()
    if token and (not token.isascii() or not token.isprintable() or " " in token or "/" in token):
        raise UsageError(
            "The token may contain only printable ASCII characters without spaces and slashes."
        )
    return GatewayOptions(
        caps=caps,
        rules=_rules(args),
        port=_number(getattr(args, "port", "0"), "--port", "port", _MAX_PORT),
        token=token,
        upstream_openai=args.upstream_openai,
        upstream_anthropic=args.upstream_anthropic,
        allow_unpriced=args.allow_unpriced,
        is_subscription=args.subscription,
        ask_seconds=float(ask or 0),
    )


def scoped_amount(text: str) -> tuple[Scope, Amount]:
    """Parse `5.00`, `500000tok` or `day=20`; raises UsageError."""
    name, equals, amount = text.partition("=")
    if not equals:
        return "session", parse_amount(text)
    scope: Scope | None = next(
        (scope for scope in SCOPES if scope == name and scope != "turn"), None
    )
    if scope is None:
        raise UsageError(
            f"Unknown cap {name!r}.", fix="Use an amount for this run, day=AMOUNT or month=AMOUNT."
        )
    return scope, parse_amount(amount)


def _rules(args: argparse.Namespace) -> RuleOptions:
    per_minute, requests = None, None
    if args.per_minute is not None and str(args.per_minute).endswith("req"):
        requests = _number(
            args.per_minute.removesuffix("req"), "--per-minute", "requests", 1_000_000
        )
    elif args.per_minute is not None:
        per_minute = parse_amount(args.per_minute)
        if per_minute.unit == "ms":
            raise UsageError(
                "--per-minute is in dollars, tokens or requests.",
                fix="Use 0.50, 100000tok or 30req.",
            )
    max_request = None if args.max_request is None else parse_amount(args.max_request)
    if max_request is not None and max_request.unit != "usd":
        raise UsageError("--max-request is in dollars.", fix="Use an amount such as 0.25.")
    loop = (
        None
        if args.loop_guard == _OFF
        else _number(args.loop_guard, "--loop-guard", "repetitions", 10_000)
    )
    return RuleOptions(
        allowed=tuple(args.allow),
        below=None if args.below is None else _below(args.below),
        max_request=max_request,
        per_minute=per_minute,
        requests_per_minute=requests,
        loop_steps=loop,
    )


def _below(words: Sequence[str]) -> Below:
    share, use, model = words
    try:
        percent = Decimal(share.removesuffix("%"))
    except InvalidOperation:
        percent = Decimal(-1)
    if use != "use" or not 0 < percent <= 100:
        raise UsageError(
            f"--below {' '.join(words)} is not a rule.", fix="Use --below 20% use MODEL."
        )
    return Below(percent / 100, model)


def _number(text: str, option: str, noun: str, largest: int) -> int:
    if not (text.isascii() and text.isdecimal()) or not 0 <= int(text[:12]) <= largest:
        fix = f"Give a whole number from 0 to {largest:,}."
        raise UsageError(f"{option} {text!r} is not a number of {noun}.", fix=fix)
    return int(text)
