"""The command line's conventions: help, exit codes, what goes to which stream, and a safe `profile sql`."""

import json
import subprocess
import sys

import click
import pytest

from whybound import __version__
from whybound.cli import COMMANDS, cli, run
from whybound.collector.manifest import update_manifest
from whybound.collector.schema import SCHEMA_VERSION
from whybound.collector.store import RunWriter, create_run

HEAVY = [
    "ray",
    "torch",
    "duckdb",
    "pyarrow",
    "scipy",
    "sklearn",
    "numpy",
    "aiohttp",
    "pandas",
    "grpc",
]
SECOND = 10**9


def record(path):
    """Forty requests of a load generator, one second each, and nothing else."""
    create_run(path, force=False)
    rows = [
        {
            "request_id": f"q{i}", "source": "client", "arrival_ns": i * SECOND, "sent_ns": i * SECOND,
            "first_token_ns": i * SECOND + SECOND // 5, "end_ns": (i + 1) * SECOND, "client_ttft_s": 0.2,
            "client_e2e_s": 1.0, "input_tokens": 10, "output_tokens": 3, "chunk_count": 3,
            "chunk_gap_s": [0.4, 0.4], "status": "ok", "warmup": False,
        }
        for i in range(40)
    ]  # fmt: skip
    with RunWriter(path, "n") as writer:
        writer.append("requests", rows)
    return path


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    return record(tmp_path_factory.mktemp("cli") / "run")


@pytest.fixture
def profile(capfd):
    """Run a command line in this process: exit code, standard output, standard error."""

    def go(*args):
        capfd.readouterr()
        code = run([str(a) for a in args])
        return (code, *capfd.readouterr())

    return go


def commands():
    context = click.Context(cli, info_name="profile")
    return {name: cli.get_command(context, name) for name in COMMANDS}


def refused(done, code):
    """The one line of an error; nothing on standard output, no traceback."""
    got, out, err = done
    assert (got, out) == (code, "")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err


# ---------------------------------------------------------------- help


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(profile, command, flag):
    code, out, err = profile(*([command] if command else []), flag)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: profile")


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(profile, flag):
    code, out, err = profile(flag)
    assert (code, err) == (0, "")
    assert __version__ in out


def test_the_listing_has_every_command_with_its_line(profile):
    _, out, _ = profile("-h")
    for name, (_, line) in COMMANDS.items():
        assert any(name in row and line in row for row in out.splitlines()), name


def test_every_command_and_every_option_has_help():
    bare = []
    for name, command in commands().items():
        assert command.help, name
        bare += [
            f"{name} {p.opts[0]}"
            for p in command.params
            if isinstance(p, click.Option) and not p.help
        ]
    assert bare == []


def test_options_are_called_the_same_everywhere():
    """`-o`, `-d`, `-q` mean one thing each, and a command that can say JSON has both spellings."""
    for name, command in commands().items():
        options = {o: p.name for p in command.params for o in p.opts}
        for short, long in (("-o", "output"), ("-d", "duration"), ("-q", "quiet")):
            assert options.get(short, long) == long, name
        if "-o" in options and name != "report":
            assert "--force" in options, name


# ---------------------------------------------------------------- what help loads


