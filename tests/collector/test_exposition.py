"""The line parser against prometheus_client's, and what that would not survive."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from whybound.collector.sources import exposition
from whybound.collector.sources.exposition import detect_engine, names, parse

PAGES = sorted((Path(__file__).parent / "pages").glob("*.txt"))

Key = tuple[str, tuple[tuple[str, str], ...]]


def ours(text: str | bytes) -> dict[Key, float]:
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for f in parse(text).families
        for s in f.samples
    }


def theirs(text: str) -> dict[Key, float]:
    return {
        # Their parser names every counter sample `_total`; ours keeps the line's name.
        (s.name, tuple(sorted(s.labels.items()))): float(s.value)
        for f in text_string_to_metric_families(text)
        for s in f.samples
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_pages_read_as_the_reference_reads_them(page: Path) -> None:
    text = page.read_text()
    reference = theirs(text)
    if page.stem == "llamacpp":  # n_tokens_max is declared a counter and has no _total
        reference = {(k[0].replace("n_tokens_max_total", "n_tokens_max"), k[1]): v
                     for k, v in reference.items()}  # fmt: skip
    assert ours(text) == reference
    assert parse(text).bad_lines == 0
    kinds = {f.name: f.type for f in text_string_to_metric_families(text)}
    assert {f.name: f.kind for f in parse(text).families} == kinds


label_value = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
label_name = st.from_regex(r"\A[a-zA-Z_][a-zA-Z0-9_]{0,8}\Z").filter(
    lambda n: not n.startswith("__")  # reserved, and refused by the reference
)
metric_name = st.from_regex(r"\A[a-zA-Z_:][a-zA-Z0-9_:]{0,12}\Z")
space = st.sampled_from(["", " ", "\t"])


@st.composite
def line(draw: st.DrawFn) -> str:
    labels = draw(st.dictionaries(label_name, label_value, max_size=4))
    pad = draw(space)
    block = ("," + pad).join(
        '{}="{}"'.format(k, v.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"'))
        for k, v in labels.items()
    )
    comma = draw(st.sampled_from(["", ","])) if labels else ""
    value = draw(st.floats() | st.integers(-(2**60), 2**60))
    shown = {math.inf: "+Inf", -math.inf: "-Inf"}.get(float(value), repr(value))
    braces = f"{{{block}{comma}}}" if labels or draw(st.booleans()) else ""
    stamp = draw(st.sampled_from(["", " 1764200000000"]))
    return f"{draw(metric_name)}{pad if braces else ''}{braces} {shown}{stamp}"


@settings(max_examples=150, deadline=None)
@given(line())
def test_any_valid_line_reads_as_the_reference_reads_it(text: str) -> None:
    # Whitespace characters that Python's splitlines breaks at stand inside label values here.
    [(key, value)] = ours(text + "\n").items()
    [reference] = [s for f in text_string_to_metric_families(text + "\n") for s in f.samples]
    assert key == (reference.name, tuple(sorted(reference.labels.items())))
    assert value == float(reference.value) or (math.isnan(value) and math.isnan(reference.value))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=200))
def test_nothing_makes_it_raise(data: str | bytes) -> None:
    page = parse(data)
    assert page.bad_lines >= 0
    names(data)


OPENMETRICS = """\
# HELP vllm:prompt_tokens Number of prefill tokens.
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{model_name="a"} 17.0 1764200000.5
vllm:prompt_tokens_created{model_name="a"} 1764200000.0 1764200000.5
# TYPE vllm:time_to_first_token_seconds histogram
# UNIT vllm:time_to_first_token_seconds seconds
vllm:time_to_first_token_seconds_bucket{le="0.5"} 3.0 # {trace_id="a}b"} 0.21 1764200000.0
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 4.0
vllm:time_to_first_token_seconds_count 4.0
vllm:time_to_first_token_seconds_sum 2.0
# TYPE target info
target_info{service_name="x"} 1
# EOF
"""


def test_openmetrics_reads_as_the_reference_reads_it() -> None:
    reference = {
        (s.name, tuple(sorted(s.labels.items()))): float(s.value)
        for f in openmetrics_families(OPENMETRICS)
        for s in f.samples
    }
    assert ours(OPENMETRICS) == reference
    assert parse(OPENMETRICS).bad_lines == 0
    assert not parse(OPENMETRICS.removesuffix("\n")).truncated


@pytest.mark.parametrize(
    "bad",
    [
        "no_value",
        "no_value{}",
        'a{b="c" 1',
        'a{b="c"',
        'a{b="c',
        "a{b=c} 1",
        'a{b="c",b="d"} 1',
        'a{b="c" d="e"} 1',
        "a 1_000",
        "a one",
        "a 1 2 3",
        "a 1 soon",
        "a+1",
        "<html><body>no</body></html>",
        "INFO 11-29 12:00:00 engine.py: running 1",
        "a 1 1 1 1",
        "a{" + ",".join(f'l{i}="x"' for i in range(300)) + "} 1",
        'a{b="' + "x" * 9_000 + '"} 1',
        "a" * 70_000 + " 1",
    ],
)
def test_a_bad_line_loses_only_itself(bad: str) -> None:
    page = parse(f"before 1\n{bad}\nafter 2\n")
    assert [(s.name, s.value) for f in page.families for s in f.samples] == [
        ("before", 1.0),
        ("after", 2.0),
    ]
    assert page.bad_lines == 1


def test_a_number_that_may_be_cut_is_not_read() -> None:
    page = parse("a 123\nb 12")
    assert [f.name for f in page.families] == ["a"]
    assert page.truncated
    assert page.bad_lines == 1
    assert not parse("a 123\n").truncated


def test_bytes_that_are_no_utf8_cost_no_more_than_themselves() -> None:
    page = parse(b'a{model="caf\xe9"} 1\nb 2\n')
    assert [s.labels for f in page.families for s in f.samples] == [{"model": "caf\ufffd"}, {}]


def test_the_unwanted_is_counted_by_family() -> None:
    text = '# TYPE h histogram\nh_bucket{le="+Inf"} 1\nh_count 1\nh_sum 1\nw 1\nloose_total 2\n'
    page = parse(text, want=lambda name: name == "w")
    assert page.others == {"h": 3, "loose_total": 1}
    assert [f.name for f in page.families if f.samples] == ["w"]


def test_samples_above_the_cap_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "MAX_SAMPLES", 2)
    page = parse('a{i="1"} 1\na{i="2"} 1\na{i="3"} 1\n')
    assert (len(page.families[0].samples), page.left_out) == (2, 1)


@pytest.mark.parametrize(
    ("present", "engine"),
    [
        (["vllm:num_requests_running", "lmcache:hits", "python_info"], "vllm"),
        (["ray_vllm_num_requests_running", "ray_node_cpu"], "vllm"),
        (["llamacpp:n_decode_total"], "llamacpp"),
        (["sglang:token_usage"], "sglang"),
        (["trtllm_request_success_total"], "tensorrt_llm"),
        (["python_info", "http_requests_total"], ""),
        ([], ""),
    ],
)
def test_engine_by_its_names(present: list[str], engine: str) -> None:
    assert detect_engine(present) == engine


def test_names_of_samples_and_of_declarations() -> None:
    assert names('# TYPE t gauge\n# HELP h x\nx{a="y 1"} 1\n<html> 1\n') == {"t", "x"}


def test_empty_text() -> None:
    page = parse("")
    assert (page.families, page.bad_lines, page.truncated) == ([], 0, False)
