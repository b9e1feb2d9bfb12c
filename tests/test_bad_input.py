"""What goes wrong in the world: one clear line, the right exit code, and what was measured is kept."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from whybound.collector.store import open_run

PROFILE = (sys.executable, "-m", "whybound")
ENGINE = (sys.executable, "-m", "whybound.fixtures.engine")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def profile(*args: object, cwd: Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROFILE, *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The single line that says what went wrong; fails when there is a traceback or more than one."""
    assert "Traceback" not in done.stderr
    lines = [x for x in done.stderr.splitlines() if x.startswith("profile: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    done = profile("run", "-o", "R", "--", "no-such-server", cwd=tmp_path)
    assert done.returncode == 127
    assert "no-such-server" in one_line(done)


def test_a_server_that_exits_at_once(tmp_path: Path) -> None:
    code = "print('model not found'); raise SystemExit(3)"
    done = profile("run", "-o", "R", "--", sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 3
    assert "exited with code 3" in one_line(done)
    assert "model not found" in one_line(done)


def test_a_server_that_is_never_ready(tmp_path: Path) -> None:
    done = profile(
        "run", "-o", "R", "--ready-timeout", "1s", "--", sys.executable, "-c", "import time; time.sleep(60)",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "was not ready after 1 s" in one_line(done)


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = profile("run", "-o", "R", "--", *ENGINE, "--port", port, cwd=tmp_path)
    assert done.returncode == 1
    assert str(port) in one_line(done)


class _Pages(BaseHTTPRequestHandler):
    """/metrics as the class attribute says; everything else is fine and empty."""

    status, body, kind = 200, b"", "text/plain"

    def do_GET(self) -> None:
        is_metrics = self.path.endswith("/metrics")
        self.send_response(self.status if is_metrics else 200)
        self.send_header("Content-Type", self.kind)
        self.end_headers()
        if is_metrics:
            self.wfile.write(self.body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def metrics_server() -> Iterator[Callable[[int, bytes, str], str]]:
    servers = []

    def serve(status: int, body: bytes, kind: str) -> str:
        handler = type("Pages", (_Pages,), {"status": status, "body": body, "kind": kind})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()


GOOD = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="m"} 1.0\n'


@pytest.mark.parametrize(
    ("status", "body", "kind", "says"),
    [
        (404, b"not here", "text/plain", "404"),
        (200, b"<!doctype html><html><body>hello</body></html>", "text/html", "HTML"),
        (200, b"# TYPE a gauge\na 1\n" * 2_700_000, "text/plain", "larger than"),
    ],
    ids=["404", "html", "50 MB"],
)
def test_metrics_that_are_none(
    tmp_path: Path,
    metrics_server: Callable[..., str],
    status: int,
    body: bytes,
    kind: str,
    says: str,
) -> None:
    url = metrics_server(status, body, kind)
    done = profile("attach", "--url", url, "-d", "2s", "-o", "R", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    missing = " ".join(json.loads(done.stdout)["coverage"]["missing"])
    assert says in missing


def test_truncated_metrics_keep_their_whole_lines(
    tmp_path: Path, metrics_server: Callable[..., str]
) -> None:
    url = metrics_server(200, GOOD + b"vllm:num_requests_wait", "text/plain")
    done = profile("attach", "--url", url, "-d", "2s", "-o", "R", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = profile(
        "sql",
        "R",
        "SELECT DISTINCT signal FROM samples WHERE engine = 'vllm'",
        "--format",
        "csv",
        cwd=tmp_path,
    )
    assert "engine_running_count" in rows.stdout
    assert "waiting" not in rows.stdout


def test_a_server_that_dies_in_mid_run(tmp_path: Path) -> None:
    port = free_port()
    run = subprocess.Popen(
        [*PROFILE, "run", "-o", "R", "--json", "--load", "constant:rate=5,in=8,out=8,drain=1", "-d", "20s",
         "--", *ENGINE, "--port", str(port)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    pid = _wait_for_event(tmp_path / "R", "load_started")
    time.sleep(2)
    os.kill(pid, signal.SIGKILL)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 137, err
    assert "exited by itself with code 137" in err
    assert json.loads(out)["run"]["engine"] == "vllm"
    con_rows = profile(
        "sql",
        "R",
        "SELECT count(*) AS n FROM requests WHERE status = 'ok'",
        "--format",
        "json",
        cwd=tmp_path,
    )
    assert json.loads(con_rows.stdout)["n"] > 0


def _wait_for_event(run_dir: Path, kind: str, timeout: float = 30) -> int:
    """The server's pid, once the run holds an event of this kind."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if run_dir.exists():
            try:
                events = open_run(run_dir).log_table("events").to_pylist()
            except Exception:
                events = []
            pids = [int(e["value"]) for e in events if e["kind"] == "server_started"]
            if pids and any(e["kind"] == kind for e in events):
                return pids[0]
        time.sleep(0.2)
    raise AssertionError(f"no event {kind} in {run_dir} after {timeout} s")


def test_the_profiler_is_killed_and_the_server_lives(tmp_path: Path) -> None:
    port = free_port()
    run = subprocess.Popen(
        [*PROFILE, "run", "-o", "R", "--load", "constant:rate=10,in=8,out=8", "-d", "30s", "--interval", "200ms",
         "--", *ENGINE, "--port", str(port)],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    pid = _wait_for_event(tmp_path / "R", "load_started")
    try:
        time.sleep(3)
        killed_ns = time.time_ns()
        run.kill()
        run.wait()
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass  # the server still answers
        done = profile("diagnose", "R", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        newest = open_run(tmp_path / "R").log_table("samples").column("t_ns").to_pylist()
        # 500 ms is the promise for what was handed over; a scrape interval and the scrape itself come before
        assert killed_ns - max(newest) < 1_200_000_000
        assert json.loads(done.stdout)["run"]["state"] == "recording"
    finally:
        os.kill(pid, signal.SIGKILL)


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    port = free_port()
    run = subprocess.Popen(
        [*PROFILE, "run", "-o", "R", "--json", "--load", "constant:rate=5,in=8,out=8,drain=2", "-d", "60s",
         "--", *ENGINE, "--port", str(port)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _wait_for_event(tmp_path / "R", "load_started")
    time.sleep(2)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=40)
    assert run.returncode == 130, err
    assert json.loads(out)["run"]["state"] == "finished"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_keep_leaves_the_server(tmp_path: Path) -> None:
    port = free_port()
    done = profile(
        "run",
        "-o",
        "R",
        "--json",
        "--keep",
        "-d",
        "1s",
        "--",
        *ENGINE,
        "--port",
        port,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    events = profile(
        "sql",
        "R",
        "SELECT value FROM events WHERE kind = 'server_started'",
        "--format",
        "json",
        cwd=tmp_path,
    )
    os.kill(int(json.loads(events.stdout)["value"]), signal.SIGKILL)


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = profile(
        "run", "-o", "file/R", "-d", "1s", "--", *ENGINE, "--port", free_port(), cwd=tmp_path
    )
    assert done.returncode == 1
    assert "file" in one_line(done)


def test_an_output_that_exists(tmp_path: Path) -> None:
    (tmp_path / "R").mkdir()
    (tmp_path / "R" / "mine").write_text("x")
    done = profile("attach", "--url", "http://127.0.0.1:9", "-d", "1s", "-o", "R", cwd=tmp_path)
    assert done.returncode == 1
    assert "--force" in one_line(done) or "empty" in one_line(done)
    assert (tmp_path / "R" / "mine").read_text() == "x"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", small],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not let tests mount a file system")
    try:
        done = profile(
            "run", "-o", "small/R", "--json", "--interval", "100ms", "--load", "constant:rate=50,in=8,out=8", "-d",
            "8s", "--", *ENGINE, "--port", free_port(), cwd=tmp_path,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        document = json.loads(done.stdout)
        assert "No space left" in done.stderr + json.dumps(document["run"]["losses"])
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_run_that_is_none(tmp_path: Path) -> None:
    done = profile("diagnose", tmp_path, cwd=tmp_path)
    assert done.returncode == 1
    assert str(tmp_path) in one_line(done)
    done = profile("diagnose", "nowhere", cwd=tmp_path)
    assert done.returncode == 1
    assert "nowhere" in one_line(done)


def test_a_run_from_a_newer_version(tmp_path: Path) -> None:
    (tmp_path / "R").mkdir()
    (tmp_path / "R" / "manifest.json").write_text('{"schema_version": 999}')
    done = profile("diagnose", "R", cwd=tmp_path)
    assert done.returncode == 1
    assert "newer" in one_line(done)
