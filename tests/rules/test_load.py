# ruff: noqa: E501 - tables of cases read best with one row a line
"""Every way in which a rule file can be wrong is an error that says file, line and what is known."""

import textwrap
from pathlib import Path

import pytest

from whybound.errors import WhyboundError
from whybound.rules.load import (
    ROOM,
    RuleError,
    load_catalogue,
    load_levers,
    load_prechecks,
    load_rules,
)
from whybound.rules.strict_yaml import MAX_BYTES, read

RULE = """\
id: hot
title: "Too hot"
class: compute
why: because
source: judgement
needs: [heat_ratio, mode]
when:
  - {signal: heat_ratio, op: ">=", value: 0.9}
  - any:
      - {signal: mode, op: "==", text: "open"}
says: "{heat_ratio:.0%} in {mode}"
levers: [cool]
cases:
  - {name: yes, signals: {heat_ratio: 0.95, mode: "open"}, state: fires}
  - {name: no, signals: {heat_ratio: 0.89, mode: "open"}, state: clear}
"""
LEVER = """\
id: cool
title: "Cool it"
phase: both
resource: fan
attacks: [compute]
enabling: []
effect:
  - {param: kernel_floor, times: 0.5, efficiency: [0.2, 1.0]}
relieves: heat
burdens: noise
effort: minutes
ladder_rung: 4
flags: {vllm: "--cool {value}"}
failure_mode: none
quality_gate: none
disable_when: cold
rollback: stop it
revalidate: heat
why: because
source: judgement
"""


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def rule_text(old: str = "", new: str = "") -> str:
    text = RULE.replace("name: yes", "name: 'yes'").replace("name: no", "name: 'no'")
    assert not old or text.count(old) >= 1, old
    return text.replace(old, new, 1) if old else text


def line_of(text: str, needle: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if needle in line)


def test_the_room_loads_and_names_files_by_id():
    rules, prechecks, levers = load_rules(), load_prechecks(), load_levers()
    for items, folder in ((rules, "symptoms"), (prechecks, "prechecks"), (levers, "levers")):
        assert list(items) == sorted(p.stem for p in (ROOM / folder).glob("*.yaml"))
    assert all(key == item.id for items in (rules, prechecks) for key, item in items.items())
    assert min(len(rules), len(levers)) >= 36
    rules.clear()  # a caller's copy is its own
    assert load_rules()


def test_a_good_folder_loads(tmp_path):
    write(tmp_path, "hot.yaml", rule_text())
    rule = load_rules(tmp_path)["hot"]
    assert rule.class_ == "compute"
    assert rule.when[1].any[0].text == "open"
    assert rule.min_coverage == 0.5


