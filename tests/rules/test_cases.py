"""Every rule's own cases, and that they pin every threshold; then that this check can fail."""

import msgspec
import pytest

from whybound.rules.cases import case_signals, check_cases
from whybound.rules.conditions import leaves
from whybound.rules.evaluate import evaluate
from whybound.rules.load import load_prechecks, load_rules
from whybound.rules.model import Case, Condition

RULES = {**load_prechecks(), **load_rules()}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_cases_hold_and_pin_every_threshold(rule):
    assert check_cases(rule) == []


@pytest.mark.parametrize(
    ("rule", "case"),
    [pytest.param(r, c, id=f"{r.id}: {c.name}") for r in RULES.values() for c in r.cases],
)
def test_case(rule, case):
    (outcome,) = evaluate(rule, case_signals(rule, case))
    assert outcome.state == case.state
    assert set(outcome.missing) == set(rule.needs) - set(case.signals)
    if not outcome.missing:
        assert "?" not in outcome.says


def moved(condition, leaf, by):
    """`condition` with one comparison's threshold moved a little (or its text changed)."""
    if condition is leaf:
        if leaf.text is not None:
            return msgspec.structs.replace(leaf, text="something else")
        if leaf.other is not None:
            return msgspec.structs.replace(leaf, factor=leaf.factor * by)
        shift = 1 if by > 1 else -1
        return msgspec.structs.replace(leaf, value=leaf.value * by if leaf.value else shift)
    for name in ("all", "any"):
        children = getattr(condition, name)
        if children is not None:
            changed = [moved(c, leaf, by) for c in children]
            return msgspec.structs.replace(condition, **{name: changed})
    return condition


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_loosened_threshold_breaks_a_case(rule):
    for part in ("when", "applies"):
        for leaf in leaves(getattr(rule, part)):
            by = 0.85 if leaf.op in (">", ">=") else 1.15
            changed = [moved(c, leaf, by) for c in getattr(rule, part)]
            mutant = msgspec.structs.replace(rule, **{part: changed})
            assert any("should be" in p for p in check_cases(mutant)), leaf


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_an_empty_run_is_never_a_finding(rule):
    nothing = Case(name="nothing", signals={}, state="cannot_tell")
    (outcome,) = evaluate(rule, case_signals(rule, nothing))
    assert outcome.state == "cannot_tell"


def test_the_check_sees_what_is_missing():
    rule = RULES["kv_cache_full"]

    def problems(**changes):
        return check_cases(msgspec.structs.replace(rule, **changes))

    no_fire = [c for c in rule.cases if c.state != "fires"]
    assert problems(cases=no_fire) == ["no case is fires"]
    assert "no case is cannot_tell" in problems(
        cases=[c for c in rule.cases if c.state != "cannot_tell"]
    )
    no_edge = [c for c in rule.cases if c.name != "just not full"]
    assert problems(cases=no_edge) == [
        "no clear case just across kv_used_max_ratio >= 0.95 in 'when'"
    ]
    far = [
        msgspec.structs.replace(c, signals={**c.signals, "kv_used_max_ratio": 0.5})
        if c.name == "just not full" else c
        for c in rule.cases
    ]  # fmt: skip
    assert problems(cases=far) == ["no clear case just across kv_used_max_ratio >= 0.95 in 'when'"]
    wrong = [Case(name="wrong", signals={"kv_used_max_ratio": 0.1}, state="fires")]
    assert "case 'wrong' should be fires but is clear" in problems(cases=[*rule.cases, *wrong])
    applies = [Condition(signal="slots_used_ratio", op="<", value=2)]
    assert problems(applies=applies)[-1].startswith(
        "no not_applicable case just across slots_used_ratio"
    )


def test_the_cases_of_a_rule_with_scopes_are_judged_in_one():
    rule = msgspec.structs.replace(RULES["too_few_samples"], per="node,gpu")
    case = rule.cases[0]
    assert {s.scope for s in case_signals(rule, case).values()} == {"gpu=0,node=0"}
    assert check_cases(rule) == []


def fired(**values):
    """The ids of the symptoms that fire on these facts."""
    case = Case(name="x", signals=values, state="fires")
    return {
        r.id
        for r in load_rules().values()
        if evaluate(r, case_signals(r, case))[0].state == "fires"
    }


ONE_SLOT = {
    "load_mode": "open", "waiting_busy_ratio": 0.9, "wait_share_ratio": 0.8, "slots_used_ratio": 1.0,
    "kv_used_max_ratio": 0.02, "preemptions_count": 0, "capacity_gain_uncapped_ratio": 5.2,
    "offered_rate_per_s": 4.0, "queue_growth_per_s": 2.2, "chunks_per_prompt_ratio": 0.03,
}  # fmt: skip


def test_a_batch_cap_is_told_from_overload_by_what_raising_it_would_do():
    assert fired(**ONE_SLOT, rho_uncapped_ratio=0.4) == {"batch_cap"}
    assert fired(**ONE_SLOT, rho_uncapped_ratio=1.6) == {"offered_above_capacity"}


def test_a_small_budget_is_told_from_a_batch_cap_by_the_running_count():
    budget = {**ONE_SLOT, "load_mode": "closed", "chunks_per_prompt_ratio": 31.0}
    assert fired(**budget) == {"batch_cap"}
    assert fired(**{**budget, "slots_used_ratio": 0.125}) == {"token_budget"}


def test_a_collecting_proxy_is_not_taken_for_a_stalled_decode():
    path = {
        "client_itl_p50_s": 0.0001, "server_itl_mean_s": 0.009, "stalled_itl_ratio": 4000,
        "input_p95_tokens": 1000, "token_budget_tokens": 2048,
        "network_ttft_share_ratio": 0.94, "network_ttft_s": 0.73,
    }  # fmt: skip
    assert fired(**path) == {"proxy_buffers_stream", "client_or_proxy_path"}
    direct = {
        **path,
        "client_itl_p50_s": 0.006,
        "network_ttft_share_ratio": 0.02,
        "network_ttft_s": 0.001,
    }
    assert fired(**direct) == {"prefill_blocks_decode"}
