"""Ports: is one still free, which address to ask, and does a server there say that it is ready."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket

import aiohttp
import psutil

from ..errors import WhyboundError

PROBES = ("/health", "/v1/models", "/metrics")
"""Asked in this order; the next one only where the one before does not exist."""

PROBE_TIMEOUT_S = 2.0


def check_port_free(port: int, host: str) -> None:
    """See that nobody listens on `port` at `host` yet.

    Engines may share a port silently (SO_REUSEPORT), and then half the requests would reach the
    other server; so this is asked before ours starts.

    Raises:
        WhyboundError: names the port and, where it can be known, the process that has it.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return  # an address that cannot be bound is for the server to complain about
        raise WhyboundError(
            f"port {port} is already in use{_owner(port)}; stop that or choose another --port"
        ) from error


async def probe(http: aiohttp.ClientSession, url: str) -> tuple[bool, str]:
    """Does the server at `url` say that it is ready?

    Returns:
        (True, "") when it does; else False and, in one line, what was asked and answered.
    """
    says = ""
    for path in PROBES:
        try:
            async with http.get(url + path) as answer:
                status = answer.status
        except asyncio.TimeoutError:
            return False, f"GET {url}{path}: no answer within {PROBE_TIMEOUT_S:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return False, f"GET {url}{path}: {_one_line(error)}"
        if status < 300 or status in (401, 403):  # it asks for a key: it is there
            return True, ""
        says = f"GET {url}{path} answered {status}"
        if status not in (404, 405):
            return False, says
    return False, f"{says}, {' and '.join(PROBES[:-1])} too"


def is_local(ip: str) -> bool:
    """Can `ip`, at which something listens, be reached through loopback?"""
    address = ipaddress.ip_address(ip.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback or address.is_unspecified


def reachable(host: str | None) -> str:
    """The host to put into a URL: what the server binds, or loopback when that is any address."""
    if host in (None, "", "localhost", "0.0.0.0", "::", "[::]"):  # noqa: S104 - asked, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in str(host) and not str(host).startswith("[") else str(host)


def _owner(port: int) -> str:
    try:
        for c in psutil.net_connections("tcp"):
            if c.laddr and c.laddr.port == port and c.status == psutil.CONN_LISTEN and c.pid:
                return f" by process {c.pid} ({psutil.Process(c.pid).name()})"
    except psutil.Error:
        pass
    return ""


def _one_line(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return os.strerror(error.os_error.errno or 0).lower()
    return " ".join(str(error).split()) or type(error).__name__
