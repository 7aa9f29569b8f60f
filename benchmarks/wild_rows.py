"""Claims of `benchmarks.detection` on wild training rows and the lower bound of the flip share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.cases import Case
from benchmarks.claims import Claim
from benchmarks.structural_models import HIRING
from benchmarks.structural_models import People as HiringPeople
from benchmarks.subject import fit_subject, train_classifier

__all__ = ["bound_claims", "wild_rows_claim"]

Float = NDArray[np.float32]

_SEED = 1900
_BAR = 0.05
_CONTROL = "four ordinary rows instead"
# Columns of HIRING that no group affects, and that a group affects: score, contacts, years.
_COLUMNS = (0, 5, 6)


def wild_rows_claim(learn: int, judged: int) -> Claim:
    """Largest change of a flip probability by wild rows in the data of the fit, without a refit."""
    people = HIRING.people(learn, seed=_SEED)
    classifier = train_classifier(people, seed=_SEED)
    fresh = HIRING.people(judged, seed=_SEED + 1).features
    name = HIRING.attribute.name

    def scored(features: Float) -> tuple[NDArray[np.float64], float]:
        changed: HiringPeople = replace(people, features=features)
        scores = fit_subject(HIRING, classifier, changed, seed=_SEED).scores(fresh)
        own = scores.attributes[name]
        return own.flip_probability.double().numpy(), float(own.hard_flips.mean())

    def ordinary(features: Float) -> Float:
        """Other people in the place of four rows: what a fit to other data changes in any case."""
        rows = np.linspace(0, len(features) - 1, 4).astype(int)
        features[rows] = HIRING.people(learn, seed=_SEED + 2).features[rows]
        return features

    before, share = scored(people.features)
    moved, shares, many = {}, {"none": share}, {}
    for kind, corrupted in {**_CORRUPTIONS, _CONTROL: ordinary}.items():
        probability, shares[kind] = scored(corrupted(people.features.copy()))
        change = np.abs(probability - before)
        moved[kind], many[kind] = float(change.max()), float((change > _BAR).mean())
    control = moved.pop(_CONTROL)
    return Claim(
        claim="largest change of a flip probability by wild rows in the training data",
        figure=max(moved.values()),
        unit="at worst",
        side="at most",
        bar=_BAR,
        rounds=len(moved),
        details=moved
        | {_CONTROL: control}
        | {f"people above the bar, {kind}": value for kind, value in many.items()}
        | {f"flip share, {kind}": value for kind, value in shares.items()},
    )


def bound_claims(cases: Sequence[Case]) -> list[Claim]:
    """The lower bound holds for the truth, and the estimate is not far below it."""
    figures = {
        "lower bound above the true flip share, in standard errors of the rates": {
            # The rates of groups and the true flips come from the same people.
            case.name: (case.bound - case.true_share) / math.sqrt(0.5 / len(case.flips))
            for case in cases
        },
        "lower bound above the estimated flip share, relative to 1.5 points or 20% of the bound": {
            case.name: (case.bound - case.flip_share) / max(0.015, 0.2 * case.bound)
            for case in cases
        },
    }
    bars = 4.0, 1.0
    return [
        Claim(
            claim=claim,
            figure=max(by_case.values()),
            unit="at worst",
            side="at most",
            bar=bar,
            rounds=len(cases),
            details=dict(by_case),
        )
        for (claim, by_case), bar in zip(figures.items(), bars, strict=True)
    ]


def _one_far_row(features: Float) -> Float:
    features[len(features) // 2, list(_COLUMNS)] *= np.float32(1e12)
    return features


def _four_far_rows(features: Float) -> Float:
    rows = np.linspace(0, len(features) - 1, 4).astype(int)
    factors = np.array([[1e4], [-1e6], [1e9], [1e12]], np.float32)
    features[np.ix_(rows, np.array(_COLUMNS))] *= factors
    return features


def _sentinels(features: Float) -> Float:
    """One row in a thousand has a code for a missing value, whatever its group."""
    rows = np.random.default_rng(_SEED).random(len(features)) < 0.001
    features[rows, _COLUMNS[2]] = 999_999
    return features


_CORRUPTIONS: dict[str, Callable[[Float], Float]] = {
    "one row × 10¹²": _one_far_row,
    "four rows": _four_far_rows,
    "0.1% sentinels": _sentinels,
}
