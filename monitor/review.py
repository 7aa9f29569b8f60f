"""What policy sends to a person: a record a prediction, written before its answer leaves.

One JSON object a line, in a file a day that only the sidecar's user can read. It holds the score
and the features by name, since somebody has to decide on them; protected attributes that are
features are left out.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from monitor.batching import Waiting
from monitor.bundle.manifest import Manifest
from monitor.errors import ServeError
from monitor.judging import Judged, Judging
from monitor.marks import TopFeatures
from monitor.policy import Action

__all__ = ["ReviewLog"]


class ReviewLog:
    """Appends to the review folder.

    Raises:
        ServeError: The folder cannot be written to.
    """

    def __init__(self, folder: Path, max_bytes: int, manifest: Manifest, judging: Judging) -> None:
        self._judging = judging
        self._folder, self._max_bytes, self._manifest = folder, max_bytes, manifest
        self._top = TopFeatures(manifest)
        self._attributes = [attribute.name for attribute in manifest.protected_attributes]
        self._shown = _shown_features(manifest)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._bytes = sum(file.stat().st_size for file in folder.glob("review-*.jsonl"))
            self._append(b"", dt.datetime.now(dt.UTC))
        except OSError as error:
            raise ServeError(f"policy.review_path: {folder}: {error.strerror or error}") from None

    def record(self, batch: Sequence[Waiting], judged: Judged) -> None:
        """Write down every prediction of a batch that goes to a person, in one write.

        Raises:
            OSError: It cannot be written, or there is no room left.
        """
        assert judged.actions is not None
        now, lines, start = dt.datetime.now(dt.UTC), [], 0
        for waiting in batch:
            stop = start + len(waiting.features)
            for row in np.flatnonzero(judged.actions[start:stop] == Action.REVIEW).tolist():
                found = self._record(waiting, row, judged.rows(start + row, start + row + 1), now)
                lines.append(json.dumps(found, allow_nan=True) + "\n")
            start = stop
        if lines:
            self._append("".join(lines).encode(), now)

    def _record(
        self, waiting: Waiting, row: int, judged: Judged, now: dt.datetime
    ) -> dict[str, object]:
        model, features = self._manifest.model, waiting.features[row].tolist()
        decided = int(self._judging.decisions(judged.output)[0])
        return {
            "request_id": waiting.request_id,
            "row": waiting.first_row + row,
            "time": now.isoformat(),
            "model": model.name,
            "version": model.version,
            "score": judged.output[0].tolist(),
            "decision": self._manifest.decision.class_names[decided],
            "attributes": self._found(judged),
            "features": {name: features[place] for place, name in self._shown},
        }

    def _found(self, judged: Judged) -> dict[str, object]:
        found: dict[str, object] = {}
        for place, name in enumerate(self._attributes):
            if judged.p_values is not None and judged.contributions is not None:
                top = self._top.of(judged.contributions[0, place])
                called = judged.called is not None and bool(judged.called[0, place])
                found[name] = {
                    "called": called,
                    "p_value": float(judged.p_values[0, place]),
                    "top_features": {feature: round(share, 4) for feature, share in top},
                }
        return found

    def _append(self, data: bytes, now: dt.datetime) -> None:
        if self._bytes + len(data) > self._max_bytes:
            raise OSError("the review folder is full")
        path = self._folder / f"review-{now:%Y-%m-%d}.jsonl"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(file, data)
        finally:
            os.close(file)
        self._bytes += written
        if written < len(data):
            raise OSError("a review record was cut short")


def _shown_features(manifest: Manifest) -> list[tuple[int, str]]:
    """Places and names of the features that are not protected attributes themselves."""
    names, hidden = [feature.name for feature in manifest.features], manifest.protected_features
    return [(place, name) for place, name in enumerate(names) if name not in hidden]
