import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from whybound.collector.launch import Server, check_port_free, tail_line
from whybound.errors import UsageError, WhyboundError

HTTP = """
import http.server, sys, time, os, signal, subprocess
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status = answers.get(self.path, 404)
        if callable(status): status = status()
        self.send_response(status); self.end_headers(); self.wfile.write(b"x")
    def log_message(self, *a): pass
answers = {"/health": 200}
port = int(sys.argv[sys.argv.index("--port") + 1])
def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), H)
    print("up", flush=True)
    server.serve_forever()
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def until(true: Callable[[], bool], within_s: float = 5.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.02)


def quiet(_: str) -> None:
    pass


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a Python program text as a server; whatever a test left behind is killed."""
    servers: list[Server] = []

    def run(text: str, *arguments: str, log: bool = True) -> Server:
        program = tmp_path / "server.py"
        program.write_text(HTTP + textwrap.dedent(text))
        log_path = tmp_path / "logs" / "server.log" if log else None
        server = Server.start([sys.executable, str(program), *arguments], log_path=log_path)
        servers.append(server)
        return server

    yield run
    for server in servers:
        for process in server.tree():
            process.kill()


def ready(server: Server, port: int | None = None, deadline_s: float = 8.0) -> str:
    return asyncio.run(server.wait_ready(port=port, deadline_s=deadline_s, on_progress=quiet))


def stop(server: Server, grace_s: float = 5.0) -> int | None:
    return asyncio.run(server.stop(grace_s))


def test_lifecycle(start: Start) -> None:
    port = free_port()
    server = start("serve()", "--port", str(port))
    assert ready(server) == f"http://127.0.0.1:{port}"
    assert server.returncode() is None
    assert server.listening_ports() == [port]
    assert [p.pid for p in server.tree()] == [server.pid]
    assert os.getsid(server.pid) == os.getpgid(server.pid) == server.pid != os.getsid(0)
    assert stop(server) == 128 + signal.SIGTERM == server.returncode()
    assert server.tree() == []
    assert stop(server) == 128 + signal.SIGTERM
    check_port_free(port, "127.0.0.1")


def test_no_pipe_and_no_input(start: Start, tmp_path: Path) -> None:
    server = start("time.sleep(60)", "--port", str(free_port()))
    targets = [os.readlink(f"/proc/{server.pid}/fd/{n}") for n in range(3)]
    log = str(tmp_path / "logs" / "server.log")
    assert targets == ["/dev/null", log, log]


def test_without_a_log_it_writes_to_our_standard_error(start: Start) -> None:
    server = start("time.sleep(60)", "--port", str(free_port()), log=False)
    ours = os.readlink("/proc/self/fd/2")
    assert [os.readlink(f"/proc/{server.pid}/fd/{n}") for n in (1, 2)] == [ours, ours]


@pytest.mark.parametrize("cmd", [[], [""]])
def test_empty_command(cmd: list[str]) -> None:
    with pytest.raises(UsageError, match="no command to run"):
        Server.start(cmd, log_path=None)


def test_command_not_found(tmp_path: Path) -> None:
    with pytest.raises(WhyboundError, match="command not found: no-such-server") as caught:
        Server.start(["no-such-server"], log_path=None)
    assert caught.value.exit_code == 127
    plain = tmp_path / "plain"
    plain.write_text("")
    with pytest.raises(WhyboundError, match=r"cannot run .*plain: Permission denied") as caught:
        Server.start([str(plain)], log_path=None)
    assert caught.value.exit_code == 126
    plain.write_text("#!/no/such/interpreter\n")
    plain.chmod(0o755)
    with pytest.raises(WhyboundError, match="interpreter") as caught:
        Server.start([str(plain)], log_path=None)
    assert caught.value.exit_code == 126


def test_folder_and_log_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(WhyboundError, match=r"working folder .*gone does not exist"):
        Server.start(["true"], cwd=tmp_path / "gone", log_path=None)
    with pytest.raises(WhyboundError, match="cannot write the server's log"):
        Server.start(["true"], log_path=Path("/proc/nowhere/server.log"))


def test_environment_and_folder(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = 'echo "$A in $(pwd)"; exec sleep 60'
    server = Server.start(["/bin/sh", "-c", line], env={"A": "b"}, cwd=tmp_path, log_path=log)
    until(lambda: tail_line(log) == f"b in {tmp_path}")
    stop(server)


def test_exits_at_once(start: Start, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "server.log").write_text("an older run's line\n")
    server = start("print('no such model\\n\\n'); sys.exit(3)", "--port", str(free_port()))
    with pytest.raises(WhyboundError) as caught:
        ready(server)
    assert caught.value.exit_code == 3
    log = tmp_path / "logs" / "server.log"
    assert "exited with code 3 after " in str(caught.value)
    assert str(caught.value).endswith(f" s; see {log}: no such model")
    assert "\n" not in str(caught.value)
    assert stop(server) == 3


def test_exits_at_once_without_a_word(start: Start, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "server.log").write_text("an older run's line\n")
    server = start("sys.exit(0)", "--port", str(free_port()))
    with pytest.raises(WhyboundError, match=r"server\.log$") as caught:
        ready(server)
    assert caught.value.exit_code == 1


def test_never_ready(start: Start) -> None:
    port = free_port()
    said: list[str] = []
    server = start("print('loading', flush=True); time.sleep(60)", "--port", str(port))
    began = time.monotonic()
    with pytest.raises(WhyboundError) as caught:
        asyncio.run(server.wait_ready(port=None, deadline_s=0.8, on_progress=said.append))
    assert time.monotonic() - began < 3
    message = f"not ready after 0.8 s: GET http://127.0.0.1:{port}/health: connection refused"
    assert message in str(caught.value)
    assert str(caught.value).endswith("server.log: loading")
    assert said[-1].endswith("connection refused · loading")
    assert len(said) == len(set(said))


def test_not_ready_while_health_says_so(start: Start) -> None:
    text = """
    answers.update({"/health": 503, "/v1/models": 200})
    serve()
    """
    server = start(text, "--port", str(free_port()))
    until(lambda: server.listening_ports() != [])
    with pytest.raises(WhyboundError, match="/health answered 503"):
        ready(server, deadline_s=0.3)


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/models", 200), ("/v1/models", 401), ("/metrics", 200)]
)
def test_ready_by_another_path(start: Start, path: str, status: int) -> None:
    server = start(
        f"answers.clear(); answers['{path}'] = {status}; serve()", "--port", str(free_port())
    )
    assert ready(server).startswith("http://127.0.0.1:")