def test_help_loads_nothing_heavy():
    """For the program and for every command: `profile --help` stays as fast as click itself."""
    code = (
        "import sys, contextlib, io\n"
        "from whybound.cli import run, COMMANDS\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    codes = [run([*c, '--help']) for c in [[], *([c] for c in COMMANDS)]]\n"
        f"print(codes.count(0), [m for m in {HEAVY} if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{len(COMMANDS) + 1} []\n"


def test_both_names_are_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "whybound", "-V"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert __version__ in done.stdout


# ---------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nosuch"], "nosuch"),
        (["diagnose"], "RUN"),
        (["diagnose", "--nope", "x"], "--nope"),
        (["diagnose", "x", "--format", "pdf"], "'pdf'"),
        (["run", "-d", "5 parsecs", "--", "true"], "5 parsecs"),
        (["run", "--seed", "1", "--", "true"], "--load"),
        (["run", "--target", "faster", "--", "true"], "faster"),
        (["run", "--load", "poisson:rate=fast", "--", "true"], "rate"),
    ],
)
def test_a_malformed_request_is_2_and_one_line(profile, args, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in refused(profile(*args), 2)
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_no_command_shows_the_help_and_is_2(profile):
    code, out, err = profile()
    assert code == 2
    assert "Usage: profile" in out + err


# ---------------------------------------------------------------- runs that are none


READERS = [["diagnose"], ["report"], ["sql"], ["check"]]


@pytest.mark.parametrize("command", READERS, ids=lambda c: c[0])
def test_a_run_that_is_not_there(profile, command, tmp_path):
    assert "does not exist" in refused(profile(*command, tmp_path / "nowhere"), 1)


@pytest.mark.parametrize("command", READERS, ids=lambda c: c[0])
def test_a_folder_that_is_no_run(profile, command, tmp_path):
    line = refused(profile(*command, tmp_path), 1)
    assert "is not a run" in line
    assert "name the folder of a run" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", READERS, ids=lambda c: c[0])
def test_a_run_of_a_newer_version(profile, command, tmp_path):
    path = tmp_path / "newer"
    create_run(path, force=False)
    update_manifest(path, {"schema_version": SCHEMA_VERSION + 1})
    assert "newer" in refused(profile(*command, path), 1)


def test_traceback_only_when_asked(profile, tmp_path):
    code, out, err = profile("--traceback", "diagnose", tmp_path)
    assert (code, out) == (1, "")
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("profile: ")


# ---------------------------------------------------------------- output


@pytest.mark.parametrize("args", [["--json"], ["--format", "json"]])
def test_json_is_one_document_on_stdout_and_nothing_else(profile, a_run, args):
    code, out, err = profile("diagnose", a_run, "--no-save", *args)
    assert (code, err) == (0, "")
    assert json.loads(out)["schema_version"]


def test_report_json_is_the_document_too(profile, a_run):
    code, out, err = profile("report", a_run, "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["run"]["path"] == str(a_run)


def test_the_text_is_on_stdout_and_plain_when_it_is_no_terminal(profile, a_run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "")
    code, out, err = profile("diagnose", a_run, "--no-save")
    assert (code, err) == (0, "")
    assert out.strip()
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 100


def test_diagnose_saves_what_it_says_and_no_save_does_not(profile, tmp_path):
    path = record(tmp_path / "run")
    profile("diagnose", path, "--no-save")
    assert not (path / "diagnosis.json").exists()
    profile("diagnose", path, "--target", "mean ttft")
    assert not (path / "diagnosis.json").exists()  # another question than the run's own
    _, out, _ = profile("diagnose", path, "--json")
    assert (
        json.loads((path / "diagnosis.json").read_text())["verdict"] == json.loads(out)["verdict"]
    )
    assert (path / "report.html").read_text().startswith("<!")


def test_report_writes_where_it_is_told(profile, a_run, tmp_path):
    code, out, err = profile("report", a_run, "-o", tmp_path / "page.html")
    assert (code, out) == (0, "")
    assert "page.html" in err
    assert (tmp_path / "page.html").stat().st_size > 1000
    assert "cannot write" in refused(
        profile("report", a_run, "-o", tmp_path / "no" / "page.html"), 1
    )


@pytest.mark.parametrize("name", ["it's", 'a "run"', "a; DROP TABLE requests", "ü %s {x}", "*?[a]"])
def test_paths_with_quotes_and_such(profile, tmp_path, name):
    path = record(tmp_path / name)
    code, out, err = profile("sql", path, "SELECT count(*) AS n FROM requests", "--format", "json")
    assert (code, out, err) == (0, '{"n":40}\n', "")
    code, out, _ = profile("diagnose", path, "--json")
    assert code == 0
    assert json.loads(out)["run"]["path"] == str(path)


# ---------------------------------------------------------------- sql


def test_sql_lists_what_there_is(profile, a_run):
    code, out, _ = profile("sql", a_run)
    assert code == 0
    for name in ("requests", "server_phases", "run_window", "queue"):
        assert name in out
    assert "log_requests" not in out


@pytest.mark.parametrize(
    ("form", "text"),
    [("json", '{"a":1,"b":"x","c":3}\n'), ("csv", '"a","b","c"\n1,"x",3\n')],
)
def test_sql_formats(profile, a_run, form, text):
    query = "SELECT 1 AS a, 'x' AS b, sum(output_tokens)::HUGEINT // 40 AS c FROM requests"
    assert profile("sql", a_run, query, "--format", form) == (0, text, "")


@pytest.mark.parametrize(
    "query", ["DESCRIBE load", "SHOW TABLES", "SUMMARIZE run_window", "FROM load"]
)
def test_sql_may_read_in_any_words(profile, a_run, query):
    assert profile("sql", a_run, query)[0] == 0


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('{run}/manifest.json')",
        "SELECT * FROM read_text('{run}/tables/../manifest.json')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_json('http://127.0.0.1:9/x')",
    ],
)
def test_sql_reads_nothing_but_the_run(profile, a_run, query):
    assert "DuckDB" in refused(profile("sql", a_run, query.format(run=a_run)), 1)


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{run}/tables/x.csv'",
        "COPY (SELECT 1) TO '{tmp}/x.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{run}/tables/x.csv'",
        "CREATE TABLE t AS SELECT 1",
        "ATTACH '{tmp}/x.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "EXPORT DATABASE '{run}/tables'",
        "SELECT 1; COPY (SELECT 1) TO '{run}/tables/x.csv'",
    ],
)
def test_sql_only_reads(profile, a_run, tmp_path, query):
    before = sorted(a_run.rglob("*"))
    assert "SELECT" in refused(profile("sql", a_run, query.format(run=a_run, tmp=tmp_path)), 2)
    assert sorted(a_run.rglob("*")) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "query", ["SELEC 1", "SELECT * FROM no_such_view", "SELECT 'a'::INT", "SELECT error('late')"]
)
def test_sql_errors_are_one_line(profile, a_run, query):
    assert "DuckDB" in refused(profile("sql", a_run, query), 1)


