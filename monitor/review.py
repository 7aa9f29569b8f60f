"""Review records: predictions that policy sends to a person, written before the response leaves.

One JSON object per line, in one file per day that only the sidecar's user can read. It holds the
classifier's own output, the score P(class 1) and the features by name, since a person has to decide
on them; protected attributes that are features are left out.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from monitor.bundle.encoding import Encoding
from monitor.errors import ServeError
from monitor.policy import VERDICT_NAMES, Action, Verdict
from monitor.response import TopFeatures, UnknownReasons

if TYPE_CHECKING:
    from monitor.batching import Waiting
    from monitor.bundle.manifest import Manifest
    from monitor.scoring.scorer import Scorer, ScoringResult

__all__ = ["ReviewLog"]


class ReviewLog:
    """Appends to the review folder.

    Raises:
        ServeError: The folder cannot be written to.
    """

    def __init__(self, folder: Path, max_bytes: int, manifest: Manifest, scorer: Scorer) -> None:
        self._scorer = scorer
        self._folder, self._max_bytes, self._manifest = folder, max_bytes, manifest
        self._top = TopFeatures(manifest)
        self._attributes = [attribute.name for attribute in manifest.protected_attributes]
        self._unknown_reasons = UnknownReasons(manifest, scorer.columns)
        self._shown = _shown_features(manifest)
        self._encoding = Encoding.of(manifest)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._bytes = sum(file.stat().st_size for file in folder.glob("review-*.jsonl"))
            self._append(b"", dt.datetime.now(dt.UTC))
        except OSError as error:
            raise ServeError(f"policy.review_path: {folder}: {error.strerror or error}") from None

    def record(self, batch: Sequence[Waiting], result: ScoringResult) -> None:
        """Record every prediction of a batch whose action is `review`, in one write.

        Raises:
            OSError: The file cannot be written, or the folder is full.
        """
        assert result.actions is not None
        now, lines, start = dt.datetime.now(dt.UTC), [], 0
        for waiting in batch:
            stop = start + len(waiting.features)
            for row in np.flatnonzero(result.actions[start:stop] == Action.REVIEW).tolist():
                record = self._record(waiting, row, result.rows(start + row, start + row + 1), now)
                lines.append(json.dumps(record, allow_nan=True) + "\n")
            start = stop
        if lines:
            self._append("".join(lines).encode(), now)

    def _record(
        self, waiting: Waiting, row: int, result: ScoringResult, now: dt.datetime
    ) -> dict[str, object]:
        model, features = self._manifest.model, waiting.features[row].tolist()
        decided = int(self._scorer.decisions(result.output)[0])
        return {
            "request_id": waiting.request_id,
            "row": waiting.first_row + row,
            "time": now.isoformat(),
            "model": model.name,
            "version": model.version,
            "output": result.output[0].tolist(),
            "score": _probability(float(self._scorer.logits(result.output)[0])),
            "decision": self._manifest.decision.class_names[decided],
            "unknown_reason": self._unknown_reasons.of(result, 0),
            "attributes": self._by_attribute(result),
            "features": self._inputs(waiting, row)
            or {name: features[index] for index, name in self._shown},
        }

    def _inputs(self, waiting: Waiting, row: int) -> dict[str, object]:
        """The raw inputs of a row that are not protected; empty if it has encoded features."""
        if self._encoding is None or waiting.raw is None:
            return {}
        given = self._encoding.as_given(waiting.raw[row])
        return {n: v for n, v in given.items() if n not in self._manifest.protected_inputs}

    def _by_attribute(self, result: ScoringResult) -> dict[str, object]:
        attributes: dict[str, object] = {}
        for index, name in enumerate(self._attributes):
            if result.p_values is not None and result.contributions is not None:
                top = self._top.of(result.contributions[0, index])
                attributes[name] = {
                    **self._statements(result, index),
                    "flip_probability": self._score(result, name, "flip_probability"),
                    "expected_change": self._score(result, name, "expected_change"),
                    "p_value": _finite(result.p_values[0, index]),
                    "top_features": {feature: round(share, 4) for feature, share in top},
                }
        return attributes

    def _statements(self, result: ScoringResult, index: int) -> dict[str, object]:
        """The verdict for an attribute, and the statements from which its rule makes it."""
        assert result.verdicts is not None
        assert result.likely_flip is not None
        assert result.unusual is not None
        verdict = int(result.verdicts[0, index])
        known = verdict != Verdict.UNKNOWN
        return {
            "verdict": VERDICT_NAMES[verdict],
            "likely_flip": bool(result.likely_flip[0, index]) if known else None,
            "unusual": bool(result.unusual[0, index]) if known else None,
        }

    def _score(self, result: ScoringResult, attribute: str, name: str) -> float | None:
        """A score of one row; None where it is unknown."""
        assert result.scores is not None
        column = getattr(self._scorer.columns.attributes[attribute], name)
        return _finite(result.scores[0, column])

    def _append(self, data: bytes, now: dt.datetime) -> None:
        if self._bytes + len(data) > self._max_bytes:
            raise OSError("the review folder has reached policy.review_max_bytes")
        path = self._folder / f"review-{now:%Y-%m-%d}.jsonl"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(file, data)
        finally:
            os.close(file)
        self._bytes += written
        if written < len(data):
            raise OSError("a review record was written in part only")


def _shown_features(manifest: Manifest) -> list[tuple[int, str]]:
    """Indices and names of the features that are not protected attributes themselves."""
    names, hidden = [feature.name for feature in manifest.features], manifest.protected_features
    return [(index, name) for index, name in enumerate(names) if name not in hidden]


def _finite(value: np.floating) -> float | None:
    """A number, or None, which JSON has for NaN."""
    return float(value) if np.isfinite(value) else None


def _probability(logit: float) -> float:
    """P(class 1) of a logit of any size."""
    small = math.exp(-abs(logit))
    return (1.0 if logit >= 0 else small) / (1 + small)
