"""`evenhand bundle update` replaces a classifier and keeps the baseline."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from torch import nn

from monitor import (
    Bundle,
    FitData,
    Judge,
    Manifest,
    export_classifier,
    fit,
    train_fair,
    train_proxy_biased,
    update_bundle,
    write_bundle,
)
from monitor.errors import BundleError, BundleExistsError, ClassifierError, FitError, TrafficError
from monitor.fitting.scored_rows import logit_spread
from monitor.npz import read_npz
from monitor.scoring.kernel import Target
from monitor.traffic.columns import TrafficColumns
from monitor.traffic.features import read_logged_features
from tests.commands import evenhand
from tests.serving import PEOPLE, SPEC, WORLD
from tests.traffic_logs import traffic_rows, write_traffic

WIDTH = len(WORLD.features)
ROWS = WORLD.people(3_000, seed=71).features
TRAIN = WORLD.people(8_000, seed=72)
KERNEL = Target("2.13.0", "avx2").file


def scaled(module: nn.Module, factor: float) -> nn.Module:
    """The same decisions with logits on another scale."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return factor * self.module(features)

    return Scaled()


@pytest.fixture(scope="module")
def fair() -> nn.Module:
    return train_fair(TRAIN, seed=0)


@pytest.fixture(scope="module")
def biased() -> nn.Module:
    return train_proxy_biased(TRAIN, seed=0)


@pytest.fixture(scope="module")
def path(fair, tmp_path_factory) -> Path:
    """A bundle of the fair classifier, with files that stand for compiled code."""
    folder = tmp_path_factory.mktemp("old")
    data = FitData(features=PEOPLE.features, groups=PEOPLE.groups)
    fitted = fit(fair, data, SPEC, folder / "plain", compiled=False).bundle
    write_bundle(folder / "bundle", fitted.manifest, {**fitted.files, KERNEL: b"old native code"})
    return folder / "bundle"


@pytest.fixture(scope="module")
def unfair(biased, tmp_path_factory) -> Bundle:
    """A bundle of the biased classifier."""
    data = FitData(features=PEOPLE.features, groups=PEOPLE.groups)
    return fit(biased, data, SPEC, tmp_path_factory.mktemp("unfair") / "b", compiled=False).bundle


@pytest.fixture(scope="module")
def old(path) -> Bundle:
    return Bundle.read(path)


@pytest.fixture(scope="module")
def ordinary(old) -> np.ndarray:
    """The rows that are not unlike the training rows, on which classifiers are compared."""
    scores = Judge.load(old, warn=False).scores(torch.from_numpy(ROWS))
    kept = ROWS[scores.unlike.numpy() == 0]
    assert 2_950 < len(kept) < len(ROWS)
    return kept


@pytest.fixture(scope="module")
def result(old, biased, tmp_path_factory):
    out = tmp_path_factory.mktemp("new") / "bundle"
    return update_bundle(old, biased, out, rows=ROWS, compiled=False)


def test_status_model_maps_baseline_and_drift_reference_are_kept(old, result):
    new = result.bundle
    for name in ("status.pt2", "inputs.npz", "baseline.npz", "drift.npz"):
        assert new.files[name] == old.files[name], name
    (_, maps), (_, kept) = read_npz(old.files["maps.npz"]), read_npz(new.files["maps.npz"])
    assert maps.keys() == kept.keys()
    assert all(np.array_equal(maps[name], kept[name]) for name in maps)
    assert new.files["classifier.pt2"] != old.files["classifier.pt2"]


def test_nothing_of_the_old_classifier_is_kept(result):
    assert set(result.bundle.files) == {
        *("classifier.pt2", "status.pt2", "maps.npz", "inputs.npz", "baseline.npz", "drift.npz"),
    }
    assert set(result.dropped) == {KERNEL, "audit.json", "audit.png", "audit.txt"}
    assert "no longer compiled for torch 2.13.0 on avx2" in result.compiled_in_words


