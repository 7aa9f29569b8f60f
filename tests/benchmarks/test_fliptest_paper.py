"""Data, models and figures of the reproduction of FlipTest agree with the paper."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from sklearn.svm import SVC

from benchmarks.papers.fliptest_arrests import ARRESTS, arrests, flips_of, high_risk, one_to_one
from benchmarks.papers.fliptest_carried import Transported
from benchmarks.papers.fliptest_control import irregular_model
from benchmarks.papers.fliptest_stability import stability
from benchmarks.papers.lipton import HiringModel, applicants, fair_model
from offline_audit.maps.exact import ExactMethod
from offline_audit.maps.transport_map import SQUARED_L2, Cost, Features


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A map that shifts all rows equally, and its method; records the rows it was fitted to."""

    by: float = 0.0
    name: str = "shift"
    cost: Cost = SQUARED_L2
    quick: bool = True
    splits: bool = False
    fitted_rows: list[tuple[Features, Features]] = field(default_factory=list)

    def fit(self, source, target, columns, *, seed=0, progress=None):
        self.fitted_rows.append((source, target))
        return self

    def transport(self, features, n_counterparts=1):
        return (features + np.float32(self.by))[None]


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(1)
    return tuple(applicants(40_000, men=men, rng=rng) for men in (False, True))


def test_applicants_have_the_distribution_of_lipton(people):
    for group, rate, shape, suited in zip(people, (25, 31), (2, 7), (0.15, 0.54), strict=True):
        work, hair = group.features.T.astype(np.float64)
        # Four standard errors.
        assert work.mean() == pytest.approx(rate - 20, abs=4 * np.sqrt(rate / 40_000))
        assert work.var() == pytest.approx(rate + 0.04, rel=0.04)
        assert hair.mean() == pytest.approx(35 * 2 / (2 + shape), abs=4 * hair.std() / 200)
        assert np.corrcoef(work, hair)[0, 1] == pytest.approx(0, abs=4 / 200)
        assert group.suited.mean() == pytest.approx(suited, abs=0.015)


def test_the_fair_model_has_equal_mean_scores_and_the_lowest_loss(people):
    women, men = people
    model = fair_model(women, men)
    scores = [model.scaled(group.features) @ model.weights for group in people]
    assert scores[0].mean() == pytest.approx(scores[1].mean(), abs=1e-6)
    signs = np.where(np.concatenate([women.suited, men.suited]), 1, -1)

    def loss(stretch, threshold):
        return np.logaddexp(0, -signs * (stretch * np.concatenate(scores) - threshold)).mean()

    least = loss(1.0, model.threshold)
    for stretch, shift in ((1.05, 0), (0.95, 0), (1, 0.05), (1, -0.05)):
        assert loss(stretch, model.threshold + shift) > least


def test_the_papers_weights_belong_to_the_other_feature(people):
    """Hiring rates are the paper's 30% and 27% with work 1.40 and hair 1.17, not the reverse."""
    both = np.concatenate([group.features for group in people])

    def rates(work, hair):
        model = HiringModel(
            mean=both.mean(0), scale=both.std(0), weights=np.array([work, hair]), threshold=0.8684
        )
        return [float(model.hires(group.features).mean()) for group in people]

    assert rates(1.4028, 1.1688) == pytest.approx([0.30, 0.27], abs=0.01)
    swapped = rates(1.1688, 1.4028)
    assert swapped[0] - swapped[1] > 0.1
    model = fair_model(*people)
    assert model.weights == pytest.approx([1.4028, 1.1688], abs=0.15)


def test_figures_of_transported_people(people):
    women, men = people[0].features[:500], people[1].features[:500]
    model = HiringModel(
        mean=np.zeros(2), scale=np.array([2.0, 5.0]), weights=np.ones(2), threshold=5
    )
    transported = Transported.by_map(Shift(by=1.0), (women, men), (women, men), model)
    # One year and one unit of hair more: none is advantaged.
    assert transported.size("advantaged") == 0
    before = model.hires(women)
    assert transported.size("disadvantaged") == 20 * (model.hires(women + 1) & ~before).sum() > 0
    assert transported.means("disadvantaged") == pytest.approx([-0.5, -0.2], abs=1e-5)
    assert np.isnan(transported.means("advantaged")).all()
    assert transported.distances == pytest.approx((0.7, 0.49), abs=1e-5)
    same = Transported.by_map(Shift(), (women, women), (women, women), model)
    assert same.ks == [0, 0]
    # Halves of 500 differ by chance.
    assert same.regression == pytest.approx([0, 0], abs=1.5)


