"""flip_test detects known flips; refits use one thread, and the model its own limit."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from monitor import World, decide, train_fair, train_proxy_biased, train_subgroup_biased
from offline_audit import Columns, flip_test
from offline_audit.fliptest.test import SingleThread

WORLD = World()
COLUMNS = Columns(features=WORLD.features, one_hot_groups=WORLD.one_hot_groups)
FEW: dict[str, Any] = {"n_resamples": 39, "n_bootstrap": 10, "progress": False}


def flips_of(*args: Any, **options: Any) -> Any:
    """flip_test without a progress bar."""
    return flip_test(*args, **{"progress": False, **options})


@pytest.fixture(scope="module")
def train():
    return WORLD.people(12_000, seed=1)


@pytest.fixture(scope="module")
def people():
    return WORLD.people(8_000, seed=2)


@pytest.fixture(scope="module")
def sex(people):
    return {"sex": np.array(["man", "woman"])[people.groups["sex"]]}


@pytest.fixture(scope="module")
def biased(train, people, sex):
    model = partial(decide, train_proxy_biased(train, seed=0))
    return model, flips_of(model, people.features, sex, columns=COLUMNS, **FEW)


def test_shares_are_those_of_the_true_counterfactuals(biased, people):
    model, result = biased
    for source, target in (("woman", "man"), ("man", "woman")):
        members = people.groups["sex"] == (source == "woman")
        twins = people.counterfactual("sex", target)[members]
        truth = (model(twins) != model(people.features[members])).mean()
        direction = result.direction(source, target)
        # Three standard errors; the half-width of the interval is two.
        tolerance = 1.5 * (direction.gross.interval[1] - direction.gross.interval[0]) / 2
        assert direction.gross.value == pytest.approx(truth, abs=tolerance)
        assert direction.p_value == pytest.approx(1 / 40)


def test_members_are_mostly_those_whose_decision_truly_changes(biased, people):
    model, result = biased
    flipset = result.direction("woman", "man").flipset
    women = people.groups["sex"] == 1
    truth = model(people.counterfactual("sex", "man")[women]) != flipset.decisions
    members = flipset.members("disadvantaged") | flipset.members("advantaged")
    assert truth[members].mean() > 0.8
    assert members[truth].mean() > 0.8


def test_both_directions_agree(biased):
    women, men = (biased[1].direction(*groups) for groups in (("woman", "man"), ("man", "woman")))
    assert women.disadvantaged.value > 20 * women.advantaged.value
    assert men.advantaged.value > 20 * men.disadvantaged.value
    assert women.net.value == pytest.approx(-men.net.value, abs=0.03)
    # The difference of rates equals the net share.
    assert women.net.value == pytest.approx(women.rates[0] - women.rates[1], abs=0.03)


def test_a_biased_subgroup_with_equal_rates_is_detected_and_named(train, people, sex):
    model = partial(decide, train_subgroup_biased(train, seed=0))
    result = flips_of(model, people.features, sex, columns=COLUMNS, **FEW)
    for direction in result:
        assert abs(direction.rates[0] - direction.rates[1]) < 0.03
        assert direction.p_value == pytest.approx(1 / 40)
        for side in ("advantaged", "disadvantaged"):
            assert direction.transparency[side].features[0].name == "career_gap_months"
            assert "self_employed = 1" in str(direction.subgroups[side].rule)
            assert direction.subgroups[side].confirmed


def test_a_fair_classifier_is_not_rejected(train, people, sex):
    model = partial(decide, train_fair(train, seed=0))
    result = flips_of(model, people.features, sex, columns=COLUMNS, **FEW)
    for direction in result:
        assert direction.gross.value < 0.01
        assert direction.p_value > 0.05
        assert direction.validation.passed


def test_all_pairs_or_only_pairs_with_the_reference_are_tested(train, people):
    model = partial(decide, train_proxy_biased(train, seed=0))
    groups = {"ethnicity": np.array(["ardan", "belu", "cori", "dovar"])[people.groups["ethnicity"]]}
    run = partial(flips_of, model, people.features, groups, columns=COLUMNS, explain=False)
    all_pairs = run(n_resamples=0, n_bootstrap=0, progress=False)
    assert len(all_pairs.directions) == 12
    with_reference = run(n_resamples=0, n_bootstrap=0, progress=False, reference="ardan")
    assert {direction.name for direction in with_reference} == {
        *("ardan → belu", "belu → ardan", "ardan → cori"),
        *("cori → ardan", "ardan → dovar", "dovar → ardan"),
    }
    # Disadvantage grows from belu to dovar.
    disadvantaged = [
        with_reference.direction(name, "ardan").disadvantaged.value
        for name in ("belu", "cori", "dovar")
    ]
    assert disadvantaged == sorted(disadvantaged)


def test_rows_are_transported_within_their_label(train, people, sex):
    model = partial(decide, train_proxy_biased(train, seed=0))
    result = flips_of(
        model,
        people.features,
        sex,
        labels=people.labels,
        criterion="equalized_odds",
        columns=COLUMNS,
        explain=False,
        n_resamples=0,
        n_bootstrap=0,
        progress=False,
    )
    assert [direction.label for direction in result] == [1, 1, 0, 0]
    for direction in result:
        members = (sex["sex"] == direction.source) & (people.labels == direction.label)
        assert direction.rows[0] == members.sum()
        assert np.array_equal(direction.flipset.features, people.features[members])


def test_the_same_seed_gives_the_same_result(people, sex, biased):
    model, result = biased
    again = flips_of(model, people.features, sex, columns=COLUMNS, **FEW)
    assert again.to_dict() == result.to_dict()


def test_the_result_is_json_of_aggregates(biased):
    text = json.dumps(biased[1].to_dict(), allow_nan=False)
    data = json.loads(text)
    assert data["complete"] is True
    # No list in it is as long as a group.
    lengths = []

    def walk(value):
        if isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            lengths.append(len(value))
            for item in value:
                walk(item)

    walk(data)
    assert max(lengths) < 100


def test_texts_fit_a_terminal_and_have_the_main_results(biased):
    _, result = biased
    for text in (str(result), str(result.direction("woman", "man"))):
        assert max(map(len, text.splitlines())) <= 100
    assert "career_gap_months" in str(result)
    assert "null: 95% bound" in str(result)
    assert "<table" in result._repr_html_()
    assert "career_gap_months" in result.direction("woman", "man")._repr_html_()


def test_progress_ends_at_its_total(people, sex, biased):
    model, _ = biased
    reports: list[tuple[str, int, int]] = []
    flips_of(
        model,
        people.features[:2_000],
        {"sex": sex["sex"][:2_000]},
        columns=COLUMNS,
        n_resamples=5,
        n_bootstrap=3,
        progress=lambda *step: reports.append(step),
    )
    steps = [done for _, done, _ in reports]
    assert steps == sorted(steps)
    assert reports[-1][1] == reports[-1][2]
    assert len({description for description, _, _ in reports}) >= 4


def test_large_groups_are_sampled_with_a_warning(people, sex, biased):
    model, _ = biased
    result = flips_of(
        model,
        people.features,
        sex,
        columns=COLUMNS,
        max_rows=1_000,
        n_resamples=0,
        n_bootstrap=0,
        explain=False,
        progress=False,
    )
    assert all(direction.rows == (1_000, 1_000) for direction in result)
    assert any("sample" in warning for warning in result.warnings)
    assert all("no permutation test was run" in direction.reason for direction in result)


def most_threads() -> int:
    return max(pool["num_threads"] for pool in threadpool_info())


class RecordsThreads:
    """A model that records the thread limit of each call."""

    def __init__(self) -> None:
        self.n_threads: list[int] = []

    def decide(self, features: np.ndarray) -> np.ndarray:
        self.n_threads.append(most_threads())
        return np.zeros(len(features), np.int8)


def test_only_the_model_keeps_its_threads():
    before, model = most_threads(), RecordsThreads()
    with SingleThread() as threads:
        assert most_threads() == 1
        threads.unlimited(model).decide(np.zeros((2, 1), np.float32))
        assert most_threads() == 1
    assert model.n_threads == [before]
    assert most_threads() == before


def test_thread_limits_are_restored_after_an_error():
    before = most_threads()

    with pytest.raises(ZeroDivisionError), SingleThread():
        raise ZeroDivisionError
    assert most_threads() == before
