"""`profile rules` and `profile levers`: show, explain, test."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from ..errors import WhyboundError
from .options import HELP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..rules.model import Condition, Lever, Rule


@click.command("rules", context_settings=HELP)
@click.argument("rule_id", required=False)
@click.option("--test", is_flag=True, help="Run every rule's own cases.")
@click.option(
    "--signals", is_flag=True, help="List what `--fact` takes; RULE_ID narrows it to a word."
)
def rules_command(rule_id: str | None, test: bool, signals: bool) -> int:
    """List the rules, explain one, or test them all."""
    from ..rules.load import load_prechecks, load_rules

    if signals:
        return _signals(rule_id or "")
    prechecks, symptoms = load_prechecks(), load_rules()
    rules = {**prechecks, **symptoms}
    if test:
        return _test(rules.values())
    if rule_id is None:
        for title, group in (("Prechecks", prechecks), ("Symptoms", symptoms)):
            click.echo(title)
            for rule in group.values():
                click.echo(f"  {rule.id:<28} {rule.class_ or rule.effect or '':<11} {rule.title}")
        click.echo("\nprofile rules ID explains one; profile rules --test runs their cases")
        return 0
    _explain_rule(_pick(rule_id, rules, "rule"))
    return 0


def _signals(word: str) -> int:
    """Names and meanings of the signals in which a word is found."""
    from ..analyzers.given import described

    found = {n: says for n, says in described().items() if word in n or word in says.lower()}
    for name, says in found.items():
        click.echo(f"{name:<34} {says}")
    if not found:
        raise WhyboundError(f"no signal speaks of {word!r}; profile rules --signals lists all")
    return 0


def _test(rules: Iterable[Rule]) -> int:
    from ..rules.cases import check_cases

    count, failed = 0, 0
    for rule in rules:
        problems = check_cases(rule)
        count += len(rule.cases)
        failed += len(problems)
        for problem in problems:
            click.echo(f"{rule.id}: {problem}")
    click.echo(f"{count} cases, {failed} problems")
    return 1 if failed else 0


def _explain_rule(rule: Rule) -> None:
    click.secho(f"{rule.id}: {rule.title}", bold=True)
    lines = [
        ("class", " / ".join(x for x in (rule.class_, rule.sub_cause) if x)),
        ("effect", rule.effect or ""),
        ("why", rule.why),
        ("applies", "; ".join(map(_condition, rule.applies))),
        ("fires when", "; ".join(map(_condition, rule.when))),
        ("says", rule.says),
        ("remedy", rule.remedy or ""),
        ("levers", ", ".join(rule.levers)),
        ("needs", ", ".join(rule.needs)),
        ("known gaps", rule.known_gaps),
        ("source", rule.source),
    ]
    _print(lines)
    for case in rule.cases:
        facts = ", ".join(f"{k}={v}" for k, v in case.signals.items())
        click.echo(f"  case         {case.name}: {facts} → {case.state}")


def _condition(c: Condition) -> str:
    for word, parts in (("and", c.all), ("or", c.any)):
        if parts:
            return "(" + f" {word} ".join(map(_condition, parts)) + ")"
    if c.text is not None:
        right = c.text
    elif c.other is not None:
        right = f"{c.factor:g} × {c.other}" if c.factor != 1 else c.other
    else:
        right = f"{c.value:g}"
    return f"{c.signal} {c.op} {right}"


@click.command("levers", context_settings=HELP)
@click.argument("lever_id", required=False)
def levers_command(lever_id: str | None) -> None:
    """List the levers, or explain one: its causal chain, its flags, its price and its way back."""
    from ..rules.load import load_levers

    levers = load_levers()
    if lever_id is None:
        for lever in sorted(levers.values(), key=lambda x: (x.ladder_rung, x.id)):
            classes = ", ".join(dict.fromkeys(a.partition(".")[0] for a in lever.attacks))
            click.echo(f"  {lever.id:<26} {classes:<31} {lever.title}")
        click.echo("\nprofile levers ID explains one")
        return
    _explain_lever(_pick(lever_id, levers, "lever"))


def _explain_lever(lever: Lever) -> None:
    click.secho(f"{lever.id}: {lever.title}", bold=True)
    effects = [
        f"{e.param} "
        + (
            f"× {e.times:g}"
            if e.times is not None
            else f"+ {e.add:g}"
            if e.add is not None
            else f"= {e.set:g}"
        )
        + f", {e.efficiency[0]:.0%} to {e.efficiency[1]:.0%} of which arrives"
        for e in lever.effect
    ]
    lines = [
        ("attacks", ", ".join(lever.attacks)),
        ("acts on", f"{lever.phase}, {lever.resource}"),
        ("why", lever.why),
        ("enabled by", "; ".join(map(_condition, lever.enabling))),
        ("harms when", "; ".join(map(_condition, lever.harms))),
        ("effect", "; ".join(effects) or f"solved by the model: {lever.solver}"),
        ("relieves", lever.relieves),
        ("burdens", lever.burdens),
        ("effort", f"{lever.effort} (rung {lever.ladder_rung} of the ladder)"),
        *((f"{engine}", flag) for engine, flag in lever.flags.items()),
        ("fails as", lever.failure_mode),
        ("quality gate", lever.quality_gate),
        ("undo when", lever.disable_when),
        ("roll back", lever.rollback),
        ("revalidate", lever.revalidate),
        ("reinforces", ", ".join(lever.reinforces)),
        ("obstructs", ", ".join(lever.obstructs)),
        ("source", lever.source),
    ]
    _print(lines)


def _pick(name: str, known: dict[str, object] | dict[str, Rule] | dict[str, Lever], what: str):  # type: ignore[no-untyped-def]
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise WhyboundError(f"no {what} {name!r}{hint} (profile {what}s lists them)")


def _print(lines: list[tuple[str, str]]) -> None:
    for key, value in lines:
        if value:
            click.echo(f"  {key:<13}{' '.join(value.split())}")
