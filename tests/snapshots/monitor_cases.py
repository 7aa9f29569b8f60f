"""The sidecar: fit, scores, verdicts, drift, commands."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from monitor import Drift, FitData, Judge, fit, write_bundle
from monitor.scoring.baseline import SIGNALS
from tests.bundles import exported_classifier, small_spec
from tests.commands import evenhand
from tests.families import seeded
from tests.serving import PEOPLE, SPEC, WORLD, served
from tests.snapshots.case import Shown, case, folder
from tests.snapshots.figures import plain


@functools.cache
def _fitted() -> Any:
    data = FitData(features=PEOPLE.features, groups=PEOPLE.groups)
    return fit(seeded("MLP"), data, SPEC, folder() / "lending", compiled=False)


@functools.cache
def _judge() -> Judge:
    return Judge.load(_fitted().bundle, warn=False)


@case
def fit_audit() -> Any:
    audit = _fitted().audit
    return Shown(text=audit.text(), data=audit.to_dict())


@case
def fit_compiled() -> Any:
    return Shown(text=f"{_fitted().compiled_in_words}\n{_judge().code_in_words}")


@case
def fit_baseline() -> Any:
    baseline = _judge().baseline
    quantiles = {
        attribute: {s: np.quantile(v, [0.1, 0.5, 0.9, 0.99]) for s, v in signals.items()}
        for attribute, signals in baseline.scores.items()
    }
    return Shown(data={"levels": plain(baseline.levels), "quantiles": quantiles})


@case
def judge_scores() -> Any:
    return Shown(data=plain(_judge().scores(torch.from_numpy(PEOPLE.features[:12]))))


@case
def judge_verdicts() -> Any:
    judge = _judge()
    scores = judge.scores(torch.from_numpy(WORLD.people(40, seed=8).features))
    return Shown(
        data={
            attribute: {
                signal: [
                    {"outcome": "above" if p <= 0.1 else "within", "p_value": p, "reason": ""}
                    for p in judge.p_values(scores, attribute, signal=signal).tolist()
                ]
                for signal in SIGNALS
            }
            for attribute in scores.attributes
        }
    )


@case
def drift_readings() -> Any:
    judge = _judge()
    drift = Drift.start(
        judge.drift, bundle_digest="of no bundle", window=400, rng=np.random.default_rng(1)
    )
    readings = {}
    others = WORLD.people(2_400, seed=7)
    for name, rows in (
        ("alike", WORLD.people(800, seed=6).features),
        ("women", others.features[others.groups["sex"] == 1]),
    ):
        for part in torch.from_numpy(rows).split(64):
            drift.update(judge.scores(part).predictions)
        readings[name] = {
            "seen": drift.seen,
            "alarms": plain(drift.alarms),
            "shares": {a: plain(drift.share(a)) for a in ("sex", "ethnicity")},
            "separated": {a: drift.share(a).separated for a in ("sex", "ethnicity")},
            "evidence": {str(w): plain(e) for w, e in drift.evidence.items()},
        }
    return Shown(data=readings)


@case
def bundle_inspect() -> Any:
    path = folder() / "small"
    if not path.exists():
        write_bundle(path, small_spec(), {"classifier.pt2": exported_classifier()})
    return Shown(text=evenhand("bundle", "inspect", path).stdout)


@case
def bundle_verify() -> Any:
    _fitted()
    return Shown(text=evenhand("bundle", "verify", folder() / "lending").stdout)


@case
def serve_introduction() -> Any:
    async def introduction(server: Any) -> str:
        return str(server.introduction)

    _fitted()
    return Shown(text=served(folder() / "lending", introduction))
