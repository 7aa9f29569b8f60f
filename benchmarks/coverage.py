"""Coverage of the audit's interval: how often does it contain the true share of flips?

The truth is known in structural causal models. The interval should contain it in 95% of fits, over
people and seeds. Intervals of different fit seeds on the same people should contain each other's
estimates. The same holds for the share of each ordered pair of groups, and for its two directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.claims import Claim, Say, Scale, report
from benchmarks.structural_models import HIRING, INSURANCE
from benchmarks.subject import People, Society, audited, train_classifier
from monitor import ProtectedAttribute, World, decide
from monitor.fitting.intervals import FlipShareInterval, flip_share_interval
from monitor.scoring.sensitivity import Sensitivity

# Development used seeds below 1,000 only.
_SEED = 5_000
_SOCIETIES: dict[str, Society] = {
    "world": World(),
    "world, half the label bias": World(label_bias=0.5),
    "hiring": HIRING,
    "insurance": INSURANCE,
}
_CLASSIFIERS = 4
_TRAINING = 20_000
_SMALL = 1_000
_REFITS = 20


# Shares of decisions about members of a group that would become favourable, and unfavourable, as
# members of another, by both groups.
_Directions = dict[tuple[str, str], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Number of societies, fits by number of rows, samples and seeds of pairs, and people."""

    societies: int
    fits: dict[int, int]
    samples: int
    seeds: int
    truth: int


