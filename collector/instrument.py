"""The flags that make a server export its request spans, for `profile run --instrument`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .argv import requested_settings

_NO_FLAG = {
    "llamacpp": "llama.cpp exports no spans",
    "": "the command starts no engine whose flags are known",
}

# An endpoint with http:// is plain text by itself; with grpc:// OpenTelemetry's exporter for Python
# takes TLS unless its caller or an environment variable says otherwise, which vLLM does only lately.
_FLAGS: dict[str, tuple[tuple[str, str | None], ...]] = {
    "vllm": (("--otlp-traces-endpoint", "http://{address}"),),
    "sglang": (("--enable-trace", None), ("--otlp-traces-endpoint", "{address}")),
    "tensorrt_llm": (("--otlp_traces_endpoint", "http://{address}"),),
    "tgi": (("--otlp-endpoint", "http://{address}"),),
}
"""Flags by engine, with their values; the last one is the endpoint."""


def instrument(cmd: Sequence[str], engine: str, grpc_address: str) -> tuple[list[str], list[str]]:
    """The command with the flags that make it export spans.

    TensorRT-LLM also needs `return_perf_metrics: true` in its own configuration file.

    Args:
        cmd: of the server.
        engine: as `argv.engine_of` names it.
        grpc_address: host:port of the receiver.

    Returns:
        The command, and the words that were added to its end: none where `why_not` has a reason.
    """
    if why_not(cmd, engine):
        return list(cmd), []
    added = _added(cmd, engine, grpc_address)
    return [*cmd, *added], added


def why_not(cmd: Sequence[str], engine: str) -> str | None:
    """Why no flag can be added to a command, in words; None when it can."""
    if engine not in _FLAGS:
        return _NO_FLAG.get(engine, f"how {engine} exports spans is not known")
    endpoint = _FLAGS[engine][-1][0]
    if _key(endpoint) in requested_settings(cmd):
        return f"the command has {endpoint} already, and its spans go there"
    if _key(endpoint) not in requested_settings([*cmd, *_added(cmd, engine, "127.0.0.1:1")]):
        # The end of `sh -c 'vllm serve …'` is not the end of the server's own command.
        return "the server is started by a shell's text; start it without the shell"
    return None


def _added(cmd: Sequence[str], engine: str, grpc_address: str) -> list[str]:
    given = requested_settings(cmd)
    added: list[str] = []
    for flag, value in _FLAGS[engine]:
        if _key(flag) not in given:
            added += [flag] if value is None else [flag, value.format(address=grpc_address)]
    return added


def _key(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")
