"""Which network addresses may be fetched from: never this machine or its local network, unless a person allows it.

A name is resolved once and the connection goes to the address that was checked, so that a name that answers
differently the second time gains nothing.
"""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from ecoshell.errors import ToolError

_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is on the open internet, also when it carries an IPv4 address inside."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast


def require_public_name(host: str) -> None:
    """Check a host that a proxy will look up: only what its name says can be known. Raises ToolError."""
    try:
        public = is_public(ip_address(host))
    except ValueError:
        public = host != "localhost" and not host.endswith((".localhost", ".local", ".internal"))
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


def _private(host: str) -> ToolError:
    return ToolError(f"{host} is on this machine or its local network, which fetch_url does not reach.")