def test_an_empty_folder_is_an_empty_dict(tmp_path):
    assert load_rules(tmp_path) == {}
    assert load_levers(tmp_path) == {}


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        ("why: because", "whyy: because", "whyy", "unknown key 'whyy', did you mean 'why'?"),
        ("op: \">=\", value", "op: \">=\", valu", "heat_ratio, op", "unknown key 'valu', did you mean 'value'?"),
        ("text: \"open\"", "txt: \"open\"", "signal: mode", "did you mean 'text'?"),
        ("state: clear", "stat: clear", "stat: clear", "unknown key 'stat', did you mean 'state'?"),
        ("why: because\n", "", "id: hot", "the key 'why' is missing"),
        (", state: clear", "", "name: 'no'", "the key 'state' is missing"),
        ("title: \"Too hot\"", "title: 3", "title", "'title' must be text, not 3"),
        ("value: 0.9", "value: high", "heat_ratio, op", "'value' must be a number, not 'high'"),
        ("value: 0.9", "value: yes", "heat_ratio, op", "'value' must be a number, not True"),
        ("text: \"open\"", "text: yes", "signal: mode", "'text' must be text, not True"),
        ("needs: [heat_ratio, mode]", "needs: heat_ratio", "needs", "'needs' must be a list"),
        ("class: compute", "class: computer", "class", "unknown class 'computer', did you mean 'compute'?"),
        ("class: compute\n", "", "id: hot", "a symptom needs the class"),
        ("op: \">=\"", "op: \"=>\"", "heat_ratio, op", "unknown op '=>'"),
        ("state: clear", "state: clean", "name: 'no'", "unknown state 'clean', did you mean 'clear'?"),
        ("class: compute", "class: compute\nsub_cause: recompute", "sub_cause", "did you mean 'recomputation'?"),
        ("class: compute", "class: compute\nper: gpus", "per", "unknown scope key 'gpus', did you mean 'gpu'?"),
        ("class: compute", "class: compute\nmin_coverage: 1.5", "min_coverage", "0..1"),
        ("class: compute", "class: compute\nodds: 0.9", "odds", "odds are at least 1 and finite, not 0.9"),
        ("class: compute", "class: compute\nodds: .inf", "odds", "odds are at least 1 and finite, not inf"),
        ("class: compute", "class: compute\nodds: .nan", "odds", "odds are at least 1 and finite, not nan"),
        ("class: compute", "class: compute\neffect: invalid", "effect", "for prechecks"),
        ("value: 0.9", "value: .inf", "heat_ratio, op", "must be finite"),
        ("value: 0.9", "value: 0.9, other: mode", "heat_ratio, op", "exactly one of"),
        ("value: 0.9", "value: 0.9, factor: 2", "heat_ratio, op", "'factor' multiplies"),
        ("op: \">=\", ", "", "heat_ratio, value", "no 'op'"),
        ("op: \"==\"", "op: \">\"", "signal: mode", "text can only be"),
        ("  - any:\n      - {signal: mode, op: \"==\", text: \"open\"}", "  - any: []", "any: []", "'any' is empty"),
        ("- any:", "- op: \">\"\n    any:", "op: \">\"", "stands alone"),
        ("needs: [heat_ratio, mode]", "needs: [heat_ratios, mode]", "needs", "'heat_ratio' is used but not in 'needs', did you mean 'heat_ratios'?"),
        ("needs: [heat_ratio, mode]", "needs: [heat_ratio, mode, noise_ratio]", "needs", "neither tested nor said"),
        ("needs: [heat_ratio, mode]", "needs: [heat_ratio, mode, mode]", "needs", "needed twice"),
        ("{heat_ratio:.0%}", "{heat_ratio:.0q}", "says", "format '.0q'"),
        ("{heat_ratio:.0%}", "{heat_ratio.real}", "says", "plain format"),
        ("{heat_ratio:.0%}", "{heat_ratio:.0%", "says", "not a format string"),
        ("mode: \"open\"}, state: clear", "moed: \"open\"}, state: clear", "name: 'no'", "did you mean 'mode'?"),
        ("heat_ratio: 0.89", "heat_ratio: off", "name: 'no'", "put the word in quotes"),
        ("heat_ratio: 0.89", "heat_ratio: [2, 1]", "name: 'no'", "[low, high] in that order"),
        ("heat_ratio: 0.89", "heat_ratio: null", "name: 'no'", "leave out a missing one"),
        ("id: hot", "id: hotter", "id", "differs from the file name 'hot'"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_rule_is_named_with_its_line(tmp_path, old, new, at, says):
    text = rule_text(old, new)
    path = write(tmp_path, "hot.yaml", text)
    with pytest.raises(RuleError) as caught:
        load_rules(tmp_path)
    message = str(caught.value)
    assert says in message
    assert message.startswith(f"{path}:{line_of(text, at)}: ")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        ("param: kernel_floor", "param: kernel_flor", "param", "unknown param 'kernel_flor', did you mean 'kernel_floor'?"),
        ("times: 0.5", "times: 0", "param", "above 0"),
        ("times: 0.5", "times: 0.5, add: 1", "param", "exactly one of: times, add, set"),
        ("[0.2, 1.0]", "[1.0, 0.2]", "param", "within 0..1"),
        ("[0.2, 1.0]", "[0.2]", "param", "`array` of length 2".replace("`", "")),
        ("attacks: [compute]", "attacks: [computing]", "attacks", "did you mean 'compute'?"),
        ("attacks: [compute]", "attacks: [scheduling.batch_cap]", "attacks", "did you mean 'batch cap'?"),
        ("attacks: [compute]", "attacks: []", "attacks", "at least one class"),
        ("ladder_rung: 4", "ladder_rung: 11", "ladder_rung", "1..10"),
        ("{vllm: ", "{vlm: ", "flags", "unknown engine 'vlm', did you mean 'vllm'?"),
        ("--cool {value}", "--cool {valeu}", "flags", "only {value}"),
        ("--cool {value}\"", "--cool\", sglang: 3", "flags", "each value of 'flags' must be text"),
        ("effort: minutes", "effort: minute", "effort", "did you mean 'minutes'?"),
        ("effect:\n  - {param: kernel_floor, times: 0.5, efficiency: [0.2, 1.0]}", "effect: []", "effect", "at least one effect"),
        ("why: because", "why: because\nsolver: speculation", "effect", "not both"),
        ("why: because", "why: because\nsolver: specalation", "solver", "unknown solver 'specalation', did you mean 'speculation'?"),
        ("enabling: []", "enabling: [{signal: a, op: \"<\"}]", "enabling", "exactly one of"),
        ("enabling: []", "enabling: [{sginal: a, op: \"<\"}]", "enabling", "did you mean 'signal'?"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_lever_is_named_with_its_line(tmp_path, old, new, at, says):
    assert old in LEVER
    text = LEVER.replace(old, new, 1)
    path = write(tmp_path, "cool.yaml", text)
    with pytest.raises(RuleError) as caught:
        load_levers(tmp_path)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line_of(text, at)}: ")


def test_prechecks_need_an_effect_and_a_remedy(tmp_path):
    write(tmp_path, "hot.yaml", rule_text("class: compute", "effect: invalid"))
    with pytest.raises(RuleError, match="a precheck needs 'remedy'"):
        load_prechecks(tmp_path)


def catalogue(tmp_path: Path, rule: str = rule_text(), lever: str = LEVER) -> Path:
    (tmp_path / "prechecks").mkdir()
    write(tmp_path / "symptoms", "hot.yaml", rule)
    write(tmp_path / "levers", "cool.yaml", lever)
    return tmp_path


def test_a_catalogue_whose_references_resolve(tmp_path):
    found = load_catalogue(catalogue(tmp_path))
    assert (set(found.prechecks), set(found.symptoms), set(found.levers)) == (
        set(),
        {"hot"},
        {"cool"},
    )


@pytest.mark.parametrize(
    ("rule", "lever", "where", "says"),
    [
        (rule_text("levers: [cool]", "levers: [cools]"), LEVER, "hot.yaml:12", "no lever 'cools', did you mean 'cool'?"),
        (rule_text(), LEVER.replace("[compute]", "[memory]"), "hot.yaml:12", "does not attack 'compute'"),
        (rule_text(), LEVER + "reinforces: [fans]\n", "cool.yaml:21", "no other lever 'fans'"),
        (rule_text(), LEVER + "obstructs: [cool]\n", "cool.yaml:21", "no other lever 'cool'"),
    ],
)  # fmt: skip
def test_a_reference_that_resolves_to_nothing(tmp_path, rule, lever, where, says):
    with pytest.raises(RuleError) as caught:
        load_catalogue(catalogue(tmp_path, rule, lever))
    assert where in str(caught.value)
    assert says in str(caught.value)


def test_one_id_is_not_a_precheck_and_a_symptom(tmp_path):
    folder = catalogue(tmp_path)
    precheck = rule_text("class: compute", "effect: invalid\nremedy: cool down")
    write(folder / "prechecks", "hot.yaml", precheck.replace("levers: [cool]\n", ""))
    with pytest.raises(RuleError, match="is a precheck and a symptom"):
        load_catalogue(folder)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "empty file"),
        ("a: 1\na: 2\n", 2, "'a' is given twice, first in line 1"),
        ("a:\n  b: 1\n  b: 1\n", 3, "'b' is given twice"),
        ("a: &x [1]\nb: *x\n", 1, "anchors and aliases"),
        ("b: 1\na: &x 2\n", 2, "anchors and aliases"),
        ("a:\n  <<: {b: 1}\n", 2, "is not plain text"),
        ("1: a\n", 1, "the key '1' is not plain text"),
        ("a: 2024-01-01\n", 1, "a 'timestamp' is not allowed"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "not allowed"),
        ("a: !thing 1\n", 1, "not allowed"),
        ("a: 1:30\n", 1, "plain decimals"),
        ("a: 010\n", 1, "plain decimals"),
        ("a: !!int x\n", 1, "plain decimals"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
        ("a: [1\nb: 2\n", 2, "not valid YAML"),
        ("a: " + "[" * 40 + "]" * 40, 1, "nested deeper"),
        ("a: \x01\n", 1, "not valid YAML"),
    ],
)
def test_yaml_that_is_not_plain_data_is_refused(tmp_path, text, line, says):
    path = write(tmp_path, "x.yaml", text)
    with pytest.raises(RuleError) as caught:
        read(path)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert "\n" not in str(caught.value)


