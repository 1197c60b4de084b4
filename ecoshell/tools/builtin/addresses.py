"""Which network addresses may be fetched from: never this machine or its local network, unless a person allows it.

A name is resolved once and the connection goes to the address that was checked, so that a name that answers
differently the second time gains nothing. A proxy resolves names by itself: of those, only what they say can be known.
"""

import asyncio
import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from ecoshell.errors import ToolError

_UNICAST = IPv6Network("2000::/3")
"""All that is given out of IPv6; what lies elsewhere is local, or carries an IPv4 address inside."""
_NAT64 = IPv6Network("64:ff9b::/96")
"""How a network without IPv4 of its own reaches every IPv4 address."""
_NOT_PUBLIC = (
    IPv4Network("192.0.0.0/24"),  # Oracle's cloud answers its machines here, and Azure's at the next
    IPv4Network("168.63.129.16/32"),
    IPv6Network("2001::/23"),  # Teredo, 6to4 and their kind lead to an address that is written inside
    IPv6Network("2002::/16"),
)
"""Beside what Python knows not to be global."""
_LOCAL_NAME = re.compile(
    r"(.*\.)?(localhost|local|localdomain|internal|intranet|private|corp|home|lan|home\.arpa)|[^.]*", re.DOTALL
)
"""Names that only a local network knows; one without a dot is looked up among them first."""
_NUMBER = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)", re.DOTALL)
"""A host whose last part is a number is an address to some clients, in whichever way it is written."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is on the open internet, also when it carries an IPv4 address inside."""
    if isinstance(address, IPv6Address):
        inner = IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else address.ipv4_mapped
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST:
            return False
    return address.is_global and not address.is_multicast and not any(address in local for local in _NOT_PUBLIC)


def require_public_name(host: str) -> None:
    """Check a host that a proxy will look up: only what its name says can be known. Raises ToolError."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        public = is_public(ip_address(name))
    except ValueError:
        public = not _LOCAL_NAME.fullmatch(name) if not _NUMBER.fullmatch(name) else _is_public_number(name)
    if not public:
        raise _private(host)


async def checked_address(host: str, port: int, *, allow_private: bool) -> str:
    """An address of the host that may be connected to; raises ToolError if there is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"{host} cannot be found on the network: {error}.") from error
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    if not allow_private and not all(is_public(ip_address(address)) for address in addresses):
        raise _private(host)
    return addresses[0]


def _is_public_number(name: str) -> bool:
    """Whether `2130706433`, `127.1`, `0x7f.1` and the like are a public address; what nobody can read is none."""
    try:
        return is_public(IPv4Address(socket.inet_aton(name)))
    except OSError:
        return False


def _private(host: str) -> ToolError:
    return ToolError(f"{host} is on this machine or its local network, which fetch_url does not reach.")
