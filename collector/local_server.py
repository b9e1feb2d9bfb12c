"""The process behind a loopback address: its command line tells what an attached server was asked to do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

from .argv import engine_of

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class LocalServer:
    """A server on this machine: the leader's pid and its command line."""

    pid: int
    command: tuple[str, ...]


def find_local_server(url: str) -> LocalServer | None:
    """Who listens at a loopback URL; None elsewhere, or when the process may not be looked at.

    A worker that inherited the socket stands for the ancestor that started the engine.
    """
    parts = urlsplit(url)
    if parts.hostname not in LOOPBACK or parts.port is None:
        return None
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            address = connection.laddr
            if (
                connection.status == psutil.CONN_LISTEN
                and address
                and address.port == parts.port
                and connection.pid
            ):
                return _leader(psutil.Process(connection.pid))
    return None


def _leader(process: psutil.Process) -> LocalServer:
    chosen = process
    for ancestor in process.parents():
        with suppress(psutil.Error):
            if engine_of(ancestor.cmdline()):
                chosen = ancestor
    return LocalServer(chosen.pid, tuple(chosen.cmdline()))
