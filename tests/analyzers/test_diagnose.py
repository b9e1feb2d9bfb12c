"""The pipeline on runs of the pass-level scheduler: what each is held back by, and what cannot be told.

The step costs are the test's own; the diagnosis sees a client's requests, scrapes and settings.
"""

from dataclasses import replace

import pytest
from passes import H100, HEALTHY, HOST, LAUNCHES

from whybound.analyzers.diagnose import diagnose
from whybound.analyzers.verdict import AXIS_CLASS
from whybound.errors import WhyboundError
from whybound.rules.model import from_json, to_json

PROMPTS = {"rate": 1.0, "tokens": (1000, 48), "n": 200}
KNOWN = {
    "rate": 5,
    "n": 120,
    "tokens": (128, 64),
    "told": {**H100, "cudagraph_mode": "FULL_AND_PIECEWISE"},
}
EAGER = {**KNOWN, "told": {**H100, "enforce_eager": True}}
WORLDS = {
    "batch cap": {"rate": 4.2, "policy": {"max_num_seqs": 4}},
    "wide cap": {"rate": 4.2, "policy": {"max_num_seqs": 32}},
    "overload": {"rate": 14, "n": 800, "step": (0.01, 0.002, 0.00005)},
    "light": {"rate": 1, "n": 60, "told": {"device": "cpu"}},
    "weights": {**KNOWN, "step": HEALTHY},
    "launches": {**EAGER, "step": LAUNCHES, "log_steps": True},
    "host": {**KNOWN, "step": HOST, "log_steps": True},
    "launches or host": {**EAGER, "step": LAUNCHES},
    "long prompts": {
        **KNOWN,
        "step": HEALTHY,
        "rate": 1,
        "tokens": (6000, 4),
        "policy": {"token_budget": 8192},
    },
    "proxy": {"rate": 1, "n": 60, "path_s": 0.3},
    "token budget": {**PROMPTS, "policy": {"token_budget": 32}},
    "wide budget": PROMPTS,
    "starved client": {"rate": 4.2, "policy": {"max_num_seqs": 4}, "run_wait_ratio": 0.5},
    "few": {"rate": 4.2, "n": 25, "policy": {"max_num_seqs": 4}},
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory, emulated_at):
    """The folder of an emulated world, recorded once."""
    paths = {}

    def record(name):
        if name not in paths:
            build = emulated_at(tmp_path_factory.mktemp("world") / "run", **WORLDS[name])
            paths[name] = build.run().path
        return paths[name]

    return record


@pytest.fixture(scope="module")
def judged(run_of):
    """The diagnosis of an emulated world."""
    found = {}

    def judge(name, target=None):
        if (name, target) not in found:
            found[name, target] = diagnose(run_of(name), target)
        return found[name, target]

    return judge


def lever_of(diagnosis, name):
    (lever,) = [x for x in diagnosis.levers if x.id == name]
    return lever


def fired(diagnosis):
    return {f.rule for f in diagnosis.findings if f.state == "fires"}


def share(diagnosis, *components):
    return sum(b.share for b in diagnosis.budget if b.component in components)


# ---------------------------------------------------------------- what holds it back


def test_batch_cap(judged):
    found = judged("batch cap")
    assert (found.verdict.class_, found.verdict.sub_cause) == ("scheduling", "batch cap")
    assert found.verdict.binding_resource in {name for _, name in AXIS_CLASS.values()}
    assert found.verdict.confidence >= 0.6
    assert "batch_cap" in fired(found)
    assert share(found, "wait_slot") > 0.5
    assert found.next_measurement is None
    assert "batch cap of 4" in found.verdict.says


def test_batch_cap_gain_is_what_the_raised_cap_gives(judged):
    """The promise of the whole: the scheduler itself, with the lever applied, is the judge."""
    lever = lever_of(judged("batch cap"), "raise_max_num_seqs")
    after = judged("wide cap").target.value
    realised = judged("batch cap").target.value / after
    assert lever.helps is True
    assert lever.flags["vllm"].startswith("--max-num-seqs ")
    assert lever.gain.low <= realised <= lever.gain.high
    assert lever.gain.mid == pytest.approx(realised, rel=0.25)


def test_overload_with_slots_to_spare_is_queueing(judged):
    found = judged("overload")
    assert found.verdict.class_ == "queueing"
    assert found.verdict.by_metric["ttft"]["class"] == "queueing"
    assert found.verdict.gain_vector["load_half"]["mid"] >= 2
    assert found.verdict.gain_vector["policy_best"]["mid"] < 1.3
    assert "offered_above_capacity" in fired(found)
    assert share(found, "wait_busy") > 0.3
    assert lever_of(found, "add_replica").helps is True


