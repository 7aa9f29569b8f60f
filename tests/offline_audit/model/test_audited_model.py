"""Decisions of functions, modules and bundles: outputs, batches and rows that fail."""

from __future__ import annotations

import traceback
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from monitor import Bundle, ClassifierFile, Decision, export_classifier, write_bundle
from monitor.bundle.classifier import probe_features
from offline_audit import AuditedModel, AuditInputError
from offline_audit.errors import ModelFailedError
from tests.bundles import WIDTH, exported_classifier, small_spec

ROWS = np.random.default_rng(3).normal(size=(500, 4)).astype(np.float32)
GRANTED = (ROWS[:, 0] >= 0).astype(np.int8)
# A value that no message may contain.
SECRET = 77_123.0


def grants(rows):
    return rows[:, 0] >= 0


class RecordingModel:
    """A function that records the number of rows of each call, and fails on selected rows."""

    def __init__(self, fails=lambda rows: np.zeros(len(rows), bool)) -> None:
        self.fails, self.calls, self.single_rows = fails, list[int](), list[bytes]()

    def __call__(self, rows):
        self.calls.append(len(rows))
        self.single_rows += [rows.tobytes()] if len(rows) == 1 else []
        if self.fails(rows).any():
            raise ValueError(f"cannot take {rows[self.fails(rows)][0].tolist()}")
        return grants(rows)


@pytest.mark.parametrize(
    "function",
    [
        grants,
        lambda rows: grants(rows).astype(int),
        lambda rows: grants(rows).astype(np.float64)[:, None],
        lambda rows: grants(rows).tolist(),
        lambda rows: np.array([int(x) for x in grants(rows)], object),
        lambda rows: torch.from_numpy(grants(rows)),
    ],
    ids=["booleans", "integers", "a column", "a list", "objects", "a tensor"],
)
def test_decisions_are_read_in_any_form(function):
    decisions = AuditedModel.of(function).decide(ROWS)
    assert decisions.dtype == np.int8
    np.testing.assert_array_equal(decisions, GRANTED)


def test_scores_at_the_threshold_are_positive():
    scores = np.array([0.2, 0.7, 0.7, 0.9], np.float32)
    rows = scores[:, None]
    model = AuditedModel.from_function(lambda rows: rows[:, 0], threshold=0.7)
    assert model.decide(rows).tolist() == [0, 1, 1, 1]
    reversed_model = AuditedModel.from_function(
        lambda rows: rows[:, 0], threshold=0.7, favourable=0
    )
    assert reversed_model.decide(rows).tolist() == [1, 0, 0, 0]


def test_class_0_may_be_favourable():
    model = AuditedModel.from_function(grants, favourable=0)
    np.testing.assert_array_equal(model.decide(ROWS), 1 - GRANTED)


def test_scores_without_a_threshold_are_refused():
    model = AuditedModel.of(lambda rows: np.full(len(rows), SECRET))
    with pytest.raises(AuditInputError, match="numbers other than 0 and 1") as raised:
        model.decide(ROWS)
    assert "77" not in str(raised.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: np.zeros(len(rows) - 1), r"array of shape \[499\] for 500 rows"),
        (lambda rows: np.zeros((len(rows), 2)), "return only the column of class 1"),
        (lambda rows: 1.0, r"shape \[\]"),
        (lambda rows: [[1], [2, 3]], "a list that cannot be converted to an array"),
        (lambda rows: ["granted"] * len(rows), "not all values are numbers"),
    ],
)
def test_outputs_that_are_not_one_number_per_row_are_refused(function, message):
    with pytest.raises(AuditInputError, match=message):
        AuditedModel.of(function).decide(ROWS)


def test_nan_scores_give_no_decision():
    def scores(rows):
        return np.where(rows[:, 1] > 1, np.nan, np.where(rows[:, 2] > 1, np.inf, rows[:, 0]))

    model = AuditedModel.from_function(scores, threshold=0.0)
    codes, is_nan = model.decide(ROWS), ROWS[:, 1] > 1
    assert 0 < is_nan.sum() < 500
    np.testing.assert_array_equal(codes == -1, is_nan)
    assert (codes[~is_nan & (ROWS[:, 2] > 1)] == 1).all()
    assert model.failures.not_a_number == model.failures.undecided == is_nan.sum()
    assert model.warnings == (
        f"{is_nan.sum()} rows got no decision: their scores were not numbers",
    )


def test_a_function_cannot_modify_the_callers_rows():
    def overwrites(rows):
        rows[:] = 0
        return np.ones(len(rows))

    features = ROWS.copy()
    AuditedModel.of(overwrites).decide(features)
    np.testing.assert_array_equal(features, ROWS)


