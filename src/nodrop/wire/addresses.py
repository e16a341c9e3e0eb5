"""Which addresses are public: only there does a relay call on somebody's word, unless allowed."""

import ipaddress


def is_public(text: str) -> bool:
    """Whether an IP address can be reached by anybody, also by what it is another spelling of.

    Raises:
        ValueError: it is no IP address.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address.sixtofour or address
    return address.is_global and not address.is_multicast and not address.is_reserved