def test_token_budget(judged):
    found = judged("token budget", "mean ttft")
    assert (found.verdict.class_, found.verdict.sub_cause) == ("scheduling", "token budget")
    assert "token_budget" in fired(found)
    assert share(found, "wait_budget") > 0.3
    lever = lever_of(found, "raise_token_budget")
    realised = found.target.value / judged("wide budget", "mean ttft").target.value
    assert realised > 5
    # chunks of 31 tokens tell little of what a thousand cost: the promise is as wide as that
    assert lever.gain.low <= realised <= lever.gain.high
    assert lever.gain.mid > 3


def test_a_slow_proxy_is_network_for_ttft_and_not_for_end_to_end(judged):
    first = judged("proxy", "mean ttft")
    assert (first.verdict.class_, first.verdict.sub_cause) == ("network", "client or proxy")
    assert share(first, "network") > 0.8
    assert "client_or_proxy_path" in fired(first)
    whole = judged("proxy")
    assert whole.verdict.by_metric["ttft"]["class"] == "network"
    assert whole.verdict.class_ != "network"


# ---------------------------------------------------------------- inside the engine's step


@pytest.mark.parametrize(
    ("world", "class_", "sub_cause", "part"),
    [
        ("weights", "memory", "bandwidth", "decode_weights"),
        ("launches", "launch", "kernel launch", "decode_launch"),
        ("host", "launch", "host scheduler", "decode_host"),
    ],
)
def test_what_a_step_waits_for_where_model_and_device_are_named(
    judged, world, class_, sub_cause, part
):
    found = judged(world)
    assert (found.verdict.class_, found.verdict.sub_cause) == (class_, sub_cause)
    assert found.verdict.confidence >= 0.6
    assert found.next_measurement is None
    largest = max(found.budget, key=lambda b: b.share)
    assert largest.component == part
    assert largest.low <= largest.seconds <= largest.high
    best = max(found.verdict.gain_vector, key=lambda a: found.verdict.gain_vector[a]["mid"])
    assert AXIS_CLASS[best.split(":")[0]][0] == class_
    assert found.verdict.by_phase["decode"]["class"] == class_
    assert any(x.helps is not False and x.gain and x.gain.mid > 1.1 for x in found.levers)


def test_long_prompts_are_arithmetic(judged):
    found = judged("long prompts", "mean ttft")
    assert (found.verdict.class_, found.verdict.sub_cause) == ("compute", "prefill FLOPs")
    assert share(found, "prefill_compute") > 0.5


def test_what_two_parts_of_the_host_share_is_launch_all_the_same(judged):
    """Without the engine's own account they are not told apart, and the class does not hang on it."""
    found = judged("launches or host")
    assert found.verdict.class_ == "launch"
    assert "host_half" in found.verdict.gain_vector
    assert found.verdict.gain_vector["host_half"]["mid"] > 1.3
    assert found.verdict.gain_vector["bandwidth_x2"]["mid"] < 1.2


def test_halving_what_binds_gives_what_was_promised(judged, emulated):
    """The gain vector against the scheduler with the one resource made twice as fast."""
    promised = judged("weights").verdict.gain_vector["bandwidth_x2"]
    fast = replace(HEALTHY, weights_s=HEALTHY.weights_s / 2, kv_s=HEALTHY.kv_s / 2)
    build = emulated(**{**WORLDS["weights"], "step": fast})
    after = diagnose(build.run().path).target.value
    assert judged("weights").target.value / after == pytest.approx(promised["mid"], rel=0.15)


# ---------------------------------------------------------------- what cannot be told


def test_light_load_on_a_machine_that_nobody_knows_is_no_confident_verdict(judged):
    """Of a step only its length is seen: what it may be is named, and nothing is said to help for sure."""
    found = judged("light").verdict
    assert found.confidence < 0.7
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert max(found.shares.values()) < 0.75
    left = {c for c, part in found.shares.items() if part >= 0.12}
    assert {"memory", "launch", "latency"} >= left
    assert len(left) >= 2
    assert found.abstained == (found.class_ is None)
    assert fired(judged("light")) == set()
    assert any("model" in m for m in judged("light").coverage["missing"])


def test_an_abstention_names_what_is_left_and_what_would_decide(emulated):
    """Three of equal weight: no class, no lever that helps for sure, and one measurement."""
    build = emulated(rate=1, n=60, told={"device": "cpu"}, step=(0.02, 0.0, 0.00005))
    found = diagnose(build.run().path, "mean ttft")
    assert found.verdict.class_ is None
    assert found.verdict.abstained
    assert found.verdict.confidence == 0.0
    assert set(found.verdict.candidates) == {"memory", "launch", "latency"}
    assert set(found.next_measurement.decides) <= set(found.verdict.candidates)
    assert len(found.next_measurement.decides) >= 2
    assert [x.id for x in found.levers if x.helps is True] == []


