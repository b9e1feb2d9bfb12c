"""Roofs: the probe is run and what it prints is checked, kept, and carried by recordings."""

import ast
import json
import os
import socket
import subprocess
import sys
import types

import pytest

from whybound.cli import run
from whybound.collector import machine, roof_probe, roofs
from whybound.collector.schema import TABLES
from whybound.errors import WhyboundError

GOOD = {
    "version": 1, "kind": "cpu", "device_name": "Some CPU", "cores_count": 2, "threads_count": 2,
    "torch": "2.13", "read_bytes_per_s": 2.5e10, "copy_bytes_per_s": 2e10, "launch_s": 4e-6,
    "flops": {"fp32": 1.5e11, "bf16": 2e10}, "flops_from": {"fp32": "linear 1024x1024x1024"},
    "not_measured": {"all-reduce": "needs two GPUs"}, "others_cores": 0.0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def probe(tmp_path):
    """A script that stands for the probe."""

    def write(text):
        path = tmp_path / "probe.py"
        path.write_text(text)
        return path

    return write


def printing(data, before=""):
    return f"print({before!r})\nprint({json.dumps(data)!r})"


# ---------------------------------------------------------------- running it


def test_the_last_line_counts(probe):
    found = roofs.measure_roofs(sys.executable, probe=probe(printing(GOOD, "a library's greeting")))
    assert found == GOOD


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "version 2"),
        ({"device_name": None}, "device_name"),
        ({"read_bytes_per_s": 0}, "read_bytes_per_s is 0"),
        ({"launch_s": "4e-6"}, "launch_s is '4e-6'"),
        ({"flops": {}}, "no flops"),
        ({"flops": {"fp32": -1}}, "fp32 is -1"),
        ({"flops": {"fp32": float("inf")}}, "fp32 is inf"),
        ({"all_reduce_s": True}, "all_reduce_s is True"),
    ],
)
def test_what_are_no_roofs_is_said(probe, change, says):
    with pytest.raises(WhyboundError, match="give --python") as raised:
        roofs.measure_roofs(sys.executable, probe=probe(printing({**GOOD, **change})))
    assert says in str(raised.value)


@pytest.mark.parametrize("missing", ["read_bytes_per_s", "launch_s", "flops", "device_name"])
def test_a_figure_that_is_missing_is_named(probe, missing):
    data = {k: v for k, v in GOOD.items() if k != missing}
    with pytest.raises(WhyboundError, match=missing):
        roofs.measure_roofs(sys.executable, probe=probe(printing(data)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON object"),
        ("print('[1]')", "no JSON object"),
        ("print('{')", "no JSON object"),
        ("import sys; sys.exit('no torch here')", "no torch here"),
        ("import os; os._exit(9)", "exit code 9"),
    ],
)
def test_a_probe_that_fails_is_one_line(probe, text, says):
    with pytest.raises(WhyboundError) as raised:
        roofs.measure_roofs(sys.executable, probe=probe(text))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_it_is_ended_after_its_time(probe):
    script = probe("import time; time.sleep(60)")
    with pytest.raises(WhyboundError, match=r"more than 0\.3 s"):
        roofs.measure_roofs(sys.executable, timeout_s=0.3, probe=script)


def test_a_python_that_is_none(tmp_path):
    with pytest.raises(WhyboundError, match=r"cannot be started .*--python"):
        roofs.measure_roofs(str(tmp_path / "python"))