# ---------------------------------------------------------------- rules, levers, check


@pytest.mark.parametrize(
    ("command", "name"), [("rules", "batch_cap"), ("levers", "raise_max_num_seqs")]
)
def test_catalogue(profile, command, name):
    code, out, err = profile(command)
    assert (code, err) == (0, "")
    assert name in out
    code, out, err = profile(command, name)
    assert (code, err) == (0, "")
    assert "source" in out
    assert f"did you mean {name}" in refused(profile(command, name[:-1]), 1)


def test_every_rule_passes_its_own_cases(profile):
    code, out, _ = profile("rules", "--test")
    assert code == 0
    assert "0 problems" in out


def test_check_of_this_machine(profile):
    code, out, err = profile("check")
    assert (code, err) == (0, "")
    assert "cores" in out


def test_check_of_a_run_that_is_sound(profile, a_run):
    code, out, err = profile("check", a_run)
    assert (code, err) == (0, "")
    assert "too_few_samples" in out


def test_check_of_a_run_that_is_not_sound_is_1(profile, tmp_path):
    path = tmp_path / "few"
    create_run(path, force=False)
    with RunWriter(path, "n") as writer:
        writer.append(
            "requests",
            [
                {
                    "request_id": f"q{i}", "source": "client", "arrival_ns": i, "end_ns": i + SECOND,
                    "client_e2e_s": 1.0, "status": "ok",
                }
                for i in range(3)
            ],
        )  # fmt: skip
    code, out, _ = profile("check", path)
    assert code == 1
    assert "fires" in out
