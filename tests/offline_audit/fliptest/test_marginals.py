"""Members of a flipset compared with the rest of their group: differences, tests, suppression."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from monitor import Feature, OneHotGroup
from offline_audit import AuditInputError, Columns
from offline_audit.fliptest.flipset import Flipset
from offline_audit.fliptest.marginals import flipset_marginals

COLUMNS = Columns(
    features=(
        Feature(name="income", kind="numeric"),
        Feature(name="years", kind="integer"),
        Feature(name="part_time", kind="binary"),
        *(Feature(name=f"sector={name}", kind="onehot") for name in ("care", "trades", "office")),
        Feature(name="fixed", kind="numeric"),
        Feature(name="never", kind="binary"),
    ),
    one_hot_groups=(
        OneHotGroup(
            name="sector", features=("sector=care", "sector=trades", "sector=office"), dropped="sea"
        ),
    ),
)


def flipset_of(features, members):
    """A flipset in which the decision changes for all counterparts of members only."""
    return Flipset(
        features=features,
        counterparts=features[None],
        decisions=np.ones(len(features), bool),
        counterpart_decisions=~members[None],
    )


def drawn(n, seed=0, *, share=0.1, shift=0.0, members=None):
    """Rows whose members earn more, are part-time more often and work in care."""
    rng = np.random.default_rng(seed)
    inside = rng.random(n) < share if members is None else np.arange(n) < members
    sector = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    sector = np.where(inside & (rng.random(n) < shift), 0, sector)
    features = np.zeros((n, 8), np.float32)
    features[:, 0] = np.exp(rng.normal(size=n) + shift * inside)
    features[:, 1] = rng.poisson(4, n)
    features[:, 2] = rng.random(n) < 0.3 + 0.4 * shift * inside
    for code in range(3):
        features[:, 3 + code] = sector == code
    features[:, 6] = 2.5
    return flipset_of(features, inside)


def marginals_of(flipset, **options) -> Any:
    """Of any type, so that tests need not ask what marginals leave open."""
    return flipset_marginals(flipset, "advantaged", COLUMNS, **options)


def test_figures_match_direct_computation():
    flipset = drawn(4_000, shift=0.5)
    inside = flipset.members("advantaged")
    found = marginals_of(flipset)
    assert (found.members, found.others) == (inside.sum(), (~inside).sum())
    income = flipset.features[:, 0].astype(float)
    gap = income[inside].mean() - income[~inside].mean()
    assert found.of("income").members == pytest.approx(income[inside].mean())
    assert found.of("income").difference == pytest.approx(gap / income.std())
    p = stats.ks_2samp(income[inside], income[~inside], method="asymp").pvalue
    assert found.of("income").p_value == pytest.approx(p)
    half = flipset.features[:, 2] == 1
    gap = half[inside].mean() - half[~inside].mean()
    assert found.of("part_time").members == pytest.approx(half[inside].mean())
    assert found.of("part_time").difference == pytest.approx(gap / half.std())
    sector = found.of("sector")
    codes = np.where(flipset.features[:, 3:6].any(1), flipset.features[:, 3:6].argmax(1), 3)
    table = np.stack([np.bincount(codes[x], minlength=4) for x in (inside, ~inside)])
    assert [(b.name, b.members, b.others) for b in sector.bins] == [
        (name, *table[:, code]) for code, name in enumerate(("care", "trades", "office", "sea"))
    ]
    shares, pooled = table / table.sum(1, keepdims=True), table.sum(0) / table.sum()
    spread = math.sqrt((pooled * (1 - pooled)).sum())
    assert sector.difference == pytest.approx(np.linalg.norm(shares[0] - shares[1]) / spread)
    assert sector.p_value == pytest.approx(stats.chi2_contingency(table).pvalue)


def test_variables_are_sorted_and_p_values_adjusted():
    found = marginals_of(drawn(4_000, shift=0.1))
    sizes = [abs(each.difference) for each in found.variables]
    assert sizes == sorted(sizes, reverse=True)
    tested = [each for each in found.variables if each.p_value is not None]
    adjusted = stats.false_discovery_control([each.p_value for each in tested])
    assert [each.adjusted_p_value for each in tested] == pytest.approx(list(adjusted))
    assert len(tested) == 4


def test_constant_variables_have_no_test():
    found = marginals_of(drawn(2_000))
    for name in ("fixed", "never"):
        each = found.of(name)
        assert (each.p_value, each.adjusted_p_value) == (None, None)
        assert (each.difference, each.interval) == (0.0, (0.0, 0.0))


def test_intervals_cover_and_tests_reject_at_their_level():
    """Under a shift the intervals cover; without one p-values are below 5% about that often."""
    runs, shift = 400, 0.3
    big = drawn(400_000, seed=10**6, share=0.5, shift=shift)
    inside = big.members("advantaged")
    columns = {"income": 0, "years": 1, "part_time": 2}
    gaps = {
        name: float(
            np.subtract(*(big.features[x, column].mean(dtype=float) for x in (inside, ~inside)))
        )
        for name, column in columns.items()
    }
    hits, rejected = dict.fromkeys(columns, 0), dict.fromkeys([*columns, "sector"], 0)
    for seed in range(runs):
        flipset = drawn(900, seed, shift=shift)
        found = marginals_of(flipset)
        for name, column in columns.items():
            low, high = found.of(name).interval
            spread = float(flipset.features[:, column].std(dtype=float))
            hits[name] += low * spread <= gaps[name] <= high * spread
        equal_groups = marginals_of(drawn(900, seed))
        for name in rejected:
            rejected[name] += equal_groups.of(name).p_value <= 0.05
    least = stats.binom.ppf(1e-4, runs, 0.95)
    # A mean of log-normals from 90 people: about two points below the level.
    assert hits["income"] >= stats.binom.ppf(1e-4, runs, 0.93)
    assert min(hits["years"], hits["part_time"]) >= least
    assert max(hits["years"], hits["part_time"]) <= stats.binom.ppf(1 - 1e-4, runs, 0.97)
    most = stats.binom.ppf(1 - 1e-4, runs, 0.05)
    assert max(rejected.values()) <= most
    # Ties make the test of years timid; that of the others is not.
    assert min(rejected[n] for n in ("income", "part_time", "sector")) >= stats.binom.ppf(
        1e-4, runs, 0.04
    )


def test_intervals_of_skewed_means_miss_less_to_one_side_than_welchs():
    """Hall's correction evens out the sides; with 40 people it covers hardly more often."""
    sides: list[int] = []
    welchs: list[int] = []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        values = np.exp(rng.normal(size=(600, 1))).astype(np.float32)
        inside = np.arange(600) < 40
        found: Any = flipset_marginals(
            flipset_of(values, inside), "advantaged", Columns.numeric(["income"])
        )
        test = stats.ttest_ind(values[inside, 0], values[~inside, 0], equal_var=False)
        for missed, (low, high) in (
            (sides, found.of("income").interval),
            (welchs, test.confidence_interval(0.95)),
        ):
            missed.append((high < 0) - (low > 0) * 1)
    # Paired over the same samples: three standard errors of the difference.
    less = np.array(welchs) - np.array(sides)
    assert np.sum(welchs) > 0
    assert less.sum() > 3 * np.sqrt(600 * less.var())


