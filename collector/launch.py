"""Starts a server so that it outlives us, waits until it is ready, and ends all of it.

The server gets a session and process group of its own, no standard input, and writes to an
inherited stream or to a file that we tail, never to a pipe of ours: if we are killed it serves on.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import IO

import aiohttp
import psutil

from ..errors import UsageError, WhyboundError
from .argv import engine_of, host_of, port_of
from .ports import PROBE_TIMEOUT_S, check_port_free, is_local, probe, reachable
from .process_tree import ProcessTree

__all__ = ["Server", "check_port_free", "tail_line"]

POLL_S = 0.2
KILL_WAIT_S = 10.0
"""How long a killed process may take to go; one with much GPU memory needs seconds."""

STATUS_LOST = 255
"""Stands for an exit status that somebody else collected."""

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


class Server:
    """A server process that we started, with all its descendants.

    Attributes:
        pid: the leader of its session and process group.
        cmd: its command line, as it was started.
        log_path: where it writes; None when it writes to our own standard error.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        cmd: Sequence[str],
        log_path: Path | None,
        log_start: int,
    ) -> None:
        self.pid = process.pid
        self.cmd = list(cmd)
        self.log_path = log_path
        self._process = process
        self._log_start = log_start
        self._started_s = time.monotonic()
        self._tree = ProcessTree(process.pid)
        self._returncode: int | None = None
        self._detached = False

    @classmethod
    def start(
        cls,
        cmd: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        log_path: Path | None,
    ) -> Server:
        """Start `cmd`, unchanged.

        Args:
            cmd: the command and its arguments.
            env: its whole environment; None for ours.
            cwd: its working folder; None for ours.
            log_path: the file that its output is appended to; None lets it write to our standard
                error (standard output is the report's).

        Raises:
            UsageError: `cmd` is empty.
            WhyboundError: names the command that is not found (exit code 127) or cannot be
                executed (126), the folder or log that cannot be used, or the port that is taken.
        """
        if not cmd or not cmd[0]:
            raise UsageError("no command to run: write it after --")
        if cwd is not None and not cwd.is_dir():
            raise WhyboundError(f"working folder {cwd} does not exist")
        port = port_of(cmd)
        if port is not None:
            check_port_free(port, host_of(cmd) or "0.0.0.0")  # noqa: S104 - asked, not bound
        log = _open_log(log_path) if log_path is not None else None
        try:
            process = subprocess.Popen(
                list(cmd),
                stdin=subprocess.DEVNULL,
                stdout=2 if log is None else log,
                stderr=2 if log is None else log,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise _not_started(cmd[0], error, env) from error
        finally:
            log_start = log.tell() if log is not None else 0
            if log is not None:
                log.close()
        return cls(process, cmd, log_path, log_start)

    def returncode(self) -> int | None:
        """The leader's exit code, 128+n when signal n ended it; None while it is alive."""
        if self._returncode is None:
            # WNOWAIT leaves the zombie, so that its number keeps meaning its session and group
            # until stop() has ended everything in them.
            try:
                ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self._returncode = STATUS_LOST
            else:
                if ended is not None:
                    by_signal = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                    self._returncode = ended.si_status + (128 if by_signal else 0)
        return self._returncode

    def tree(self) -> list[psutil.Process]:
        """The leader and its descendants that are alive, also those whose parents died."""
        return self._tree.scan()

    def listening_ports(self) -> list[int]:
        """The TCP ports, ascending, on which the tree listens at a loopback or any address."""
        ports = set()
        for process in self.tree():
            with suppress(psutil.Error):
                ports |= {
                    c.laddr.port
                    for c in process.net_connections("tcp")
                    if c.status == psutil.CONN_LISTEN and is_local(c.laddr.ip)
                }
        return sorted(ports)

    async def wait_ready(
        self, *, port: int | None, deadline_s: float, on_progress: Callable[[str], None]
    ) -> str:
        """Wait until the server answers on /health, else /v1/models, else /metrics.

        Args:
            port: where it listens; None for what its command line says, else for the ports on
                which its processes are found listening.
            deadline_s: seconds to wait at most, from now.
            on_progress: told what is being waited for, one line, whenever that changes.

        Returns:
            Its base URL, e.g. `http://127.0.0.1:8000`.

        Raises:
            WhyboundError: it exited first (with its exit code as ours), or the deadline passed;
                the message names the log, its last line and what was tried.
        """
        deadline = time.monotonic() + deadline_s
        port = port or port_of(self.cmd)
        host = reachable(host_of(self.cmd))
        said = ""
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        ) as http:
            while True:
                says = "none of its processes listens on a port yet"
                for candidate in [port] if port else self.listening_ports():
                    url = f"http://{host}:{candidate}"
                    ready, says = await probe(http, url)
                    if ready and self.returncode() is None:
                        return url
                if (code := self.returncode()) is not None:
                    raise self._exited(code)
                if time.monotonic() >= deadline:
                    raise WhyboundError(
                        f"{self.name} was not ready after {deadline_s:g} s: {says}{self._see_log()}"
                    )
                last = self._last_line()
                if (now := f"{says} · {last}" if last else says) != said:
                    on_progress(said := now)
                await asyncio.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))

    async def stop(self, grace_s: float = 15.0) -> int | None:
        """End the server and everything it started; does nothing the second time, or if detached.

        SIGTERM goes to the leader's group; after `grace_s` seconds SIGKILL to all that is left of
        the tree (at once when this task is cancelled).

        Returns:
            The leader's exit code, as `returncode`.

        Raises:
            WhyboundError: names the processes that live on after SIGKILL.
        """
        if self._detached:
            return self.returncode()
        try:
            if self.tree():
                for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process sees no SIGTERM
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(self.pid, number)
                await self._gone(grace_s)
        finally:
            self._kill_all()
        if not await self._gone(KILL_WAIT_S, kill=True):
            left = ", ".join(str(p.pid) for p in self.tree())
            raise WhyboundError(
                f"{self.name}: processes {left} live on after SIGKILL; end them by hand"
            )
        code = self.returncode()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        return code

    def detach(self) -> None:
        """Leave the server running: `stop` will not touch it any more."""
        self._detached = True

    @property
    def name(self) -> str:
        """What messages call it: the engine, else the program."""
        return engine_of(self.cmd) or PurePath(self.cmd[0]).name

    async def _gone(self, within_s: float, kill: bool = False) -> bool:
        deadline = time.monotonic() + within_s
        while self.tree():
            if time.monotonic() >= deadline:
                return False
            if kill:
                self._kill_all()
            await asyncio.sleep(0.05)
        return True

    def _kill_all(self) -> None:
        for process in self.tree():
            with suppress(psutil.Error):
                process.kill()

    def _exited(self, code: int) -> WhyboundError:
        lived_s = time.monotonic() - self._started_s
        error = WhyboundError(
            f"{self.name} exited with code {code} after {lived_s:.1f} s{self._see_log()}"
        )
        error.exit_code = code or 1
        return error

    def _see_log(self) -> str:
        if self.log_path is None:
            return ""
        last = self._last_line()
        return f"; see {self.log_path}" + (f": {last}" if last else "")

    def _last_line(self) -> str:
        return tail_line(self.log_path, self._log_start) if self.log_path is not None else ""


