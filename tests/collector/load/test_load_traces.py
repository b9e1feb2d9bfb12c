"""Files of arrivals and prompts: both forms, and errors that name the line."""

from __future__ import annotations

import pytest

from whybound.collector.load.traces import Arrival, read_arrivals, read_prompts
from whybound.errors import WhyboundError

WANT = [Arrival(0.0, 5, 6, None), Arrival(1.5, 10, 20, "sys")]


@pytest.mark.parametrize(
    "text",
    [
        "t,input_tokens,output_tokens,prefix\n101.5,10,20,sys\n\n100,5,6,\n",
        "﻿input_tokens, output_tokens, t\n5,6,100\n",
        '{"t": 101.5, "input_tokens": 10, "output_tokens": 20, "prefix": "sys"}\n'
        '{"t": 100, "input_tokens": 5, "output_tokens": 6}\n',
    ],
)
def test_arrivals_sorted_and_counted_from_the_first(tmp_path, text):
    path = tmp_path / "a"
    path.write_text(text)
    got = read_arrivals(str(path))
    assert list(got) == WANT[: len(got)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("t,input_tokens\n1,2\n", "line 2: no 'output_tokens'"),
        ("t,input_tokens,output_tokens\n1,2,3\nx,2,3\n", "line 3: not a number"),
        ("t,input_tokens,output_tokens\n1,0,3\n", "line 2: t must be finite, token counts"),
        ('{"t": 1}\n', "line 1: no 'input_tokens'"),
        ('{"t": 1\n', "line 1: not a JSON object"),
        ("t,input_tokens,output_tokens\n", "no arrivals in it"),
        ("", "no arrivals in it"),
    ],
)
def test_bad_arrivals(tmp_path, text, says):
    path = tmp_path / "a"
    path.write_text(text)
    with pytest.raises(WhyboundError, match=says):
        read_arrivals(str(path))


def test_missing_file(tmp_path):
    with pytest.raises(WhyboundError, match="no such file: check the path"):
        read_arrivals(str(tmp_path / "none"))


def test_prompts(tmp_path):
    path = tmp_path / "p"
    path.write_text('plain one\n\n{"prompt": "two"}\n{"messages": [{"role": "user"}]}\n')
    assert read_prompts(str(path), True) == ["plain one", "two", [{"role": "user"}]]
    with pytest.raises(WhyboundError, match="line 4: messages need api=chat"):
        read_prompts(str(path), False)
    path.write_text('{"text": "x"}\n')
    with pytest.raises(WhyboundError, match="line 1: neither prompt nor messages"):
        read_prompts(str(path), True)
    path.write_text("\n")
    with pytest.raises(WhyboundError, match="no prompts in it"):
        read_prompts(str(path), True)