def test_a_starved_client_withholds_the_verdict(judged):
    found = judged("starved client")
    assert found.verdict.withheld
    assert (found.verdict.class_, found.verdict.sub_cause) == (None, None)
    assert not found.verdict.abstained
    assert found.verdict.confidence == 0.0
    assert found.verdict.by_metric == {}
    assert {p.id for p in found.prechecks if p.effect == "invalid"} == {"client_bound"}
    assert found.verdict.says.startswith("No verdict")
    assert found.next_measurement is not None
    assert "real-time" in found.next_measurement.because


def test_too_few_requests_withhold_the_verdict(judged):
    found = judged("few")
    assert found.verdict.withheld
    assert {p.id for p in found.prechecks if p.effect == "invalid"} >= {"too_few_samples"}


def test_nothing_measured_abstains_and_says_what_to_measure(build):
    found = diagnose(build.run().path)
    assert found.verdict.class_ is None
    assert found.verdict.abstained
    assert found.budget == []
    assert found.target.value is None
    assert found.next_measurement is not None
    assert "--load" in found.next_measurement.command
    assert {f.state for f in found.findings} <= {"cannot_tell", "not_applicable"}
    assert {p.state for p in found.prechecks} <= {"cannot_tell", "not_applicable"}
    assert [x.id for x in found.levers if x.helps is True] == []


@pytest.mark.parametrize("table", ["requests", "samples", "histograms", "settings", "events"])
def test_taking_evidence_away_never_makes_a_rule_fire(emulated, judged, table):
    """Silence is not health, and not a symptom either."""
    build = emulated(**WORLDS["batch cap"])
    build.run(without=table)
    assert fired(diagnose(build.path)) <= fired(judged("batch cap"))


# ---------------------------------------------------------------- the document


@pytest.mark.parametrize("name", ["batch cap", "starved client", "light"])
def test_the_document_survives_its_own_json(judged, name):
    found = judged(name)
    assert from_json(to_json(found)) == found


@pytest.mark.parametrize("name", ["batch cap", "overload", "token budget", "proxy"])
def test_what_is_said_adds_up(judged, name):
    found = judged(name)
    assert sum(b.share for b in found.budget) == pytest.approx(1.0)
    assert share(found, "unknown") < 0.05
    for gain in found.verdict.gain_vector.values():
        assert gain["low"] <= gain["mid"] <= gain["high"]
    for lever in found.levers:
        if lever.gain is not None:
            assert lever.gain.low <= lever.gain.mid <= lever.gain.high, lever.id
    order = [str(x.helps) for x in found.levers]
    assert order == sorted(order, key=["True", "check_first", "False"].index)
    for finding in found.findings:
        for e in finding.evidence:
            assert e.unit or isinstance(e.value, str), e


def test_every_metric_has_its_verdict_beside(judged):
    assert set(judged("batch cap").verdict.by_metric) == {"ttft", "itl", "e2e", "throughput"}


def test_a_target_that_is_met_asks_for_nothing(judged):
    found = judged("light", "mean e2e < 60s")
    assert found.target.met is True
    assert found.levers == []
    assert "met" in found.verdict.says


def test_a_target_that_cannot_be_read_is_a_usage_error(run_of):
    with pytest.raises(WhyboundError) as error:
        diagnose(run_of("light"), "faster")
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)


def test_what_is_not_a_run_is_said(tmp_path):
    with pytest.raises(WhyboundError, match="not a run"):
        diagnose(tmp_path)
    with pytest.raises(WhyboundError, match="does not exist"):
        diagnose(tmp_path / "nowhere")


def test_a_proxy_that_holds_the_stream_back_is_network_for_ttft(emulated):
    """The end comes in time, the first token only with it: end-to-end shows nothing of such a path."""
    build = emulated(rate=1, n=60)
    for row in build.rows["requests"]:
        row["first_token_ns"], row["client_ttft_s"] = row["end_ns"], row["client_e2e_s"]
        row["chunk_gap_s"] = [0.0] * len(row["chunk_gap_s"])
    build.run()
    found = diagnose(build.path, "mean ttft")
    assert (found.verdict.class_, found.verdict.sub_cause) == ("network", "client or proxy")
    assert found.verdict.gain_vector["path_half"]["mid"] > 1.7
    assert {"client_or_proxy_path", "proxy_buffers_stream"} <= fired(found)
