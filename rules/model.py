"""What travels: signals in, rules and levers as data, the diagnosis out (seams 2, 3 and 4).

Nothing here computes. The JSON of `Diagnosis` is the product; reports only draw it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

DIAGNOSIS_SCHEMA_VERSION = 1

Class = Literal["memory", "compute", "launch", "latency", "scheduling", "queueing", "network"]
CLASSES: tuple[Class, ...] = (
    "memory", "compute", "launch", "latency", "scheduling", "queueing", "network",
)  # fmt: skip

SUB_CAUSES: dict[str, tuple[str, ...]] = {
    "memory": ("bandwidth", "capacity"),
    "compute": ("prefill FLOPs", "recomputation", "dequantization", "decode above the ridge"),
    "launch": ("kernel launch", "host scheduler", "front end", "synchronization", "graph fallback"),
    "latency": ("small kernels",),
    "scheduling": (
        "batch cap", "token budget", "prefill blocking decode", "admission or preemption policy",
        "routing skew",
    ),
    "queueing": ("offered load above capacity",),
    "network": ("client or proxy", "collectives", "KV transfer", "straggler"),
}  # fmt: skip
"""What each class comes from; rules, levers and the verdict use these words."""

State = Literal["fires", "clear", "cannot_tell", "not_applicable"]


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """One fact about a run. `low` and `high` bound `value`; a missing fact has no row at all.

    Attributes:
        name: canonical name; its suffix is the unit.
        scope: sorted `key=value` pairs of gpu, node, phase, replica, segment; empty for the run.
        value: the number, in `unit`; null when the fact is categorical.
        text: the categorical value; null when it is a number.
        n: observations behind it; 0 when it was given by hand.
        coverage: 0..1, the share of the run (or of the requests) that it covers.
        level: 1 requests, 2 timeline, 3 kernels; 0 for settings.
        source: the view and the table it comes from.
    """

    name: str
    scope: str = ""
    value: float | None = None
    text: str | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    n: int = 0
    coverage: float = 1.0
    level: int = 1
    source: str = ""


TOLD = ("facts by hand", "told")
"""The `source` of signals that nobody recorded: typed by a person, or following from given ones."""


class Param(msgspec.Struct, frozen=True, kw_only=True):
    """One named parameter of the cost model or of the engine's policy.

    Attributes:
        components: the parts of the time budget that it governs.
        law: how those parts' seconds move with it: `proportional` or `inverse`.
    """

    unit: str
    doc: str
    components: tuple[str, ...]
    law: Literal["proportional", "inverse"] = "proportional"


def _both(part: str) -> tuple[str, str]:
    return f"prefill_{part}", f"decode_{part}"


PARAMS: dict[str, Param] = {
    "max_num_seqs": Param(
        unit="count", components=("wait_slot",), law="inverse",
        doc="requests that may run at once; waiting for a slot shrinks as it grows",
    ),
    "token_budget": Param(
        unit="tokens", components=("wait_budget",), law="inverse",
        doc="tokens that one engine step may process, decode and prefill together",
    ),
    "kv_capacity": Param(
        unit="tokens", components=("wait_kv",), law="inverse",
        doc="tokens whose keys and values fit in the cache",
    ),
    "offered_load": Param(
        unit="per_s", components=("wait_busy",),
        doc="requests a second that one replica receives",
    ),
    "path_latency": Param(
        unit="s", components=("network",),
        doc="time between client and server that the server does not see",
    ),
    "front_end": Param(
        unit="s", components=("front_end",),
        doc="API server work a request: parsing, tokenization, IPC, detokenization, streaming",
    ),
    "weight_bytes": Param(
        unit="bytes", components=_both("weights"),
        doc="weights that a step reads; fewer of them in memory leave more room for the KV cache",
    ),
    "kv_bytes_per_token": Param(
        unit="bytes", components=("decode_kv",),
        doc="keys and values of one token: what attention reads, and what fills the cache",
    ),
    "compute_per_token": Param(
        unit="s", components=_both("compute"),
        doc="arithmetic of one token at the rate that its number format reaches",
    ),
    "prefill_tokens": Param(
        unit="tokens", components=("prefill_compute",),
        doc="prompt tokens a request that are computed, not found in a cache",
    ),
    "launch_cost": Param(
        unit="s", components=_both("launch"),
        doc="host time to launch the kernels of one step; it counts where the device waits for it",
    ),
    "host_step": Param(
        unit="s", components=_both("host"),
        doc="host time of one step beside launches: schedule, prepare inputs, sample, update",
    ),
    "host_exposed": Param(
        unit="ratio", components=_both("host"),
        doc="part of the host's step that the device waits for; 0 where the next step is prepared meanwhile",
    ),
    "kernel_floor": Param(
        unit="s", components=_both("floor"),
        doc="shortest time of a step's kernels, however little each of them does",
    ),
    "link_time": Param(
        unit="s", components=_both("link"),
        doc="collectives between GPUs in one step that nothing hides",
    ),
}  # fmt: skip
"""Waiting and the path govern one part of the budget, the step's parts one in each phase."""

