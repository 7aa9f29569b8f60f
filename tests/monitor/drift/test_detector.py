"""Change detectors equal their formulas for any batch sizes, and keep their false alarm rate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from monitor.drift.detector import Detectors
from monitor.drift.reference import DriftReference
from tests.monitor.drift.streams import predictions, reference
from tests.oracle import drift as oracle


def feed(detectors, columns, uniforms, sizes):
    """Feed chunks of these sizes, repeated; log statistics after each row, `[d, n]`."""
    chunks, start, turn = [], 0, 0
    while start < columns.shape[1]:
        stop = start + sizes[turn % len(sizes)]
        logs = detectors.update(columns[:, start:stop], uniforms[:, start:stop].T, 0.0)
        chunks.append(logs)
        start, turn = stop, turn + 1
    return np.concatenate(chunks, 1)


def expected(ref: DriftReference, columns, uniforms):
    """The same by plain loops: log statistics after each row, and log e-values at the end."""
    layout = ref.layout
    bets: dict[int, tuple[list[list[float]], list[float]]] = {
        detector: ([], []) for detector in range(len(layout.detectors))
    }
    for c, edges in enumerate(ref.edges):
        earlier = [b for b, n in enumerate(ref.counts[c].astype(int)) for _ in range(n)]
        bins = [None if math.isnan(v) else oracle.bin_of(edges.tolist(), v) for v in columns[c]]
        ups = oracle.p_values(earlier, bins, uniforms[c])
        downs = [None if p is None else 1 - p for p in ups]
        for tracks in [ups] if c < layout.one_sided else [ups, downs]:
            for power in oracle.POWERS:
                statistics, products = bets[layout.owners[c]]
                statistics.append(oracle.log_shiryaev_roberts(tracks, power))
                products.append(oracle.log_product(tracks, power))
    steps = range(columns.shape[1])
    logs = [[oracle.log_mean([s[t] for s in bets[d][0]]) for t in steps] for d in bets]
    return np.array(logs), np.array([oracle.log_mean(bets[d][1]) for d in bets])


def stream(n, *, groups=2, seed=3, **changes):
    rng = np.random.default_rng(seed)
    ref = reference(400, groups=groups)
    columns = ref.layout.columns(predictions(rng, n, groups=groups, **changes))
    return ref, columns, rng.random(columns.shape)


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("sizes", [[1], [32], [5, 32, 1, 17]])
def test_statistics_equal_those_of_plain_loops(groups, sizes):
    ref, columns, uniforms = stream(150, groups=groups, people=0.5, treatment=0.3)
    detectors = Detectors(ref)
    result = feed(detectors, columns, uniforms, sizes)
    logs, e_values = expected(ref, columns, uniforms)
    assert np.allclose(result, logs, rtol=1e-9, atol=1e-9)
    assert np.allclose(detectors.evidence()[0], logs[:, -1])
    assert np.allclose(detectors.evidence()[1], e_values)


def test_statistics_of_infinities_ties_and_nans_equal_those_of_plain_loops():
    ref, columns, uniforms = stream(160)
    columns[0, ::3], columns[1, ::4], columns[1, 1::4] = 0.0, -np.inf, np.inf
    columns[0, 5:50:7], columns[2, :40], columns[:, 100:140] = np.nan, np.nan, np.nan
    detectors = Detectors(ref)
    result = feed(detectors, columns, uniforms, [32, 9])
    logs, e_values = expected(ref, columns, uniforms)
    started = np.isfinite(logs)
    assert np.allclose(result[started], logs[started], rtol=1e-9, atol=1e-9)
    assert np.allclose(detectors.evidence()[1], e_values)
    assert detectors.counts[:, 0].tolist() == np.isnan(columns).sum(1).tolist()
    assert detectors.counts[:, 1:].sum() == 3 * 200 + np.isfinite(columns).sum() + 80 - 20


def test_evidence_that_overflows_a_float_equals_that_of_plain_loops():
    ref, columns, uniforms = stream(1_500)
    columns[0] = 1e9 + np.arange(1_500)
    ref.counts[0] *= 1e5
    detectors = Detectors(ref)
    feed(detectors, columns, uniforms, [32])
    above = (ref.counts[0, len(ref.edges[0])] + np.arange(1_500)) * uniforms[0] + uniforms[0]
    p_values = (above / (ref.counts[0].sum() + np.arange(1, 1_501))).tolist()
    logs = [oracle.log_shiryaev_roberts(p_values, power)[-1] for power in oracle.POWERS]
    assert oracle.log_mean(logs) > 800
    assert detectors.evidence()[0][0] == pytest.approx(oracle.log_mean(logs), rel=1e-9)
    assert np.abs(detectors.evidence()[0][1:]).max() < 50


def test_small_chunks_do_not_reduce_the_precision_of_large_evidence():
    ref, columns, uniforms = stream(1_000, treatment=20.0, people=3.0)
    whole, single = Detectors(ref), Detectors(ref)
    feed(whole, columns, uniforms, [32])
    feed(single, columns, uniforms, [1])
    assert np.allclose(whole.log_sr, single.log_sr, rtol=1e-9)
    assert (whole.counts == single.counts).all()


def test_restarting_a_detector_does_not_affect_the_others():
    ref, columns, uniforms = stream(200, treatment=1.0)
    detectors = Detectors(ref)
    feed(detectors, columns, uniforms, [32])
    before = detectors.evidence()
    detectors.restart(0)
    log_sr, log_e = detectors.evidence()
    assert (log_sr[0], log_e[0]) == (-700, 0)
    assert (log_sr[1:] == before[0][1:]).all()
    assert detectors.counts[0].sum() == 0
    assert detectors.counts[1:].sum() == 2 * 400
    # The p-value of the first score, with none before it, is its uniform.
    logs = feed(detectors, columns[:, :1], np.full((3, 1), 0.25), [1])
    single = [oracle.log_shiryaev_roberts([0.25], power)[0] for power in oracle.POWERS]
    assert logs[0, 0] == pytest.approx(oracle.log_mean(single))


def alarmed_runs(*, runs, steps, at, online):
    """Number of null runs in which each detector reaches a value; a new small reference per run."""
    reached = np.zeros(3, int)
    rng = np.random.default_rng(11)
    for _ in range(runs):
        batch = predictions(rng, 60)
        ref = DriftReference.from_rows(
            batch.margin, batch.attributes, seed=int(rng.integers(1 << 30))
        )
        detectors, top = Detectors(ref), np.full(3, -np.inf)
        for _ in range(steps // 32):
            columns = ref.layout.columns(predictions(rng, 32))
            logs = detectors.update(columns, rng.random(columns.T.shape), 0.0)
            top = top if logs is None else np.maximum(top, logs.max(1))
            if not online:
                detectors.counts[:] = ref.counts
        reached += top >= math.log(at)
    return reached


def test_the_false_alarm_rate_is_below_its_bound_and_not_zero():
    runs, steps, at = 150, 3_200, 16_000
    reached = alarmed_runs(runs=runs, steps=steps, at=at, online=True)
    # P(alarm by T) ≤ T/c = 20%; below a twentieth of it, the test would be vacuous.
    assert (reached <= stats.binom.ppf(0.999, runs, steps / at)).all()
    assert (reached >= runs * steps / at / 20).all()


def test_ranks_in_a_fixed_reference_fail_the_same_check():
    """The known-bad variant: only reference rows are counted."""
    runs, steps, at = 150, 3_200, 16_000
    reached = alarmed_runs(runs=runs, steps=steps, at=at, online=False)
    assert (reached > stats.binom.ppf(0.999, runs, steps / at)).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_change_is_detected_soon_after_a_long_stable_period(seed):
    rng = np.random.default_rng(seed)
    ref = reference(seed=seed)
    detectors, alarms = Detectors(ref), dict[int, int]()
    for step in range(160):
        moved = float(step >= 120)
        columns = ref.layout.columns(predictions(rng, 32, people=moved, treatment=2 * moved))
        logs = detectors.update(columns, rng.random(columns.T.shape), 1e6)
        for index in range(3):
            if logs is not None and logs[index].max() >= math.log(1e6):
                alarms.setdefault(index, step)
    assert len(alarms) == 3
    assert all(120 <= step < 150 for step in alarms.values())
