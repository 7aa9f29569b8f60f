"""Effects since an alarm: the flip share is tested from then on, by a test of the stated level."""

from __future__ import annotations

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from monitor import Drift
from monitor.drift.alarms import PATIENCE
from monitor.drift.effect import Effects, change_sums
from monitor.drift.reference import DetectorId, DriftReference
from monitor.drift.share import ShareSums
from monitor.drift.wording import description
from monitor.metrics.drift_gauges import DriftGauges
from monitor.scoring.scores import Predictions, Signals
from tests.monitor.drift.streams import DIGEST, part, predictions, reference, watch

CHANGE = DetectorId("change", "sex")


def changed_model(rng, n: int) -> Predictions:
    """Larger expected changes, most of all for the second group; flips as in the baseline."""
    batch = predictions(rng, n)
    signals = batch.attributes["sex"]
    factor = 1.5 + 3 * signals.posterior[:, 1]
    louder = Signals(
        hard_flips=signals.hard_flips,
        expected_change=signals.expected_change * factor,
        posterior=signals.posterior,
    )
    return Predictions(margin=batch.margin, attributes={"sex": louder})


def after(batch: Predictions, *, sizes: int = 500) -> Drift:
    drift = watch()
    for start in range(0, len(batch.margin), sizes):
        drift.update(part(batch, slice(start, start + sizes)))
    return drift


def change_alarm(drift: Drift):
    (alarm,) = (alarm for alarm in drift.alarms if alarm.watcher == CHANGE)
    return alarm


def test_a_changed_classifier_with_the_same_flips_has_the_cause_model_and_does_not_page():
    alarm = change_alarm(after(changed_model(np.random.default_rng(1), 3_000)))
    assert (alarm.cause, alarm.pages, alarm.effect.rose) == ("model", False, False)
    text = description(alarm, ("men", "women"))
    assert "the classifier has probably changed" in text
    assert "did not rise measurably: baseline" in text
    # The second group's expected change rose more, so it is named first.
    first, second = text.index("women"), text.index(", men")
    assert first < second
    men, women = alarm.effect.change_ratios
    assert 1.5 < men < women < 4.5


def test_flips_that_rise_with_the_change_have_the_cause_treatment_and_page():
    alarm = change_alarm(after(predictions(np.random.default_rng(2), 2_000, treatment=3.0)))
    assert (alarm.cause, alarm.pages, alarm.effect.rose) == ("treatment", True, True)
    assert alarm.effect.band.low > alarm.effect.baseline
    text = description(alarm, ())
    assert "the classifier treats groups differently than before" in text
    assert "would flip rose: baseline" in text
    assert "group 1" in text


def test_the_effect_counts_predictions_after_the_alarm_only_for_any_batch_size():
    batch = changed_model(np.random.default_rng(3), 700)
    alarms = [change_alarm(after(batch, sizes=size)) for size in (1, 17, 700)]
    assert alarms[0].at == alarms[1].at == alarms[2].at
    flips = batch.attributes["sex"].hard_flips[alarms[0].at :]
    for alarm in alarms:
        assert alarm.effect.n == len(flips)
        assert alarm.effect.share == pytest.approx(flips.mean())
        assert alarm.effect.change_ratios == pytest.approx(alarms[0].effect.change_ratios)


def test_few_predictions_have_no_figures():
    """A mean of fewer than ten predictions could describe one person."""
    batch = changed_model(np.random.default_rng(4), 700)
    at = change_alarm(after(batch)).at
    few = change_alarm(after(part(batch, slice(0, at + 9))))
    assert (few.effect.n, few.effect.share, few.effect.band) == (9, None, (0.0, 1.0))
    assert few.effect.change_ratios == (None, None)
    assert "too few predictions" in description(few, ())


def test_acknowledging_resets_the_effect():
    drift = after(changed_model(np.random.default_rng(5), 1_500))
    drift.acknowledge(CHANGE)
    assert not drift._effects.totals.any()
    assert not drift._effects.changes.any()
    assert not drift._effects.rose.any()


