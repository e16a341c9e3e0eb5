"""Which addresses are public: only there does a relay call on somebody's word, unless allowed."""

import ipaddress
from typing import Final

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_IPV4_BITS: Final = 32


def is_public(text: str) -> bool:
    """Whether an IP address can be reached by anybody, also by what it is another spelling of.

    Raises:
        ValueError: it is no IP address.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address.sixtofour or _translated(address) or address
    return address.is_global and not address.is_multicast and not address.is_reserved


def _translated(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that a translator at the network's edge makes of an IPv6 one."""
    if address not in _NAT64:
        return None
    return ipaddress.IPv4Address(int(address) & (1 << _IPV4_BITS) - 1)
