"""The demo runs to its end, and its figures match the truth."""

from __future__ import annotations

import shutil

import pytest

from monitor import Bundle
from tests.commands import evenhand

pytestmark = pytest.mark.live


def test_the_demo_writes_a_valid_bundle_and_prints_its_figures(tmp_path, bundle_path):
    out = tmp_path / "demo"
    # Files of an earlier run are replaced.
    shutil.copytree(bundle_path, out / "bundle")
    done = evenhand("demo", "--people", 5_000, "--out", out)
    assert done.exit_code == 0
    bundle = Bundle.read(out / "bundle")
    bundle.classifier()
    assert bundle.manifest.fitted.rows == 5_000
    words = " ".join(done.stdout.split())
    assert bundle.manifest_sha256 in words
    assert "by sex (true value" in words
    assert "Predictions are scored by compiled code, for torch" in words
    assert "classifier alone" in words
    assert "is rejected: classifier.pt2 differs from its SHA-256" in words
    assert "decisions" in words
    assert "were withheld" in words
    assert "of predictions are unusual, no alarm." in words
    assert "Less fair: more decisions depend on sex than before" in words
    assert "share of sex after" in words
    assert "imported" in words
    assert "Labels exist for decision 1 only" in words
    assert "erased 2 rows from 2 files" in words
    assert len(list((out / "log").rglob("*.parquet"))) == 1
    bundles = {"bundle", "fair", "retrained"}
    assert {path.name for path in out.iterdir()} == {
        *bundles,
        *(f"{name}.yaml" for name in bundles),
        *("log", "outcomes", "outcomes.parquet", "receipt.json"),
        "serve.log",
    }