def test_batches_are_bounded_and_progress_is_reported():
    function, reports = RecordingModel(), []
    model = AuditedModel.from_function(function, batch_rows=200)
    model.decide(ROWS, progress=lambda done, rows: reports.append((done, rows)))
    assert function.calls == [200, 200, 100]
    assert reports == [(0, 500), (200, 500), (400, 500), (500, 500)]


def test_the_model_is_not_called_for_zero_rows():
    function = RecordingModel()
    assert AuditedModel.of(function).decide(np.zeros((0, 4))).shape == (0,)
    assert function.calls == []


def test_failing_rows_are_isolated_and_counted():
    bad = np.zeros(500, bool)
    bad[[0, 17, 18, 250, 499]] = True
    rows = ROWS.copy()
    rows[bad, 3] = SECRET
    function = RecordingModel(lambda rows: rows[:, 3] == SECRET)
    model = AuditedModel.of(function)
    np.testing.assert_array_equal(model.decide(rows), np.where(bad, -1, GRANTED))
    # At most one path through the halves per failing row.
    assert len(function.calls) < 5 * 2 * np.ceil(np.log2(500))
    assert model.failures.errored == model.failures.undecided == 5
    assert model.failures.rows == 500
    assert model.warnings == ("5 rows got no decision: the model failed on them (ValueError)",)
    before = model.failures
    model.decide(ROWS)
    assert model.failures.since(before).rows == 500
    assert model.failures.since(before).warnings == ()


def test_many_consecutive_rows_may_fail_if_the_model_works_on_others():
    """Such as all rows of one category in sorted data."""
    bad = (np.arange(500) >= 100) & (np.arange(500) < 300)
    rows = ROWS.copy()
    rows[bad, 3] = SECRET
    function = RecordingModel(lambda rows: rows[:, 3] == SECRET)
    decisions = AuditedModel.from_function(function, batch_rows=50).decide(rows)
    np.testing.assert_array_equal(decisions, np.where(bad, -1, GRANTED))
    # 4 batches of 99 calls, and one check that the model still works after every 64 refusals.
    assert len(function.calls) == 6 + 4 * 99 + 4 * 99 // 64


def test_scattered_failures_need_no_check_of_the_model():
    rows, bad = ROWS.copy(), np.arange(500) % 5 == 3
    rows[bad, 3] = SECRET
    function = RecordingModel(lambda rows: rows[:, 3] == SECRET)
    decisions = AuditedModel.of(function).decide(rows)
    np.testing.assert_array_equal(decisions, np.where(bad, -1, GRANTED))
    assert len(function.single_rows) == len(set(function.single_rows))


def test_halves_of_a_failed_batch_get_unmodified_rows():
    def overwrites(rows):
        single = len(rows) == 1
        decisions = grants(rows)
        rows[:] = 0
        if not single:
            raise MemoryError
        return decisions

    np.testing.assert_array_equal(AuditedModel.of(overwrites).decide(ROWS[:20]), GRANTED[:20])


@pytest.mark.parametrize("count", [1, 3, 500])
def test_a_model_that_fails_on_every_row_is_an_early_error(count):
    function = RecordingModel(lambda rows: np.ones(len(rows), bool))
    rows = np.full((count, 4), SECRET, np.float32)
    with pytest.raises(ModelFailedError, match=r"no decision for the first .*ValueError") as raised:
        AuditedModel.of(function).decide(rows)
    assert "77123" not in "".join(traceback.format_exception(raised.value))
    assert len(function.calls) <= 64


def test_a_model_that_decides_nothing_is_an_error():
    model = AuditedModel.from_function(lambda rows: np.full(len(rows), np.nan), threshold=0.5)
    with pytest.raises(
        ModelFailedError, match="no decision for the first 500 rows: their scores were"
    ):
        model.decide(ROWS)


def test_a_model_that_stops_working_is_an_early_error():
    function = RecordingModel()
    function.fails = lambda rows: np.full(len(rows), len(function.calls) > 3)
    model = AuditedModel.from_function(function, batch_rows=100)
    with pytest.raises(ModelFailedError, match="stopped working: ValueError on a row that it dec"):
        model.decide(ROWS)
    assert len(function.calls) == 3 + 64 + 1


