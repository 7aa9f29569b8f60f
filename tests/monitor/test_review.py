"""Reviews are recorded before the response, in files that only the owner can read."""

from __future__ import annotations

import asyncio
import json
import stat
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from monitor import Bundle, Judge
from monitor.batching import Waiting
from monitor.errors import ServeError
from monitor.policy import Policy
from monitor.review import ReviewLog
from monitor.scoring.scorer import Scorer
from monitor.settings import PolicyConfig
from tests.serving import ATTRIBUTES, NAMES, PEOPLE

ROWS = PEOPLE.features[:60].copy()


@pytest.fixture(scope="module")
def parts(lending):
    bundle = Bundle.read(lending)
    policy = PolicyConfig(action="review", alpha=0.2, review_path="x")
    scorer = Scorer(Judge.load(bundle, warn=False), Policy(policy, ATTRIBUTES))
    return bundle.manifest, scorer, scorer.apply_policy(scorer.score(ROWS))


def batch(*cuts: int) -> list[Waiting]:
    async def make() -> list[Waiting]:
        future = asyncio.get_running_loop().create_future
        ends = [0, *cuts]
        return [
            Waiting(f"r{n}", 100 * n, ROWS[a:b], 0.0, future())
            for n, (a, b) in enumerate(pairwise(ends))
        ]

    return asyncio.run(make())


def records(folder) -> list[dict[str, Any]]:
    (file,) = folder.glob("review-*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_prediction_under_review_is_recorded_with_features_and_scores(parts, tmp_path):
    manifest, scorer, result = parts
    folder = tmp_path / "review"
    log = ReviewLog(folder, 1 << 20, manifest, scorer)
    log.record(batch(20, 60), result)
    written = records(folder)
    expected = np.flatnonzero(result.actions == 4)
    assert [(r["request_id"], r["row"]) for r in written] == [
        ("r0", int(row)) if row < 20 else ("r1", 100 + int(row) - 20) for row in expected
    ]
    for record, row in zip(written, expected, strict=True):
        assert record["output"] == result.output[row].tolist()
        logit = float(scorer.logits(result.output[[row]])[0])
        assert record["score"] == pytest.approx(1 / (1 + np.exp(-logit)), rel=1e-6)
        assert record["features"] == dict(zip(NAMES, ROWS[row].tolist(), strict=True))
        assert record["decision"] == str(int(scorer.decisions(result.output[[row]])[0]))
        assert "above" in [attribute["verdict"] for attribute in record["attributes"].values()]
        for index, attribute in enumerate(record["attributes"].values()):
            assert attribute["likely_flip"] == (attribute["flip_probability"] >= 0.5)
            assert attribute["unusual"] == (attribute["p_value"] <= 0.2)
            assert attribute["p_value"] == result.p_values[row, index]
            assert attribute["expected_change"] > 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_protected_attribute_that_is_a_feature_is_not_recorded(parts, tmp_path):
    manifest, scorer, result = parts
    owner = next(f.name for f in manifest.features if f.kind == "binary")
    group = manifest.one_hot_groups[0]
    sex, ethnicity = manifest.protected_attributes
    with_features = manifest.model_copy(
        update={
            "protected_attributes": (
                sex.model_copy(update={"feature": owner}),
                ethnicity.model_copy(update={"feature": group.name}),
            )
        }
    )
    ReviewLog(tmp_path, 1 << 20, with_features, scorer).record(batch(60), result)
    recorded = set(records(tmp_path)[0]["features"])
    assert recorded == set(NAMES) - {owner, *group.features}


def test_a_full_folder_is_an_error_and_keeps_earlier_records(parts, tmp_path):
    manifest, scorer, result = parts
    log = ReviewLog(tmp_path, 20_000, manifest, scorer)
    one = result.rows(0, 60).rows(*_one_under_review(result))
    waiting = batch(1)
    count = 0
    with suppress(OSError):
        while count < 100:
            log.record(waiting, one)
            count += 1
    assert 0 < count < 100
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert 0 < size <= 20_000
    assert all(record["model"] == "lending" for record in records(tmp_path))
    # The quota also counts the files of earlier processes.
    second_log = ReviewLog(tmp_path, 20_000, manifest, scorer)
    with pytest.raises(OSError, match="review_max_bytes"):
        second_log.record(waiting, one)


def _one_under_review(result) -> tuple[int, int]:
    row = int(np.flatnonzero(result.actions == 4)[0])
    return row, row + 1


def test_an_invalid_folder_is_a_startup_error(parts, tmp_path):
    manifest, scorer, _ = parts
    (tmp_path / "file").write_text("")
    with pytest.raises(ServeError, match=r"policy\.review_path: .*file"):
        ReviewLog(tmp_path / "file", 1 << 20, manifest, scorer)