def test_the_manifest_has_a_new_version_and_a_note_on_the_update(old, result):
    was, now = old.manifest, result.bundle.manifest
    digest = now.files["classifier.pt2"].sha256
    assert now.model.version == f"1-{digest[:8]}"
    assert now.fitted.model_copy(update={"notes": ""}) == was.fitted
    today = dt.datetime.now(dt.UTC).date()
    assert f"classifier updated on {today} (was version 1, sha256" in now.fitted.notes
    for field in ("features", "one_hot_groups", "protected_attributes", "decision", "classifier"):
        assert getattr(now, field) == getattr(was, field)


def test_a_second_update_replaces_the_suffix_and_keeps_both_notes(fair, result, tmp_path):
    again = update_bundle(result.bundle, scaled(fair, 1.1), tmp_path / "b", compiled=False)
    manifest = again.bundle.manifest
    assert manifest.model.version == f"1-{manifest.files['classifier.pt2'].sha256[:8]}"
    assert manifest.fitted.notes.count("classifier updated on") == 2


def test_decisions_that_differ_are_counted_as_one_row_at_a_time(old, result, ordinary):
    before, after = old.classifier(), result.bundle.classifier()
    differ = gained = granted = 0
    for row in torch.from_numpy(ordinary):
        was, now = bool(before.decide(row[None])), bool(after.decide(row[None]))
        differ += was != now
        gained += now and not was
        granted += now
    comparison = result.comparison
    assert comparison.rows == len(ordinary)
    assert 0 < gained < differ
    assert (comparison.differ, comparison.gained) == (differ, gained)
    assert comparison.favourable_after == granted
    assert comparison.favourable_after - comparison.favourable_before == 2 * gained - differ


def test_the_figures_are_those_of_the_written_bundle(old, result):
    rows = torch.from_numpy(ROWS)
    for name, own in result.comparison.attributes.items():
        for bundle, level, above in (
            (old, own.before, own.above_before),
            (result.bundle, own.after, own.above_after),
        ):
            judge = Judge.load(bundle, warn=False)
            scores = judge.scores(rows)
            flips = scores.attributes[name].hard_flips.double().nanmean()
            assert level.flip_share == pytest.approx(float(flips), abs=1e-6)
            assert level.flip_share_low <= level.flip_share < level.flip_share_high
            assert above == (judge.p_values(scores, name) <= 0.01).sum()
        assert own.rise == pytest.approx(own.after.flip_share - own.before.flip_share)
        assert own.rise_low < own.rise < own.rise_high


def test_a_biased_classifier_is_less_fair_and_no_reason_to_fit_again(result):
    """A refit would accept its bias as the new baseline."""
    comparison = result.comparison
    assert "sex" in comparison.less_fair
    assert comparison.attributes["sex"].above_after > 0.3 * comparison.rows
    assert not [reason for reason in comparison.refit_reasons if "above the baseline" in reason]
    assert "Less fair: more decisions depend on sex" in comparison.text()


def test_a_benign_update_gives_no_warning(old, tmp_path):
    retrained = train_fair(WORLD.people(8_000, seed=73), seed=1)
    new = update_bundle(old, retrained, tmp_path / "b", rows=ROWS, compiled=False).comparison
    assert new.less_fair == new.refit_reasons == ()
    assert "no reason to fit again was found" in new.text()


def test_the_spread_is_computed_from_rows(unfair, biased, ordinary, tmp_path):
    """Logits on another scale change no decision, but the baseline no longer fits."""
    new = update_bundle(unfair, scaled(biased, 3.0), tmp_path / "b", rows=ROWS, compiled=False)
    expected = logit_spread(new.bundle.classifier().logit, ordinary)
    assert Judge.load(new.bundle, warn=False).sensitivity.logit_spread == pytest.approx(expected)
    assert (new.comparison.differ, new.spread_kept) == (0, False)
    reasons = " ".join(new.comparison.refit_reasons)
    assert "the spread of the logits changes" in reasons
    assert "but the flip share does not rise" in reasons


