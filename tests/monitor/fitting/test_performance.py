"""A classifier that gets wrong input is noticed, by labels or by the shape of its scores."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from scipy import stats

from monitor import Decision, FitData, World, fit, read_data, train_proxy_biased
from monitor.errors import FitError
from monitor.fitting.performance import check_classifier
from monitor.fitting.performance_text import classifier_lines
from monitor.fitting.spec import LabelColumn
from monitor.scoring.scores import ScoreColumns
from tests.serving import SPEC

ATTRIBUTES = SPEC.protected_attributes[:1]


def scores_of(logit):
    """Scores with these logits and decisions at one half; other scores are zero."""
    columns = ScoreColumns.of({"sex": 2})
    packed = torch.zeros(len(logit), columns.width)
    packed[:, columns.logit] = packed[:, columns.signed_margin] = torch.as_tensor(logit).float()
    return columns.unpacked(packed)


def checked(logit, labels=None, decision=None, groups=None):
    groups = np.arange(len(logit), dtype=np.int8) % 2 if groups is None else groups
    labels = None if labels is None else np.asarray(labels, np.int8)
    return check_classifier(
        scores_of(logit), decision or Decision(), labels, {"sex": groups}, ATTRIBUTES
    )


def calibrated(rows, seed, spread=1.0):
    """Logits, and labels that are drawn with their probabilities."""
    rng = np.random.default_rng(seed)
    logit = spread * rng.standard_normal(rows)
    return logit, (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int8)


def test_figures_agree_with_slow_definitions():
    logit, labels = calibrated(400, seed=1)
    labels[:50] = -1
    performance = checked(logit, labels).performance
    known, p = labels >= 0, 1 / (1 + np.exp(-np.float32(logit).astype(float)))
    ones, zeros = p[labels == 1], p[labels == 0]
    wins = (ones[:, None] > zeros) + 0.5 * (ones[:, None] == zeros)
    overall = performance.overall
    assert overall.auc == pytest.approx(wins.mean())
    assert overall.auc_error == pytest.approx(
        np.sqrt(wins.mean(1).var(ddof=1) / len(ones) + wins.mean(0).var(ddof=1) / len(zeros))
    )
    assert overall.accuracy == ((p >= 0.5) == labels)[known].mean()
    assert (overall.rows, performance.unlabelled) == (350, 50)
    rate = labels[known].mean()
    assert performance.skill == pytest.approx(
        1 - ((p - labels)[known] ** 2).mean() / (rate * (1 - rate))
    )
    assert performance.groups["sex"]["man"].rows == known[::2].sum()
    assert performance.groups["sex"]["man"].observed == labels[::2][known[::2]].mean()


def test_a_favourable_class_0_reverses_predicted_and_observed_but_not_auc():
    logit, labels = calibrated(1_000, seed=2)
    one = checked(logit, labels).performance.overall
    zero = checked(logit, labels, Decision(favourable=0)).performance.overall
    assert zero.auc == pytest.approx(one.auc)
    assert zero.accuracy == one.accuracy
    assert zero.predicted == pytest.approx(1 - one.predicted)
    assert zero.observed == pytest.approx(1 - one.observed)


@pytest.mark.calibration
def test_noise_is_considered():
    """Useless scores are warned of in 97.5% of samples of 300 rows; right ones rarely."""
    useless = right = 0
    for seed in range(400):
        logit, labels = calibrated(300, seed=seed, spread=0.9)
        right += bool(checked(logit, labels).warnings)
        useless += bool(
            checked(0.1 * logit, np.random.default_rng(seed).permutation(labels)).warnings
        )
    # The lower end of a 95% interval is above 0 in at most 2.5% of samples.
    assert stats.binom.sf(400 - useless - 1, 400, 0.025) > 1e-3
    assert right < 0.05 * 400


def test_labels_outweigh_the_shape_of_scores():
    """A very confident classifier that is right is no reason for a warning."""
    logit, _ = calibrated(1_000, seed=3)
    assert checked(1e4 * logit, logit > 0).warnings == ()
    assert "saturated: 100%" in " ".join(checked(1e4 * logit).warnings)
    assert "saturated" in " ".join(checked(1e4 * logit, logit < 0).warnings)


def test_scores_that_hardly_vary_are_noticed_without_labels():
    logit, _ = calibrated(1_000, seed=4)
    assert "hardly vary" in " ".join(checked(0.01 * logit - 1).warnings)
    # A rare outcome: probabilities differ little, odds do not.
    assert checked(logit - 7).warnings == ("All held-back rows get the same decision.",)


def test_reversed_labels_are_named_as_a_possible_reason():
    logit, labels = calibrated(1_000, seed=5, spread=2.0)
    assert "label.favourable" in " ".join(checked(logit, 1 - labels).warnings)
    assert "All held-back rows" in " ".join(checked(logit, np.ones(1_000)).warnings)


class Changed(torch.nn.Module):
    """A classifier whose input is changed first."""

    def __init__(self, inner, change):
        super().__init__()
        self.inner, self.change = inner, change

    def forward(self, features):
        return self.inner(self.change(features))


@pytest.fixture(scope="module")
def world():
    """A classifier of the world, and people with the bank's labels."""
    world = World()
    return train_proxy_biased(world.people(8_000, seed=41), seed=0), world.people(3_000, seed=42)


