"""Sections 4.1 and 4.2 of the paper on permutation tests: how often true nulls are rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.claims import Say
from offline_audit import TableCounts, correlation_test, permutation_test

__all__ = [
    "PRINTED",
    "SHUFFLED",
    "FalseNegatives",
    "correlation_rejections",
    "draw_p_values",
    "rate_p_values",
    "shuffled_p_value",
]

Float = NDArray[np.float64]

_ALPHA = 0.05
# Differences closer than this are equal up to rounding.
_SAME = 1e-12
SHUFFLED = "FairTest, all shuffled"
PRINTED = "studentized, as printed"
_STUDENTIZED, _PLAIN = "studentized", "plain correlation"


def correlation_rejections(
    *, simulations: int, permutations: int, n: int, say: Say
) -> dict[tuple[str, str], dict[str, float]]:
    """Share of data sets that each test rejects at 5%, by attribute and error (Table 1).

    The variance of the error depends on the attribute, although both are uncorrelated. The paper
    prints ε/x² as the error. Its authors' scripts use that for the studentized test and ε/x for
    FairTest's, so both are simulated.
    """
    attributes: Mapping[str, Callable[[np.random.Generator], Float]] = {
        "uncorrelated": lambda rng: rng.uniform(1e-5, 1, n),
        "dependent": lambda rng: rng.exponential(1, n) + 1,
    }
    errors = {"ε/x": 1, "ε/x²": 2}
    rejected: dict[tuple[str, str], dict[str, list[bool]]] = {
        (name, error): {_STUDENTIZED: [], _PLAIN: [], SHUFFLED: []}
        for name in attributes
        for error in errors
    }
    for number in range(simulations):
        say(f"section 4.1, data set {number + 1} of {simulations}")
        rng = np.random.default_rng([number, 41])
        for name, attribute in attributes.items():
            x, noise = attribute(rng), rng.normal(size=n)
            for error, power in errors.items():
                p_values = _correlation_p_values(x, noise / x**power, permutations, number)
                for test, p_value in p_values.items():
                    rejected[name, error][test].append(p_value <= _ALPHA)
    return {
        case: {test: float(np.mean(rejections)) for test, rejections in tests.items()}
        for case, tests in rejected.items()
    }


def _correlation_p_values(x: Float, error: Float, draws: int, seed: int) -> dict[str, float]:
    by_library = {
        _STUDENTIZED: correlation_test(x, error, n_resamples=draws, seed=seed),
        _PLAIN: correlation_test(x, error, n_resamples=draws, seed=seed, studentized=False),
    }
    p_values = {test: result.p_value for test, result in by_library.items()}
    shuffled = shuffled_p_value(x, error, draws, np.random.default_rng([seed, 7]))
    return {**{test: p for test, p in p_values.items() if p is not None}, SHUFFLED: shuffled}


def shuffled_p_value(x: Float, error: Float, draws: int, rng: np.random.Generator) -> float:
    """As the authors ran FairTest: attribute and error shuffled in one pool, then cut in halves."""
    pool = np.tile(np.concatenate([x, error]), (draws, 1))
    rng.permuted(pool, axis=1, out=pool)
    halves = pool[:, : len(x)], pool[:, len(x) :]
    observed = abs(float(np.corrcoef(x, error)[0, 1]))
    centred = [half - half.mean(axis=1, keepdims=True) for half in halves]
    lengths = [np.sqrt((part**2).sum(axis=1)) for part in centred]
    others = np.abs((centred[0] * centred[1]).sum(axis=1) / lengths[0] / lengths[1])
    return float((1 + (others >= observed).sum()) / (draws + 1))


@dataclass(frozen=True, slots=True)
class FalseNegatives:
    """A sample: numbers of rows, positives and false negatives by group, `[2]` each."""

    rows: NDArray[np.int64]
    positives: NDArray[np.int64]
    missed: NDArray[np.int64]

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> FalseNegatives:
        """200 against 200, base rates 80% and 20%, a tenth of the positives missed in both."""
        rows = np.array([200, 200])
        positives = rng.binomial(rows, [0.8, 0.2])
        return cls(rows, positives, rng.binomial(positives, 0.1))

    def counts(self) -> TableCounts:
        """Counts for the library; every negative is a true negative."""
        return TableCounts.from_mapping(
            {
                name: {
                    (1, 0): int(self.missed[index]),
                    (1, 1): int(self.positives[index] - self.missed[index]),
                    (0, 0): int(self.rows[index] - self.positives[index]),
                }
                for index, name in enumerate("AB")
            }
        )


def rate_p_values(*, simulations: int, draws: int, say: Say) -> dict[str, Float]:
    """p-values of each test, `[simulations]`; NaN where a test has none."""
    p_values: dict[str, list[float]] = {}
    for number in range(simulations):
        if number % 100 == 0:
            say(f"section 4.2, data set {number + 1} of {simulations}")
        rng = np.random.default_rng([number, 42])
        sample = FalseNegatives.drawn(rng)
        for test, p_value in {
            **_by_permuting_rows(sample, draws, rng),
            "basic bootstrap": _by_bootstrap(sample, draws, rng),
            "z": _by_z(sample),
            **_by_library(sample.counts()),
        }.items():
            p_values.setdefault(test, []).append(p_value)
    return {test: np.array(values) for test, values in p_values.items()}


def _by_permuting_rows(
    sample: FalseNegatives, draws: int, rng: np.random.Generator
) -> dict[str, float]:
    """The paper's tests, which permute all rows, positives and negatives."""
    missed, positives = int(sample.missed.sum()), int(sample.positives.sum())
    rest = int(sample.rows.sum()) - positives
    pool = [missed, positives - missed, rest]
    drawn = rng.multivariate_hypergeometric(pool, int(sample.rows[0]), size=draws)
    own = np.stack([drawn[:, 0], missed - drawn[:, 0]])
    of = np.stack([drawn[:, 0] + drawn[:, 1], positives - drawn[:, 0] - drawn[:, 1]])
    p_values = {}
    for test, added in (("un-studentized", 0), (PRINTED, 0), ("studentized, one added", 1)):
        plain = test == "un-studentized"
        seen = _statistic(sample.missed[:, None], sample.positives[:, None], added, plain=plain)[0]
        others = _statistic(own, of, added, plain=plain)
        # A statistic without a value (empty denominator, zero variance) counts as extreme.
        beyond = ~np.isfinite(others) | (others >= seen - _SAME)
        p_values[test] = float((1 + beyond.sum()) / (draws + 1)) if np.isfinite(seen) else 1.0
    return p_values