def tail_line(log_path: Path, start: int = 0) -> str:
    """The last non-empty line of a log, without colours and control characters.

    Args:
        log_path: the log; need not exist.
        start: byte offset before which lines do not count.

    Returns:
        At most 300 characters; "" when there is none.
    """
    try:
        with log_path.open("rb") as log:
            log.seek(max(start, log.seek(0, os.SEEK_END) - 8192))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    lines = (_CONTROL.sub("", line).strip() for line in re.split(r"[\r\n]+", text))
    return next((line for line in reversed(list(lines)) if line), "")[:300]


def _open_log(log_path: Path) -> IO[bytes]:
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        return log_path.open("ab")
    except OSError as error:
        raise WhyboundError(
            f"cannot write the server's log {log_path}: {error.strerror}"
        ) from error


def _not_started(program: str, error: OSError, env: Mapping[str, str] | None) -> WhyboundError:
    if not isinstance(error, FileNotFoundError):
        message, code = f"cannot run {program}: {error.strerror}", 126
    elif shutil.which(program, path=None if env is None else env.get("PATH")):
        message, code = f"cannot run {program}: the interpreter of its first line is missing", 126
    else:
        message, code = f"command not found: {program}; check its name and PATH", 127
    result = WhyboundError(message)
    result.exit_code = code
    return result
