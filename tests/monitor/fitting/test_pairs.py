"""Shares of pairs of groups: directions, misses of the maps, and their words."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from monitor.fitting.pair_text import pair_lines, who_loses
from monitor.fitting.pairs import PairShare, ShareInterval, group_means, pair_shares, row_changes
from tests.monitor.fitting import shifted_group
from tests.monitor.fitting.shifted_group import TRUE_SHARE, draw, interval


def made(source="woman", target="man", *, gained=0.2, lost=0.05, target_rate=0.45, margin=0.005,
         rows=20_000, target_rows=20_000):  # fmt: skip
    """A pair whose source has a rate of 30%."""
    shares = {"changed": gained + lost, "gained": gained, "lost": lost}
    return PairShare(
        source=source,
        target=target,
        rows=rows,
        target_rows=target_rows,
        of_unfavourable=part(gained / 0.7),
        of_favourable=part(lost / 0.3),
        rate=0.3,
        target_rate=target_rate,
        net_margin=0.02,
        miss_margin=margin,
        **{k: ShareInterval(share=v, low=v - 0.01, high=v + 0.01) for k, v in shares.items()},
    )


def part(share):
    return ShareInterval(share=share, low=share - 0.02, high=share + 0.02)


def words(*pairs):
    return " ".join(pair_lines(pairs, "granted", "refused"))


def test_means_of_pairs_equal_those_of_a_loop_over_rows():
    rng = np.random.default_rng(0)
    own = rng.integers(3, size=200)
    favoured = rng.random((200, 3)).round()
    means = group_means(row_changes(favoured, own), own, 3)
    halves = np.stack([means + 0.01 * rng.normal(size=means.shape) for _ in range(9)])
    pairs = pair_shares("abc", np.bincount(own), means, halves)
    assert [(p.source, p.target) for p in pairs] == [(s, t) for s in "abc" for t in "abc" if s != t]
    for pair in pairs:
        source, target = "abc".index(pair.source), "abc".index(pair.target)
        members = [favoured[i] for i in range(200) if own[i] == source]
        gained = sum(row[source] == 0 and row[target] == 1 for row in members) / len(members)
        lost = sum(row[source] == 1 and row[target] == 0 for row in members) / len(members)
        assert (pair.gained.share, pair.lost.share) == pytest.approx((gained, lost))
        assert pair.changed.share == pytest.approx(gained + lost)
        after = sum(row[target] for row in members) / len(members)
        assert pair.transported_rate == pytest.approx(after)
        rate = favoured[own == target, target].mean()
        assert pair.miss == pytest.approx(rate - after)
        assert pair.gained.low <= gained <= pair.gained.high
        refused = [row for row in members if row[source] == 0]
        granted = [row for row in members if row[source] == 1]
        assert pair.of_unfavourable is not None
        assert pair.of_favourable is not None
        assert pair.of_unfavourable.share == pytest.approx(np.mean([r[target] for r in refused]))
        assert pair.of_favourable.share == pytest.approx(1 - np.mean([r[target] for r in granted]))


def test_directions_and_shares_of_a_shifted_group():
    """Women have a higher logit, so that they gain and men lose."""
    result = interval(*draw(4_000, seed=1), n_refits=8)
    man, woman = result.pairs
    assert (man.source, man.target, man.balance) == ("man", "woman", "loses")
    assert (woman.source, woman.target, woman.balance) == ("woman", "man", "gains")
    assert man.gained.low <= TRUE_SHARE <= man.gained.high
    assert woman.lost.low <= TRUE_SHARE <= woman.lost.high
    assert man.lost.high < 0.02
    assert woman.gained.high < 0.02
    assert man.rows + woman.rows == result.rows
    weights = np.array([man.rows, woman.rows]) / result.rows
    assert result.share == pytest.approx(weights @ [man.changed.share, woman.changed.share])


def test_directions_follow_the_favourable_decision(monkeypatch):
    data = draw(1_000, seed=2)
    man, _ = interval(*data, n_refits=5).pairs
    decision = shifted_group.SPEC.decision.model_copy(update={"favourable": 0})
    spec = shifted_group.SPEC.model_copy(update={"decision": decision})
    monkeypatch.setattr(shifted_group, "SPEC", spec)
    other, _ = interval(*data, n_refits=5).pairs
    assert (other.gained.share, other.lost.share) == (man.lost.share, man.gained.share)
    assert (man.balance, other.balance) == ("loses", "gains")
    assert other.rate == pytest.approx(1 - man.rate)


@pytest.mark.parametrize(
    ("gained", "lost", "target_rate", "balance"),
    [
        (0.2, 0.05, 0.45, "loses"),
        (0.05, 0.2, 0.15, "gains"),
        (0.2, 0.19, 0.31, "unclear"),
        # The groups' rates contradict what the maps say.
        (0.22, 0.19, 0.29, "unclear"),
    ],
)
def test_the_balance_is_clear_if_its_interval_excludes_zero(gained, lost, target_rate, balance):
    assert made(gained=gained, lost=lost, target_rate=target_rate).balance == balance


@pytest.mark.parametrize(
    ("pair", "misses", "established"),
    [
        (made(target_rate=0.45), False, True),
        # Significant, but small next to a share of 25%.
        (made(target_rate=0.46), True, True),
        (made(target_rate=0.49), True, True),
        (made(target_rate=0.51), True, False),
        # Small in absolute terms.
        (made(gained=0.004, lost=0.0, target_rate=0.312), True, True),
        (made(gained=0.004, lost=0.0, target_rate=0.316), True, False),
        (made(target_rate=0.55, margin=0.12), False, True),
        (made(target_rate=0.9, rows=49), False, False),
    ],
)
def test_a_miss_counts_if_it_is_significant_and_large(pair, misses, established):
    assert pair.misses is misses
    assert pair.established is established


def test_the_sentence_of_two_groups_names_decisions_directions_and_who_loses():
    text = words(
        made("woman", "man"), made("man", "woman", gained=0.01, lost=0.012, target_rate=0.298)
    )
    assert (
        "As man, 25.0% of decisions about woman (95% interval 24.0% to 26.0%) would change: 20.0% "
        "from 'refused' to 'granted', 5.0% from 'granted' to 'refused'. On balance woman loses: "
        "30.0% get 'granted', and 45.0% would as man."
    ) in text
    assert "Neither direction clearly prevails." in text


def test_a_large_miss_is_described_and_no_one_is_said_to_lose():
    text = words(made(target_rate=0.6), made("man", "woman", target_rate=0.45))
    assert "from woman to man, rows get 'granted' in 45.0% of cases, rows of man in 60.0%" in text
    assert "the maps do not explain the difference, and this share is not established" in text
    assert "On balance woman" not in text
    assert "the maps miss a small part of the difference" in words(made(target_rate=0.46))


def test_several_groups_have_a_table_of_the_largest_pairs_and_a_count_of_the_others():
    groups = "abcde"
    pairs = [
        made(s, t, gained=0.01 * (i + 1), lost=0.0, target_rate=0.3 + 0.01 * (i + 1))
        for i, (s, t) in enumerate((s, t) for s in groups for t in groups if s != t)
    ]
    few = [dataclasses.replace(p, rows=12) for p in pairs if p.source == "e"]
    few += [dataclasses.replace(p, target_rows=12) for p in pairs if p.target == "e"]
    enough = [p for p in pairs if "e" not in (p.source, p.target)]
    lines = pair_lines(pairs, "granted", "refused")
    table = [line for line in lines if line.startswith("  ")]
    assert len(table) == 13
    assert table[1].split()[:4] == ["e", "as", "d", "20.0%"]
    assert table[1].endswith("loses")
    assert lines[-1] == "8 pairs more, of at most 8.0% each."
    assert pair_lines([*enough, *few], "granted", "refused")[-1] == (
        "Not enough rows for 8 pairs (e 12)."
    )


def test_misses_beyond_the_largest_are_counted():
    pairs = [made(s, t, target_rate=0.6) for s in "abc" for t in "abc" if s != t]
    text = words(*pairs)
    assert text.count("the maps do not explain the difference") == 3
    assert text.count("  not established") == 6
    assert "also miss the rate of 'granted' for 3 pairs, of which 3 have shares" in text


def loses(*pairs):
    return " ".join(who_loses(pairs, "granted", "refused"))


def opposite(source="man", target="woman", **changed):
    """The pair of the other direction, whose source has a rate of 45%."""
    pair = made(source, target, gained=0.03, lost=0.18, target_rate=0.3, **changed)
    return dataclasses.replace(pair, rate=0.45)


def test_the_headline_says_who_loses_by_how_much_and_how_sure():
    text = loses(made(), opposite())
    assert text.startswith(
        "woman loses against man: 'refused' is 15.0 percentage points more frequent for woman than "
        "for man (70.0% against 55.0%; 95% interval of the difference +14.1 to +15.9). Of the "
        "decisions 'refused' about woman, 28.6% (95% interval 26.6% to 30.6%) would be 'granted' "
        "as man; of the decisions 'granted' about man, 60.0%"
    )
    assert text.count("loses against") == 1


def test_the_headline_names_the_decisions_that_leave_it_open():
    text = loses(made(gained=0.2, lost=0.19, target_rate=0.31), opposite())
    assert "woman loses against man" in text
    assert "of the decisions 'refused'" not in text.lower()
    assert text.endswith("would be 'refused' as woman (decisions about woman alone leave it open).")


def test_no_group_loses_if_no_balance_is_clear_or_both_contradict():
    unclear = {"gained": 0.2, "lost": 0.19, "target_rate": 0.31}
    for pairs in (
        (made(**unclear), made("man", "woman", **unclear)),
        (made(), made("man", "woman")),
    ):
        assert loses(*pairs).startswith("No group clearly loses")


def test_without_a_map_that_explains_the_difference_only_the_rates_are_stated():
    text = loses(made(target_rate=0.6), opposite(margin=0.5))
    assert "loses against" not in text
    assert "cannot be determined for 1 of 2 pairs" in text
    assert "By rates alone, 'refused' is 30.0 percentage points more frequent for woman" in text
    few = made(rows=12), made("man", "woman", target_rows=12)
    assert loses(*few) == "This cannot be determined: no pair of groups has enough rows."


def test_the_share_of_refused_rows_is_that_of_the_population():
    """Half of the men are refused; those within the shift would be granted as women."""
    (man, woman) = interval(*draw(4_000, seed=1), n_refits=8).pairs
    assert man.of_unfavourable is not None
    assert woman.of_favourable is not None
    assert man.of_unfavourable.low <= 2 * TRUE_SHARE <= man.of_unfavourable.high
    women_granted = 0.5 + TRUE_SHARE
    assert woman.of_favourable.low <= TRUE_SHARE / women_granted <= woman.of_favourable.high
    few = interval(*draw(500, seed=1, shift=8.0), n_refits=5).pairs[1]
    assert few.of_unfavourable is None
