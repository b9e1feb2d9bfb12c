"""Files into a run: what is recognised, what is said of the rest, and that one never ends the others."""

from __future__ import annotations

import gzip
import io
import zipfile
from functools import partial

import pytest
from import_files import imported

from whybound.collector.importers import catalogue, run
from whybound.collector.importers.catalogue import MODULES, importers
from whybound.collector.importers.importer import Importer, Sample
from whybound.collector.importers.recognise import by_kind, recognise
from whybound.collector.importers.run import import_files
from whybound.collector.store import open_run
from whybound.errors import UsageError, WhyboundError

LOG = """\
INFO 11-29 08:00:00 [utils.py:233] non-default args: {'model_tag': 'm', 'max_num_seqs': 64}
INFO 11-29 08:00:10 [loggers.py:123] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 99.0 tokens/s, Running: 64 reqs, Waiting: 3 reqs, GPU KV cache usage: 6.7%, Prefix cache hit rate: 17.1%
INFO 11-29 08:00:20 [loggers.py:123] Engine 000: Avg prompt throughput: 11.0 tokens/s, Avg generation throughput: 98.0 tokens/s, Running: 64 reqs, Waiting: 4 reqs, GPU KV cache usage: 7.7%, Prefix cache hit rate: 17.2%
"""  # noqa: E501 — lines stand as they are written


