"""Every statistic of a window is what loops over its rows find."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from offline_audit import Window
from offline_audit.errors import UnknownColumnError
from tests.oracle.window import (
    auc_and_variance,
    group_cells,
    histogram,
    sampled,
)
from tests.traffic_logs import (
    outcome_table,
    traffic_rows,
    traffic_table,
    write_outcomes,
    write_traffic,
)


def cells(counts, *attributes):
    return Counter({(c.groups, c.label, c.decision): c.rows for c in counts.of(*attributes).cells})


@pytest.mark.parametrize(
    ("by", "crossings"),
    [
        ("sex", [("sex",)]),
        (("sex", "ethnicity"), [("sex", "ethnicity")]),
        (["sex", "ethnicity"], [("sex",), ("ethnicity",)]),
        (["ethnicity", ("ethnicity", "sex")], [("ethnicity",), ("ethnicity", "sex")]),
        (None, [("sex",), ("ethnicity",)]),
    ],
)
def test_counts_are_those_of_the_rows(window, known, by, crossings):
    found = window.counts(by)
    assert {cell.attributes for cell in found.cells} == set(crossings)
    for crossing in crossings:
        assert cells(found, *crossing) == group_cells(known.rows, crossing)
    assert found.rows == len(known.rows)


def test_counts_that_would_be_too_many_at_once_are_the_same_one_by_one(window, monkeypatch):
    together = window.counts()
    monkeypatch.setattr("offline_audit.window.counts._MOST_CELLS", 1)
    assert window.counts() == together


def test_counts_as_a_table_have_a_row_a_cell(window):
    counts = window.counts("sex")
    table = counts.to_arrow()
    assert table.num_rows == len(counts.cells)
    assert sum(table["rows"].to_pylist()) == counts.rows
    assert table["groups"].to_pylist()[0] == list(counts.cells[0].groups)


def test_counts_without_outcomes_know_neither_label_nor_group(known):
    with Window.read(known.log) as window:
        found = window.counts("sex")
    decisions = Counter(known.traffic["decision"].to_pylist())
    assert cells(found, "sex") == {((None,), None, d): n for d, n in decisions.items()}


def test_outcomes_are_joined_once_and_only_where_they_are_asked_for(known):
    with Window.read(known.log) as without, Window.read(known.log, known.outcomes) as window:
        assert joins(without._log.joined(["decision"], ["label"])) == 0
        assert joins(window._log.joined(["decision"], ["label", "group_sex"])) == 1
        assert joins(window._log.joined(["verdict_sex"], [])) == 0
        assert joins(window.table) == 1


def joins(expression) -> int:
    import ibis

    return str(ibis.to_sql(expression, dialect="duckdb")).count(" JOIN")


def test_verdicts_and_actions_are_counted(window, known):
    found = window.verdicts()
    for attribute in ("sex", "ethnicity"):
        assert found.verdicts[attribute] == Counter(r[f"verdict_{attribute}"] for r in known.rows)
    assert found.actions == Counter(r["action"] for r in known.rows)


@pytest.mark.parametrize("bins", [1, 7, 50])
def test_the_histogram_counts_every_score_once(window, known, bins):
    found = window.score_histogram("ethnicity", bins=bins)
    wanted = histogram(known.rows, "ethnicity", bins)
    got: Counter[tuple[object, ...]] = Counter()
    for bars in found.bars:
        key = (bars.group, bars.label, bars.decision)
        got.update({(*key, place): n for place, n in enumerate(bars.counts) if n})
        got.update({(*key, None): bars.missing} if bars.missing else {})
    assert got == wanted
    assert len(found.edges) == bins + 1


def test_a_score_of_one_is_in_the_last_bin(tmp_path):
    rows = {"request_id": ["a", "b", "c"], "row": [0] * 3, "score": [0.0, 1.0, 0.5]}
    times = pa.array([1_772_402_400_000_000] * 3)
    write_traffic(tmp_path / "log", traffic_table({**rows, "time": times}))
    with Window.read(tmp_path / "log") as window:
        (bars,) = window.score_histogram("sex", bins=2).bars
    assert bars.counts == (1, 2)


def test_ranks_give_the_auc_and_its_variance_of_all_pairs(window, known):
    found = window.ranks("sex")
    assert [g.group for g in found.groups] == ["female", "male", None]
    for group in found.groups:
        rows = [r for r in known.rows if r["group_sex"] == group.group]
        auc, variance = auc_and_variance(rows)
        # Sums of a few hundred doubles in the oracle against integers here.
        assert group.auc == pytest.approx(auc, rel=1e-12)
        assert group.variance == pytest.approx(variance, rel=1e-10)


def test_the_logits_of_the_rank_test_are_tied(known):
    """Guards the test above: without ties it would not see how they are counted."""
    assert len({r["logit"] for r in known.rows}) < len(known.rows) / 10


def test_ranks_of_known_logits(tmp_path):
    """Positives at 0, 1, 1 and −0 against negatives at 0, 1: placements ½, 1½, 1½ and ½."""
    logits = [0.0, 1.0, 1.0, -0.0, 0.0, 1.0, None]
    n = len(logits)
    keys = {"request_id": [f"r{i}" for i in range(n)], "row": [0] * n}
    times = pa.array([1_772_402_400_000_000] * n)
    write_traffic(
        tmp_path / "log", traffic_table({**keys, "time": times, "logit": pa.array(logits)})
    )
    told = {"label": [1, 1, 1, 1, 0, 0, 1], "observed_at": times, "received_at": times}
    write_outcomes(
        tmp_path / "outcomes", outcome_table({**keys, **told, "group_sex": ["female"] * n})
    )
    with Window.read(tmp_path / "log", tmp_path / "outcomes") as window:
        (found,) = window.ranks("sex").groups
    assert (found.positives, found.negatives) == (4, 2)
    assert (found.doubled_sum, found.positive_squares) == (8, 1 + 9 + 9 + 1)
    assert found.negative_squares == 36 + 4
    assert found.rank_sum == 2 * 2 + 2 * 5
    assert found.auc == 0.5


def test_sums_of_squares_of_many_rows_are_exact(tmp_path):
    """Twice a placement here is up to 60,000, whose square needs both halves of the sum."""
    n = 60_000
    traffic = traffic_rows(n, hours=1, coarse=False)
    labels = np.arange(n) % 2
    keys = {"request_id": traffic["request_id"], "row": traffic["row"]}
    told = {"label": labels, "observed_at": traffic["time"], "received_at": traffic["time"]}
    write_traffic(tmp_path / "log", traffic)
    write_outcomes(tmp_path / "outcomes", outcome_table({**keys, **told}))
    with Window.read(tmp_path / "log", tmp_path / "outcomes", verify=False) as window:
        (found,) = window.ranks("sex").groups
    logit = np.asarray(traffic["logit"])
    positives, negatives = np.sort(logit[labels == 1]), np.sort(logit[labels == 0])
    below = [np.searchsorted(negatives, positives, side) for side in ("left", "right")]
    doubled = [int(a) + int(b) for a, b in zip(*below, strict=True)]
    assert found.doubled_sum == sum(doubled)
    assert found.positive_squares == sum(x * x for x in doubled)
    assert max(doubled) ** 2 > 2**31


def test_an_auc_without_one_of_the_classes_is_not_a_number_but_none(known, tmp_path):
    told = known.told.set_column(
        known.told.schema.get_field_index("label"),
        "label",
        pa.nulls(known.told.num_rows, pa.int8()),
    ).slice(0, 3)
    told = told.set_column(2, "label", pa.array([1, 1, 1], pa.int8()))
    write_outcomes(tmp_path / "outcomes", told)
    with Window.read(known.log, tmp_path / "outcomes") as window:
        groups = window.ranks("sex").groups
    assert [(g.auc, g.variance) for g in groups] == [(None, None)] * len(groups)
    assert groups


@pytest.mark.parametrize("by", [(), ("sex",), ("sex", "decision", "label"), ("action",)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_sample_holds_the_first_of_every_stratum_by_digest(window, known, by, seed):
    found = window.sample(5, by, seed)
    columns = ["group_sex" if name == "sex" else name for name in by]
    keys = set(zip(found["request_id"].to_pylist(), found["row"].to_pylist(), strict=True))
    assert keys == sampled(known.rows, 5, columns, seed)
    sizes = Counter(tuple(r[c] for c in columns) for r in known.rows)
    for row in found.to_pylist():
        assert row["stratum_rows"] == sizes[tuple(row[c] for c in columns)]
    assert set(found.schema.names) == {*window.table.columns, "stratum_rows"}


def test_samples_of_two_seeds_differ(window):
    first, second = (window.sample(20, seed=seed)["request_id"].to_pylist() for seed in (0, 1))
    assert first != second


def test_batches_hold_every_row_once_with_what_is_known_of_it(window, known):
    names = ["request_id", "row", "logit", "label", "group_sex"]
    batches = list(window.batches(names, size=100))
    found = [row for batch in batches for row in batch.to_pylist()]
    assert Counter(map(tuple, (r.items() for r in found))) == Counter(
        tuple((name, r[name]) for name in names) for r in known.rows
    )
    assert all(batch.schema.names == names for batch in batches)


def test_a_statistic_may_be_asked_for_while_batches_are_read(window, known):
    rows = 0
    for batch in window.batches(["logit"], size=64):
        assert window.counts("sex").rows == len(known.rows)
        rows += batch.num_rows
        if rows > 256:
            break
    assert rows > 256


def test_the_table_is_an_expression_for_analysts(window, known):
    rows = window.table
    counted = window._engine.fetch(rows.group_by("version").agg(n=rows.count()))
    assert counted.to_pylist() == [{"version": "1", "n": len(known.rows)}]
    assert {"age", "income", "score", "label", "group_sex", "group_ethnicity"} <= set(rows.columns)


@pytest.mark.parametrize(
    "ask",
    [
        lambda w: w.counts("age"),
        lambda w: w.counts(("sex", "faith")),
        lambda w: w.ranks("faith"),
        lambda w: w.score_histogram("faith"),
        lambda w: w.sample(1, ("faith",)),
        lambda w: w.batches(["faith"]),
    ],
)
def test_what_the_window_does_not_have_is_refused_with_what_it_has(window, ask):
    with pytest.raises(UnknownColumnError, match=r"there is: .*sex"):
        ask(window)
