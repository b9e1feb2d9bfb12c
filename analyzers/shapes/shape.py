"""The shape of a decoder and what follows from it: parameters, bytes, flops and KV cache, exactly.

All counts are of the whole model, before any split over GPUs. Vision towers and layers that only predict
further tokens (MTP) are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

PARTS = (
    "attention", "mlp", "shared", "router", "experts", "small", "embedding", "head",
)  # fmt: skip
"""What weights are told apart by: each part has its own number of bits.

attention: projections of attention, of linear attention and of Mamba; mlp: dense feed-forward; shared: shared
experts; experts: routed experts; small: norms, biases, sinks, convolutions.
"""


@dataclass(frozen=True)
class Block:
    """Layers that are alike: parameters of one of them by part, and what a token costs in it.

    `expert` is the matrices of one routed expert, `expert_small` its biases. `kv_width`: numbers that one token
    leaves in a growing cache. `window`: how many tokens back its attention sees (None: all).
    `context_flops`: flops of one new token for each token that it attends to; `absorbed_context_flops` the same
    where attention works on the compressed cache (MLA in decode). `state`: numbers of fixed state a sequence.
    """

    count: int = 1
    attention: int = 0
    mlp: int = 0
    shared: int = 0
    router: int = 0
    expert: int = 0
    expert_small: int = 0
    experts: int = 0
    experts_per_token: int = 0
    small: int = 0
    kv_width: int = 0
    window: int | None = None
    context_flops: int = 0
    absorbed_context_flops: int = 0
    state: int = 0
    kernels: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Quantization:
    """Bits a weight by part, scales and zero points included; `kept` is left in the model's dtype.

    `bits` is empty when the method is not known: then no byte count is given. `exact` is False where bits are an
    average of a mixture, or read off a name.
    """

    method: str
    bits: Mapping[str, float]
    kept: tuple[str, ...] = ()
    exact: bool = True


@dataclass(frozen=True)
class Shape:
    """One model as its configuration has it; a field is None where the configuration does not say.

    `exact`: the architecture's parameters are counted exactly; else it was taken for a generic decoder.
    `missing`: keys that were needed and are absent. `unknown`: why nothing is derived, "" when it is: the layers
    are of a kind that is not modelled, and a guess would be silently wrong. `source`: where it was read.
    """

    architecture: str
    source: str = ""
    exact: bool = True
    missing: tuple[str, ...] = ()
    unknown: str = ""
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab: int | None = None
    ffn: int | None = None
    expert_ffn: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    shared_experts: int | None = None
    dense_layers: int | None = None
    sliding_window: int | None = None
    sliding_layers: int | None = None
    growing_layers: int | None = None
    kv_lora_rank: int | None = None
    q_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    tied: bool | None = None
    dtype: str = ""
    dtype_bits: int | None = None
    kv_dtype: str = ""
    kv_bits: float | None = None
    quantization: Quantization | None = None
    blocks: tuple[Block, ...] = ()
    embedding: int = 0
    head: int = 0
    final: int = 0
    bits: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def known(self) -> bool:
        """Can anything be derived? Else every derived value is None."""
        return bool(self.blocks)

    @property
    def parameters(self) -> int | None:
        """Σ layers (attention + mlp + shared + router + experts × expert + small) + embedding + head + norm."""
        return sum(n for _, n in self._parts()) if self.known else None

    @property
    def active_parameters(self) -> int | None:
        """Parameters that one token passes: `parameters` − Σ (experts − experts a token) × expert.

        The embedding table and the head count whole, as most model cards have it.
        """
        if self.parameters is None:
            return None
        idle = sum(
            b.count * (b.experts - b.experts_per_token) * (b.expert + b.expert_small)
            for b in self.blocks
        )
        return self.parameters - idle

    @property
    def weight_bytes(self) -> int | None:
        """Σ parts parameters × bits / 8 [bytes]; None where the bits are not known."""
        if not self.known or not self.bits:
            return None
        return round(sum(n * self.bits[part] for part, n in self._parts()) / 8)

    def read_bytes(self, tokens: int) -> int | None:
        """Weights that one pass over `tokens` ≥ 1 tokens reads from memory [bytes].

        Of the routed experts a share of 1 − (1 − k/E)^tokens is touched, for uniform and independent routing;
        skewed routing touches fewer. Of an input embedding that is not the head, `tokens` rows.
        """
        if self.weight_bytes is None or not self.vocab:
            return None
        rows = 1.0 if not self.head else min(1.0, tokens / self.vocab)
        read = self.embedding * rows * self.bits["embedding"] + self.final * self.bits["small"]
        read += self.head * self.bits["head"]
        for b in self.blocks:
            touched = expected_experts(b, tokens)
            for part, n in _layer_parts(b, touched):
                read += b.count * n * self.bits[part]
        return round(read / 8)

    @property
    def flops_per_token(self) -> int | None:
        """2 × the matrices that a token passes, without embedding, head and attention to the context [flops]."""
        if not self.known:
            return None
        return 2 * sum(
            b.count * (b.attention + b.mlp + b.shared + b.router + b.experts_per_token * b.expert)
            for b in self.blocks
        )

    @property
    def head_flops(self) -> int | None:
        """2 × hidden × vocab [flops]: for every generated token, but for one token a sequence in prefill."""
        if not self.known or not self.hidden or not self.vocab:
            return None
        return 2 * self.hidden * self.vocab

    def attention_flops(self, context_tokens: int, absorbed: bool = False) -> int | None:
        """Attention of one new token to `context_tokens`, itself included [flops].

        Σ layers 2 × heads × (query width + value width) × min(context, window). `absorbed`: MLA on the compressed
        cache, 2 × heads × (2 kv_lora_rank + rope width), as engines decode. Layers with a fixed state: about six
        flops a number of state (decay, update, read), whatever the context.
        """
        return self.prefill_attention_flops(1, context_tokens - 1, absorbed)

    def prefill_attention_flops(
        self, tokens: int, cached_tokens: int = 0, absorbed: bool = False
    ) -> int | None:
        """The same, summed over `tokens` ≥ 0 new tokens that follow `cached_tokens` ≥ 0 [flops]."""
        if not self.known:
            return None
        total = 0
        for b in self.blocks:
            each = b.absorbed_context_flops if absorbed else b.context_flops
            seen = _positions(cached_tokens + tokens, b.window) - _positions(
                cached_tokens, b.window
            )
            total += b.count * (each * seen + 6 * b.state * tokens)
        return total

    @property
    def kv_bytes_per_token(self) -> float | None:
        """KV cache of one token while every window still holds it [bytes].

        Attention: layers × 2 × KV heads × head width × bits / 8. MLA: layers × (kv_lora_rank + rope width) × bits
        / 8. Layers with a fixed state hold none.
        """
        return self.kv_bytes(1)

    def kv_bytes(self, context_tokens: int) -> float | None:
        """KV cache of one sequence of `context_tokens` [bytes]; a sliding-window layer holds its window at most.

        An engine allocates blocks, and may hold all of it for window layers too.
        """
        if not self.known or self.kv_bits is None:
            return None
        held = sum(b.count * b.kv_width * _within(context_tokens, b.window) for b in self.blocks)
        return held * self.kv_bits / 8

    @property
    def state_bytes(self) -> float | None:
        """Fixed state of one sequence in linear-attention and Mamba layers, in the model's dtype [bytes]."""
        if not self.known or self.dtype_bits is None:
            return None
        return sum(b.count * b.state for b in self.blocks) * self.dtype_bits / 8

    @property
    def kernels_per_layer(self) -> tuple[float, float] | None:
        """Kernels a layer launches in one pass, low to high: an estimate, the mean over the layers.

        Low: an engine with fused kernels (vLLM's own list: norm, QKV, rotation, cache write, attention, output,
        norm, gate and up, activation, down: 10). High: the same layer without fusion, split GEMMs included.
        """
        if not self.known or not self.layers:
            return None
        low = sum(b.count * b.kernels[0] for b in self.blocks) / self.layers
        high = sum(b.count * b.kernels[1] for b in self.blocks) / self.layers
        return low, high

    def _parts(self) -> Iterator[tuple[str, int]]:
        yield from (("embedding", self.embedding), ("head", self.head), ("small", self.final))
        for b in self.blocks:
            for part, n in _layer_parts(b, b.experts):
                yield part, b.count * int(n)


def expected_experts(block: Block, tokens: int) -> float:
    """How many routed experts of a layer a pass of `tokens` touches: E (1 − (1 − k/E)^tokens)."""
    if not block.experts:
        return 0.0
    return block.experts * (1 - (1 - block.experts_per_token / block.experts) ** tokens)


def _layer_parts(b: Block, experts: float) -> Iterator[tuple[str, float]]:
    yield from (
        ("attention", b.attention), ("mlp", b.mlp), ("shared", b.shared), ("router", b.router),
        ("experts", experts * b.expert), ("small", b.small + experts * b.expert_small),
    )  # fmt: skip


def _within(tokens: int, window: int | None) -> int:
    return tokens if window is None else min(tokens, window)


def _positions(tokens: int, window: int | None) -> int:
    """Σ over the first `tokens` positions of how many tokens each sees, itself included."""
    grown = _within(tokens, window)
    return grown * (grown + 1) // 2 + (tokens - grown) * (window or 0)
