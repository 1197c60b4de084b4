"""`ecoshell run`: start a gateway and another agent that uses it, and end with its exit status."""

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence

from ecoshell.budget import amount_text
from ecoshell.cli.manage.show import print_json
from ecoshell.cli.parser import add_json
from ecoshell.cli.signals import HANGUPS, handling
from ecoshell.errors import UsageError
from ecoshell.paths import user_paths
from ecoshell.secrecy import removed_variables
from ecoshell_gateway.options import GatewayOptions, add_gateway_options, gateway_options
from ecoshell_gateway.presets import PRESETS, Preset, Target, common_variables, preset_of
from ecoshell_gateway.serving import Serving, serving

_SIGNAL_STATUS = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_json(parser)
    parser.add_argument(
        "--list", dest="lists", action="store_true", help="list the agents with a preset"
    )
    add_gateway_options(parser)
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="the agent to run"
    )


def run(args: argparse.Namespace) -> int:
    """Run the program and return its exit status; raises UsageError, SettingsError and StoreError."""
    if args.lists:
        _print_presets(as_json=args.json)
        return 0
    program: list[str] = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not program:
        raise UsageError(
            "No command to run.", fix="Name it after --: ecoshell run --budget 5 -- claude"
        )
    file = shutil.which(program[0])
    if file is None:
        raise UsageError(f"{program[0]} is not installed, or not on the PATH.")
    preset = preset_of(program[0]) or Preset(program[0], "")
    if preset.refusal:
        raise UsageError(preset.refusal)
    return asyncio.run(_run(file, program, preset, gateway_options(args)))


async def _run(file: str, program: Sequence[str], preset: Preset, options: GatewayOptions) -> int:
    async with serving(user_paths(), options, command=os.path.basename(program[0])) as server:  # noqa: PTH119
        target = Target(server.url, server.token, options.is_subscription)
        arguments = [*preset.arguments(target), *program[1:]]
        status = await _child(file, arguments, child_environ(preset, target))
        if sys.stderr.isatty():
            print(await _summary(server), file=sys.stderr)
    return status


def child_environ(preset: Preset, target: Target) -> dict[str, str]:
    """Return the program's environment: the user's, without keys, and with the gateway's variables."""
    environ: dict[str, str] = {**os.environ, **removed_variables()}
    changes: Mapping[str, str | None] = {**common_variables(target), **preset.variables(target)}
    for name, value in changes.items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
    return environ


async def _child(file: str, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the program on this terminal; it receives Ctrl-C from the terminal, and other signals from here."""
    try:
        process = await asyncio.create_subprocess_exec(file, *arguments, env=environ)
    except OSError as error:
        raise UsageError(f"{file} cannot be run: {error.strerror}.") from None

    def forward(number: int, _frame: object) -> None:
        if process.returncode is None:
            process.send_signal(number)

    def ignore(_number: int, _frame: object) -> None:
        pass

    with handling({**dict.fromkeys(HANGUPS, forward), signal.SIGINT: ignore}):
        status = await process.wait()
    return status if status >= 0 else _SIGNAL_STATUS - status


async def _summary(server: Serving) -> str:
    """Return the last line: what was spent, of which cap, in how many requests."""
    status, caps = await server.meter.status(), await server.meter.caps()
    row = await asyncio.to_thread(server.ledger.session_row, server.session)
    tokens = 0 if row is None else row.usage.total
    cap = next((cap for cap in caps if cap.scope == "session"), None)
    limit = "" if cap is None else f" of {amount_text(cap.limit, cap.unit)}"
    spent = amount_text(
        tokens if cap is not None and cap.unit == "tokens" else status.spent,
        cap.unit if cap else "usd",
    )
    counts = server.gateway.counts
    refused = f", {counts.refused:,} refused" if counts.refused else ""
    return f"ecoshell: {spent}{limit} spent in {counts.requests:,} requests{refused}, {tokens:,} tokens."


def _print_presets(*, as_json: bool) -> None:
    target = Target("http://127.0.0.1:PORT", "TOKEN")
    if as_json:
        records = [
            {
                "name": name,
                "variables": dict(preset.variables(target)),
                "arguments": list(preset.arguments(target)),
            }
            for name, preset in PRESETS.items()
            if not preset.refusal
        ]
        print_json({"common": common_variables(target), "presets": records})
        return
    for name, preset in PRESETS.items():
        print(f"{name:<10} {preset.about}")
    print(
        "Other programs get OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY."
    )