_FULL = _Sizes(
    societies=4, fits={_SMALL: 30, 4_000: 20, 20_000: 8}, samples=3, seeds=6, truth=100_000
)
_QUICK = _Sizes(societies=4, fits={_SMALL: 4, 4_000: 1}, samples=1, seeds=3, truth=50_000)
_SMOKE = _Sizes(societies=1, fits={_SMALL: 1}, samples=1, seeds=2, truth=2_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """An interval and the truth.

    Attributes:
        setting: Society and attribute.
        rows: Number of people.
        interval: Estimate and interval.
        truth: True share of flips.
        directions: True shares that gain and lose, by source and target.
    """

    setting: str
    rows: int
    interval: FlipShareInterval
    truth: float
    directions: _Directions

    @property
    def covered(self) -> bool:
        """Whether the interval contains the truth."""
        return self.interval.low <= self.truth <= self.interval.high

    @property
    def pairs_covered(self) -> list[bool]:
        """Whether the intervals of each pair contain the truth: changed, gained, lost."""
        covered = []
        for pair in self.interval.pairs:
            gained, lost = self.directions[pair.source, pair.target]
            truths = (pair.changed, gained + lost), (pair.gained, gained), (pair.lost, lost)
            covered += [share.low <= truth <= share.high for share, truth in truths]
        return covered


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Compute intervals for new people and classifiers, and for other seeds on the same people."""
    sizes = scale.pick(full=_FULL, quick=_QUICK, smoke=_SMOKE)
    fits: list[_Fit] = []
    pairs: list[bool] = []
    for name in list(_SOCIETIES)[: sizes.societies]:
        for rows, count in sizes.fits.items():
            for number in range(count):
                say(f"{name}: {rows:,} people, {number + 1} of {count}")
                fits += _fits(name, rows, number, sizes.truth, seed=number)
        for sample in range(sizes.samples):
            say(f"{name}: pairs of seeds, {sample + 1} of {sizes.samples}")
            pairs += _pairs(name, sample, sizes)
    Console().print(_table(fits))
    return [_coverage_claim(fits), _groups_claim(fits), _pairs_claim(pairs, sizes)]


def _fits(name: str, rows: int, number: int, truth: int, *, seed: int) -> Iterator[_Fit]:
    """The intervals of every attribute for one sample of people."""
    society = _SOCIETIES[name]
    classifier, truths = _classifier(name, number % _CLASSIFIERS, truth)
    people = society.people(rows, seed=_SEED + 100 + 7 * number + rows)
    for attribute in society.attributes:
        yield _Fit(
            setting=f"{name}: {attribute.name}",
            rows=rows,
            interval=_interval(society, classifier, people, attribute, seed),
            truth=truths[attribute.name][0],
            directions=truths[attribute.name][1],
        )


def _pairs(name: str, sample: int, sizes: _Sizes) -> Iterator[bool]:
    """Whether both intervals of two fit seeds contain the other's estimate, for all pairs."""
    by_seed = [
        list(_fits(name, _SMALL, 1_000 + sample, sizes.truth, seed=seed))
        for seed in range(sizes.seeds)
    ]
    for fits in zip(*by_seed, strict=True):
        for one, other in combinations([fit.interval for fit in fits], 2):
            yield one.low <= other.share <= one.high and other.low <= one.share <= other.high


@cache
def _classifier(
    name: str, number: int, truth: int
) -> tuple[nn.Module, dict[str, tuple[float, _Directions]]]:
    """A classifier; its true share of flips, and those of pairs of groups, by attribute."""
    society, seed = _SOCIETIES[name], _SEED + 10 * number
    classifier = train_classifier(society.people(_TRAINING, seed=seed), seed=seed)
    fresh = society.people(truth, seed=seed + 1)
    decision = partial(decide, classifier)
    truths = {
        a.name: (float(fresh.true_flips(decision, a.name).mean()), _directions(fresh, decision, a))
        for a in society.attributes
    }
    return classifier, truths


def _directions(
    people: People,
    decision: Callable[[NDArray[np.float32]], NDArray[np.bool_]],
    attribute: ProtectedAttribute,
) -> _Directions:
    decisions = [decision(people.counterfactual(attribute.name, g)) for g in attribute.groups]
    result = {}
    for s, source in enumerate(attribute.groups):
        members = people.groups[attribute.name] == s
        for t, target in enumerate(attribute.groups):
            now, then = decisions[s][members], decisions[t][members]
            result[source, target] = float((~now & then).mean()), float((now & ~then).mean())
    return result


def _interval(
    society: Society,
    classifier: nn.Module,
    people: People,
    attribute: ProtectedAttribute,
    seed: int,
) -> FlipShareInterval:
    def refit(rows: NDArray[np.int64]) -> Sensitivity:
        groups = people.groups[attribute.name][rows]
        return audited(society, classifier, people.features[rows], groups, attribute)

    return flip_share_interval(
        refit,
        people.features,
        people.groups[attribute.name],
        attribute,
        n_refits=_REFITS,
        seed=seed,
    )


def _table(fits: list[_Fit]) -> Table:
    headings = ("people", "truth", "mean estimate", "mean width", "covered", "not enough rows")
    table = Table("setting: attribute", *headings, title="95% intervals over data and fit")
    for setting, rows in dict.fromkeys((fit.setting, fit.rows) for fit in fits):
        own = [fit for fit in fits if (fit.setting, fit.rows) == (setting, rows)]
        width = np.mean([fit.interval.high - fit.interval.low for fit in own])
        table.add_row(
            setting,
            f"{rows:,}",
            f"{np.mean([fit.truth for fit in own]):.1%}",
            f"{np.mean([fit.interval.share for fit in own]):.1%}",
            f"{100 * width:.1f} points",
            f"{sum(fit.covered for fit in own)} of {len(own)}",
            str(sum(not fit.interval.enough_rows for fit in own)),
        )
    return table


def _coverage_claim(fits: list[_Fit]) -> Claim:
    groups: dict[str, list[bool]] = {}
    for fit in fits:
        for key in (f"{fit.rows:,} people", fit.setting):
            groups.setdefault(key, []).append(fit.covered)
    return Claim(
        claim="95% intervals of the share of flips that contain the true share",
        figure=float(np.mean([fit.covered for fit in fits])),
        unit="of intervals",
        side="at least",
        bar=0.93,
        rounds=len(fits),
        details={key: f"{sum(covered)} of {len(covered)}" for key, covered in groups.items()},
    )


def _groups_claim(fits: list[_Fit]) -> Claim:
    by_setting: dict[str, list[bool]] = {}
    for fit in fits:
        by_setting.setdefault(fit.setting, []).extend(fit.pairs_covered)
    covered = [hit for hits in by_setting.values() for hit in hits]
    return Claim(
        claim="95% intervals of shares of pairs of groups that contain the true share",
        figure=float(np.mean(covered)),
        unit="of intervals",
        side="at least",
        bar=0.93,
        rounds=len(covered),
        details={key: f"{sum(hits)} of {len(hits)}" for key, hits in by_setting.items()}
        | {"pairs not established": sum(p.unexplained for f in fits for p in f.interval.pairs)},
    )


def _pairs_claim(pairs: list[bool], sizes: _Sizes) -> Claim:
    return Claim(
        claim=f"pairs of fit seeds whose intervals contain each other's estimate, {_SMALL:,} rows",
        figure=float(np.mean(pairs)),
        unit="of pairs",
        side="at least",
        bar=0.95,
        rounds=len(pairs),
        details={"samples of each society": sizes.samples, "seeds": sizes.seeds},
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    report("Coverage of the interval of the share of flips", measure)