def audit_of(classifier, people, labels, folder):
    data = FitData(features=people.features, groups=people.groups, labels=labels)
    return fit(classifier, data, SPEC, folder / "b", compiled=False, n_refits=0).audit


def test_a_right_classifier_of_the_world_gets_no_warning(world, tmp_path):
    classifier, people = world
    audit = audit_of(classifier, people, people.labels, tmp_path)
    assert audit.classifier.warnings == ()
    assert "always predicting the more frequent label" in " ".join(audit.text().split())
    figures = json.loads(json.dumps(audit.to_dict(), allow_nan=False))["classifier"]
    assert figures["warnings"] == []
    assert set(figures["performance"]["groups"]) == {"sex", "ethnicity"}


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("mistake", ["reversed", "unscaled"])
def test_wrong_input_in_the_world_is_noticed_with_and_without_labels(
    world, tmp_path, mistake, labelled
):
    classifier, people = world
    wrong = {
        "reversed": Changed(classifier, lambda x: x.flip(1)),
        # The scorecard standardises its input: its layers are a classifier that does not.
        "unscaled": Changed(classifier.layers, lambda x: x),
    }[mistake]
    audit = audit_of(wrong, people, people.labels if labelled else None, tmp_path)
    text = " ".join(audit.text().split())
    assert ("worse than the base rate" in text) == labelled
    assert "Scores are saturated" in text
    assert "Check that the spec lists the features in the order" in text
    # The share is not called low: no figure of this input says anything about production.
    assert text.count("The share is not established: scores are saturated") == 2
    assert "Who loses This cannot be determined: scores are saturated" in text
    assert not re.search(r"That is (low|moderate|high)", text)
    figures = audit.to_dict()
    assert figures["classifier"]["doubt"].startswith("scores are saturated")
    assert not any(attribute["established"] for attribute in figures["attributes"].values())


def test_reversed_standardised_columns_are_noticed_with_labels_only(world, tmp_path):
    classifier, people = world
    mean, scale = classifier.mean, classifier.scale
    wrong = Changed(classifier.layers, lambda x: ((x - mean) * scale).flip(1))
    assert audit_of(wrong, people, people.labels, tmp_path).classifier.warnings
    (tmp_path / "other").mkdir()
    audit = audit_of(wrong, people, None, tmp_path / "other")
    assert audit.classifier.warnings == ()
    text = " ".join(audit.text().split())
    assert "Warning The spec has no `label`, so the order and scaling" in text


def test_scores_that_predict_no_label_establish_no_share():
    logit, labels = calibrated(1_000, seed=6)
    assert checked(logit, labels).doubt == ""
    assert checked(logit).doubt == ""
    shuffled = checked(logit, np.random.default_rng(0).permutation(labels))
    assert shuffled.doubt.startswith("the scores do not predict the label")
    assert "hardly vary" in checked(0.01 * logit - 1e-3).doubt
    one = checked(np.abs(logit) + 0.01, labels)
    assert "all held-back rows get the same decision" in one.doubt
    assert "All held-back rows get the same decision." in one.warnings


def test_a_classifier_of_another_outcome_ranks_rows_but_is_not_calibrated():
    """A correct classifier of past decisions, which granted much less than is repaid."""
    logit, labels = calibrated(4_000, seed=7, spread=2.0)
    check = checked(logit - 3, labels)
    (warning,) = check.warnings
    assert "they rank rows well (AUC" in warning
    assert "it was trained on another outcome, such as past decisions" in warning
    assert "may come in another order" not in warning
    assert check.doubt == ""
    # One large column may rank rows as well, without its scale: saturated scores say more.
    unscaled = checked(1e3 * logit + 2e3, labels)
    assert unscaled.performance.overall.auc > 0.8
    assert "may come in another order or on another scale" in " ".join(unscaled.warnings)
    assert "scores are saturated" in unscaled.doubt


