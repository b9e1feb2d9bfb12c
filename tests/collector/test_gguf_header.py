"""GGUF headers: written here byte by byte, read back as a configuration; hostile ones refused."""

import io
import struct
from contextlib import suppress

import pytest
from gguf_bytes import (
    F16,
    F32,
    FFN,
    HEADS,
    HIDDEN,
    KV,
    LAYERS,
    LLAMA,
    Q4_K,
    Q8_0,
    VOCAB,
    gguf,
    llama_tensors,
    text,
    value,
)  # fmt: skip
from hypothesis import given, settings
from hypothesis import strategies as st

from whybound.analyzers.shapes.build import shape_from_config
from whybound.collector.gguf_config import config_of
from whybound.collector.gguf_header import read_header
from whybound.errors import WhyboundError


def config(raw):
    return config_of(read_header(io.BytesIO(raw)))


def size(tensors):
    per = {F32: 4, F16: 2, Q4_K: 144 / 256, Q8_0: 34 / 32}
    counts = [(n[0] * (n[1] if len(n) > 1 else 1), kind) for _, n, kind in tensors]
    return sum(n for n, _ in counts), sum(n * per[kind] for n, kind in counts)


@pytest.mark.parametrize("head", [True, False])
def test_a_llama_is_counted_to_the_byte(head):
    tensors = llama_tensors(head=head)
    shape = shape_from_config(config(gguf(LLAMA, tensors)))
    parameters, size_bytes = size(tensors)
    assert shape.exact
    assert shape.parameters == parameters
    assert shape.weight_bytes == size_bytes
    assert shape.tied is not head
    assert shape.kv_bytes_per_token == LAYERS * 2 * KV * HIDDEN // HEADS * 2
    assert shape.dtype_bits == 16


def test_a_header_without_tensors_has_no_bytes():
    shape = shape_from_config(config(gguf(LLAMA)))
    assert shape.parameters
    assert shape.weight_bytes is None


def test_a_part_of_a_split_model_has_no_bytes():
    shape = shape_from_config(config(gguf({**LLAMA, "split.count": 3}, llama_tensors()[:5])))
    assert shape.weight_bytes is None


def test_a_mixture_of_experts():
    keys = {**LLAMA, "llama.expert_count": 4, "llama.expert_used_count": 2}
    tensors = [
        t
        for t in llama_tensors()
        if "ffn_gate" not in t[0] and "ffn_up" not in t[0] and "ffn_down" not in t[0]
    ]
    for i in range(LAYERS):
        tensors.append((f"blk.{i}.ffn_gate_inp.weight", (HIDDEN, 4), F32))
        for part in ("gate", "up", "down"):
            tensors.append((f"blk.{i}.ffn_{part}_exps.weight", (HIDDEN, FFN, 4), Q4_K))
    shape = shape_from_config(config(gguf(keys, tensors)))
    assert shape.architecture == "mixtral"
    assert shape.bits["experts"] == 4.5
    assert shape.parameters - shape.active_parameters == LAYERS * 2 * 3 * HIDDEN * FFN


def test_latent_attention_new_and_old():
    base = {
        "general.architecture": "deepseek2", "deepseek2.block_count": 2, "deepseek2.embedding_length": 64,
        "deepseek2.feed_forward_length": 96, "deepseek2.attention.head_count": 4, "deepseek2.vocab_size": 300,
        "deepseek2.attention.kv_lora_rank": 24, "deepseek2.rope.dimension_count": 8,
    }  # fmt: skip
    old = {**base, "deepseek2.attention.head_count_kv": 4, "deepseek2.attention.key_length": 24,
           "deepseek2.attention.value_length": 12}  # fmt: skip
    new = {**base, "deepseek2.attention.head_count_kv": 1, "deepseek2.attention.key_length": 32,
           "deepseek2.attention.value_length": 24, "deepseek2.attention.key_length_mla": 24,
           "deepseek2.attention.value_length_mla": 12}  # fmt: skip
    a, b = (shape_from_config(config(gguf(keys))) for keys in (old, new))
    assert a.parameters == b.parameters
    assert a.kv_bytes_per_token == b.kv_bytes_per_token == 2 * (24 + 8) * 2
    assert (a.qk_nope_head_dim, a.v_head_dim) == (16, 12)


