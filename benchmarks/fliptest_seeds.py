"""FlipTest over many seeds: is a biased subgroup detected and named, and a fair classifier not?"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np
import torch
from rich.table import Table
from torch import nn

from benchmarks.claims import Claim, Say, Scale, print_wide
from monitor import World, decide, train_fair, train_subgroup_biased
from offline_audit import Columns, FlipTestResult, flip_test
from offline_audit.finding import adjusted_p_values
from offline_audit.fliptest.flipset import Side

__all__ = ["measure_seeds"]

# Development used seeds below 100 only.
_SEED = 1000
_LEVEL = 0.05
_FEATURE, _SUBGROUP = "career_gap_months", "self_employed = 1"
_SIDES: tuple[Side, Side] = ("advantaged", "disadvantaged")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seed:
    """Result of one seed.

    Attributes:
        called: Whether any direction is significant, corrected for both directions.
        named: Whether the rules of all flipsets name the subgroup and are confirmed.
        first: By ranking, whether the right feature is first in all reports.
        rate_gap: Difference between the selection rates of the groups.
        gross: Largest gross share.
        validated: Whether both maps passed validation.
    """

    called: bool
    named: bool
    first: dict[str, bool]
    rate_gap: float
    gross: float
    validated: bool


def measure_seeds(scale: Scale, say: Say) -> list[Claim]:
    """Run FlipTest with a new classifier and new people for every seed."""
    seeds, n = scale.pick(full=(100, 20_000), quick=(4, 8_000), smoke=(1, 1_000))
    learn = scale.pick(full=30_000, quick=30_000, smoke=2_000)
    resamples = scale.pick(full=199, quick=199, smoke=19)
    results: dict[str, list[_Seed]] = {}
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for name, train in (("subgroup-biased", train_subgroup_biased), ("fair", train_fair)):
            say(f"{name}: {seeds} seeds")
            run = partial(_one, train, n, learn, resamples)
            results[name] = []
            for result in pool.map(run, range(_SEED, _SEED + seeds)):
                results[name].append(result)
                say(f"{name}: {len(results[name])} of {seeds} seeds")
    _print(results)
    biased, fair = results["subgroup-biased"], results["fair"]
    all_three = [f.called and f.named and f.first["report"] for f in biased]
    share = 100 / seeds
    return [
        Claim(
            claim="subgroup-biased classifier: detected, subgroup named, right feature first",
            figure=share * sum(all_three),
            unit="of 100 seeds",
            side="at least",
            bar=95,
            rounds=seeds,
            details={
                "detected": sum(f.called for f in biased),
                "named": sum(f.named for f in biased),
                **{f"first by {k}": sum(f.first[k] for f in biased) for k in biased[0].first},
                "largest difference of rates": max(abs(f.rate_gap) for f in biased),
            },
        ),
        Claim(
            claim="fair classifier: no finding at level 0.05",
            figure=share * sum(not f.called for f in fair),
            unit="of 100 seeds",
            side="at least",
            bar=90,
            rounds=seeds,
            details={"largest gross share": max(f.gross for f in fair)},
        ),
    ]


def _one(train: Callable[..., nn.Module], n: int, learn: int, resamples: int, seed: int) -> _Seed:
    torch.set_num_threads(1)
    world = World()
    classifier = train(world.people(learn, seed=seed), seed=seed)
    people = world.people(n, seed=seed + 5_000)
    result = flip_test(
        partial(decide, classifier),
        people.features,
        {"sex": np.array(["man", "woman"])[people.groups["sex"]]},
        columns=Columns(features=world.features, one_hot_groups=world.one_hot_groups),
        n_resamples=resamples,
        n_bootstrap=0,
        seed=seed,
        progress=False,
    )
    return _summarize(result)


def _summarize(result: FlipTestResult) -> _Seed:
    adjusted = adjusted_p_values([direction.p_value for direction in result], "bh")
    rules = [direction.subgroups[side] for direction in result for side in _SIDES]
    reports = [
        direction.transparency[side]
        for direction in result
        for side in _SIDES
        if direction.transparency[side].features
    ]
    rankings = {
        "report": [r.features for r in reports],
        "undoing": [r.by_undoing for r in reports],
        "consistency": [r.by_consistency for r in reports],
        "magnitude": [r.by_magnitude for r in reports],
    }
    first = next(iter(result))
    rates = [rate or 0.0 for rate in first.rates]
    return _Seed(
        called=any(p is not None and p <= _LEVEL for p in adjusted),
        named=all(rule.confirmed and _SUBGROUP in str(rule.rule) for rule in rules),
        first={
            name: bool(ranked) and all(r and r[0].name == _FEATURE for r in ranked)
            for name, ranked in rankings.items()
        },
        rate_gap=rates[0] - rates[1],
        gross=max(0.0 if d.gross is None else d.gross.value for d in result),
        validated=all(d.validation is not None and d.validation.passed for d in result),
    )


def _print(results: dict[str, list[_Seed]]) -> None:
    table = Table(title="FlipTest on the world, one classifier and sample per seed")
    for heading in (
        "classifier",
        "seeds",
        "significant",
        "subgroup named",
        "gross",
        "validated maps",
    ):
        table.add_column(heading, justify="right")
    for name, rows in results.items():
        gross = [row.gross for row in rows]
        table.add_row(
            name,
            str(len(rows)),
            str(sum(row.called for row in rows)),
            str(sum(row.named for row in rows)),
            f"{100 * min(gross):.1f} to {100 * max(gross):.1f}%",
            str(sum(row.validated for row in rows)),
        )
    print_wide(table)
