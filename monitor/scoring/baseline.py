"""The baseline: calibration scores that each new score is compared with.

Split conformal: the p-value of a score s is (1 + #{calibration ≥ s}) / (n + 1). On traffic that is
exchangeable with the calibration rows it is at most α with probability at most α, on average over
calibration sets; for one calibration set the rate of p ≤ α is Beta-distributed around it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from monitor.errors import BundleError, FitError
from monitor.npz import damaged_file, read_npz, write_npz

__all__ = ["SIGNALS", "Baseline", "Level", "Signal"]

Signal = Literal["expected_change", "flip_probability", "prediction_sensitivity"]
# The first says whether a prediction is unusual, unless policy says otherwise.
SIGNALS: tuple[Signal, ...] = ("expected_change", "flip_probability", "prediction_sensitivity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How much a classifier's decisions depend on a group, on the calibration rows.

    Attributes:
        rows: Number of calibration rows.
        flip_share: Estimated share of decisions that would flip for at least one other group.
        flip_share_low: Lower end of its 95% interval.
        flip_share_high: Upper end.
        mean: Mean prediction sensitivity (section 4 of the paper); None without gradients.
        variance: Variance of prediction sensitivity.
        outliers: Share of rows above mean + 5 standard deviations.
    """

    rows: int
    flip_share: float
    flip_share_low: float
    flip_share_high: float
    mean: float | None
    variance: float | None
    outliers: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Calibration scores of every attribute and signal, sorted, and the level of each attribute.

    Attributes:
        scores: Ascending scores `[n]` by attribute and signal, without signals that could not be
            computed.
        levels: Level by attribute.
    """

    scores: Mapping[str, Mapping[Signal, NDArray[np.float64]]]
    levels: Mapping[str, Level]

    @classmethod
    def from_scores(
        cls,
        scores: Mapping[str, Mapping[Signal, NDArray[np.float64]]],
        hard_flips: Mapping[str, NDArray[np.float64]],
    ) -> Baseline:
        """Create a baseline from the scores of calibration rows, in any order.

        Raises:
            FitError: A score is not a number.
        """
        for attribute, signals in scores.items():
            for signal, values in signals.items():
                if np.isnan(values).any():
                    raise FitError(f"{signal} of {attribute!r} is not a number on some rows")
        return cls(
            scores={
                attribute: {signal: np.sort(values) for signal, values in signals.items()}
                for attribute, signals in scores.items()
            },
            levels={
                attribute: _level(values, scores[attribute].get("prediction_sensitivity"))
                for attribute, values in hard_flips.items()
            },
        )

    def p_values(
        self, attribute: str, signal: Signal, values: NDArray[np.floating]
    ) -> NDArray[np.float64]:
        """Conformal p-values of new scores `[m]`; NaN where a score is NaN."""
        reference = self.scores[attribute][signal]
        n = len(reference)
        p_values: NDArray[np.float64] = (1.0 + n - reference.searchsorted(values)) / (n + 1)
        unknown = np.isnan(values)
        if unknown.any():
            p_values[unknown] = np.nan
        return p_values

    def to_npz(self) -> bytes:
        """Contents of `baseline.npz`."""
        levels = {
            name: {f: getattr(level, f) for f in Level.__slots__}
            for name, level in self.levels.items()
        }
        arrays = {
            f"{attribute}/{signal}": values
            for attribute, signals in self.scores.items()
            for signal, values in signals.items()
        }
        return write_npz({"levels": levels}, arrays)

    @classmethod
    def from_npz(cls, data: bytes) -> Baseline:
        """Read the contents of `baseline.npz`.

        Raises:
            BundleError: They are damaged.
        """
        try:
            header, arrays = read_npz(data)
            levels = {name: Level(**level) for name, level in header["levels"].items()}
            scores: dict[str, dict[Signal, NDArray[np.float64]]] = {name: {} for name in levels}
            for key, values in arrays.items():
                attribute, _, signal = key.rpartition("/")
                _check(values, signal)
                scores[attribute][signal] = values  # type: ignore[index]
        except Exception as error:  # noqa: BLE001 - damaged bytes can raise nearly any exception
            raise BundleError(damaged_file("baseline.npz", error)) from None
        return cls(scores=scores, levels=levels)


def _check(values: NDArray[Any], signal: str) -> None:
    if signal not in SIGNALS:
        raise ValueError(f"unknown signal {signal!r:.40}")
    ordered = values.ndim == 1 and values.dtype == np.float64 and (values[1:] >= values[:-1]).all()
    if not ordered or not len(values):
        raise ValueError(f"scores of {signal} are not in ascending order")


def _wilson(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean of values in [0, 1] and its 95% interval.

    Wilson's interval, which keeps its level for shares near 0. The effective n is larger than the
    number of values if they vary less than zeros and ones of the same mean.
    """
    share, z2 = float(values.mean()), 1.96**2
    binary = share * (1 - share)
    gain = binary / max(float(values.var()), 1e-12) if binary > 0 else 1.0
    n = len(values) * min(max(gain, 1.0), 10.0)
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * binary / n + z2**2 / (4 * n**2)) / (1 + z2 / n)
    return share, max(centre - half, 0.0), min(centre + half, 1.0)


def _level(hard_flips: NDArray[np.float64], log_ps: NDArray[np.float64] | None) -> Level:
    n = len(hard_flips)
    share, low, high = _wilson(hard_flips)
    mean, variance, outliers = None, None, None
    if log_ps is not None:
        sensitivity = np.exp(log_ps)
        mean, variance = float(sensitivity.mean()), float(sensitivity.var())
        outliers = float((sensitivity > mean + 5 * math.sqrt(variance)).mean())
    return Level(
        rows=n,
        flip_share=share,
        flip_share_low=low,
        flip_share_high=high,
        mean=mean,
        variance=variance,
        outliers=outliers,
    )