SOLVERS = ("speculation", "tensor_parallel")
"""Levers whose effect is no change of parameters name one of these; `analyzers` holds the functions."""

MODELLED = frozenset(
    {
        "chunks_per_prompt_ratio", "front_end_share_ratio", "front_end_work_mean_s", "front_end_work_ratio",
        "input_mean_tokens", "kv_used_max_ratio", "kv_used_mean_ratio", "network_share_ratio",
        "network_ttft_s", "network_ttft_share_ratio",
        "prefill_share_ratio", "rho_capped_ratio", "rho_uncapped_ratio",
        "running_max_count", "running_mean_count", "slots_used_ratio", "wait_share_ratio",
        "waiting_busy_ratio",
    }
    | {
        f"{phase}_{part}_share_ratio"
        for phase in ("prefill", "decode")
        for part in ("weights", "kv", "compute", "floor", "link", "launch", "host")
    }
)  # fmt: skip
"""Signals that say where the time goes, which the cost model accounts for itself."""

Op = Literal["<", "<=", ">", ">=", "==", "!="]


class Condition(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One comparison, or `all`/`any` of several.

    A comparison is `signal op value`, or `signal op factor × other` where `other` names a signal.
    `text` compares a categorical signal (op `==` or `!=`).
    """

    signal: str | None = None
    op: Op | None = None
    value: float | None = None
    other: str | None = None
    factor: float = 1.0
    text: str | None = None
    all: list[Condition] | None = None
    any: list[Condition] | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One example that a rule must judge as `state`; signals are numbers, [low, high] or texts."""

    name: str
    signals: dict[str, Any]
    state: State


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One symptom or precheck; see CONTRIBUTING for the meaning of each key.

    `effect` and `remedy` are for prechecks: a failed one is `invalid` (the verdict is withheld) or
    `explains` (the class stays, the precheck is named as its cause). `applies` must hold (fire) for
    the rule to be applicable at all; when it is clear the rule is `not_applicable`. `per` names the
    scope keys, comma-separated, for each of whose scopes the rule is judged. `odds`, at least 1: how
    many times likelier the symptom is seen where its class is right than where another is. `recorded`:
    judged on what was recorded alone, never on what a person told.
    """

    id: str
    title: str
    why: str
    source: str
    needs: list[str]
    when: list[Condition]
    says: str
    cases: list[Case]
    class_: Class | None = msgspec.field(default=None, name="class")
    sub_cause: str | None = None
    odds: float = 3.0
    recorded: bool = False
    applies: list[Condition] = []
    per: str | None = None
    levers: list[str] = []
    known_gaps: str = ""
    min_coverage: float = 0.5
    effect: Literal["invalid", "explains"] | None = None
    remedy: str | None = None


class Effect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a lever does to one parameter.

    `efficiency` is the part of the change that arrives, [low, high] in 0..1; `effects.applied` is
    the arithmetic.
    """

    param: str
    efficiency: tuple[float, float]
    times: float | None = None
    add: float | None = None
    set: float | None = None


class Lever(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change, with its whole causal chain.

    Attributes:
        attacks: classes that it is for, as `class` or `class.sub_cause`.
        enabling: conditions on signals, all of which must hold for it to help; unknown ones make it
            `check_first`.
        harms: conditions any one of which would make it harmful or useless.
        flags: how to apply it, by engine (vllm, sglang, tensorrt_llm, …); `{value}` is a new
            setting.
        setting: the engine setting that it changes, when it is one.
        solver: one of `SOLVERS`, when its effect is no change of parameters; `effect` is then empty.
    """

    id: str
    title: str
    phase: str
    resource: str
    attacks: list[str]
    enabling: list[Condition]
    effect: list[Effect]
    relieves: str
    burdens: str
    effort: Literal["minutes", "hours", "days", "weeks"]
    ladder_rung: int
    flags: dict[str, str]
    failure_mode: str
    quality_gate: str
    disable_when: str
    rollback: str
    revalidate: str
    why: str
    source: str
    harms: list[Condition] = []
    reinforces: list[str] = []
    obstructs: list[str] = []
    setting: str | None = None
    solver: str | None = None


# ---------------------------------------------------------------- the diagnosis document


class GuardResult(msgspec.Struct, kw_only=True):
    """What must hold beside the target; `met` is null, and `why` says why, where that cannot be told."""

    text: str
    unit: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    met: bool | None = None
    why: str | None = None


class Target(msgspec.Struct, kw_only=True):
    """What "faster" means for this run.

    `met` is of the threshold and every guard: null when no threshold was given or it cannot be told.
    `why` says why it cannot, or which guard is broken.
    """

    metric: str
    statistic: str
    text: str
    unit: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    threshold: float | None = None
    guards: list[GuardResult] = []
    met: bool | None = None
    why: str | None = None


class PrecheckResult(msgspec.Struct, kw_only=True):
    """One precheck; `effect` is none unless it fired."""

    id: str
    state: State
    effect: Literal["invalid", "explains", "none"]
    says: str
    remedy: str | None = None


class Verdict(msgspec.Struct, kw_only=True):
    """Class and binding resource, or an abstention that names the candidates.

    `shares`: of the fitted hypotheses, how many give each class, `none` for no action; they sum to 1.
    """

    class_: Class | None = msgspec.field(name="class")
    sub_cause: str | None = None
    binding_resource: str | None = None
    confidence: float = 0.0
    abstained: bool = False
    withheld: bool = False
    candidates: list[str] = []
    runner_up: str | None = None
    ambiguous: bool = False
    says: str = ""
    method: str = ""
    shares: dict[str, float] = {}
    gain_vector: dict[str, Any] = {}
    by_phase: dict[str, Any] = {}
    by_metric: dict[str, Any] = {}


class BudgetItem(msgspec.Struct, kw_only=True):
    """One part of the target's time; the shares of a budget sum to 1, `unknown` included."""

    component: str
    label: str
    seconds: float
    share: float
    source: str
    class_: str | None = msgspec.field(default=None, name="class")
    low: float | None = None
    high: float | None = None


class Ceiling(msgspec.Struct, kw_only=True):
    """What the target would gain, at the very most, if one part took no time."""

    component: str
    share: float
    gain_if_free: float


class Evidence(msgspec.Struct, kw_only=True):
    """One fact that a finding rests on; `sql` shows it."""

    signal: str
    value: float | str | None
    unit: str
    source: str
    sql: str
    low: float | None = None
    high: float | None = None


class Finding(msgspec.Struct, kw_only=True):
    """What one rule says of one scope."""

    rule: str
    title: str
    scope: str
    state: State
    says: str
    evidence: list[Evidence]
    class_: str | None = msgspec.field(default=None, name="class")
    sub_cause: str | None = None


class Amdahl(msgspec.Struct, kw_only=True):
    """The bound on a service-time gain: `1/((1-p)+p/s)`."""

    p: float
    s: float | None
    gain: float


class Gain(msgspec.Struct, kw_only=True):
    """A ratio on the target: 1 is nothing, 1.25 a quarter better, below 1 harm."""

    low: float
    mid: float
    high: float
    metric: str
    method: Literal["amdahl", "fixed_point", "replay", "measured"]
    capped_by: str


class Realised(msgspec.Struct, kw_only=True):
    """The measured gain of a lever that was applied."""

    gain: float
    low: float
    high: float


class LeverAdvice(msgspec.Struct, kw_only=True):
    """One ranked lever, with the gain it will give and the price it asks; `value` of the setting it sets."""

    id: str
    title: str
    ladder_rung: int
    effort: str
    flags: dict[str, str]
    relieves: str
    burdens: str
    failure_mode: str
    quality_gate: str
    disable_when: str
    rollback: str
    helps: bool | Literal["check_first"]
    why: str
    amdahl: Amdahl | None = None
    gain: Gain | None = None
    realised: Realised | None = None
    value: float | None = None


class NextMeasurement(msgspec.Struct, kw_only=True):
    """The one command that would settle, or sharpen, the verdict."""

    command: str
    decides: list[str]
    because: str


class Diagnosis(msgspec.Struct, kw_only=True):
    """The whole document, written to `RUN/diagnosis.json`."""

    run: dict[str, Any]
    target: Target
    prechecks: list[PrecheckResult]
    verdict: Verdict
    budget: list[BudgetItem]
    ceilings: list[Ceiling]
    findings: list[Finding]
    levers: list[LeverAdvice]
    next_measurement: NextMeasurement | None
    exhibits: dict[str, Any]
    coverage: dict[str, Any]
    scorecard: dict[str, Any]
    schema_version: int = DIAGNOSIS_SCHEMA_VERSION


def to_json(diagnosis: Diagnosis, indent: int = 1) -> str:
    """The document as JSON text; floats as they are, nulls kept."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=indent).decode()


def from_json(text: str | bytes) -> Diagnosis:
    """Read a document back.

    Raises:
        msgspec.ValidationError: it is not one; the message names the path of the first difference.
    """
    return msgspec.json.decode(text, type=Diagnosis)