def geometric(chance, n=4_096):
    """Quantiles of a geometric distribution, `[n, 1]`."""
    cumulative = 1 - (1 - chance) ** np.arange(1, 60)
    return np.searchsorted(cumulative, (np.arange(n) + 0.5) / n).astype(np.float32)[:, None]


def test_a_plan_that_splits_counts_flips_2813_and_one_that_does_not_2563():
    """Half of 3/16, all of 1/16, half of 1/4; or half of 3/16 + 9/64 + 27/256 + 81/1024."""
    source, target = geometric(1 / 4), geometric(1 / 2)
    fitted = ExactMethod(rows=4_096).fit(source, target, ARRESTS)
    split = flips_of(source, fitted.transport(source, 128), np.random.default_rng(0), shared=True)
    # Coins of 4,096 people, a quarter of them: four standard errors are 160 of 10,000.
    assert split.high == pytest.approx(2_812.5, abs=160)
    assert split.low == 0
    assert split.all_more
    to_one = one_to_one(fitted, source)
    assert [to_one[0, source[:, 0] == k, 0].tolist()[0] for k in range(5)] == [0, 0, 1, 1, 1]
    result = flips_of(source, to_one, np.random.default_rng(0), shared=True)
    assert result.high == pytest.approx(2_563, abs=160)
    assert result.more == pytest.approx(1.51, abs=0.05)


def test_sharing_the_coin_matters_only_for_one_arrest():
    people = np.repeat(np.array([0, 1, 2], np.float32), 20_000)[:, None]
    shared, own = (
        flips_of(people, people[None], np.random.default_rng(2), shared=s) for s in (True, False)
    )
    assert (shared.high, shared.low) == (0, 0)
    # A quarter of a third, within four standard errors.
    assert (own.high, own.low) == pytest.approx(
        (833, 833), abs=4 * 10_000 * np.sqrt(0.076 / 60_000)
    )
    coins = np.array([True, False, True, False, True, False])
    assert high_risk(np.array([0, 0, 1, 1, 2, 5], np.float32), coins).tolist() == [
        False,
        False,
        True,
        False,
        True,
        True,
    ]


def test_arrests_are_geometric_from_zero():
    counts = arrests(40_000, 1 / 4, np.random.default_rng(3))
    assert counts.min() == 0
    assert (counts == 0).mean() == pytest.approx(0.25, abs=4 * np.sqrt(0.1875 / 40_000))
    assert counts.mean() == pytest.approx(3, abs=4 * np.sqrt(12 / 40_000))


def test_stability_transports_0_and_1_which_are_in_every_sample():
    method = Shift(by=2.0)
    result = stability(method, 3, 4, n=50)
    assert result.variances == pytest.approx([0, 0, 0])
    assert result.means == pytest.approx([3, 3, 3])
    assert len(method.fitted_rows) == 4
    for source, target in method.fitted_rows:
        assert source.shape == target.shape == (50, 3)
        assert source[:2].tolist() == [[0] * 3, [1] * 3]
    assert not np.array_equal(method.fitted_rows[0][1], method.fitted_rows[1][1])


def test_the_irregular_model_decides_as_its_support_vector_machine():
    rng = np.random.default_rng(5)
    features = rng.normal(size=(300, 6)).astype(np.float32)
    labels = rng.random(300) < 0.5
    model = irregular_model(features, labels, 2.0)
    machine = SVC(gamma=2.0).fit(features[:, :3], labels)
    others = rng.normal(size=(2_500, 6)).astype(np.float32)
    assert np.array_equal(model.decisions(others), machine.predict(others[:, :3]))