def put(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_every_module_with_importers_is_in_the_catalogue():
    from pathlib import Path

    folder = Path(catalogue.__file__).parent
    having = {p.stem for p in folder.glob("*.py") if "\nIMPORTERS" in p.read_text(encoding="utf-8")}
    assert having == set(MODULES)


def test_kinds_are_words_with_hyphens_and_titles_are_there():
    for importer in importers():
        assert importer.kind == importer.kind.lower().replace("_", "-").replace(" ", "-")
        assert importer.title


@pytest.mark.parametrize(
    "text", ["", "\0\1\2", "hello\nworld\n", "{}", "[]", "a,b\n1,2\n", "x" * 70_000, "{" * 9000]
)
def test_what_is_nothing_is_recognised_as_nothing(text):
    sample = Sample("server.log", text.encode(), "" if "\0" in text else text, len(text))
    assert recognise(sample, importers()) is None


def test_the_surest_wins_and_the_first_of_equals():
    def kind(name, sure):
        return Importer(name, name, lambda s: sure, lambda s, k: None)

    known = [kind("a", 0.6), kind("b", 0.8), kind("c", 0.8), kind("d", 0.4)]
    found = recognise(Sample("n", b"", "", 0), known)
    assert found is not None
    assert found.kind == "b"
    assert recognise(Sample("n", b"", "", 0), known[3:]) is None


def test_an_unknown_kind_names_what_is_like_it():
    with pytest.raises(UsageError, match="did you mean vllm-log"):
        by_kind("vlm-log", importers())


def test_one_file_never_ends_the_others(tmp_path):
    files = [
        put(tmp_path / "blob", bytes(range(256)) * 99),
        tmp_path / "missing.log",
        put(tmp_path / "note.txt", "hello\n"),
        put(tmp_path / "cut.log.gz", gzip.compress(LOG.encode() * 1000)[:-700]),
        put(tmp_path / "server.log", LOG),
        put(tmp_path / "empty.log", ""),
    ]
    outcomes, rows = imported(tmp_path, *files)
    said = {o.file.rsplit("/", 1)[-1]: o for o in outcomes}
    assert "no known kind (binary)" in said["blob"].refused
    assert "does not exist" in said["missing.log"].refused
    assert "no known kind (text)" in said["note.txt"].refused
    assert "is empty" in said["empty.log"].refused
    assert said["server.log"].refused is None
    assert said["server.log"].rows["samples"] == 12
    cut = said["cut.log.gz"]
    assert "cut off" in cut.refused
    assert cut.rows["samples"] > 500, "what came before is kept"
    assert len(rows("samples")) == sum(o.rows.get("samples", 0) for o in outcomes)
    for outcome in outcomes:
        assert "\n" not in (outcome.refused or "")


def test_an_importer_that_breaks_is_one_line(tmp_path, monkeypatch):
    def broken(source, sink):
        sink.rows("samples", [{"signal": "engine_running_count", "value": 1.0, "t_ns": 1}])
        raise KeyError("a\nb")

    known = (Importer("broken", "Broken", lambda s: 0.9, broken),)
    monkeypatch.setattr("whybound.collector.importers.run.importers", lambda: known)
    outcomes, rows = imported(tmp_path, put(tmp_path / "f", "x"))
    assert outcomes[0].refused == "not read as broken: KeyError: 'a\\nb'"
    assert len(rows("samples")) == 1


def test_numbers_that_are_none_and_negative_durations_are_left_out_and_told(tmp_path, monkeypatch):
    def odd(source, sink):
        sink.rows("requests", [
            {"request_id": "1", "queue_wait_s": -0.5, "server_e2e_s": 2.0, "network_s": -0.1},
            {"request_id": "2", "queue_wait_s": float("nan"), "server_e2e_s": float("inf")},
        ])  # fmt: skip

    known = (Importer("odd", "Odd", lambda s: 0.9, odd),)
    monkeypatch.setattr("whybound.collector.importers.run.importers", lambda: known)
    outcomes, rows = imported(tmp_path, put(tmp_path / "f", "x"))
    one, two = rows("requests")
    assert (one["queue_wait_s"], one["server_e2e_s"], one["network_s"]) == (None, 2.0, -0.1)
    assert (two["queue_wait_s"], two["server_e2e_s"]) == (None, None)
    assert set(outcomes[0].notes) == {
        "1 negative durations left out", "2 values that are no finite number left out"
    }  # fmt: skip


def test_more_rows_than_the_writer_holds_are_all_kept(tmp_path, monkeypatch):
    def many(source, sink):
        for i in range(130):
            sink.rows(
                "samples", [{"t_ns": i, "signal": "engine_running_count", "value": 1.0}] * 100
            )

    known = (Importer("many", "Many", lambda s: 0.9, many),)
    monkeypatch.setattr(run, "RunWriter", partial(run.RunWriter, max_pending_rows=2000))
    monkeypatch.setattr(run, "_FLUSH_ROWS", 1000)
    monkeypatch.setattr("whybound.collector.importers.run.importers", lambda: known)
    _, rows = imported(tmp_path, put(tmp_path / "f", "x"))
    assert len(rows("samples")) == 13_000


def test_members_of_an_archive_are_files(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a/server.log", LOG)
        archive.writestr("readme", "nothing")
    outcomes, rows = imported(tmp_path, put(tmp_path / "all.zip", buffer.getvalue()))
    assert outcomes[0].file == f"{tmp_path}/all.zip!a/server.log"
    assert [o.kind for o in outcomes] == ["vllm-log", None]
    assert rows("settings")


def test_the_manifest_says_what_was_imported(tmp_path):
    imported(tmp_path, put(tmp_path / "server.log", LOG), put(tmp_path / "x", "y"))
    manifest = open_run(tmp_path / "run").manifest
    assert manifest["state"] == "finished"
    assert [e["kind"] for e in manifest["imported"]] == ["vllm-log", None]
    assert manifest["imported"][0]["rows"]["settings"] == 1


def test_a_kind_that_is_named_is_believed(tmp_path):
    path = put(tmp_path / "f", "something\n" + LOG.splitlines()[1] + "\n")
    outcomes, _ = imported(tmp_path, path, kind="sglang-log")
    assert outcomes[0].kind == "sglang-log"
    with pytest.raises(UsageError, match="no kind"):
        import_files([path], tmp_path / "other", kind="nonsense")


def test_timelines_are_recognised_and_refused_honestly(tmp_path):
    files = [
        put(tmp_path / "a.json", '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "ts": 1}]}'),
        put(tmp_path / "b.bin", b"SQLite format 3\0" + b"\0" * 100 + b"CUPTI_ACTIVITY_KIND_KERNEL"),
        put(tmp_path / "c.csv", "Time (%),Total Time (ns),Instances,Avg (ns),Name\n1,2,3,4,k\n"),
        put(tmp_path / "d.csv", '"ID","Process ID","Process Name","Host Name","Kernel Name"\n'),
    ]
    outcomes, _ = imported(tmp_path, *files)
    assert [o.kind for o in outcomes] == ["kineto", "nsys-sqlite", "nsys-stats", "ncu-csv"]
    assert all("not read yet" in o.refused for o in outcomes)


def test_an_existing_run_is_not_replaced_unasked(tmp_path):
    path = put(tmp_path / "server.log", LOG)
    imported(tmp_path, path)
    with pytest.raises(WhyboundError, match="--force"):
        import_files([path], tmp_path / "run")


def test_files_are_added_to_a_run_that_is_there(tmp_path):
    imported(tmp_path, put(tmp_path / "server.log", LOG))
    import_files(
        [put(tmp_path / "vllm.sh", "vllm serve m --max-num-seqs 8\n")], tmp_path / "run", add=True
    )
    opened = open_run(tmp_path / "run")
    assert len(opened.parts("settings")) == 2
    assert opened.manifest["state"] == "finished"


def test_names_with_quotes_and_semicolons_are_only_names(tmp_path):
    path = put(tmp_path / "a'; DROP TABLE samples;--\n\".log", LOG)
    outcomes, rows = imported(tmp_path, path)
    assert outcomes[0].kind == "vllm-log"
    assert rows("samples")
