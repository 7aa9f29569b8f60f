"""The demo tells a true story and leaves a sound bundle."""

import shutil

from monitor import Bundle
from tests.commands import evenhand


def test_the_demo_leaves_a_sound_bundle_and_says_so(tmp_path, bundle_path):
    out = tmp_path / "demo"
    # What an earlier run made is replaced.
    shutil.copytree(bundle_path, out / "bundle")
    done = evenhand("demo", "--people", 5_000, "--out", out)
    assert done.exit_code == 0
    bundle = Bundle.read(out / "bundle")
    bundle.classifier()
    assert bundle.manifest.fitted.rows == 5_000
    words = " ".join(done.stdout.split())
    assert bundle.manifest_sha256 in words
    assert "by sex where the truth is" in words
    assert "Predictions are judged by compiled code, for torch" in words
    assert "the bare prediction" in words
    assert "it does not load: classifier.pt2 differs from its SHA-256" in words
    assert "decisions" in words
    assert "were withheld" in words
    assert "of predictions above the baseline, no alarm." in words
    assert "share of sex after" in words
    assert "imported" in words
    assert "Labels exist for decision 1 only" in words
    assert "erased 2 rows from 2 files" in words
    assert len(list((out / "log").rglob("*.parquet"))) == 1
    left = {"bundle", "fair", "retrained"}
    assert {path.name for path in out.iterdir()} == {
        *left,
        *(f"{name}.yaml" for name in left),
        *("log", "outcomes", "outcomes.parquet", "receipt.json"),
        "serve.log",
    }


def test_the_demo_leaves_a_folder_alone_that_it_did_not_make(tmp_path):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "mine.txt").write_text("mine")
    done = evenhand("demo", "--people", 5_000, "--out", tmp_path)
    assert done.exit_code == 2
    assert "not a bundle; it is left alone" in done.stderr


def test_the_demo_leaves_a_log_alone_that_it_did_not_make(tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "mine.txt").write_text("mine")
    done = evenhand("demo", "--people", 5_000, "--out", tmp_path)
    assert done.exit_code == 2
    assert "no log of a demo" in done.stderr
    assert (tmp_path / "log" / "mine.txt").exists()