def test_the_effect_is_saved_and_restored():
    drift = after(predictions(np.random.default_rng(6), 1_500, treatment=3.0))
    again = Drift.from_npz(drift.to_npz(), drift.reference, bundle_digest=DIGEST)
    assert again.note == ""
    assert again.alarms == drift.alarms
    assert change_alarm(again).effect.rose


def test_merging_keeps_the_effect_of_the_alarm_that_is_kept():
    ref, rng = reference(), np.random.default_rng(7)
    model, treatment = watch(ref, seed=1), watch(ref, seed=2)
    model.update(changed_model(rng, 1_500))
    treatment.update(predictions(rng, 1_500, treatment=3.0))
    expected = change_alarm(treatment).effect
    for both in (model.merged(treatment), treatment.merged(model)):
        assert change_alarm(both).cause == "treatment"
        assert change_alarm(both).effect == expected


def test_an_unclear_change_is_attributed_after_a_merge():
    ref, rng = reference(), np.random.default_rng(8)
    calm, early = watch(ref, seed=1), watch(ref, seed=2)
    calm.update(predictions(rng, 3_000))
    early.update(predictions(rng, 100, treatment=3.0))
    both = calm.merged(early)
    assert change_alarm(both).cause == "unclear"
    both.update(predictions(rng, PATIENCE, treatment=3.0))
    assert change_alarm(both).cause == "treatment"


def test_unusable_scores_are_ignored():
    change = np.array([1.0, np.nan, np.inf, 2.0, 4.0])
    posterior = np.array([[1.0, 0.0], [0.5, 0.5], [0.5, 0.5], [np.nan, 0.5], [0.25, 0.75]])
    assert change_sums(change, posterior).tolist() == [[1.25, 2.0], [0.75, 3.0]]


def test_a_reference_without_expected_changes_can_be_read_and_gives_no_ratios():
    old = DriftReference.from_rows(
        *((b := predictions(np.random.default_rng(0), 4_000)).margin, b.attributes), seed=0
    )
    plain = DriftReference(layout=old.layout, edges=old.edges, counts=old.counts, shares=old.shares)
    read = DriftReference.from_npz(plain.to_npz())
    drift = watch(read)
    drift.update(changed_model(np.random.default_rng(9), 1_500))
    assert change_alarm(drift).effect.change_ratios == (None, None)
    assert "by likely group" not in description(change_alarm(drift), ())
    assert DriftReference.from_npz(old.to_npz()).changes["sex"].tolist() == (
        old.changes["sex"].tolist()
    )


@pytest.mark.parametrize(("treatment", "page"), [(0.0, 0.0), (3.0, 1.0)])
def test_metrics_show_the_share_since_the_alarm_and_the_page(treatment, page):
    rng = np.random.default_rng(10)
    batch = predictions(rng, 1_500, treatment=treatment) if treatment else changed_model(rng, 1_500)
    drift, registry = after(batch), CollectorRegistry()
    registry.register(DriftGauges(drift, ["sex"], lambda: None))
    labels = {"attribute": "sex", "window": "alarm"}
    share = registry.get_sample_value("evenhand_flip_share_ratio", labels)
    assert share == change_alarm(drift).effect.share
    assert registry.get_sample_value("evenhand_drift_page", {"attribute": "sex"}) == page


def test_effects_test_every_attribute_against_its_own_baseline():
    rng = np.random.default_rng(11)
    shares = [ShareSums.of((rng.random(5_000) < p).astype(float)) for p in (0.02, 0.2)]
    effects = Effects(shares, (2, 2), [None, None], alpha=0.01)
    flips, change, posterior = [1.0, 0, 0, 0, 0] * 100, np.ones(500), np.full((500, 2), 0.5)
    assert effects.update(0, flips, change, posterior) is not None
    assert effects.update(1, flips, change, posterior) is None
    assert effects.rose.tolist() == [True, False]
