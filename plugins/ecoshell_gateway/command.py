"""`ecoshell gateway`: a server for programs that take a base URL."""

import argparse
import asyncio
import sys

from ecoshell.cli.signals import stopping
from ecoshell.paths import user_paths
from ecoshell_gateway.options import GatewayOptions, add_gateway_options, gateway_options
from ecoshell_gateway.serving import serving

DEFAULT_PORT = "8377"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--port",
        default=DEFAULT_PORT,
        help=f"loopback port, 0 for a free one (default: {DEFAULT_PORT})",
    )
    token = "the API key that clients use; the same token continues its cap (default: random)"
    parser.add_argument("--token", metavar="TOKEN", help=token)
    add_gateway_options(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until the process is stopped; raises UsageError, SettingsError and StoreError."""
    asyncio.run(_serve(gateway_options(args)))
    return 0


async def _serve(options: GatewayOptions) -> None:
    stop = asyncio.Event()
    with stopping(stop.set):
        async with serving(user_paths(), options) as server:
            if not server.has_cap:
                print("No cap is set: use --budget AMOUNT.", file=sys.stderr)
            if not options.token:
                print(f"The API key for clients is {server.token}", file=sys.stderr)
            print(f"listening on {server.url}", flush=True)
            await stop.wait()