def test_lists_by_layer():
    same = config(gguf({**LLAMA, "llama.attention.head_count_kv": [2, 2]}))
    assert same["num_key_value_heads"] == 2
    shape = shape_from_config(config(gguf({**LLAMA, "llama.attention.head_count_kv": [0, 2]})))
    assert "differs from layer to layer" in shape.unknown


def test_a_recurrent_architecture_is_refused():
    raw = gguf(
        {k.replace("llama.", "falcon-h1."): v for k, v in LLAMA.items()}
        | {"general.architecture": "falcon-h1"}
    )
    assert "falcon_h1" in shape_from_config(config(raw)).unknown


WHOLE = gguf(LLAMA, llama_tensors())


def header(tensors=0, keys=0, rest=b"", version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, tensors, keys) + rest


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "ends inside"),
        (b"PK\x03\x04" + b"0" * 64, "does not begin"),
        (header(version=1), "version 1"),
        (header(version=0x03000000), "version 50331648"),
        (header(keys=2**63), "keys, more than"),
        (header(tensors=2**63), "tensors, more than"),
        (header(keys=1, rest=struct.pack("<Q", 2**62)), "bytes in one text"),
        (header(keys=1, rest=struct.pack("<Q", 2**25)), "ends inside"),
        (header(keys=1, rest=text("k" * 2000) + value(1)), "a key is longer"),
        (header(keys=1, rest=text("k") + struct.pack("<I", 99)), "unknown type 99"),
        (header(keys=1, rest=text("k") + struct.pack("<IIQ", 9, 8, 2**40)), "items in 'k'"),
        (header(keys=1, rest=text("k") + struct.pack("<IIQ", 9, 9, 3)), "array of arrays"),
        (header(keys=1, rest=text("k") + struct.pack("<IIQ", 9, 12, 2**22)), "ends inside"),
        (header(tensors=1, rest=text("t") + struct.pack("<I", 2**31)), "dimensions"),
        (header(tensors=1, rest=text("t") + struct.pack("<IQ", 1, 2**60)), "rows in a tensor"),
        (WHOLE[:-1], "ends inside"),
        (WHOLE[:200], "ends inside"),
    ],
)  # fmt: skip
def test_hostile_headers_are_one_line(raw, why):
    with pytest.raises(WhyboundError, match=why) as caught:
        read_header(io.BytesIO(raw))
    assert "\n" not in str(caught.value)


def test_a_header_that_does_not_end_is_left_after_64_mib(tmp_path):
    numbers = text("k") + struct.pack("<IIQ", 9, 12, 2**22)
    with (tmp_path / "m.gguf").open("w+b") as stream:  # mostly holes: it takes no room
        stream.write(header(keys=4000))
        for _ in range(8):
            stream.write(numbers)
            stream.seek(2**25, io.SEEK_CUR)
        stream.write(b"end")
        stream.seek(0)
        with pytest.raises(WhyboundError, match="longer than 64 MiB"):
            read_header(stream)
        assert stream.tell() <= 2**26


def test_text_is_passed_over():
    header_read = read_header(io.BytesIO(WHOLE))
    assert "tokenizer.chat_template" not in header_read.values
    assert header_read.lengths["tokenizer.ggml.tokens"] == VOCAB


def test_a_vocabulary_longer_than_what_is_read_at_once():
    tokens = [f"{i:x}" * (1 + i % 40) for i in range(60_000)]
    raw = gguf({"tokens": tokens, "long": ["x" * 3_000_000, "y"], "after": 7})
    assert len(raw) > 5 * 2**20
    found = read_header(io.BytesIO(raw))
    assert (found.lengths, found.values) == ({"tokens": 60_000, "long": 2}, {"after": 7})


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=9))
def test_a_damaged_header_gives_a_shape_or_an_error_of_ours(at, patch):
    raw = WHOLE[:at] + patch + WHOLE[at + len(patch) :]
    with suppress(WhyboundError):
        found = shape_from_config(config(raw))
        assert found.parameters is None or found.parameters > 0
