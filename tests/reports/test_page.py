from __future__ import annotations

import html as html_module
import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import pytest

from whybound.reports import page
from whybound.rules.model import Diagnosis, Verdict

VOID = {"meta", "img", "br", "link", "input"}
HOSTILE = "\"'></style></title><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[1m"


class Outline(HTMLParser):
    """Tags with attributes, their text, and what is never closed."""

    def __init__(self, source: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def named(self, *names):
        return [attrs for tag, attrs in self.tags if tag in names]

    def words(self):
        return " ".join(" ".join(self.text).split())


def outline(diagnosis: Diagnosis) -> Outline:
    return Outline(page.render(diagnosis))


def words(diagnosis: Diagnosis) -> str:
    return outline(diagnosis).words()


def leaves(node, path=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from leaves(value, (*path, i))
    elif isinstance(node, str):
        yield path


def hostile_everywhere(diagnosis: Diagnosis) -> Diagnosis:
    """Every text that is not an enumeration holds markup; so do the keys of free-form parts."""
    document = msgspec.to_builtins(diagnosis)
    for lever in document["levers"]:
        lever["flags"][HOSTILE] = "x"
    document["scorecard"][HOSTILE] = document["coverage"]["levels"]["2"] = "x"
    document["verdict"]["gain_vector"][HOSTILE] = 1.5
    document["verdict"]["by_phase"][HOSTILE] = {"class": HOSTILE}
    for *parents, last in list(leaves(document)):
        at = document
        for key in parents:
            at = at[key]
        before, at[last] = at[last], HOSTILE
        try:
            msgspec.convert(document, Diagnosis)
        except msgspec.ValidationError:
            at[last] = before
    return msgspec.convert(document, Diagnosis)


def test_the_document_is_whole_and_self_contained(any_diagnosis):
    source = page.render(any_diagnosis)
    seen = Outline(source)
    assert source.startswith("<!doctype html>")
    assert seen.open == []
    assert seen.named("html")[0]["lang"] == "en"
    policies = [
        m["content"] for m in seen.named("meta") if m.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert not {tag for tag, _ in seen.tags} & {"script", "link", "img", "iframe", "object", "form"}
    assert not [
        a for _, attrs in seen.tags for a in attrs if a.startswith("on") or a in {"src", "style"}
    ]
    assert "url(" not in re.sub(r"url\(#p-[a-z]+\)", "", source)
    assert "@import" not in source


def test_links_lead_to_rows_of_the_same_page(any_diagnosis):
    seen = outline(any_diagnosis)
    ids = [attrs["id"] for _, attrs in seen.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for link in seen.named("a"):
        assert link["href"].removeprefix("#") in ids


def test_headings_are_in_order_and_tables_have_headers(any_diagnosis):
    seen = outline(any_diagnosis)
    heads = [int(tag[1]) for tag, _ in seen.tags if re.fullmatch("h[1-6]", tag)]
    assert heads[0] == 1
    assert heads.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(heads))
    assert all(th.get("scope") for th in seen.named("th"))
    assert len(seen.named("caption")) == len(seen.named("table"))


def test_every_drawing_has_a_role_and_a_name(any_diagnosis):
    seen = outline(any_diagnosis)
    drawings = [
        i
        for i, (tag, attrs) in enumerate(seen.tags)
        if tag == "svg" and not attrs.get("aria-hidden")
    ]
    assert drawings
    for i in drawings:
        assert seen.tags[i][1]["role"] == "img"
        assert seen.tags[i + 1][0] == "title"


def test_nothing_from_the_run_becomes_markup(scheduling):
    tags = {tag for tag, _ in outline(scheduling).tags}
    hostile = hostile_everywhere(scheduling)
    source = page.render(hostile)
    assert source.count("&lt;script&gt;") > 100
    assert "<script" not in source
    assert "\x1b" not in source
    seen = Outline(source)
    assert {tag for tag, _ in seen.tags} <= tags
    assert not [a for _, attrs in seen.tags for a in attrs if a.startswith("on") or a == "src"]
    assert all(link["href"].startswith("#f-") for link in seen.named("a"))


def test_the_verdict_is_the_heading_with_its_confidence_and_method(scheduling):
    seen = words(scheduling)
    assert "Bound by scheduling: batch cap." in seen
    assert "Confident Confidence 86 %; from 70 % on it counts as confident" in seen
    assert "confidence 86 % by gain vector and rules · underneath: memory bandwidth" in seen
    assert "· runner-up: queueing" in seen
    assert "p95 e2e < 2 s 3.41 s 3.27 to 3.58 threshold 2.00 s: missed" in seen
    assert "ttft: scheduling · itl: memory" in seen
    assert "the best policy +62 %" in seen


def test_the_run_is_identified(scheduling, abstained, withheld):
    seen = words(scheduling)
    assert "vllm serve Qwen/Qwen3-8B --max-num-seqs 16" in seen
    assert (
        "vllm · Qwen/Qwen3-8B · 2025-11-29 17:20 UTC · 120 s · whybound 0.1.0 emulated engine"
        in seen
    )
    assert "emulated" not in words(withheld)
    assert "profile attach --url http://127.0.0.1:8000" in words(abstained)
    scheduling.run["started"] = 1_764_436_800_000_000_000
    assert "2025-11-29 17:20:00 UTC" in words(scheduling)


def test_the_evidence_at_the_top_links_to_the_table(scheduling):
    source = page.render(scheduling)
    assert '<a href="#f-1">16 of 16 slots are used while 42 requests wait</a>' in source
    row = source.split('<tbody id="f-1">')[1].split("</tbody>")[0]
    seen = html_module.unescape(re.sub("<[^>]+>", " ", row))
    assert "replica=127.0.0.1:8000" in seen
    for cell in ("server_queue_mean_s", "1.13 s", "1.08 to 1.17", "v_engine, samples"):
        assert cell in seen
    assert "SELECT value, low, high FROM signals WHERE name = 'server_queue_mean_s'" in seen
    assert source.count('<a href="#f-') == 2


def test_at_most_four_findings_stand_at_the_top(crowded):
    assert len(outline(crowded).named("a")) == 4


def test_every_part_of_the_budget_has_a_number_an_interval_and_a_class(scheduling):
    seen = words(scheduling)
    assert "3 Waiting for a slot scheduling 53 % 1.01 s (0.968 to 1.06)" in seen
    assert "7 Client lag no class <0.1 % 0.400 ms (0.100 to 0.900)" in seen
    assert "8 Unknown no class 2 % 32.6 ms (no interval)" in seen
    assert "Source: v_budget" in seen


def test_phases_that_were_not_measured_say_why(abstained):
    assert words(abstained).count("not measured: no server-side phase times in this run") == 2
    abstained.coverage["missing"] = [{"what": "phases_tail", "why": "fewer than 20 requests"}]
    seen = words(abstained)
    assert "In the tail not measured: fewer than 20 requests" in seen
    assert "On average not measured: no server-side phase times" in seen


def test_a_lever_row_has_prediction_measurement_cap_and_price(scheduling):
    seen = words(scheduling)
    lever = seen.split("1 Raise the batch cap")[1].split("2 KV cache in FP8")[0]
    for part in (
        "● predicted +62 % +44 to +79 %",
        "◆ measured +55 % +49 to +61 %",
        "fixed point, capped by memory bandwidth",
        "minutes",
        "Can fail by KV cache fills",
        "Quality gate none needed",
        "Roll back restart with the former value",
        "Undo when preemptions",
    ):
        assert part in lever
    flags = [
        lever.index(x)
        for x in (
            "--max-num-seqs 64",
            "sglang --max-running-requests 64",
            "tensorrt llm --max_batch_size 64",
        )
    ]
    assert flags == sorted(flags)
    assert "3 Add a replica" in seen
    assert "no flag known for vllm" in seen
    assert "bigger lever" not in seen


def test_what_does_not_help_stands_apart(scheduling):
    apart = words(scheduling).split("Will not help, or check first")[1]
    assert "Speculative decoding check first the acceptance rate is not known" in apart
    assert "Smaller prefill chunks −4 %, −10 to +1 % will not help prefill is 10 %" in apart


def test_small_levers_send_the_reader_on(abstained):
    assert "The best lever gives +6 %: look for a bigger lever." in words(abstained)
    assert "no flag known for sglang vllm drop --enforce-eager" in words(abstained)


def test_a_withheld_verdict_is_visible_and_so_is_its_cause(withheld):
    source = page.render(withheld)
    assert '<section class="verdict v-withheld' in source
    seen = Outline(source).words()
    assert "Verdict withheld: the measurement is not sound." in seen
    assert "The load generator was late" in seen.split("What was seen")[0]
    assert "fires The load generator was late" in seen
    assert "withholds the verdict" in seen
    assert "These gains rest on the unsound measurement" in seen
    assert "Bound by" not in seen


def test_silence_is_not_health(empty):
    seen = words(empty)
    assert "Cannot tell: nothing was measured." in seen
    assert "mean e2e not measured no interval" in seen
    assert "No rule was evaluated." in seen
    assert "No precheck was run: nothing says that the measurement is sound." in seen
    assert "1 requests: not measured · 2 timeline: not measured · 3 kernels: not measured" in seen
    assert "Next measurement None proposed." in seen


def test_no_action_needs_something_measured(scheduling):
    scheduling.verdict = Verdict(
        class_=None,
        confidence=0.8,
        gain_vector={"flops_x2": {"gain": 1.02, "low": 1.0, "high": 1.04}},
    )
    seen = words(scheduling)
    assert "No single change would help enough." in seen
    assert "twice the FLOPs +2 % (0 to +4 %)" in seen


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def chromium(folder, *arguments: str) -> str:
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={folder / 'profile'}",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("name", ["scheduling", "crowded"])
def test_it_prints_on_one_page_of_a4(name, request, tmp_path):
    (tmp_path / "page.html").write_text(page.render(request.getfixturevalue(name)), "utf-8")
    chromium(
        tmp_path, f"--print-to-pdf={tmp_path / 'page.pdf'}", f"file://{tmp_path / 'page.html'}"
    )
    pdf = (tmp_path / "page.pdf").read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    width, height = map(float, re.search(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", pdf).groups())
    assert (width, height) == pytest.approx((595.3, 841.9), abs=1)


PROBE = """<!doctype html><title>waiting</title>
<iframe id="page" width="{width}" height="800" srcdoc="{source}"></iframe>
<script>page.onload = () => {{
  const root = page.contentDocument.documentElement;
  document.title = `width ${{root.scrollWidth}} of ${{root.clientWidth}}`;
}}</script>"""


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("name", ["scheduling", "crowded"])
def test_a_phone_never_scrolls_sideways(name, request, tmp_path):
    source = page.render(request.getfixturevalue(name))
    probe = PROBE.format(width=390, source=html_module.escape(source, quote=True))
    (tmp_path / "probe.html").write_text(probe, "utf-8")
    seen = chromium(
        tmp_path, "--hide-scrollbars", "--dump-dom", f"file://{tmp_path / 'probe.html'}"
    )
    assert "<title>width 390 of 390</title>" in seen
