"""Logits and scores of many rows, by uncompiled code, for the fit and for an update."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.errors import FitError
from monitor.scoring.baseline import Baseline
from monitor.scoring.judge import signal_values
from monitor.scoring.robust import robust_spread
from monitor.scoring.scores import Scores
from monitor.scoring.sensitivity import Sensitivity

__all__ = ["MOST_SCORED", "baseline_of", "finite_logits", "logit_spread", "score_rows"]

# Called with the name of the step, the completed units and the total number of units.
Progress = Callable[[str, int, int], None]

# More rows do not make a baseline or an audit noticeably more precise.
MOST_SCORED = 20_000
_BATCH = 1024


def finite_logits(
    logit: Callable[[torch.Tensor], torch.Tensor], features: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Logits of the first rows of features `[n, d]`.

    Raises:
        FitError: A logit is not finite.
    """
    with torch.no_grad():
        logits = logit(torch.from_numpy(features[:MOST_SCORED]))
    _refuse_non_finite(logits)
    return logits.numpy()


def logit_spread(
    logit: Callable[[torch.Tensor], torch.Tensor], features: NDArray[np.float32]
) -> float:
    """Robust standard deviation of a classifier's logits on rows: the unit of its sharpness.

    Raises:
        FitError: A logit is not finite.
    """
    return robust_spread(finite_logits(logit, features))


def score_rows(
    sensitivity: Sensitivity, features: NDArray[np.float32], report: Progress, step: str
) -> Scores:
    """Scores of many rows `[n, d]`, computed in batches by uncompiled code.

    Raises:
        FitError: A logit is not finite.
    """
    parts, size = [], min(_BATCH, sensitivity.max_rows)
    for start in range(0, len(features), size):
        batch = torch.from_numpy(features[start : start + size])
        parts.append(sensitivity.joint(batch))
        report(step, min(start + size, len(features)), len(features))
    packed, contributions = map(torch.cat, zip(*parts, strict=True))
    scores = sensitivity.unpacked(packed, contributions)
    _refuse_non_finite(scores.logit)
    return scores


def baseline_of(scores: Scores) -> Baseline:
    """Baseline with the scores and levels of calibration rows."""
    return Baseline.from_scores(
        {name: signal_values(own) for name, own in scores.attributes.items()},
        {name: own.hard_flips.double().numpy() for name, own in scores.attributes.items()},
    )


def _refuse_non_finite(logits: torch.Tensor) -> None:
    if bad := int((~torch.isfinite(logits)).sum()):
        raise FitError(
            f"the classifier returns NaN or infinite values on {bad} of {len(logits)} rows"
        )
