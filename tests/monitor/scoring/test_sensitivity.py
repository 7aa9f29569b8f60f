"""Every score equals its formula, computed by a slow and obvious implementation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from monitor import Decision, World
from monitor.scoring.counterfactual import fit_transport_maps, row_uniforms, shifted_uniforms
from monitor.scoring.counterfactual.draws import spread_draws
from monitor.scoring.sensitivity import Sensitivity
from tests.bundles import small_spec

WORLD = World(visible=("sex",))
GROUPS = {"sex": 2, "ethnicity": 4}


def network(outputs: int, seed: int) -> nn.Module:
    """A smooth network, so that finite differences exist."""
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(26, 8), nn.Tanh(), nn.Linear(8, outputs))
    return nn.Sequential(Standardise(), layers).double().eval()


class Standardise(nn.Module):
    mean: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        rows = torch.from_numpy(WORLD.people(2_000, seed=1).features)
        self.register_buffer("mean", rows.mean(0))
        self.register_buffer("scale", 1 / rows.std(0))

    def forward(self, features: Tensor) -> Tensor:
        return ((features - self.mean) * self.scale).double()


@pytest.fixture(scope="module")
def sensitivity() -> Sensitivity:
    return make(threshold=0.4)


def make(threshold: float = 0.5, classifier=None) -> Sensitivity:
    people = WORLD.people(8_000, seed=2)
    f, status = network(1, 3), network(6, 4)
    return Sensitivity(
        logit=classifier or (lambda x: 2 * f(x).reshape(-1)),
        status=lambda x: status(x),
        maps={
            name: fit_transport_maps(
                people.features, people.groups[name], WORLD.features, WORLD.one_hot_groups, k
            )
            for name, k in GROUPS.items()
        },
        spec=small_spec(
            features=WORLD.features,
            one_hot_groups=WORLD.one_hot_groups,
            protected_attributes=WORLD.attributes,
            decision=Decision(threshold=threshold),
        ),
        logit_spread=1.5,
    )


@pytest.fixture(scope="module")
def rows() -> Tensor:
    return torch.from_numpy(WORLD.people(60, seed=5).features)


def gradient(function, row: Tensor) -> Tensor:
    row = row.clone().requires_grad_()
    return torch.autograd.grad(function(row[None])[0], row)[0]


def test_prediction_sensitivity_equals_the_definition_of_the_paper(sensitivity, rows):
    """|∂A/∂x| · |∂F/∂x| on probabilities, the largest over the groups, one row at a time."""
    scores = sensitivity.scores(rows)
    for name, heads in {"sex": slice(0, 2), "ethnicity": slice(2, 6)}.items():
        signals = scores.attributes[name]
        for i, row in enumerate(rows[:15]):
            gradient_f = gradient(lambda x: sensitivity.logit(x).sigmoid(), row).abs()
            terms = [
                gradient(
                    lambda x, g=g, h=heads: sensitivity.status(x)[:, h].softmax(1)[:, g], row
                ).abs()
                * gradient_f
                for g in range(GROUPS[name])
            ]
            best = max(terms, key=lambda term: float(term.sum()))
            expected = float(best.sum())
            assert math.isclose(
                float(signals.log_prediction_sensitivity[i].exp()), expected, rel_tol=1e-4
            )
            shares = best / best.sum()
            assert torch.allclose(signals.contributions[i].double(), shares.double(), atol=1e-4)


def test_both_gradients_agree_with_finite_differences(sensitivity, rows):
    row, step = rows[0].double(), 1e-4
    gradient_f = gradient(sensitivity.logit, row)
    gradient_a = gradient(lambda x: sensitivity.status(x)[:, 1] - sensitivity.status(x)[:, 0], row)
    for column in range(26):
        shift = torch.zeros(26, dtype=torch.double)
        shift[column] = step * max(1.0, float(row[column].abs()))
        up, down = (row + shift)[None], (row - shift)[None]
        width = 2 * shift[column]
        slope_f = (sensitivity.logit(up) - sensitivity.logit(down)) / width
        difference = sensitivity.status(up) - sensitivity.status(down)
        slope_a = (difference[:, 1] - difference[:, 0]) / width
        assert torch.allclose(gradient_f[column], slope_f.squeeze(), rtol=1e-3, atol=1e-7)
        assert torch.allclose(gradient_a[column], slope_a.squeeze(), rtol=1e-3, atol=1e-7)


def test_sensitivity_does_not_underflow_if_both_models_saturate(rows):
    steep = make()
    certain = Sensitivity(
        logit=lambda x: 300 + steep.logit(x),
        status=lambda x: steep.status(x) * 100,
        maps=steep.maps,
        spec=steep.spec,
        logit_spread=1.5,
    )
    log_sensitivity = certain.scores(rows).attributes["sex"].log_prediction_sensitivity
    assert log_sensitivity is not None
    assert torch.isfinite(log_sensitivity).all()
    assert (log_sensitivity < -250).all()


def test_a_zero_gradient_has_the_lowest_sensitivity_and_no_contributions(rows):
    flat = make(classifier=lambda x: x[:, 0] * 0)
    signals = flat.scores(rows).attributes["sex"]
    assert signals.log_prediction_sensitivity is not None
    assert signals.contributions is not None
    assert (signals.log_prediction_sensitivity == -math.inf).all()
    assert (signals.contributions == 0).all()
    assert (signals.flip_probability == 0).all()


def draws_by_group(posterior: list[float], draws: int) -> list[int]:
    """One draw from each group, and the others where the cumulative posterior reaches them."""
    counts = [1] * len(posterior)
    for other in range(draws - 1):
        reached, group = posterior[0], 0
        while group < len(posterior) - 1 and reached <= (other + 0.5) / (draws - 1):
            group += 1
            reached += posterior[group]
        counts[group] += 1
    return counts


@torch.no_grad()
@pytest.mark.parametrize("draws", [1, 3, 8])
def test_flip_scores_are_the_posterior_average_over_maps_and_draws(sensitivity, rows, draws):
    maps = {name: replace(maps, draws=draws) for name, maps in sensitivity.maps.items()}
    sensitivity = replace(sensitivity, maps=maps)
    with torch.enable_grad():
        scores = sensitivity.scores(rows)
    offset = math.log(0.4 / 0.6)
    for name, heads in {"sex": slice(0, 2), "ethnicity": slice(2, 6)}.items():
        maps, signals = sensitivity.maps[name], scores.attributes[name]
        posterior = sensitivity.status(rows)[:, heads].softmax(1)
        for i in range(12):
            row = rows[i : i + 1]
            here = float(sensitivity.logit(row)) - offset
            flip = hard = change = 0.0
            for s, number in enumerate(draws_by_group(posterior[i].tolist(), draws)):
                shifts = [draw / number for draw in range(number)]
                for shift in shifts:
                    uniforms = shifted_uniforms(row_uniforms(row, maps.n_uniforms), shift)
                    there = [
                        float(sensitivity.logit(maps.apply(row, s, t, uniforms))) - offset
                        for t in range(GROUPS[name])
                        if t != s
                    ]
                    weight = float(posterior[i, s]) / len(shifts)
                    sign = 1 if here >= 0 else -1
                    moved = [v for v in there if abs(v - here) > 1.5e-4]
                    crossings = [1 / (1 + math.exp(48 / 1.5 * sign * v)) for v in moved]
                    flip += weight * max(crossings, default=0)
                    hard += weight * any((v >= 0) != (here >= 0) for v in there)
                    change += weight * max(abs(v - here) for v in there)
            assert math.isclose(
                float(signals.flip_probability[i]), flip, rel_tol=1e-3, abs_tol=1e-5
            )
            assert math.isclose(float(signals.hard_flips[i]), hard, rel_tol=1e-3, abs_tol=1e-5)
            assert math.isclose(float(signals.expected_change[i]), change, rel_tol=1e-3)


@pytest.mark.parametrize("draws", [1, 2, 3, 16])
def test_draws_are_spread_in_proportion_to_the_posterior(draws):
    """Numbers of draws within one of 1 + (d − 1) · P(s); evenly spaced uniforms in each group."""
    generator = torch.Generator().manual_seed(4)
    posterior = torch.rand(200, 4, generator=generator).pow(4) + 1e-6
    posterior = posterior / posterior.sum(1, keepdim=True)
    features = torch.rand(200, 3, generator=generator)
    spread = spread_draws(features, posterior, 2, draws)
    assert spread.sources.shape == (draws + 3, 200)
    assert torch.allclose(spread.weights.sum(0), torch.ones(200), atol=1e-5)
    for group in range(4):
        own = spread.sources == group
        count = own.sum(0)
        assert ((count - 1 - (draws - 1) * posterior[:, group]).abs() <= 1).all()
        weights = torch.where(own, spread.weights, 0.0)
        assert torch.allclose(weights.sum(0), posterior[:, group], atol=1e-5)
        for row in range(20):
            uniforms = spread.uniforms[own[:, row], row, 0].sort().values
            gaps = torch.cat([uniforms.diff(), uniforms[:1] + 1 - uniforms[-1:]])
            assert torch.allclose(gaps, torch.full_like(gaps, 1 / int(count[row])), atol=1e-5)


def test_rows_with_identity_maps_never_flip_in_any_batch():
    """Logits of a row may differ between batches; here by much more than rounding."""
    scoring = make(classifier=lambda x: 0 * x[:, 0] + 0.02 * (len(x) % 7) - 0.05)
    maps = {
        name: replace(
            signals,
            ordered_moves=torch.zeros_like(signals.ordered_moves),
            category_moves=torch.zeros_like(signals.category_moves),
        )
        for name, signals in scoring.maps.items()
    }
    scoring = replace(scoring, maps=maps)
    rows = torch.from_numpy(WORLD.people(200, seed=7).features)
    for batch in (rows, *rows[:30].split(1)):
        signals = scoring.scores(batch).attributes["ethnicity"]
        assert (signals.flip_probability == 0).all()
        assert (signals.hard_flips == 0).all()
        assert (signals.expected_change == 0).all()


@pytest.mark.parametrize("threshold", [0.05, 0.4, 0.45, 0.65, 0.9, 0.95])
def test_a_score_equal_to_the_threshold_is_class_1(threshold, rows):
    """Binned probabilities are often equal to the threshold, and logarithms are rounded."""
    tied = make(threshold, classifier=lambda x: torch.logit(torch.full((len(x),), threshold)))
    scores = tied.scores(rows)
    assert scores.decision.all()
    assert (scores.attributes["ethnicity"].flip_probability == 0).all()


def test_scores_of_a_row_do_not_depend_on_the_batch_or_its_order(sensitivity, rows):
    whole = sensitivity.scores(rows)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    shuffled = sensitivity.scores(rows[order])
    for name in GROUPS:
        for field in ("log_prediction_sensitivity", "flip_probability", "expected_change"):
            values = getattr(whole.attributes[name], field)
            mixed = getattr(shuffled.attributes[name], field)
            assert torch.allclose(values[order], mixed, rtol=1e-5)
            for i in range(0, 60, 20):
                alone = sensitivity.scores(rows[i : i + 1]).attributes[name]
                assert torch.allclose(getattr(alone, field), values[i : i + 1], rtol=1e-5)


def test_margin_and_distance_are_exact_for_linear_models():
    weights = torch.linspace(-1, 1, 26)
    linear = make(threshold=0.7, classifier=lambda x: x @ weights)
    rows = torch.randn(20, 26, generator=torch.Generator().manual_seed(2))
    scores = linear.scores(rows)
    assert scores.boundary_distance is not None
    shifted = rows @ weights - math.log(0.7 / 0.3)
    assert torch.allclose(scores.margin, shifted.abs(), atol=1e-4)
    assert torch.equal(scores.decision, shifted >= 0)
    assert torch.allclose(scores.boundary_distance, shifted.abs() / weights.norm(), atol=1e-4)


def test_without_gradients_other_scores_are_computed_and_the_reason_is_named(rows):
    stepped = make(classifier=lambda x: (x[:, 0] > 3000).float() - 0.5)
    scores = stepped.scores(rows)
    assert "differentiable" in scores.missing
    assert scores.boundary_distance is None
    for name in GROUPS:
        assert scores.attributes[name].log_prediction_sensitivity is None
        assert torch.isfinite(scores.attributes[name].flip_probability).all()


def test_a_status_model_without_gradients_is_named_in_the_reason(rows):
    made = make()
    constant = Sensitivity(
        logit=made.logit,
        status=lambda x: torch.zeros(len(x), 6),
        maps=made.maps,
        spec=made.spec,
        logit_spread=made.logit_spread,
    )
    scores = constant.scores(rows)
    assert "status model" in scores.missing
    assert scores.boundary_distance is not None
    assert scores.attributes["sex"].log_prediction_sensitivity is None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_computed_in_every_grad_mode_of_the_caller(sensitivity, rows, mode):
    expected = sensitivity.joint(rows)[0]
    with mode():
        assert replace(sensitivity).missing == ""
        assert torch.equal(sensitivity.joint(rows.clone())[0], expected)
    assert not expected.requires_grad


def test_many_rows_are_scored_in_parts(sensitivity, monkeypatch):
    """The number of counterfactuals in memory is limited, for any number of groups."""
    rows = torch.from_numpy(WORLD.people(300, seed=9).features)
    whole = sensitivity.scores(rows)
    monkeypatch.setattr("monitor.scoring.sensitivity._MAX_COUNTERFACTUALS", 600)
    assert sensitivity.max_rows == 600 // 18
    sizes = []

    def joint(batch):
        sizes.append(len(batch))
        return sensitivity.joint(batch)

    parts = sensitivity.unpacked(*sensitivity.in_parts(joint, rows))
    assert max(sizes) == 600 // 18
    assert torch.allclose(parts.logit, whole.logit)
    for name in GROUPS:
        ours, theirs = parts.attributes[name], whole.attributes[name]
        assert torch.allclose(ours.flip_probability, theirs.flip_probability, atol=1e-6)
        assert ours.contributions.shape == theirs.contributions.shape


def test_a_model_that_writes_to_its_input_can_be_scored(rows):
    weights = torch.linspace(-1, 1, 26)
    writing = make(classifier=lambda x: x.clamp_(min=0) @ weights)
    plain = make(classifier=lambda x: x.clamp(min=0) @ weights)
    assert writing.missing == ""
    assert torch.equal(writing.joint(rows)[0], plain.joint(rows)[0])


def test_a_row_that_is_not_finite_has_nan_scores(sensitivity, rows):
    with_invalid = rows.clone()
    with_invalid[3, 0], with_invalid[5, 1] = float("nan"), float("inf")
    scores = sensitivity.scores(with_invalid)
    for name in GROUPS:
        signals = scores.attributes[name]
        for values in (signals.flip_probability, signals.contributions, signals.posterior):
            assert values[[3, 5]].isnan().all()
            assert not values[[0, 1, 2, 4]].isnan().any()


def test_the_input_tensor_is_not_modified(sensitivity, rows):
    features = rows.clone()
    sensitivity.scores(features)
    assert not features.requires_grad
    assert torch.equal(features, rows)


def test_feature_shares_name_the_features_that_depend_on_the_group():
    names = [feature.name for feature in WORLD.features]
    gap, income = names.index("career_gap_months"), names.index("income")
    through_gaps = make(classifier=lambda x: x[:, income] / 1000 - x[:, gap])
    rows = torch.from_numpy(WORLD.people(500, seed=6).features)
    shares = through_gaps.feature_shares(rows, "sex")
    assert max(shares, key=lambda name: shares[name]) == "career_gap_months"
    assert shares["career_gap_months"] > 0.99
    assert math.isclose(sum(shares.values()), 1, rel_tol=1e-6)