def test_without_torch_it_names_the_option(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(WhyboundError, match="--python /path/to/the/server"):
        roofs.default_python()


def test_the_probe_says_so_itself(tmp_path):
    done = subprocess.run(
        [sys.executable, "-I", "-S", roofs.PROBE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert "no torch" in done.stderr


def test_the_probe_stands_alone():
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(roofs.PROBE.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module])
    }  # fmt: skip
    assert imported <= set(sys.stdlib_module_names)


@pytest.mark.skipif(
    not os.environ.get("WHYBOUND_VLLM"), reason="WHYBOUND_VLLM names no bin folder with torch"
)
@pytest.mark.slow
def test_the_real_probe_on_this_machine():
    found = roofs.measure_roofs(os.path.join(os.environ["WHYBOUND_VLLM"], "python"))
    assert 1e9 < found["read_bytes_per_s"] < 1e13
    assert found["flops"]["fp32"] > 1e9
    assert 1e-7 < found["launch_s"] < 1e-3


# ---------------------------------------------------------------- keeping them


def test_they_are_kept_a_host_and_a_device(monkeypatch):
    other = {**GOOD, "device_name": "NVIDIA H200", "kind": "cuda"}
    path = roofs.save_roofs(GOOD)
    assert path == roofs.cache_file()
    roofs.save_roofs(other)
    assert roofs.load_roofs("Some CPU") == GOOD
    assert roofs.load_roofs("NVIDIA H200") == other
    assert roofs.load_roofs("NVIDIA L4") is None
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert roofs.load_roofs("Some CPU") is None
    assert [p.name for p in path.parent.iterdir()] == ["roofs.json"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": 2, "machines": {}}', '{"version": 1, "machines": [1]}', "\xff"],
)
def test_a_cache_that_cannot_be_read_holds_nothing_and_is_replaced(text):
    path = roofs.cache_file()
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    assert roofs.load_roofs("Some CPU") is None
    roofs.save_roofs(GOOD)
    assert roofs.load_roofs("Some CPU") == GOOD


def test_a_figure_spoilt_in_the_cache_is_not_used():
    path = roofs.save_roofs(GOOD)
    path.write_text(path.read_text().replace("25000000000.0", "-1"))
    assert roofs.load_roofs("Some CPU") is None


def test_a_cache_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(WhyboundError, match="--no-save"):
        roofs.save_roofs(GOOD)


def test_a_relative_cache_home_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert roofs.cache_file() == tmp_path / ".cache" / "whybound" / "roofs.json"


def test_cores_taken_by_others_disturb_a_cpu_and_no_gpu():
    busy = {**GOOD, "others_cores": float(os.cpu_count() or 1)}
    assert "other programs" in (roofs.disturbed(busy) or "")
    assert roofs.disturbed({**busy, "kind": "cuda"}) is None
    assert roofs.disturbed(GOOD) is None
    assert roofs.disturbed({k: v for k, v in GOOD.items() if k != "others_cores"}) is None


# ---------------------------------------------------------------- the command


@pytest.fixture
def measured(monkeypatch):
    """`measured(GOOD)`: what the command will measure; the interpreters that it asked."""
    asked = []

    def set_to(found):
        def fake(python):
            asked.append(python)
            return found

        monkeypatch.setattr(roofs, "measure_roofs", fake)
        return asked

    return set_to


def test_the_command_shows_and_keeps(measured, capfd):
    asked = measured(GOOD)
    assert run(["check", "--roofs", "--python", "/a/python"]) == 0
    out, err = capfd.readouterr()
    assert asked == ["/a/python"]
    assert "25.0 GB/s" in out
    assert "0.15 TFLOP/s (linear 1024x1024x1024)" in out
    assert "4.00 µs" in out
    assert "is no roof" in out
    assert "kept in" in err
    assert roofs.load_roofs("Some CPU") == GOOD


@pytest.mark.parametrize(
    ("options", "others", "kept"),
    [([], 0.0, True), (["--no-save"], 0.0, False), ([], 64.0, False), (["--save"], 64.0, True)],
)
def test_what_is_kept(measured, capfd, monkeypatch, options, others, kept):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    measured({**GOOD, "others_cores": others})
    assert run(["check", "--roofs", "--python", "p", *options]) == 0
    assert (roofs.load_roofs("Some CPU") is not None) == kept
    assert ("too low" in capfd.readouterr().err) == bool(others)


def test_json_is_one_document(measured, capfd):
    measured(GOOD)
    assert run(["check", "--roofs", "--python", "p", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["flops"] == GOOD["flops"]
    assert "no roof" in document["note"]


@pytest.mark.parametrize("args", [["RUN", "--roofs"], ["--json"], ["--python", "p"], ["--save"]])
def test_options_that_do_not_go_together(capfd, args):
    assert run(["check", *args]) == 2
    assert capfd.readouterr().err.count("\n") == 1


# ---------------------------------------------------------------- what a recording carries


def carried(**options):
    rows = machine.machine_rows(**{"node": "n", "emulated": False, **options})
    assert all(set(r) == {c.name for c in TABLES["settings"].columns} for r in rows)
    assert all(r["origin"] == "effective" and r["engine"] == "" for r in rows)
    return {r["key"]: (r["value"], r["source"]) for r in rows}


@pytest.fixture
def here(monkeypatch, tmp_path):
    """A machine of two cores without a GPU, whatever the one under the test is."""
    monkeypatch.setattr(machine, "cpu_name", lambda: "Some CPU")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(machine, "AMD_GPU", tmp_path / "none")
    monkeypatch.setattr(machine, "_gpus", list)
    return monkeypatch


def test_without_roofs_it_names_the_machine_alone(here):
    assert carried() == {"cpu_name": ("Some CPU", "cpuinfo"), "cpu_count": ("2", "cpuinfo")}


def test_roofs_travel_as_text_of_floats(here):
    roofs.save_roofs(GOOD)
    found = carried()
    source = "profile check --roofs"
    assert found["roof_read_bytes_per_s"] == ("25000000000.0", source)
    assert found["roof_fp32_flops"] == ("150000000000.0", source)
    assert found["roof_bf16_flops"] == ("20000000000.0", source)
    assert found["roof_launch_s"] == ("4e-06", source)
    assert "roof_all_reduce_s" not in found
    assert "roof_fp16_flops" not in found


def test_roofs_of_other_cores_of_a_gpu_or_for_an_emulated_world_do_not(here, tmp_path):
    roofs.save_roofs(GOOD)
    assert not any(k.startswith("roof_") for k in carried(emulated=True))
    here.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert not any(k.startswith("roof_") for k in carried())
    here.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert "roof_launch_s" in carried()
    here.setattr(machine, "AMD_GPU", tmp_path)
    assert not any(k.startswith("roof_") for k in carried())


def test_a_gpu_is_named_and_its_roofs_taken(here):
    roofs.save_roofs(GOOD)
    roofs.save_roofs({**GOOD, "kind": "cuda", "device_name": "NVIDIA H200", "all_reduce_s": 2e-5})
    here.setattr(machine, "_gpus", lambda: ["NVIDIA H200", "NVIDIA H200"])
    found = carried()
    assert found["gpu_name"] == ("NVIDIA H200", "nvml")
    assert found["gpu_count"] == ("2", "nvml")
    assert found["roof_all_reduce_s"][0] == "2e-05"
    here.setattr(machine, "_gpus", lambda: ["NVIDIA H200", "NVIDIA L4"])
    assert not any(k.startswith("roof_") for k in carried())


def test_gpus_are_asked_by_nvml_and_a_driver_that_fails_is_none(monkeypatch):
    nvml = types.ModuleType("pynvml")
    nvml.nvmlInit = nvml.nvmlShutdown = lambda: None
    nvml.nvmlDeviceGetCount = lambda: 2
    nvml.nvmlDeviceGetHandleByIndex = lambda i: i
    nvml.nvmlDeviceGetName = lambda handle: [b"NVIDIA H200", "NVIDIA L4"][handle]
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert machine._gpus() == ["NVIDIA H200", "NVIDIA L4"]
    nvml.nvmlDeviceGetName = lambda handle: 1 / 0
    assert machine._gpus() == []


@pytest.mark.parametrize(
    ("urls", "local"),
    [
        (["http://127.0.0.1:8000"], True),
        (["http://localhost:8000", "http://[::1]:1"], True),
        (["http://127.0.0.1:8000", "http://10.0.0.1:8000"], False),
        (["https://llm.example.com"], False),
        ([], False),
    ],
)
def test_which_servers_are_local(urls, local):
    assert machine.is_local(urls) is local


def test_the_processor_has_a_name():
    assert roof_probe.cpu_name().strip()