def test_without_rows_the_spread_is_kept_and_the_text_says_synthetic(old, biased, tmp_path):
    new = update_bundle(old, biased, tmp_path / "b", compiled=False)
    assert new.bundle.files["maps.npz"] == old.files["maps.npz"]
    assert new.spread_kept
    assert "that of the old classifier" in new.spread_in_words
    assert "These rows are synthetic" in new.comparison.text()
    # Probe rows cannot show who is treated less fairly.
    assert new.comparison.less_fair == ()


def test_another_population_is_a_reason_to_fit_again(old, fair, tmp_path):
    people = WORLD.people(6_000, seed=74)
    women = people.features[people.groups["sex"] == 1]
    new = update_bundle(old, scaled(fair, 1.01), tmp_path / "b", rows=women, compiled=False)
    assert "in features that predict sex" in " ".join(new.comparison.refit_reasons)


def test_an_old_fit_is_a_reason_to_fit_again(result):
    assert not [r for r in result.comparison.refit_reasons if "days old" in r]
    aged = replace(result.comparison, fit_days=366)
    assert "the fit is 366 days old" in aged.refit_reasons[0]


def test_few_verdicts_are_a_reason_to_fit_again(result):
    own = replace(
        result.comparison.attributes["sex"], above_before=30, above_after=2, status_distance=0.0
    )
    few = replace(result.comparison, attributes={"sex": own})
    assert "hardly ever give a verdict" in " ".join(few.refit_reasons)


def test_a_classifier_without_gradient_is_a_reason_to_fit_again(old, tmp_path):
    class Stepped(nn.Module):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return (features[:, 13] < 5).float() * 2 - 1

    new = update_bundle(old, Stepped(), tmp_path / "b", rows=ROWS, compiled=False)
    assert "has no prediction sensitivity" in " ".join(new.comparison.refit_reasons)


class Wide(nn.Module):
    """Takes one more column."""

    width = WIDTH + 1

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features[:, : self.width].sum(1) + features[:, self.width - 1]


class TwoLogits(nn.Module):
    width = WIDTH

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features[:, :2]


class Probability(nn.Module):
    width = WIDTH

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.sum(1).sigmoid()


class Undefined(nn.Module):
    width = WIDTH

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.sum(1) * torch.nan


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Wide, "takes 26 columns, but the manifest lists 25 features"),
        (TwoLogits, r"returns \[n, 2\]; output 'logit' requires"),
        (Probability, "sigmoid"),
        (Undefined, "returns NaN or infinite values"),
    ],
)
def test_a_classifier_that_does_not_match_the_bundle_is_refused(path, module, message, tmp_path):
    file = tmp_path / "new.pt2"
    file.write_bytes(export_classifier(module(), module.width))
    with pytest.raises(ClassifierError, match=rf"new\.pt2: .*{message}.*needs `evenhand fit`"):
        update_bundle(path, file, tmp_path / "b", compiled=False)
    assert not (tmp_path / "b").exists()


def test_the_same_classifier_is_refused(path, old, tmp_path):
    file = tmp_path / "same.pt2"
    file.write_bytes(old.files["classifier.pt2"])
    with pytest.raises(BundleError, match=r"same\.pt2: .*already contains this classifier"):
        update_bundle(path, file, tmp_path / "b")


def test_the_same_or_an_invalid_version_is_refused(path, biased, tmp_path):
    with pytest.raises(BundleError, match="version '1' is that of the old classifier"):
        update_bundle(path, biased, tmp_path / "b", model_version="1")
    with pytest.raises(BundleError, match="version"):
        update_bundle(path, biased, tmp_path / "b", model_version="a/b")


def test_rows_that_cannot_be_used_are_refused(path, biased, tmp_path):
    for rows, message in (
        (ROWS[:, :3], "shape"),
        (ROWS[:50], "at least 200"),
        (np.full_like(ROWS, np.nan), "not finite"),
    ):
        with pytest.raises(FitError, match=message):
            update_bundle(path, biased, tmp_path / "b", rows=rows, compiled=False)