def test_a_weakly_reversed_ranking_names_the_order_of_the_columns_first():
    logit, labels = calibrated(4_000, seed=8, spread=2.0)
    clear = " ".join(checked(logit, 1 - labels).warnings)
    assert clear.index("label.favourable") < clear.index("another order")
    noise = np.random.default_rng(9).standard_normal(4_000)
    check = checked(-0.15 * logit + 1.5 * noise, labels)
    assert 0.4 < check.performance.overall.auc < 0.46
    weak = " ".join(check.warnings)
    assert weak.index("another order") < weak.index("label.favourable")


def calibration_by_group(check):
    lines = " ".join(" ".join(classifier_lines(check)).split())
    return lines.partition("Calibration by group ")[2]


def test_groups_whose_labels_are_predicted_differently_are_named():
    """Women get the favourable label as often as men, and are predicted to get it less often."""
    rows = 4_000
    rng = np.random.default_rng(10)
    logit, labels = calibrated(rows, seed=10)
    groups = (rng.random(rows) < 0.5).astype(np.int8)
    assert calibration_by_group(checked(logit, labels, groups=groups)) == ""
    text = calibration_by_group(checked(logit - groups, labels, groups=groups))
    women = check_rates(checked(logit - groups, labels, groups=groups), "woman")
    assert text.startswith("The groups of sex differ beyond noise: the classifier predicts")
    assert f"{women[0]:.1%} for woman where {women[1]:.1%} was observed" in text


def check_rates(check, group):
    figures = check.performance.groups["sex"][group]
    return figures.predicted, figures.observed


@pytest.mark.calibration
def test_equal_calibration_of_groups_is_rarely_called_different():
    """At most 5% of samples, within three standard errors."""
    called = 0
    for seed in range(400):
        logit, labels = calibrated(400, seed=seed)
        called += bool(calibration_by_group(checked(logit, labels)))
    assert called <= stats.binom.ppf(0.999, 400, 0.05)


def labelled_table(values):
    rows = len(values)
    people = World().people(rows, seed=1)
    table = {f.name: people.features[:, i] for i, f in enumerate(people.world.features)}
    for attribute in people.world.attributes:
        table[attribute.name] = np.array(attribute.groups)[people.groups[attribute.name]]
    return pa.table(table | {"outcome": values})


def read_labels(path, spec):
    labels = read_data(path, spec).labels
    assert labels is not None
    return labels


@pytest.mark.parametrize(
    ("values", "favourable", "codes"),
    [
        (["paid", "default", None, "paid"], "paid", [1, 0, -1, 1]),
        ([1, 0, None, 1], 1, [1, 0, -1, 1]),
        ([1.0, 0.0, float("nan"), 1.0], 1, [1, 0, -1, 1]),
        ([True, False, None, True], True, [1, 0, -1, 1]),
        ([1, 0, None, 1], 0, [0, 1, -1, 0]),
    ],
)
def test_labels_are_read_by_their_favourable_value(tmp_path, values, favourable, codes):
    path = tmp_path / "t.parquet"
    parquet.write_table(labelled_table(values), path)
    spec = SPEC.model_copy(update={"label": LabelColumn(column="outcome", favourable=favourable)})
    assert np.array_equal(read_labels(path, spec), codes)
    unfavourable = spec.model_copy(update={"decision": Decision(favourable=0)})
    classes = [code if code < 0 else 1 - code for code in codes]
    assert np.array_equal(read_labels(path, unfavourable), classes)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["paid"] * 20 + ["current"] * 20 + ["default"] * 20, "has 3 values; it must have two"),
        (["yes"] * 20 + ["no"] * 20, "does not contain the favourable value 'paid': 'yes', 'no'"),
    ],
)
def test_an_unusable_label_is_an_error(tmp_path, values, message):
    parquet.write_table(labelled_table(values), tmp_path / "t.parquet")
    spec = SPEC.model_copy(update={"label": LabelColumn(column="outcome", favourable="paid")})
    with pytest.raises(FitError, match=message):
        read_data(tmp_path / "t.parquet", spec)


def test_labels_of_another_shape_or_value_are_refused():
    people = World().people(1_000, seed=1)
    data = FitData(features=people.features, groups=people.groups, labels=np.full(1_000, 2))
    for labels in (data.labels, people.labels[:5]):
        with pytest.raises(FitError, match="labels must be 1, 0"):
            dataclasses.replace(data, labels=labels).checked(SPEC)


def test_a_label_that_is_an_input_is_refused():
    with pytest.raises(FitError, match="label column 'income' is also an input"):
        SPEC.model_validate(SPEC.model_dump() | {"label": {"column": "income", "favourable": 1}})
