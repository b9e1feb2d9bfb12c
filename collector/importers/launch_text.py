"""Commands that start an engine, found in text: a script, a README, what `ps` or `docker run` shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from ..argv import engine_of, shell_words

MAX_COMMANDS = 50
MAX_WORDS = 2000
MAX_COMMAND_CHARS = 64_000

COMMAND = re.compile(
    r"\bvllm\s+serve\b|vllm\.entrypoints\.\w+|sglang\.launch_server|\bsglang\s+serve\b|\bllama-server\b"
    r"|\btrtllm-serve\b|\btext-generation-launcher\b"
)
"""What a command that starts an engine holds."""
IMAGES = (
    (re.compile(r"vllm/vllm|vllm-openai|/vllm[:@-]|^vllm[:@]"), "vllm", ("vllm", "serve")),
    (re.compile(r"lmsysorg/sglang"), "sglang", ()),
    (re.compile(r"llama\.cpp:(?:full|server)|llama\.cpp-server"), "llamacpp", ("llama-server",)),
    (re.compile(r"text-generation-inference"), "tgi", ("text-generation-launcher",)),
    (re.compile(r"tensorrt-?llm"), "tensorrt_llm", ()),
)
"""Container images: whose they are, and the words that their own entry point stands for."""
_PROMPT = re.compile(
    r"^\s*(?:[$#>%]\s+|CMD\s+|ENTRYPOINT\s+|command:\s*|ExecStart=|\d+\s+\S+\s+\S+\s+)?"
)
_CONTINUED = re.compile(r"\\[ \t]*\r?\n|\^[ \t]*\r?\n|`[ \t]*\r?\n(?=\s*-)")
DOCKER = re.compile(r"\b(?:docker|podman|nerdctl)\s+run\b")


@dataclass
class Launch:
    """One engine as it was started.

    Attributes:
        engine: its kind.
        command: its words, from the engine's own on.
        env: variables set for it.
        version: release, where the image's tag tells; else "".
        replica: which of several; "" when there is one.
        extra: further settings that its surroundings tell, e.g. `gpu_count`.
    """

    engine: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    version: str = ""
    replica: str = ""
    extra: dict[str, str] = field(default_factory=dict)


def commands_in(text: str) -> Iterator[Launch]:
    """Every engine that a text's commands start, in order, each different one once."""
    seen: set[tuple[str, ...]] = set()
    for line in _CONTINUED.sub(" ", text).splitlines():
        if not (COMMAND.search(line) or DOCKER.search(line)):
            continue
        launch = _launch(line[:MAX_COMMAND_CHARS])
        if launch is None or tuple(launch.command) in seen:
            continue
        seen.add(tuple(launch.command))
        yield launch
        if len(seen) >= MAX_COMMANDS:
            return


def launch_of(words: list[str], image: str = "") -> Launch | None:
    """The engine that words start, alone or as the arguments of an image's own entry point."""
    words = words[:MAX_WORDS]
    env: dict[str, str] = {}
    for at in range(len(words)):
        if _may_begin(words, at, env) and (engine := engine_of(words[at:])):
            return Launch(engine, words[at:], env, image_version(image))
        name, equals, value = words[at].partition("=")
        if equals and name.isidentifier():
            env[name] = value
    for pattern, engine, entry in IMAGES:
        if pattern.search(image) and entry:
            return Launch(engine, [*entry, *words], {}, image_version(image))
    return None


def _may_begin(words: list[str], at: int, env: dict[str, str]) -> bool:
    """May a command begin here? At the front, behind an operator, or in the middle if flags follow soon.

    A sentence that only names an engine has none.
    """
    if at == len(env) or (words[at - 1] and not words[at - 1].strip("();<>|&-")):
        return True
    return any(word.startswith("-") for word in words[at + 1 : at + 4])


def names_image(text: str) -> bool:
    """Does a text name an engine's image anywhere?"""
    return any(pattern.search(text) for pattern, _, _ in IMAGES)


def image_version(image: str) -> str:
    """The release in an image's tag; "" when it has none."""
    found = re.search(r":v?(\d+\.\d+(?:\.\d+)?)", image)
    return found[1] if found else ""


def _launch(line: str) -> Launch | None:
    words = shell_words(_PROMPT.sub("", line, count=1).strip("`"))
    if not DOCKER.search(line):
        return launch_of(words)
    env = {
        name: value
        for flag, text in pairwise(words)
        if flag in ("-e", "--env")
        for name, equals, value in [text.partition("=")]
        if equals
    }
    for at, word in enumerate(words):
        if any(pattern.search(word) for pattern, _, _ in IMAGES) and not word.startswith("-"):
            launch = launch_of(words[at + 1 :], word)
            if launch is not None:
                launch.env |= env
            return launch
    return launch_of(words)
