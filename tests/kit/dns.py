"""A DNS server whose answers change, and the C library's own resolver asking it.

Nothing of name resolution is replaced: `getaddrinfo` sends its packets to this server instead of to
those in `/etc/resolv.conf`, which is a setting of the thread that asks.
"""

import ctypes
import ipaddress
import socket
import struct
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

_A: Final = 1
_IN: Final = 1
_ANSWER: Final = 0x8180
_POINTER: Final = b"\xc0\x0c"
_NAMESERVERS_AT: Final = 16
"""Where `struct __res_state` of glibc has the number of its servers, and then their addresses."""


class NameServer:
    """Answers for every name with the next of its answers; with the last one from then on."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.asked: list[str] = []
        self._left = list(answers)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    def serve(self) -> None:
        """Answer until closed: an empty packet ends it."""
        while True:
            query, client = self._socket.recvfrom(4_096)
            if not query:
                self._socket.close()
                return
            self._socket.sendto(self._answer(query), client)

    def close(self) -> None:
        """Answer no more."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", ("127.0.0.1", self.port))

    def _answer(self, query: bytes) -> bytes:
        end = query.index(b"\x00", 12) + 5
        kind = struct.unpack(">H", query[end - 4 : end - 2])[0]
        found: Sequence[str] = ()
        if kind == _A:
            self.asked.append(_name(query[12 : end - 4]))
            found = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        records = b"".join(
            _POINTER + struct.pack(">HHIH", _A, _IN, 0, 4) + ipaddress.ip_address(each).packed
            for each in found
        )
        head = query[:2] + struct.pack(">HHHHH", _ANSWER, 1, len(found), 0, 0)
        return head + query[12:end] + records


def _name(labels: bytes) -> str:
    parts: list[str] = []
    while labels and labels[0]:
        parts.append(labels[1 : 1 + labels[0]].decode())
        labels = labels[1 + labels[0] :]
    return ".".join(parts)


@contextmanager
def resolving(*answers: Sequence[str]) -> Generator[NameServer]:
    """Have names resolved by a server with these answers, one after the other."""
    server = NameServer(*answers)
    serving = threading.Thread(target=server.serve, daemon=True)
    serving.start()
    resolve = socket.getaddrinfo

    def asking(*args: Any, **named: Any) -> Any:
        _ask(server.port)
        return resolve(*args, **named)

    try:
        with mock.patch.object(socket, "getaddrinfo", asking):
            yield server
    finally:
        server.close()
        serving.join()


def _ask(port: int) -> None:
    """Have the resolver of this thread ask one server, on loopback."""
    libc = ctypes.CDLL("libc.so.6")
    libc["__res_init"]()
    state = libc["__res_state"]
    state.restype = ctypes.c_void_p
    address = struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + b"\x7f\x00\x00\x01"
    servers = struct.pack("=i", 1) + address + bytes(8)
    ctypes.memmove(state() + _NAMESERVERS_AT, servers, len(servers))
