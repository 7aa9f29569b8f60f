"""The watch does not depend on batching, saving or merging; alarms persist until acknowledged."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest

from monitor import Drift
from monitor.drift.alarms import HINT
from monitor.drift.reference import DetectorId
from monitor.drift.state import MOST_STREAMS
from monitor.scoring.scores import Predictions, Signals
from tests.monitor.drift.streams import DIGEST, part, predictions, reference, watch

CHANGE, SHARE = DetectorId("change", "sex"), DetectorId("share", "sex")
MARGIN, STATUS = DetectorId("margin"), DetectorId("status", "sex")


def joined(*batches: Predictions) -> Predictions:
    signals = [batch.attributes["sex"] for batch in batches]
    fields = ("hard_flips", "expected_change", "posterior")
    together = {f: np.concatenate([getattr(s, f) for s in signals]) for f in fields}
    margin = np.concatenate([batch.margin for batch in batches])
    return Predictions(margin=margin, attributes={"sex": Signals(**together)})


def changing_stream(seed=5, *, groups=2) -> Predictions:
    """Baseline, then another treatment, then another population; some scores are NaN."""
    rng = np.random.default_rng(seed)
    batch = joined(
        predictions(rng, 1_500, groups=groups),
        predictions(rng, 1_500, groups=groups, treatment=3.0),
        predictions(rng, 500, groups=groups, people=2.0),
    )
    batch.margin[::97] = np.nan
    batch.attributes["sex"].hard_flips[::89] = np.nan
    batch.attributes["sex"].posterior[::83] = np.nan
    return batch


def feed(drift: Drift, batch: Predictions, sizes) -> Drift:
    start, turn, n = 0, 0, len(batch.margin)
    while start < n:
        stop = min(start + sizes[turn % len(sizes)], n)
        drift.update(part(batch, slice(start, stop)))
        start, turn = stop, turn + 1
    return drift


def assert_same(one: Drift, other: Drift) -> None:
    assert one.seen == other.seen
    for mine, theirs in zip(one.alarms, other.alarms, strict=True):
        assert (mine.watcher, mine.at, mine.cause) == (theirs.watcher, theirs.at, theirs.cause)
        assert mine.value == pytest.approx(theirs.value)
    for watcher, evidence in one.evidence.items():
        again = other.evidence[watcher]
        assert evidence.log_sr == pytest.approx(again.log_sr, rel=1e-9)
        assert evidence.log_e_value == pytest.approx(again.log_e_value, rel=1e-9)
        assert evidence.unusable == again.unusable
    with np.load(io.BytesIO(one.to_npz())) as a, np.load(io.BytesIO(other.to_npz())) as b:
        assert (a["counts"] == b["counts"]).all()
        assert (a["raised_for"] == b["raised_for"]).all()
        assert np.allclose(a["starts"], b["starts"])
    bound, again_bound = one.share_bound("sex"), other.share_bound("sex")
    assert bound.n == again_bound.n
    assert bound.share == pytest.approx(again_bound.share)
    assert bound.low == pytest.approx(again_bound.low)
    assert one.share("sex").n == other.share("sex").n
    assert np.allclose(one.share("sex").band, other.share("sex").band)
    assert np.allclose(one.share("sex").rolling_band, other.share("sex").rolling_band)


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("sizes", [[32], [3_500], [13, 0, 64, 1, 200]])
def test_results_do_not_depend_on_batching(sizes, groups):
    ref, batch = reference(1_000, groups=groups), changing_stream(groups=groups)
    single = feed(watch(ref, window=1_000), batch, [1])
    assert {alarm.watcher for alarm in single.alarms} == {CHANGE, SHARE, MARGIN, STATUS}
    assert_same(single, feed(watch(ref, window=1_000), batch, sizes))


def test_nan_scores_are_counted():
    batch = changing_stream()
    drift = feed(watch(), batch, [32])
    assert drift.evidence[MARGIN].unusable == np.isnan(batch.margin).sum()
    assert drift.evidence[CHANGE].unusable == 0
    assert drift.share("sex").n == np.isfinite(batch.attributes["sex"].hard_flips).sum()


def test_a_prediction_without_posterior_is_counted_once_for_any_number_of_groups():
    batch, drift = predictions(np.random.default_rng(0), 50, groups=4), watch(reference(groups=4))
    batch.attributes["sex"].posterior[:10] = np.nan
    drift.update(batch)
    assert drift.evidence[STATUS].unusable == 10


def test_the_cause_of_new_bias_is_treatment():
    """In most runs: by chance, another detector may be raised at the same time."""
    n_correct = 0
    for seed in range(8):
        rng, drift = np.random.default_rng(seed), watch(seed=seed)
        drift.update(predictions(rng, 2_000))
        drift.update(predictions(rng, 3_000, treatment=2.0))
        alarms = {alarm.watcher: alarm for alarm in drift.alarms}
        n_correct += {CHANGE, SHARE} <= alarms.keys() and (
            {alarms[CHANGE].cause, alarms[SHARE].cause} == {"treatment"}
            and all(2_000 < alarms[watcher].at < 3_000 for watcher in (CHANGE, SHARE))
        )
        assert drift.share("sex").baseline.high < drift.share("sex").rolling_band.low
    assert n_correct >= 6


def test_the_run_length_sets_the_bar():
    rng = np.random.default_rng(9)
    values = []
    for seed in range(12):
        drift = watch(seed=seed, run_length=1e4)
        while not drift.alarms:
            drift.update(predictions(rng, 1, treatment=2.0))
        values.append(drift.alarms[0].value)
    # The mean of five statistics, one above the hint level, would be at least a fifth of it.
    assert math.log(1e4) <= min(values) < math.log(HINT / 5)


@pytest.mark.parametrize("seed", range(5))
def test_the_cause_of_another_population_is_covariates(seed):
    rng, drift = np.random.default_rng(seed), watch(seed=seed)
    drift.update(predictions(rng, 2_000))
    drift.update(predictions(rng, 3_000, people=2.0, treatment=0.5))
    causes = {alarm.watcher: alarm.cause for alarm in drift.alarms}
    assert causes.keys() >= {CHANGE, STATUS, MARGIN}
    assert set(causes.values()) == {"covariates"}


def test_an_alarm_persists_until_acknowledged_and_the_new_level_becomes_the_reference():
    rng, drift = np.random.default_rng(0), watch()
    drift.update(predictions(rng, 2_000, treatment=3.0))
    first = {alarm.watcher: alarm for alarm in drift.alarms}[CHANGE]
    drift.update(predictions(rng, 2_000))
    assert {alarm.watcher: alarm for alarm in drift.alarms}[CHANGE].at == first.at
    drift.acknowledge(CHANGE)
    assert drift.evidence[CHANGE].log_e_value == 0
    # The new state raises no alarm; a return to another level does.
    drift.update(predictions(rng, 5_000, treatment=3.0))
    assert CHANGE not in {alarm.watcher for alarm in drift.alarms}
    drift.update(predictions(rng, 2_000, treatment=20.0))
    assert CHANGE in {alarm.watcher for alarm in drift.alarms}


def test_an_acknowledged_share_that_stays_too_high_raises_another_alarm():
    rng, drift = np.random.default_rng(1), watch()
    drift.update(predictions(rng, 3_000, treatment=3.0))
    drift.acknowledge(SHARE)
    assert drift.share("sex").n == drift.share_bound("sex").n == 0
    assert (drift.share_bound("sex").share, drift.share_bound("sex").low) == (None, 0.0)
    drift.update(predictions(rng, 3_000, treatment=3.0))
    assert SHARE in {alarm.watcher for alarm in drift.alarms}


def test_acknowledging_an_alarm_does_not_change_the_cause_of_another():
    rng, drift = np.random.default_rng(2), watch()
    drift.update(predictions(rng, 1_000, people=2.0, treatment=1.0))
    causes = {alarm.watcher: alarm.cause for alarm in drift.alarms}
    assert causes[CHANGE] == causes[STATUS] == "covariates"
    drift.acknowledge(STATUS)
    drift.update(predictions(rng, 3_000, people=2.0, treatment=1.0))
    assert {alarm.watcher: alarm.cause for alarm in drift.alarms}[CHANGE] == "covariates"


def test_only_a_current_alarm_can_be_acknowledged():
    with pytest.raises(ValueError, match="no alarm change sex"):
        watch().acknowledge(CHANGE)


def test_a_restored_watch_continues_as_the_original():
    ref, batch = reference(1_000), changing_stream()
    whole = feed(watch(ref), batch, [100])
    rng = np.random.default_rng(1)
    first = feed(
        Drift.start(ref, bundle_digest=DIGEST, rng=rng), part(batch, slice(0, 1_700)), [100]
    )
    again = Drift.from_npz(first.to_npz(), ref, bundle_digest=DIGEST, rng=rng)
    assert again.note == ""
    assert_same(whole, feed(again, part(batch, slice(1_700, None)), [100]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bundle_digest": "sha256:2"}, "another bundle: 'sha256:1', not 'sha256:2'"),
        ({"bundle_digest": DIGEST, "window": 5_000}, "another window"),
    ],
)
def test_a_state_of_another_bundle_or_window_starts_a_new_watch_with_a_note(options, message):
    ref = reference()
    data = feed(watch(ref), changing_stream(), [500]).to_npz()
    again = Drift.from_npz(data, ref, **options)
    assert message in again.note
    assert (again.seen, again.alarms) == (0, ())


@pytest.mark.parametrize("data", [b"", b"no state", b"PK\x05\x06" + bytes(18)])
def test_an_unreadable_state_starts_a_new_watch_with_a_note(data):
    again = Drift.from_npz(data, reference(), bundle_digest=DIGEST)
    assert "cannot be read" in again.note
    assert again.seen == 0


@pytest.mark.parametrize("name", ["counts", "starts", "log_sr"])
def test_a_state_with_an_invalid_array_starts_a_new_watch_with_a_note(name):
    ref = reference()
    with np.load(io.BytesIO(watch(ref).to_npz())) as file:
        arrays = dict(file)
    for invalid in (arrays[name][:0], arrays[name] * np.nan):
        buffer = io.BytesIO()
        np.savez(buffer, **(arrays | {name: invalid}))
        again = Drift.from_npz(buffer.getvalue(), ref, bundle_digest=DIGEST)
        assert name in again.note


def test_the_size_of_a_state_does_not_depend_on_the_number_of_predictions():
    drift, rng = watch(), np.random.default_rng(0)
    drift.update(predictions(rng, 100))
    before = len(drift.to_npz())
    drift.update(predictions(rng, 60_000))
    assert abs(len(drift.to_npz()) - before) < 200
    assert Drift.from_npz(drift.to_npz(), drift.reference, bundle_digest=DIGEST).note == ""


def test_merging_adds_the_evidence_of_two_replicas():
    ref, rng = reference(), np.random.default_rng(3)
    one, two = watch(ref, seed=1), watch(ref, seed=2)
    one.update(predictions(rng, 1_300))
    two.update(predictions(rng, 2_100))
    both = one.merged(two)
    assert both.share_bound("sex").n == 3_400
    assert both.seen == both.share("sex").n == both.share("sex").rolling_n == 3_400
    shares = [(d.share("sex").share or 0) * d.share("sex").n for d in (one, two)]
    assert both.share("sex").share == pytest.approx(sum(shares) / 3_400)
    for watcher, evidence in both.evidence.items():
        mine, theirs = one.evidence[watcher], two.evidence[watcher]
        assert math.exp(evidence.log_sr) == pytest.approx(
            math.exp(mine.log_sr) + math.exp(theirs.log_sr)
        )
        assert math.exp(evidence.log_e_value) == pytest.approx(
            (math.exp(mine.log_e_value) + math.exp(theirs.log_e_value)) / 2
        )
    with np.load(io.BytesIO(both.to_npz())) as file:
        assert (file["counts"].sum(1) == ref.counts.sum(1) + 3_400).all()
    assert (one.seen, two.seen) == (1_300, 2_100)


def test_merging_unites_alarms_and_prefers_a_determined_cause():
    ref, rng = reference(), np.random.default_rng(4)
    one, two, calm = watch(ref, seed=1), watch(ref, seed=2), watch(ref, seed=3)
    one.update(predictions(rng, 150, treatment=3.0))
    two.update(predictions(rng, 3_000, treatment=3.0))
    causes = [{a.watcher: a.cause for a in d.alarms}[CHANGE] for d in (one, two)]
    assert causes == ["unclear", "treatment"]
    assert {a.watcher: a.cause for a in one.merged(two).alarms}[CHANGE] == "treatment"
    # An unclear cause keeps its waiting time, although the other replica has seen many more rows.
    calm.update(predictions(rng, 5_000))
    for waiting in (calm.merged(one), one.merged(calm)):
        waiting.update(predictions(rng, 32, treatment=3.0))
        assert {a.watcher: a.cause for a in waiting.alarms}[CHANGE] == "unclear"


def test_merging_does_not_restore_the_reference_of_a_restarted_detector():
    ref, rng = reference(), np.random.default_rng(5)
    one, two = watch(ref, seed=1), watch(ref, seed=2)
    one.update(predictions(rng, 1_000, treatment=3.0))
    one.acknowledge(CHANGE)
    one.update(predictions(rng, 100))
    two.update(predictions(rng, 200))
    with np.load(io.BytesIO(one.merged(two).to_npz())) as file:
        assert file["counts"].sum(1).tolist() == [300, 2_000 + 1_300, 2_000 + 1_300]
        assert file["based"].tolist() == [False, True, True]


def near_alarm(ref, rng) -> Drift:
    """A watch whose change detector is above half of its bar, without an alarm."""
    while True:
        drift = watch(ref, seed=int(rng.integers(1 << 30)))
        for _ in range(40):
            drift.update(predictions(rng, 1, treatment=3.0))
            if drift.evidence[CHANGE].log_sr > math.log(5.1e5):
                break
        if math.log(5.1e5) < drift.evidence[CHANGE].log_sr < math.log(1e6) and not drift.alarms:
            return drift


def test_merged_evidence_can_raise_an_alarm():
    ref, rng = reference(), np.random.default_rng(6)
    one, two = near_alarm(ref, rng), near_alarm(ref, rng)
    assert CHANGE in {alarm.watcher for alarm in one.merged(two).alarms}


def test_merging_does_not_count_predictions_twice():
    """A replica may be merged with itself, its saved state, or a merged watch that includes it."""
    ref = reference()
    one, two, three = (watch(ref, seed=1) for _ in range(3))
    assert len(one.streams | two.streams | three.streams) == 3
    saved = Drift.from_npz(one.to_npz(), ref, bundle_digest=DIGEST)
    both = one.merged(two)
    restored = Drift.from_npz(both.to_npz(), ref, bundle_digest=DIGEST)
    assert both.streams == restored.streams == one.streams | two.streams
    for this, other in ((one, one), (saved, one), (both, two), (one, restored)):
        with pytest.raises(ValueError, match="same predictions"):
            this.merged(other)
    assert len(both.merged(three).streams) == 3


def test_a_new_watch_has_a_new_stream_id():
    ref, one = reference(), watch()
    restarted = Drift.from_npz(one.to_npz(), ref, bundle_digest="sha256:2")
    assert not restarted.streams & one.streams


def test_merging_is_rejected_above_the_limit_of_streams():
    ref = reference()
    one, two = watch(ref), watch(ref)
    one.streams = frozenset(f"{n:016x}" for n in range(MOST_STREAMS - 1))
    full = one.merged(two)
    assert Drift.from_npz(full.to_npz(), ref, bundle_digest=DIGEST).streams == full.streams
    with pytest.raises(ValueError, match="streams"):
        full.merged(watch(ref))


@pytest.mark.parametrize(
    "option",
    [{"bundle_digest": "sha256:2"}, {"level": 0.02}, {"run_length": 2e6}, {"window": 20_000}],
)
def test_replicas_with_different_bundles_or_parameters_cannot_be_merged(option):
    ref = reference()
    other = Drift.start(ref, **({"bundle_digest": DIGEST} | option))
    with pytest.raises(ValueError, match="same bundle and parameters"):
        watch(ref).merged(other)


def test_a_watch_that_cannot_be_copied_cannot_be_merged():
    ref = reference()
    one, two = watch(ref), watch(ref)
    one._detectors.counts -= 1
    with pytest.raises(ValueError, match=r"cannot be merged: .* counts"):
        one.merged(two)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"level": 0.0}, "level"),
        ({"run_length": 10.0}, "run_length"),
        ({"window": 150}, "window"),
        ({"window": 20_000, "run_length": 1e4}, "must be at most drift.run_length"),
    ],
)
def test_invalid_parameters_are_rejected(option, message):
    with pytest.raises(ValueError, match=message):
        watch(**option)


def test_predictions_of_another_shape_are_rejected_without_a_change_of_state():
    drift, batch = watch(), predictions(np.random.default_rng(0), 10)
    before = drift.to_npz()
    sex = batch.attributes["sex"]
    short = Signals(
        hard_flips=sex.hard_flips[:9],
        expected_change=sex.expected_change,
        posterior=sex.posterior,
    )
    for attributes in ({}, {"age": sex}, {"sex": short}, {"sex": sex, "age": sex}):
        with pytest.raises(ValueError, match=r"expects|do not have the shapes"):
            drift.update(Predictions(margin=batch.margin, attributes=attributes))
    with np.load(io.BytesIO(before)) as a, np.load(io.BytesIO(drift.to_npz())) as b:
        assert all((a[name] == b[name]).all() for name in a.files)


def test_an_unknown_attribute_is_an_error():
    with pytest.raises(ValueError, match="age"):
        watch().share("age")
    with pytest.raises(ValueError, match="age"):
        watch().share_bound("age")