def _statistic(
    missed: NDArray[np.int64], positives: NDArray[np.int64], added: int, *, plain: bool
) -> Float:
    """|difference of rates|, studentized unless plain, `[2, draws]` to `[draws]`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        n = positives + 2 * added
        rates = (missed + added) / n
        difference: Float = np.abs(rates[0] - rates[1])
        if plain:
            return difference
        variance = rates * (1 - rates) / n
        scaled: Float = difference / np.sqrt(variance[0] + variance[1])
        return scaled


def _by_bootstrap(sample: FalseNegatives, draws: int, rng: np.random.Generator) -> float:
    """The basic bootstrap: share of |T* − T| ≥ |T|."""
    rates = sample.missed / sample.positives
    positives = rng.binomial(sample.rows, sample.positives / sample.rows, (draws, 2))
    again = rng.binomial(positives, rates) / np.maximum(positives, 1)
    seen = rates[0] - rates[1]
    return float((np.abs(again[:, 0] - again[:, 1] - seen) >= abs(seen) - _SAME).mean())


def _by_z(sample: FalseNegatives) -> float:
    seen = _statistic(sample.missed[:, None], sample.positives[:, None], 0, plain=False)[0]
    return float(2 * norm.sf(seen)) if np.isfinite(seen) else 1.0


def _by_library(counts: TableCounts) -> dict[str, float]:
    """The library's default test."""
    p_value = permutation_test(metrics="fnr", counts=counts)[0].p_value
    return {"evenhand": float("nan") if p_value is None else p_value}


def draw_p_values(p_values_by_test: Mapping[str, Float], out: Path) -> Path:
    """Figure 1: histograms of p-values, which should be uniform."""
    tests = ("un-studentized", PRINTED, "basic bootstrap", "evenhand")
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    axes = figure.subplots(1, len(tests), sharey=True)
    for index, test in enumerate(tests):
        p_values = p_values_by_test[test]
        axes[index].hist(
            p_values[np.isfinite(p_values)], bins=20, range=(0, 1), density=True, color="tab:blue"
        )
        axes[index].axhline(1, color="black", linestyle="--", linewidth=1)
        rejected = float((p_values <= _ALPHA).mean())
        axes[index].set(title=f"{test}\n{rejected:.3f} at or below .05", xlabel="p-value")
    axes[0].set_ylabel("density (uniform: 1)")
    figure.suptitle(
        "Equal false negative rates, base rates 80% and 20%, 200 people each (Figure 1)"
    )
    out.mkdir(parents=True, exist_ok=True)
    path = out / "permutation_figure_1.png"
    figure.savefig(path, dpi=120)
    return path
