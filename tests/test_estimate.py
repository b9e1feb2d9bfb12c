"""`profile estimate`: one number on standard output, one line on standard error."""

import json

import pytest

from whybound.cli import run


@pytest.mark.parametrize(
    ("args", "out"),
    [
        (["--p", "0.08", "--s", "3"], "1.056\n"),
        (["--p", "0.5", "--s", "inf"], "2.000\n"),
        (["--p", "0", "--s", "100"], "1.000\n"),
        (["--p", "1", "--s", "inf"], "inf\n"),
    ],
)
def test_it_prints_the_gain_alone(capfd, args, out):
    assert run(["estimate", *args]) == 0
    assert capfd.readouterr() == (out, "")


def test_as_json(capfd):
    assert run(["estimate", "--p", "0.5", "--s", "inf", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"p": 0.5, "s": None, "gain": 2.0}


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["--p", "8", "--s", "3"], "0.08"),
        (["--p", "-0.1", "--s", "3"], "share"),
        (["--p", "nan", "--s", "3"], "share"),
        (["--p", "0.1", "--s", "0"], "above 0"),
        (["--p", "0.1", "--s", "-inf"], "above 0"),
        (["--p", "0.1", "--s", "fast"], "fast"),
        (["--p", "0.1"], "--s"),
    ],
)
def test_a_bad_value_is_one_line_and_two(capfd, args, names):
    assert run(["estimate", *args]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert names in err
