"""Which addresses of the internet are public, and which lead to this machine, its network or its
cloud's inside.

`ipaddress.is_global` alone does not tell: it says yes to addresses that carry a private one inside
(NAT64, 6to4), to multicast, and to some that clouds answer on with keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# Called global by some Python or other, and not public all the same.
_NOT_PUBLIC: tuple[tuple[Network, str], ...] = (
    (ip_network("168.63.129.16/32"), "Azure's own service"),
    (ip_network("192.88.99.0/24"), "a relay of 6to4"),
    (ip_network("192.0.0.0/24"), "set aside for protocols"),
    (ip_network("64:ff9b:1::/48"), "a translator to private addresses"),
    (ip_network("100:0:0:1::/64"), "set aside"),
    (ip_network("5f00::/16"), "inside a network"),
    (ip_network("3fff::/20"), "set aside for examples"),
    (ip_network("::/96"), "an address of IPv4 in disguise"),
    (ip_network("fec0::/10"), "inside a network"),
)
_NAT64 = ip_network("64:ff9b::/96")
_SIIT = 0xFFFF0000  # ::ffff:0:0:0/96, RFC 2765: what a translator sends to an address of IPv4
_ISATAP = (0x00005EFE, 0x02005EFE)


def explain_refusal(address: Address, networks: Sequence[Network] = ()) -> str:
    """Say why a request may not go to an address; empty if it is public, or lies in one of these
    networks.
    """
    embedded_addresses = tuple(_embedded_addresses(address))
    if any(
        candidate in network
        for candidate in (address, *embedded_addresses[:1])
        for network in networks
    ):
        return ""
    for candidate in embedded_addresses:
        if reason := explain_refusal(candidate, networks):
            return f"which stands for {candidate}, {reason}"
    if embedded_addresses and (
        isinstance(address, IPv6Address) and (address.ipv4_mapped or address in _NAT64)
    ):
        return ""
    if address.is_loopback or address.is_unspecified:
        return "this machine"
    if address.is_link_local:
        return "this machine's own link, where clouds keep their keys"
    for network, kind in _NOT_PUBLIC:
        if address in network:
            return kind
    return "not a public address" if address.is_multicast or not address.is_global else ""


def _embedded_addresses(address: Address) -> Iterator[IPv4Address]:
    """Yield the addresses of IPv4 inside one of IPv6: what really answers, or may."""
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped:
        yield address.ipv4_mapped
    if int(address) >> 32 == _SIIT:
        yield IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64 or int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        yield IPv4Address(int(address) & 0xFFFFFFFF)
    if address.sixtofour:
        yield address.sixtofour
    if address.teredo:
        yield from address.teredo