def test_a_difference_in_spread_is_detected():
    rng = np.random.default_rng(0)
    flipset = drawn(2_000)
    inside = flipset.members("advantaged")
    flipset.features[:, 0] = rng.normal(size=2_000) * np.where(inside, 0.3, 1.0)
    assert marginals_of(flipset).of("income").p_value < 1e-4


def test_small_tables_are_tested_exactly():
    flipset = drawn(120, members=12)
    found = marginals_of(flipset, smallest_cell=1)
    inside = flipset.members("advantaged")
    half = flipset.features[:, 2] == 1
    table = [[int((half[x] == v).sum()) for v in (0, 1)] for x in (inside, ~inside)]
    assert found.of("part_time").test == "Fisher"
    assert found.of("part_time").p_value == pytest.approx(stats.fisher_exact(table).pvalue)
    assert found.of("sector").test == "chi-square, random tables"


def test_random_tables_reject_at_their_level():
    runs = 300
    ps = [
        marginals_of(drawn(150, seed, members=12), seed=seed).of("sector").p_value
        for seed in range(runs)
    ]
    assert np.sum(np.array(ps) <= 0.05) <= stats.binom.ppf(1 - 1e-4, runs, 0.05)
    assert np.sum(np.array(ps) <= 0.5) >= stats.binom.ppf(1e-4, runs, 0.4)
    assert marginals_of(drawn(150, 0, members=12)) == marginals_of(drawn(150, 0, members=12))


