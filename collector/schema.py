"""The tables of a run: every column with its type, unit and meaning (seam 1, versioned).

The unit of a measured column is the suffix of its name; `UNIT_SUFFIXES` lists those that exist and a
test refuses others. Times (`_ns`) are int64 nanoseconds since the epoch; durations (`_s`) are float64
seconds from one clock. A column that was not measured is null: missing is never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
"""Version of the tables and the manifest; a reader refuses a newer one."""

UNIT_SUFFIXES = frozenset(
    [
        "ns",
        "s",
        "bytes",
        "ratio",
        "per_s",
        "count",
        "tokens",
        "w",
        "joules",
        "mhz",
        "celsius",
        "flops",
        "usd",
    ]
)

TYPES = ("string", "dictionary", "int64", "float64", "bool", "list<float64>")
"""`dictionary` is a dictionary-encoded string: few distinct values, many rows."""


@dataclass(frozen=True)
class Column:
    """One column: `unit` is a suffix from `UNIT_SUFFIXES`, or None for what is not measured."""

    name: str
    type: str
    unit: str | None
    doc: str


@dataclass(frozen=True)
class Table:
    """One table: what a row is, and its columns in file order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    def column_names(self) -> list[str]:
        """The names in file order."""
        return [c.name for c in self.columns]


def _label_columns() -> tuple[Column, ...]:
    return (
        Column("node", "dictionary", None, "host that recorded the row"),
        Column("engine", "dictionary", None, "engine kind: vllm, llamacpp, …; empty for the host"),
        Column("replica", "dictionary", None, "engine instance, e.g. host:port plus its rank"),
        Column("gpu", "dictionary", None, "GPU index on the node; empty when not a GPU's"),
        Column("phase", "dictionary", None, "prefill or decode where the source tells; else empty"),
        Column("reason", "dictionary", None, "cause, finish or throttle reason; else empty"),
        Column("labels", "dictionary", None, "all other labels, a JSON object with sorted keys"),
    )


