"""Every statistic of a window equals the one computed by loops over its rows."""

from __future__ import annotations

import statistics
from collections import Counter

import pyarrow as pa
import pytest

from offline_audit import Window
from offline_audit.errors import UnknownColumnError
from tests.oracle.window import (
    group_cells,
    histogram,
    sampled,
)
from tests.traffic_logs import (
    traffic_table,
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
def test_counts_match_a_loop_over_the_rows(window, known, by, crossings):
    result = window.counts(by)
    assert {cell.attributes for cell in result.cells} == set(crossings)
    for crossing in crossings:
        assert cells(result, *crossing) == group_cells(known.rows, crossing)
    assert result.rows == len(known.rows)


def test_the_median_is_the_middle_of_all_scores(window, known):
    scores = [row["score"] for row in known.rows if row["score"] is not None]
    assert window.median_score() == pytest.approx(statistics.median(scores), rel=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_counts_above_a_score_match_a_loop_over_the_rows(window, known, reverse):
    limit = next(row["score"] for row in known.rows if row["score"] is not None)

    def beyond(score):
        return None if score is None else int(score < limit if reverse else score > limit)

    rows = [{**row, "decision": beyond(row["score"])} for row in known.rows]
    result = window.counts_above(limit, ["sex", ("sex", "ethnicity")], reverse=reverse)
    assert cells(result, "sex") == group_cells(rows, ("sex",))
    assert cells(result, "sex", "ethnicity") == group_cells(rows, ("sex", "ethnicity"))


def test_counts_do_not_depend_on_the_number_of_queries(window, monkeypatch):
    together = window.counts()
    monkeypatch.setattr("offline_audit.window.counts._MOST_CELLS", 1)
    assert window.counts() == together


def test_counts_without_outcomes_have_no_label_and_no_group(known):
    with Window.read(known.log) as window:
        result = window.counts("sex")
    decisions = Counter(known.traffic["decision"].to_pylist())
    assert cells(result, "sex") == {((None,), None, d): n for d, n in decisions.items()}


def test_outcomes_are_joined_once_and_only_if_a_query_needs_them(known):
    with Window.read(known.log) as without, Window.read(known.log, known.outcomes) as window:
        assert joins(without._log.joined(["decision"], ["label"])) == 0
        assert joins(window._log.joined(["decision"], ["label", "group_sex"])) == 1
        assert joins(window._log.joined(["verdict_sex"], [])) == 0
        assert joins(window.table) == 1


def joins(expression) -> int:
    import ibis

    return str(ibis.to_sql(expression, dialect="duckdb")).count(" JOIN")


def test_verdicts_and_actions_match_a_loop_over_the_rows(window, known):
    result = window.verdicts()
    for attribute in ("sex", "ethnicity"):
        assert result.verdicts[attribute] == Counter(r[f"verdict_{attribute}"] for r in known.rows)
    assert result.actions == Counter(r["action"] for r in known.rows)


@pytest.mark.parametrize("bins", [1, 7, 50])
def test_the_histogram_counts_every_score_once(window, known, bins):
    result = window.score_histogram("ethnicity", bins=bins)
    expected = histogram(known.rows, "ethnicity", bins)
    counted: Counter[tuple[object, ...]] = Counter()
    for bars in result.bars:
        key = (bars.group, bars.label, bars.decision)
        counted.update({(*key, index): n for index, n in enumerate(bars.counts) if n})
        counted.update({(*key, None): bars.missing} if bars.missing else {})
    assert counted == expected
    assert len(result.edges) == bins + 1


def test_a_score_of_one_is_in_the_last_bin(tmp_path):
    rows = {"request_id": ["a", "b", "c"], "row": [0] * 3, "score": [0.0, 1.0, 0.5]}
    times = pa.array([1_772_402_400_000_000] * 3)
    write_traffic(tmp_path / "log", traffic_table({**rows, "time": times}))
    with Window.read(tmp_path / "log") as window:
        (bars,) = window.score_histogram("sex", bins=2).bars
    assert bars.counts == (1, 2)


@pytest.mark.parametrize("by", [(), ("sex",), ("sex", "decision", "label"), ("action",)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_sample_has_the_rows_of_each_stratum_with_the_smallest_digests(window, known, by, seed):
    result = window.sample(5, by, seed)
    columns = ["group_sex" if name == "sex" else name for name in by]
    keys = set(zip(result["request_id"].to_pylist(), result["row"].to_pylist(), strict=True))
    assert keys == sampled(known.rows, 5, columns, seed)
    sizes = Counter(tuple(r[c] for c in columns) for r in known.rows)
    for row in result.to_pylist():
        assert row["stratum_rows"] == sizes[tuple(row[c] for c in columns)]
    assert set(result.schema.names) == {*window.table.columns, "stratum_rows"}


def test_different_seeds_draw_different_samples(window):
    first, second = (window.sample(20, seed=seed)["request_id"].to_pylist() for seed in (0, 1))
    assert first != second


def test_batches_contain_every_row_once_with_its_outcome(window, known):
    names = ["request_id", "row", "logit", "label", "group_sex"]
    batches = list(window.batches(names, size=100))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert Counter(map(tuple, (r.items() for r in rows))) == Counter(
        tuple((name, r[name]) for name in names) for r in known.rows
    )
    assert all(batch.schema.names == names for batch in batches)


def test_other_queries_may_run_while_batches_are_read(window, known):
    rows = 0
    for batch in window.batches(["logit"], size=64):
        assert window.counts("sex").rows == len(known.rows)
        rows += batch.num_rows
        if rows > 256:
            break
    assert rows > 256


def test_the_table_can_be_used_in_ibis_expressions(window, known):
    rows = window.table
    counted = window._engine.fetch(rows.group_by("version").agg(n=rows.count()))
    assert counted.to_pylist() == [{"version": "1", "n": len(known.rows)}]
    assert {"age", "income", "score", "label", "group_sex", "group_ethnicity"} <= set(rows.columns)


@pytest.mark.parametrize(
    "query",
    [
        lambda w: w.counts("age"),
        lambda w: w.counts(("sex", "faith")),
        lambda w: w.score_histogram("faith"),
        lambda w: w.sample(1, ("faith",)),
        lambda w: w.batches(["faith"]),
    ],
)
def test_an_unknown_attribute_or_column_is_an_error_that_lists_the_known_ones(window, query):
    with pytest.raises(UnknownColumnError, match=r"the window has: .*sex"):
        query(window)