def test_a_keyboard_interrupt_is_not_caught():
    def interrupted(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        AuditedModel.of(interrupted).decide(ROWS)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros(4), r"must have shape \[n, d\]; got 1 axes"),
        ([["a", "b"]], r"must be an array of numbers \[n, d\]"),
    ],
)
def test_features_of_another_shape_or_type_are_refused(features, message):
    with pytest.raises(AuditInputError, match=message):
        AuditedModel.of(grants).decide(features)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": float("nan")}, "threshold: must be a finite number"),
        ({"threshold": "half"}, "threshold: must be a finite number"),
        ({"batch_rows": 0}, "batch_rows: must be a whole number of at least 1"),
        ({"favourable": 2}, "favourable: must be 0 or 1; got 2"),
        ({"cache": "here"}, "identity: required with a cache"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(AuditInputError, match=message):
        AuditedModel.from_function(grants, **options)


def test_an_object_that_is_not_callable_is_refused():
    with pytest.raises(AuditInputError, match=r"a function from rows .* got dict"):
        AuditedModel.of(cast("Any", {}))


def test_an_audited_model_is_returned_unchanged():
    model = AuditedModel.of(grants)
    assert AuditedModel.of(model) is model
    assert repr(model) == "AuditedModel(function grants)"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_module_is_called_in_its_own_precision(dtype):
    module = nn.Linear(4, 1, dtype=dtype).eval()
    with torch.no_grad():
        module.weight[:] = torch.tensor([[1.0, 0, 0, 0]])
        module.bias.zero_()
    decisions = AuditedModel.from_function(module, threshold=0.0).decide(ROWS)
    np.testing.assert_array_equal(decisions, GRANTED)
    assert module.weight.requires_grad


def test_a_module_in_training_mode_is_refused():
    with pytest.raises(AuditInputError, match=r"training mode; call \.eval\(\) first"):
        AuditedModel.of(nn.Dropout())


class LinearModel(nn.Module):
    """A linear score, with each kind of output that a manifest supports."""

    def __init__(self, output: str) -> None:
        super().__init__()
        self.score = nn.Linear(WIDTH, 2 if output.startswith("two") else 1)
        with torch.no_grad():
            self.score.weight[:] = torch.tensor([-0.3, 0.1, 0.5, -0.2, 0.2])
            self.score.bias[:] = -1.5
            self.score.weight[: len(self.score.weight) - 1] *= -1
        self.output = output

    def forward(self, features):
        score = self.score(features)
        if self.output == "probability":
            return torch.sigmoid(score).squeeze(-1)
        return torch.softmax(score, 1) if self.output == "two_probabilities" else score


@pytest.mark.parametrize("favourable", [0, 1])
@pytest.mark.parametrize("output", ["logit", "probability", "two_logits", "two_probabilities"])
def test_a_bundle_agrees_with_its_classifier(tmp_path, output, favourable):
    spec = small_spec(
        classifier=ClassifierFile(output=output),
        decision=Decision(threshold=0.45, favourable=favourable, class_names=("no", "yes")),
    )
    file = export_classifier(LinearModel(output), WIDTH)
    write_bundle(tmp_path / "bundle", spec, {"classifier.pt2": file})
    rows = probe_features(spec, 2_000)
    bundle = Bundle.read(tmp_path / "bundle")
    with torch.inference_mode():
        expected = bundle.classifier().decide(torch.from_numpy(rows)).numpy()
    assert 0.05 < expected.mean() < 0.95
    for model in (AuditedModel.of(bundle), AuditedModel.of(str(tmp_path / "bundle"))):
        np.testing.assert_array_equal(model.decide(rows), expected == favourable)
        assert repr(model) == "AuditedModel(bundle of loans 3)"
        assert model.warnings == ()


def test_a_bundle_refuses_rows_of_another_width(bundle_path):
    with pytest.raises(AuditInputError, match="features: got 4 columns; the model takes 5"):
        AuditedModel.of(bundle_path).decide(ROWS)


def test_rows_that_a_bundle_cannot_score_get_no_decision(bundle_path):
    model = AuditedModel.of(bundle_path)
    rows = probe_features(Bundle.read(bundle_path).manifest, 10)
    rows[4, 0] = np.nan
    decisions = model.decide(rows)
    assert np.flatnonzero(decisions == -1).tolist() == [4]
    assert model.failures.not_a_number == 1


def test_a_bundle_takes_a_frame_by_column_name(tmp_path):
    pd: Any = pytest.importorskip("pandas")
    write_bundle(tmp_path / "b", small_spec(), {"classifier.pt2": exported_classifier()})
    model = AuditedModel.of(tmp_path / "b")
    rows = probe_features(small_spec(), 50)
    frame = pd.DataFrame(rows, columns=[feature.name for feature in small_spec().features])
    decisions = model.decide(rows)
    np.testing.assert_array_equal(model.decide(frame[frame.columns[::-1]]), decisions)
    with pytest.raises(AuditInputError, match="no column income; the model has no feature pay"):
        model.decide(frame.rename(columns={"income": "pay"}))
    with pytest.raises(AuditInputError, match="two columns are named years"):
        model.decide(pd.concat([frame, frame[["years"]]], axis=1))
