"""Learn confidence and interval width from development runs of the benchmark, and write them as YAML.

python -m whybound.fixtures.benchmark --split development --keep RUNS --json > /dev/null
python benchmarks/calibrate.py RUNS [--write]

Logistic regression with a ridge, coefficients read in `analyzers/confidence.py`; the error that is printed
comes from leaving out one family at a time. Held-out families are refused.
"""

from __future__ import annotations

import argparse
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

import whybound
from whybound.analyzers import confidence as learnt
from whybound.analyzers.database import open_database
from whybound.analyzers.diagnose import analyse, diagnose_open, nameless
from whybound.collector.store import open_run
from whybound.fixtures.benchmark.answers import held_out, read_labels
from whybound.fixtures.benchmark.scenarios import scenarios

TARGET = Path(whybound.__file__).parent / "analyzers" / "calibration.yaml"
INSIDE = 0.8
STRONG = 50.0
"""Weight of a gain's distance below which its interval cannot be judged: nearly no interval at all."""


def main() -> int:
    """Fit, print, and with `--write` keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="folder with ID/run of each scenario")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    family = {s.id: s.family for s in scenarios()}
    ids = [p.name for p in sorted(args.runs.iterdir()) if (p / "run").is_dir() and p.name in family]
    ids = [i for i in ids if not held_out(family[i])]
    with ProcessPoolExecutor(args.jobs) as pool:
        found = list(pool.map(look, [(i, str(args.runs / i / "run")) for i in ids]))
    named = [f for f in found if f["right"] is not None]
    y = np.array([f["right"] for f in named])
    groups = np.array([family[f["id"]] for f in named])
    names, x, model = regression(named, y)
    guessed = cross_val_predict(
        model, x, y, groups=groups, cv=LeaveOneGroupOut(), method="predict_proba"
    )
    factor = width([d for f in found for d in f["distances"]])
    print(f"{len(named)} verdicts of {len(set(groups))} families, {y.mean():.1%} right")
    print(
        f"expected calibration error, one family left out at a time: {error(guessed[:, 1], y):.3f}"
    )
    print(f"intervals × {factor:.2f} hold {INSIDE:.0%} of the gains")
    document = {
        "calibrated_on": f"{len(named)} emulated runs of {len(set(groups))} development families, {date.today()}",
        "confidence": {
            "intercept": round(float(model.intercept_[0]), 4),
            **{n: round(float(c), 4) for n, c in zip(names, model.coef_[0], strict=True)},
        },
        "interval": round(factor, 2),
    }
    text = yaml.safe_dump(document, sort_keys=False, width=110)
    print(text)
    if args.write:
        head = TARGET.read_text().splitlines()[0]
        TARGET.write_text(f"{head}\n{text}")
    return 0


SIGNS = {"share": 1, "ambiguous": -1, "opposed": -1, "nameless": -1}
"""Which way each feature may move the confidence; one that the runs would have move the other way is left out."""


def regression(
    named: list[dict[str, Any]], y: np.ndarray
) -> tuple[list[str], np.ndarray, LogisticRegression]:
    """Names, features (runs × names) and the fitted model, with every sign as it must be."""
    names = list(named[0]["features"])
    while True:
        x = np.array([[f["features"][n] for n in names] for f in named])
        model = LogisticRegression(C=0.5).fit(x, y)
        wrong = [n for n, c in zip(names, model.coef_[0], strict=True) if SIGNS[n] * c < 0]
        if not wrong:
            return names, x, model
        names = [n for n in names if n != wrong[0]]


def look(job: tuple[str, str]) -> dict[str, Any]:
    """Features of one run's verdict, whether it is right, and how far its gains lie outside of their intervals."""
    name, path = job
    label = read_labels()[name]
    run = open_run(Path(path))
    con = open_database(run)
    a = analyse(run, con, None, ())
    fired = [f for f in a.findings if f.state == "fires" and f.class_ is not None]
    agree = sum(f.class_ == a.label.class_ for f in fired)
    said = a.label.class_ or "none"
    right = said in {
        label.class_ or "none",
        (label.runner_up or "none") if label.ambiguous else said + "?",
    }
    silent = a.verdict.abstained or a.verdict.withheld
    distances = []
    for lever in diagnose_open(run, con).levers:
        if lever.gain and lever.value is None and lever.id in label.levers and lever.helps is True:
            distances.append(distance(lever.gain, min(20.0, label.levers[lever.id])))
    con.close()
    return {
        "id": name,
        "features": learnt.features(
            a.label, agree, len(fired) - agree, nameless=a.model is None or nameless(a.model)
        ),
        "right": None if silent else right,
        "distances": distances[:3],
    }


def distance(gain: Any, true: float) -> float:
    """How many times wider the interval has to be to hold the true gain; at most `STRONG`."""
    side = gain.high if true > gain.mid else gain.low
    half, off = abs(math.log(side / gain.mid)), abs(math.log(true / gain.mid))
    now = learnt.calibration().interval
    return min(STRONG, now * off / half) if half > 1e-4 else (0.0 if off < 0.01 else STRONG)


def width(distances: list[float]) -> float:
    """The factor that holds `INSIDE` of them."""
    return float(np.quantile(distances, INSIDE))


def error(guessed: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error over ten bins of equal width."""
    bins = np.minimum((guessed * 10).astype(int), 9)
    return float(
        sum(
            abs(guessed[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean()
            for b in range(10)
            if (bins == b).any()
        )
    )


if __name__ == "__main__":
    sys.exit(main())
