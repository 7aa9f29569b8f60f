"""The demo runs to its end, and its figures match the truth."""

import shutil

from monitor import Bundle
from tests.commands import evenhand


def test_the_demo_writes_a_valid_bundle_and_prints_its_figures(tmp_path, bundle_path):
    out = tmp_path / "demo"
    # Files of an earlier run are replaced.
    shutil.copytree(bundle_path, out / "bundle")
    result = evenhand("demo", "--people", 5_000, "--out", out)
    assert result.exit_code == 0
    bundle = Bundle.read(out / "bundle")
    bundle.classifier()
    assert bundle.manifest.fitted.rows == 5_000
    words = " ".join(result.stdout.split())
    assert bundle.manifest_sha256 in words
    assert "by sex (true value" in words
    assert "Predictions are scored by compiled code, for torch" in words
    assert "classifier alone" in words
    assert "is rejected: classifier.pt2 differs from its SHA-256" in words
    assert "decisions" in words
    assert "were withheld" in words
    assert "of predictions above the baseline, no alarm." in words
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


def test_the_demo_does_not_replace_another_directory(tmp_path):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "mine.txt").write_text("mine")
    result = evenhand("demo", "--people", 5_000, "--out", tmp_path)
    assert result.exit_code == 2
    assert "not a bundle; it was not changed" in result.stderr


def test_the_demo_does_not_replace_another_log(tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "mine.txt").write_text("mine")
    result = evenhand("demo", "--people", 5_000, "--out", tmp_path)
    assert result.exit_code == 2
    assert "not a log of the demo" in result.stderr
    assert (tmp_path / "log" / "mine.txt").exists()