def test_a_bundle_that_was_not_fitted_or_a_path_in_use_is_refused(path, bundle_path, tmp_path):
    with pytest.raises(BundleError, match=r"no status\.pt2"):
        update_bundle(bundle_path, b"", tmp_path / "b")
    with pytest.raises(BundleExistsError, match="--replace"):
        update_bundle(path, b"", path)


def test_without_a_compiler_the_bundle_is_written_and_the_reason_given(
    old, biased, tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", "")
    new = update_bundle(old, biased, tmp_path / "b")
    assert "no C++ compiler" in new.not_compiled
    assert not [name for name in new.bundle.files if name.startswith("kernel/")]


def write_log(folder: Path, manifest: Manifest, *, hashed: str = "") -> None:
    """A log of the bundle's model with the features of `ROWS`."""
    names = TrafficColumns.of(manifest, {hashed: "hash"} if hashed else {})
    table = traffic_rows(len(ROWS), columns=names)
    for column in names.features:
        if column.treatment == "keep":
            index = table.column_names.index(column.name)
            table = table.set_column(index, table.field(index), pa.array(ROWS[:, column.index]))
    write_traffic(folder, table, columns=names, model="lending", version="1")


def test_the_newest_rows_of_the_log_are_read_in_manifest_order(old, tmp_path):
    write_log(tmp_path / "log", old.manifest)
    logged = read_logged_features(tmp_path / "log", old.manifest, 1_000)
    assert np.array_equal(logged.features, ROWS[-1_000:])
    assert logged.since < logged.until
    with pytest.raises(TrafficError, match="contains no predictions of lending version 1"):
        read_logged_features(tmp_path / "none", old.manifest, 10)


def test_a_log_without_the_values_of_a_feature_is_refused(old, tmp_path):
    write_log(tmp_path / "log", old.manifest, hashed="income")
    with pytest.raises(TrafficError, match="'income' is logged with 'hash'"):
        read_logged_features(tmp_path / "log", old.manifest, 10)


def test_the_command_compares_on_a_table_and_on_the_log(path, old, result, ordinary, tmp_path):
    write_log(tmp_path / "log", old.manifest)
    values = {feature.name: ROWS[:, i] for i, feature in enumerate(WORLD.features)}
    parquet.write_table(pa.table(values), tmp_path / "rows.parquet")
    (tmp_path / "new.pt2").write_bytes(result.bundle.files["classifier.pt2"])
    for option, source in (("--data", "rows.parquet"), ("--log", "log")):
        done = evenhand(
            "bundle", "update", path, "--pin", old.manifest_sha256, "--no-compile",
            "--classifier", tmp_path / "new.pt2", "--out", tmp_path / "new", "--replace",
            "--model-version", "2", option, tmp_path / source,
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
        assert "lending: version 1 is replaced by version 2" in done.stdout
        rows = len(ordinary)
        assert f"{result.comparison.differ:,} of {rows:,} differ" in done.stdout
        assert f"without {3_000 - rows} rows unlike the training rows" in done.stdout
        assert source in done.stdout
        assert Bundle.read(tmp_path / "new").manifest_sha256 in done.stdout
        # Values of a row have more digits than aggregates.
        printed = set(done.stdout.split())
        assert not [v for v in ROWS[:, :3].ravel() if f"{v}" in printed and len(f"{v}") > 5]


def test_the_command_takes_one_source_of_rows(path, tmp_path):
    done = evenhand(
        "bundle", "update", path, "--classifier", "x", "--out", tmp_path / "b",
        "--data", "x", "--log", "y",
    )  # fmt: skip
    assert done.exit_code == 2
    assert "--data or --log, not both" in done.stderr


def test_a_table_without_a_feature_names_it(path, tmp_path):
    parquet.write_table(pa.table({"income": [1.0]}), tmp_path / "rows.parquet")
    done = evenhand(
        "bundle", "update", path, "--classifier", "x", "--out", tmp_path / "b",
        "--data", tmp_path / "rows.parquet",
    )  # fmt: skip
    assert done.exit_code == 2
    assert "no column" in done.stderr