def test_no_path_at_all(start: Start) -> None:
    server = start("answers.clear(); serve()", "--port", str(free_port()))
    until(lambda: server.listening_ports() != [])
    with pytest.raises(WhyboundError, match="/metrics answered 404, /health and /v1/models too"):
        ready(server, deadline_s=0.3)


def test_port_found_by_listening(start: Start) -> None:
    text = """
    import threading
    port = 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
    server.serve_forever()
    """
    server = start(text, "--port", "0")
    url = ready(server)
    assert url == f"http://127.0.0.1:{server.listening_ports()[0]}"


def test_port_in_use(start: Start) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            WhyboundError, match=f"port {port} is already in use by process {os.getpid()} "
        ):
            start("serve()", "--port", str(port))
        with pytest.raises(WhyboundError, match="already in use"):
            check_port_free(port, "0.0.0.0")
    check_port_free(port, "127.0.0.1")
    check_port_free(port, "192.0.2.1")  # not ours to bind: the server's own business


def test_dies_in_mid_run(start: Start) -> None:
    server = start("serve()", "--port", str(free_port()))
    ready(server)
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: server.returncode() is not None)
    assert server.returncode() == 128 + signal.SIGKILL
    assert server.tree() == []
    assert stop(server) == 128 + signal.SIGKILL


def test_ignores_sigterm(start: Start) -> None:
    server = start(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); serve()", "--port", str(free_port())
    )
    ready(server)
    assert stop(server, grace_s=0.3) == 128 + signal.SIGKILL
    assert server.tree() == []


def test_a_stopped_server_can_still_end_well(start: Start) -> None:
    text = """
    signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
    serve()
    """
    server = start(text, "--port", str(free_port()))
    ready(server)
    os.kill(server.pid, signal.SIGSTOP)
    assert stop(server) == 0


GRANDCHILD = """
code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
middle = "import subprocess,sys,time;"
middle += f"subprocess.Popen([sys.executable,'-c',{code!r}]); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", middle], start_new_session=%s)
serve()
"""


@pytest.mark.parametrize("own_session", [False, True])
def test_no_orphan_survives(start: Start, own_session: bool) -> None:
    server = start(GRANDCHILD % own_session, "--port", str(free_port()))
    ready(server)
    until(lambda: len(server.tree()) == 3)
    leader, middle, grandchild = sorted(server.tree(), key=lambda p: p.create_time())
    time.sleep(0.3)  # let it set its signal handler
    leader.kill()
    until(lambda: server.returncode() is not None)
    middle.kill()
    until(lambda: [p.pid for p in server.tree()] == [grandchild.pid])
    assert grandchild.ppid() not in (leader.pid, middle.pid)
    assert stop(server, grace_s=0.2) == 128 + signal.SIGKILL
    assert server.tree() == []
    assert not psutil.pid_exists(grandchild.pid) or grandchild.status() == psutil.STATUS_ZOMBIE


def test_cancelled_stop_kills(start: Start) -> None:
    server = start(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); serve()", "--port", str(free_port())
    )
    ready(server)

    async def interrupted() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(server.stop(grace_s=60), 0.2)

    asyncio.run(interrupted())
    until(lambda: server.tree() == [])


def test_detached_server_is_left_alone(start: Start) -> None:
    server = start("serve()", "--port", str(free_port()))
    ready(server)
    server.detach()
    assert stop(server) is None
    assert [p.pid for p in server.tree()] == [server.pid]


def test_the_server_outlives_us(tmp_path: Path) -> None:
    port = free_port()
    program, log = tmp_path / "server.py", tmp_path / "server.log"
    program.write_text(HTTP + "serve()\n")
    parent = f"""
import asyncio, pathlib, time
from whybound.collector.launch import Server
cmd = [{sys.executable!r}, {str(program)!r}, "--port", "{port}"]
server = Server.start(cmd, log_path=pathlib.Path({str(log)!r}))
asyncio.run(server.wait_ready(port=None, deadline_s=8, on_progress=lambda text: None))
print(server.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as us:
        assert us.stdout is not None
        server = psutil.Process(int(us.stdout.readline()))
        os.kill(us.pid, signal.SIGKILL)
        us.wait()
    try:
        time.sleep(0.2)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            assert answer.status == 200
    finally:
        server.kill()


def test_tail_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail_line(log) == ""
    log.write_bytes(b"")
    assert tail_line(log) == ""
    log.write_bytes(b"one\n\x1b[31mtwo \xff\x1b[0m\x07\n \n\n")
    assert tail_line(log) == "two �"
    log.write_bytes(b"x" * 20000 + b"\nload 10%\rload 20%\r")
    assert tail_line(log) == "load 20%"
    assert tail_line(log, start=20018) == ""
    log.write_bytes(b"y" * 20000)
    assert tail_line(log) == "y" * 300