@pytest.mark.parametrize(
    ("n", "members", "reason"),
    [
        (500, 0, "there are no members"),
        (500, 9, "there are fewer than 10 members"),
        (500, 495, "there are fewer than 10 others"),
        (500, 500, "there are no others"),
        (0, 0, "there are no members"),
    ],
)
def test_few_members_or_others_are_suppressed(n, members, reason):
    found = marginals_of(drawn(n, members=members))
    assert found.reason == reason
    assert found.variables == ()
    assert (found.members is None) == ("fewer" in reason)
    assert reason in str(found)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(40, 400),
    share=st.floats(0.1, 0.9),
    smallest=st.integers(2, 15),
    shift=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_no_count_is_small_and_totals_stay(n, share, smallest, shift, seed):
    flipset = drawn(n, seed, share=share, shift=shift)
    found = marginals_of(flipset, smallest_cell=smallest)
    for each in found.variables:
        if len(each.bins) > 1:
            for counts in ([b.members for b in each.bins], [b.others for b in each.bins]):
                assert all(count == 0 or count >= smallest for count in counts)
        assert sum(b.members for b in each.bins) == found.members
        assert sum(b.others for b in each.bins) == found.others


def test_a_small_count_of_two_values_is_suppressed():
    flipset = drawn(1_000, members=100)
    flipset.features[:, 2] = np.arange(1_000) < 3
    found = marginals_of(flipset).of("part_time")
    assert (found.members, found.others) == (0.0, 0.0)
    assert [(b.members, b.others) for b in found.bins] == [(100, 900), (0, 0)]
    assert found.coarse
    assert found.p_value < 0.01
    assert "Counts below 10 are suppressed" in str(marginals_of(flipset))
    flipset.features[:, 2] = np.arange(1_000) >= 3
    assert marginals_of(flipset).of("part_time").members == 1.0


def test_rare_categories_are_merged():
    flipset = drawn(1_000, members=100)
    flipset.features[:, 3:6] = 0
    flipset.features[:, 3] = np.arange(1_000) >= 8
    flipset.features[:4, 4] = 1
    found = marginals_of(flipset).of("sector")
    assert [b.name for b in found.bins if b.members or b.others] == ["care"]
    assert found.difference is None
    assert found.p_value < 0.01


def test_ranges_have_rounded_limits():
    flipset = drawn(4_000, shift=0.5)
    found = marginals_of(flipset)
    assert [b.name for b in found.of("years").bins][:3] == ["< 2", "2", "3"]
    for each in found.of("income").bins[1:-1]:
        low, high = (float(end) for end in each.name.split(" to "))
        inside = (flipset.features[:, 0] >= low) & (flipset.features[:, 0] < high)
        assert inside.sum() == each.members + each.others
        assert float(f"{low:.2g}") == low


def test_marginals_print_in_a_terminal_and_a_notebook_and_become_json():
    odd = Columns(
        features=(
            COLUMNS.features[0].model_copy(update={"name": "<b>" + "long " * 20}),
            *COLUMNS.features[1:],
        ),
        one_hot_groups=COLUMNS.one_hot_groups,
    )
    flipset = drawn(4_000, shift=0.5)
    flipset.features[:, 0] *= 1e6
    found = flipset_marginals(flipset, "advantaged", odd)
    printed = str(found)
    assert max(map(len, printed.splitlines())) <= 100
    assert "sector, members (others): care" in printed
    assert "<b>" not in found._repr_html_()
    data = json.loads(json.dumps(found.to_dict()))
    assert data["variables"][0]["name"] == found.variables[0].name
    with pytest.raises(KeyError):
        found.of("nothing")


def test_different_widths_are_rejected():
    with pytest.raises(AuditInputError, match="1 columns are described, but features have 8"):
        flipset_marginals(drawn(100), "advantaged", Columns.numeric(["a"]))
