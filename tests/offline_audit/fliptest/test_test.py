"""flip_test finds known flips, and refits use one thread while the model keeps its own."""

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


def flips_of(*given: Any, **options: Any) -> Any:
    """Without a bar."""
    return flip_test(*given, **{"progress": False, **options})


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
    judge = partial(decide, train_proxy_biased(train, seed=0))
    return judge, flips_of(judge, people.features, sex, columns=COLUMNS, **FEW)


def test_shares_are_those_of_the_true_counterfactuals(biased, people):
    judge, result = biased
    for source, target in (("woman", "man"), ("man", "woman")):
        members = people.groups["sex"] == (source == "woman")
        twins = people.counterfactual("sex", target)[members]
        truth = (judge(twins) != judge(people.features[members])).mean()
        found = result.direction(source, target)
        # Three standard errors of the estimate, whose own interval is two either way.
        reach = 1.5 * (found.gross.interval[1] - found.gross.interval[0]) / 2
        assert found.gross.value == pytest.approx(truth, abs=reach)
        assert found.p_value == pytest.approx(1 / 40)


def test_members_are_mostly_those_whose_decision_truly_changes(biased, people):
    judge, result = biased
    found = result.direction("woman", "man").flipset
    women = people.groups["sex"] == 1
    truth = judge(people.counterfactual("sex", "man")[women]) != found.decisions
    members = found.members("disadvantaged") | found.members("advantaged")
    assert truth[members].mean() > 0.8
    assert members[truth].mean() > 0.8


def test_both_directions_agree(biased):
    women, men = (biased[1].direction(*way) for way in (("woman", "man"), ("man", "woman")))
    assert women.disadvantaged.value > 20 * women.advantaged.value
    assert men.advantaged.value > 20 * men.disadvantaged.value
    assert women.net.value == pytest.approx(-men.net.value, abs=0.03)
    # The groups' rates differ by what flips on balance.
    assert women.net.value == pytest.approx(women.rates[0] - women.rates[1], abs=0.03)


def test_a_biased_subgroup_with_equal_rates_is_detected_and_named(train, people, sex):
    judge = partial(decide, train_subgroup_biased(train, seed=0))
    result = flips_of(judge, people.features, sex, columns=COLUMNS, **FEW)
    for each in result:
        assert abs(each.rates[0] - each.rates[1]) < 0.03
        assert each.p_value == pytest.approx(1 / 40)
        for side in ("advantaged", "disadvantaged"):
            assert each.transparency[side].features[0].name == "career_gap_months"
            assert "self_employed = 1" in str(each.subgroups[side].rule)
            assert each.subgroups[side].confirmed


def test_a_fair_classifier_is_not_rejected(train, people, sex):
    judge = partial(decide, train_fair(train, seed=0))
    result = flips_of(judge, people.features, sex, columns=COLUMNS, **FEW)
    for each in result:
        assert each.gross.value < 0.01
        assert each.p_value > 0.05
        assert each.validation.passed


def test_every_pair_of_groups_or_those_with_a_reference(train, people):
    judge = partial(decide, train_proxy_biased(train, seed=0))
    groups = {"ethnicity": np.array(["ardan", "belu", "cori", "dovar"])[people.groups["ethnicity"]]}
    ask = partial(flips_of, judge, people.features, groups, columns=COLUMNS, explain=False)
    every = ask(n_resamples=0, n_bootstrap=0, progress=False)
    assert len(every.directions) == 12
    some = ask(n_resamples=0, n_bootstrap=0, progress=False, reference="ardan")
    assert {each.name for each in some} == {
        *("ardan → belu", "belu → ardan", "ardan → cori"),
        *("cori → ardan", "ardan → dovar", "dovar → ardan"),
    }
    # Disadvantage grows from belu to dovar.
    lost = [some.direction(name, "ardan").disadvantaged.value for name in ("belu", "cori", "dovar")]
    assert lost == sorted(lost)


def test_rows_are_transported_within_their_label(train, people, sex):
    judge = partial(decide, train_proxy_biased(train, seed=0))
    result = flips_of(
        judge,
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
    assert [each.label for each in result] == [1, 1, 0, 0]
    for each in result:
        members = (sex["sex"] == each.source) & (people.labels == each.label)
        assert each.rows[0] == members.sum()
        assert np.array_equal(each.flipset.features, people.features[members])


def test_the_same_seed_gives_the_same_result(people, sex, biased):
    judge, result = biased
    again = flips_of(judge, people.features, sex, columns=COLUMNS, **FEW)
    assert again.to_dict() == result.to_dict()


def test_the_result_is_json_of_aggregates(biased):
    text = json.dumps(biased[1].to_dict(), allow_nan=False)
    found = json.loads(text)
    assert found["complete"] is True
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

    walk(found)
    assert max(lengths) < 100


def test_texts_fit_a_terminal_and_have_the_main_results(biased):
    _, result = biased
    for text in (str(result), str(result.direction("woman", "man"))):
        assert max(map(len, text.splitlines())) <= 100
    assert "career_gap_months" in str(result)
    assert "null 95%" in str(result)
    assert "<table" in result._repr_html_()
    assert "career_gap_months" in result.direction("woman", "man")._repr_html_()


def test_progress_ends_at_its_total(people, sex, biased):
    judge, _ = biased
    reports: list[tuple[str, int, int]] = []
    flips_of(
        judge,
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
    assert len({what for what, _, _ in reports}) >= 4


def test_large_groups_are_sampled_with_a_warning(people, sex, biased):
    judge, _ = biased
    result = flips_of(
        judge,
        people.features,
        sex,
        columns=COLUMNS,
        max_rows=1_000,
        n_resamples=0,
        n_bootstrap=0,
        explain=False,
        progress=False,
    )
    assert all(each.rows == (1_000, 1_000) for each in result)
    assert any("sample" in warning for warning in result.warnings)
    assert all("no permutation test was run" in each.reason for each in result)


def most_threads() -> int:
    return max(pool["num_threads"] for pool in threadpool_info())


class Counting:
    """Notes how many threads there are when it is asked."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def decide(self, features: np.ndarray) -> np.ndarray:
        self.seen.append(most_threads())
        return np.zeros(len(features), np.int8)


def test_only_the_model_keeps_its_threads():
    before, model = most_threads(), Counting()
    with SingleThread() as threads:
        assert most_threads() == 1
        threads.unlimited(model).decide(np.zeros((2, 1), np.float32))
        assert most_threads() == 1
    assert model.seen == [before]
    assert most_threads() == before


def test_thread_limits_are_restored_after_an_error():
    before = most_threads()

    with pytest.raises(ZeroDivisionError), SingleThread():
        raise ZeroDivisionError
    assert most_threads() == before