_TABLES = (
    Table(
        "requests",
        "one request as its client saw it, or as a server span reports it",
        (
            Column("request_id", "string", None, "X-Request-Id, unique in the run"),
            Column(
                "source",
                "dictionary",
                None,
                "client: seen by the load generator; span: by the server",
            ),
            Column(
                "arrival_ns", "int64", "ns", "intended send time (open loop), else actual send time"
            ),
            Column("sent_ns", "int64", "ns", "the request's bytes were handed to the socket"),
            Column("first_token_ns", "int64", "ns", "first content chunk received"),
            Column("end_ns", "int64", "ns", "last byte received, or the failure"),
            Column(
                "send_lag_s",
                "float64",
                "s",
                "start of connecting minus arrival: the generator's own delay",
            ),
            Column("queue_wait_s", "float64", "s", "server: waiting for a place in the batch"),
            Column(
                "tokenize_s", "float64", "s", "server: tokenization and front end before the queue"
            ),
            Column("prefill_s", "float64", "s", "server: first scheduled to first token"),
            Column("decode_s", "float64", "s", "server: first to last token"),
            Column(
                "detokenize_s",
                "float64",
                "s",
                "server: detokenization and streaming after the engine",
            ),
            Column("network_s", "float64", "s", "client minus server end-to-end"),
            Column(
                "client_ttft_s", "float64", "s", "arrival to first content chunk, at the client"
            ),
            Column("client_e2e_s", "float64", "s", "arrival to last byte, at the client"),
            Column("server_ttft_s", "float64", "s", "time to first token as the server reports it"),
            Column("server_e2e_s", "float64", "s", "end-to-end as the server reports it"),
            Column("input_tokens", "int64", "tokens", "prompt tokens (usage), not characters"),
            Column(
                "output_tokens",
                "int64",
                "tokens",
                "generated tokens (usage); chunks are not tokens",
            ),
            Column(
                "cached_tokens", "int64", "tokens", "prompt tokens served from the prefix cache"
            ),
            Column("chunk_count", "int64", "count", "content chunks received"),
            Column("chunk_gap_s", "list<float64>", "s", "gaps between content chunks, in order"),
            Column("status", "dictionary", None, "ok, error, timeout, refused or unfinished"),
            Column("error", "string", None, "one line, when the status is not ok"),
            Column("http_status_count", "int64", "count", "HTTP status code; null when none came"),
            Column(
                "warmup", "bool", None, "sent during the declared warm-up; excluded from statistics"
            ),
            Column("workload", "dictionary", None, "name of the workload class that drew it"),
            Column("node", "dictionary", None, "host that recorded the row"),
            Column("replica", "dictionary", None, "target it was sent to"),
            Column("engine", "dictionary", None, "engine kind, where known"),
        ),
    ),
    Table(
        "samples",
        "one scrape of one canonical signal of an engine, a GPU or the host",
        (
            Column("t_ns", "int64", "ns", "when the value was read"),
            Column(
                "signal", "dictionary", None, "canonical name; raw:<name> for an unmapped one kept"
            ),
            Column(
                "kind",
                "dictionary",
                None,
                "gauge or counter; a counter only grows, except at a reset",
            ),
            Column("unit", "dictionary", None, "unit of value: a suffix of the schema"),
            Column("value", "float64", None, "the value, in `unit`"),
            *_label_columns(),
            Column("raw_name", "dictionary", None, "upstream name, exactly"),
        ),
    ),
    Table(
        "histograms",
        "one scrape of one histogram; a scrape that changed nothing is not stored",
        (
            Column("t_ns", "int64", "ns", "when it was read"),
            Column("signal", "dictionary", None, "canonical name"),
            Column("unit", "dictionary", None, "unit of the bounds and of the sum"),
            Column("bounds", "list<float64>", None, "upper bounds, ascending, last +Inf"),
            Column(
                "counts",
                "list<float64>",
                None,
                "cumulative counts a bound, since the engine started",
            ),
            Column("sum", "float64", None, "sum of all observations, in `unit`"),
            Column("count", "float64", None, "number of observations"),
            *_label_columns(),
            Column("raw_name", "dictionary", None, "upstream name, exactly"),
        ),
    ),
    Table(
        "settings",
        "one engine setting, as requested, as in effect, or as the version's default",
        (
            Column("t_ns", "int64", "ns", "when it became known"),
            Column("engine", "dictionary", None, "engine kind"),
            Column("replica", "dictionary", None, "engine instance; empty when it holds for all"),
            Column("key", "dictionary", None, "the engine's own name, dashes as underscores"),
            Column("value", "string", None, "as written by the engine or the person"),
            Column("origin", "dictionary", None, "requested, effective or default"),
            Column("source", "dictionary", None, "where it was read: argv, metrics, log"),
            Column("node", "dictionary", None, "host that recorded the row"),
        ),
    ),
    Table(
        "steps",
        "one iteration of an engine: what it batched and how long it took",
        (
            Column(
                "t_ns",
                "int64",
                "ns",
                "when it began; as fine as its source tells, a log to the second",
            ),
            Column("engine", "dictionary", None, "engine kind"),
            Column("node", "dictionary", None, "host that recorded the row"),
            Column("replica", "dictionary", None, "engine instance"),
            Column("kind", "dictionary", None, "prefill, decode or mixed"),
            Column(
                "prefill_requests_count", "int64", "count", "requests whose prompt it worked on"
            ),
            Column("prefill_tokens", "int64", "tokens", "prompt tokens that it computed"),
            Column("decode_requests_count", "int64", "count", "requests that it decoded for"),
            Column(
                "decode_tokens", "int64", "tokens", "tokens it decoded, those speculated included"
            ),
            Column("context_tokens", "int64", "tokens", "cached tokens that its attention read"),
            Column("host_s", "float64", "s", "time of the host on it"),
            Column("device_s", "float64", "s", "time of the device on it"),
            Column(
                "elapsed_s",
                "float64",
                "s",
                "as the engine tells; less than the step with async scheduling",
            ),
            Column("source", "dictionary", None, "log, trace or emulated"),
        ),
    ),
    Table(
        "facts",
        "a signal that was given, not measured by us: by hand, or a figure that another tool printed",
        (
            Column("signal", "dictionary", None, "canonical signal name"),
            Column("scope", "dictionary", None, "sorted key=value pairs; empty for the run"),
            Column("value", "float64", None, "the number, in the unit of the signal's suffix"),
            Column("text", "string", None, "what is categorical"),
            Column("low", "float64", None, "lower bound; null when there is none"),
            Column("high", "float64", None, "upper bound; null when there is none"),
            Column("n", "int64", None, "observations behind it; 0 when given by hand"),
            Column(
                "when",
                "dictionary",
                None,
                "before or after a change, or a variant's name; else empty",
            ),
            Column("source", "dictionary", None, "kind of the file, or hand"),
            Column("file", "dictionary", None, "name of the file; empty when given by hand"),
            Column("t_ns", "int64", "ns", "when it was true, as far as is known; else the import"),
        ),
    ),
    Table(
        "events",
        "something that happened at an instant and means something",
        (
            Column("t_ns", "int64", "ns", "when it happened, or was noticed"),
            Column(
                "kind",
                "dictionary",
                None,
                "server_started, server_ready, server_exited, load_started, …",
            ),
            Column("text", "string", None, "one line, redacted"),
            Column(
                "value",
                "float64",
                None,
                "a number that belongs to it, e.g. an exit code; else null",
            ),
            Column("node", "dictionary", None, "host that recorded the row"),
            Column("engine", "dictionary", None, "engine kind; empty when not an engine's"),
            Column("replica", "dictionary", None, "engine instance"),
            Column("source", "dictionary", None, "launch, load, log, collector"),
        ),
    ),
)

TABLES: dict[str, Table] = {t.name: t for t in _TABLES}


@cache
def arrow_schema(table: str) -> pa.Schema:
    """The Arrow schema of one table; all columns are nullable.

    Raises:
        KeyError: `table` is not one of `TABLES`.
    """
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "list<float64>": pa.list_(pa.float64()),
    }
    return pa.schema([pa.field(c.name, types[c.type]) for c in TABLES[table].columns])
