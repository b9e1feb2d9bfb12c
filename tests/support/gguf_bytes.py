"""Writes small GGUF files byte by byte."""

import struct

F32, F16, Q4_K, Q8_0 = 0, 1, 12, 8


def text(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(v):
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if v and isinstance(v[0], str):
        return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(text(s) for s in v)
    return struct.pack("<IIQ", 9, 5, len(v)) + struct.pack(f"<{len(v)}i", *v)


def gguf(keys, tensors=(), version=3):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    out += b"".join(text(k) + value(v) for k, v in keys.items())
    for name, dims, kind in tensors:
        out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, 0)
    return out


HIDDEN, FFN, HEADS, KV, VOCAB, LAYERS = 256, 512, 4, 2, 300, 2
LLAMA = {
    "general.architecture": "llama", "general.name": "a text that is not kept",
    "llama.block_count": LAYERS, "llama.embedding_length": HIDDEN, "llama.feed_forward_length": FFN,
    "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV,
    "llama.context_length": 4096, "llama.rope.freq_base": 10000.0, "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.tokens": [f"t{i}" for i in range(VOCAB)], "tokenizer.chat_template": "x" * 5000,
}  # fmt: skip


def llama_tensors(kind=Q4_K, head=True):
    kv = HIDDEN // HEADS * KV
    out = [("token_embd.weight", (HIDDEN, VOCAB), Q8_0), ("output_norm.weight", (HIDDEN,), F32)]
    if head:
        out.append(("output.weight", (HIDDEN, VOCAB), F16))
    for i in range(LAYERS):
        b = f"blk.{i}."
        out += [
            (b + "attn_norm.weight", (HIDDEN,), F32), (b + "ffn_norm.weight", (HIDDEN,), F32),
            (b + "attn_q.weight", (HIDDEN, HIDDEN), kind), (b + "attn_k.weight", (HIDDEN, kv), kind),
            (b + "attn_v.weight", (HIDDEN, kv), kind), (b + "attn_output.weight", (HIDDEN, HIDDEN), kind),
            (b + "ffn_gate.weight", (HIDDEN, FFN), kind), (b + "ffn_up.weight", (HIDDEN, FFN), kind),
            (b + "ffn_down.weight", (FFN, HIDDEN), kind),
        ]  # fmt: skip
    return out