def test_plain_data_is_read_as_it_stands(tmp_path):
    text = textwrap.dedent("""\
        a: [1, -2.5, 1.0e-3, .5, .nan, .inf, 0]
        b: {c: true, d: ~, e: "1", f: text}
    """)
    found = read(write(tmp_path, "x.yaml", text))
    assert str(found.data["a"]) == "[1, -2.5, 0.001, 0.5, nan, inf, 0]"
    assert found.data["b"] == {"c": True, "d": None, "e": "1", "f": "text"}
    assert found.lines[("b", "c")] == 2
    assert found.where(("b", "c", "nowhere")).endswith(":2")


def test_an_alias_bomb_costs_nothing(tmp_path):
    bomb = "a: &a [x, x]\n" + "".join(
        f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(RuleError, match="anchors and aliases"):
        read(write(tmp_path, "x.yaml", bomb))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(RuleError, match="no such folder"):
        load_rules(tmp_path / "nowhere")
    with pytest.raises(RuleError, match="cannot be read"):
        read(tmp_path / "nowhere.yaml")
    (tmp_path / "x.yaml").write_bytes(b"a: \xff")
    with pytest.raises(RuleError, match="not UTF-8 at byte 3"):
        read(tmp_path / "x.yaml")
    with pytest.raises(RuleError, match="more than the"):
        read(write(tmp_path, "x.yaml", "a: " + "b" * MAX_BYTES))
    write(tmp_path / "rules", "hot.yml", rule_text())
    with pytest.raises(RuleError, match=r"name it hot\.yaml"):
        load_rules(tmp_path / "rules")
    write(tmp_path / "list", "hot.yaml", "- 1\n")
    with pytest.raises(RuleError, match=r"hot\.yaml:1: the file must be a map of keys"):
        load_rules(tmp_path / "list")


def test_an_error_is_one_that_a_person_can_mend():
    assert issubclass(RuleError, WhyboundError)
