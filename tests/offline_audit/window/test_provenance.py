"""The provenance of a window lists what was read and what is missing."""

from __future__ import annotations

import datetime as dt
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monitor.traffic.columns import METADATA_KEY, FeatureColumn, TrafficColumns
from monitor.traffic.ledger import SegmentEntry, write_entry
from monitor.traffic.store import Store
from offline_audit import Window
from tests.oracle.window import group_cells, joined_rows
from tests.traffic_logs import (
    MODEL,
    START,
    outcome_rows,
    traffic_columns,
    traffic_rows,
    write_outcomes,
    write_traffic,
)

HOURS = ("date=2026-03-01/hour=22", "date=2026-03-01/hour=23", "date=2026-03-02/hour=00")
V1 = f"model={MODEL}/version=1"


@pytest.fixture
def log(tmp_path):
    """A log of 400 rows in four hours, which the test may change."""
    write_traffic(tmp_path / "log", traffic_rows(400))
    return tmp_path / "log"


def provenance(log, *args, **options):
    with Window.read(log, *args, **options) as window:
        assert window.counts().rows == window.provenance.rows.rows
        return window.provenance


def warned(provenance, *words):
    return any(all(word in warning for word in words) for warning in provenance.warnings)


def flip(path, offset=300):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_an_undamaged_log_is_complete_without_warnings(log):
    result = provenance(log)
    assert result.complete
    assert result.warnings == ()
    assert [file.rows for file in result.log.files] == [100] * 4
    assert all(file.verified and file.sha256 for file in result.log.files)
    assert result.rows.rows == 400
    assert (result.label_share, result.group_shares) == (0, {"sex": 0, "ethnicity": 0})
    assert "No warnings." in str(result)


def test_a_missing_partition_a_corrupt_file_and_an_old_schema_are_all_reported(log, tmp_path):
    older = traffic_columns("age", attributes=("sex",), hashed=("age",))
    before = traffic_rows(60, seed=5, columns=older, since=START - dt.timedelta(hours=2), hours=1)
    write_traffic(log, before, columns=older, segment="s0", version="0")
    remaining = traffic_rows(400).slice(200)
    outcomes = outcome_rows(
        pa.concat_tables(
            [
                before.select([*remaining.schema.names[:3], "logit"]),
                remaining.select([*remaining.schema.names[:3], "logit"]),
            ]
        )
    )
    write_outcomes(tmp_path / "outcomes", outcomes)
    shutil.rmtree(log / V1 / HOURS[0])
    flip(log / V1 / HOURS[1] / "s1.parquet")
    result = provenance(log, tmp_path / "outcomes")
    assert not result.complete
    assert [(f.path, f.rows) for f in result.log.missing] == [(f"{V1}/{HOURS[0]}/s1.parquet", 100)]
    assert [(f.path, f.rows) for f in result.log.corrupt] == [(f"{V1}/{HOURS[1]}/s1.parquet", 100)]
    (variant,) = result.log.variants
    assert variant.paths == (f"model={MODEL}/version=0/date=2026-03-01/hour=20/s0.parquet",)
    assert set(variant.lacks) >= {"income", "verdict_ethnicity"}
    assert variant.differs == (("age", "string", "float"),)
    assert warned(result, "missing", HOURS[0], "100 rows")
    assert warned(result, "corrupt", HOURS[1], "digest")
    assert warned(result, "a different schema", "income", "age is string, read as float")
    assert result.rows.by_version == {"0": 60, "1": 200}
    rows = joined_rows(before, outcomes) + joined_rows(remaining, outcomes)
    with Window.read(log, tmp_path / "outcomes") as window:
        counted = {(c.groups, c.label, c.decision): c.rows for c in window.counts("sex").cells}
        assert window.verdicts().verdicts["ethnicity"][None] >= 60
        ages = {row["version"]: row["age"] for row in window.sample(1, ("version",)).to_pylist()}
    assert ages["0"] is None
    assert ages["1"] is not None
    assert counted == group_cells(rows, ("sex",))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda f: f.write_bytes(f.read_bytes()[:-9]), " bytes; the ledger has"),
        (lambda f: f.write_bytes(b""), "0 bytes; the ledger has"),
        (flip, "digest differs from the ledger's"),
    ],
    ids=["truncated", "empty", "a bit flipped"],
)
def test_a_file_that_was_changed_is_not_read_and_has_a_reason(log, damage, reason):
    damage(log / V1 / HOURS[0] / "s1.parquet")
    result = provenance(log)
    assert [reason in file.reason for file in result.log.corrupt] == [True]
    assert result.rows.rows == 300
    assert not result.complete


def test_without_verification_there_is_a_warning(log):
    result = provenance(log, verify=False)
    assert not any(file.verified for file in result.log.files)
    assert warned(result, "not verified")


def test_a_file_that_is_not_in_the_ledger_is_read_unless_it_is_corrupt(log):
    write_traffic(log, traffic_rows(20, seed=3, hours=1), segment="s2", listed=False)
    shutil.copy(log / V1 / HOURS[0] / "s2.parquet", log / V1 / HOURS[0] / "s3.parquet")
    whole = (log / V1 / HOURS[0] / "s3.parquet").read_bytes()
    (log / V1 / HOURS[0] / "s3.parquet").write_bytes(whole[:4] + bytes(400) + whole[404:])
    result = provenance(log)
    assert [file.path for file in result.log.reading.unlisted] == [f"{V1}/{HOURS[0]}/s2.parquet"]
    assert [file.path for file in result.log.corrupt] == [f"{V1}/{HOURS[0]}/s3.parquet"]
    assert result.rows.rows == 420
    assert warned(
        result, "1 file of the traffic log is not listed in the ledger; it was read anyway"
    )
    assert warned(result, "s3.parquet", "not readable as Parquet")


def rewrite(path, change):
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def with_metadata(table, **about):
    known = json.loads(table.schema.metadata[METADATA_KEY]) | about
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(known)})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: with_metadata(t, format=2), "format 2"),
        (lambda t: with_metadata(t, kind="outcomes"), "contains outcomes"),
        (lambda t: t.drop_columns(["decision", "time"]), "columns are missing: decision, time"),
    ],
)
def test_a_file_of_another_format_or_kind_is_not_read_and_has_a_reason(log, change, reason):
    shutil.rmtree(log / "_ledger")
    rewrite(log / V1 / HOURS[0] / "s1.parquet", change)
    (flaw,) = provenance(log).log.corrupt
    assert reason in flaw.reason


@pytest.mark.parametrize(
    ("why", "complete"), [("expired", False), ("quota", False), ("erased", True)]
)
def test_files_that_were_deleted_on_purpose_do_not_count_as_missing(log, why, complete):
    entry = ledger_entry(log)
    first, *rest = entry.files
    removed = first.model_copy(update={"removed": why})
    partly = rest[0].model_copy(update={"erased": 4})
    write_entry(Store.open(log), entry.model_copy(update={"files": (removed, partly, *rest[1:])}))
    (log / first.path).unlink()
    result = provenance(log)
    assert result.log.missing == ()
    assert [(f.path, f.rows, f.why) for f in result.log.removed] == [(first.path, 100, why)]
    assert result.complete == complete
    assert warned(result, "on purpose", why)
    assert warned(result, "4 rows", "erased")


def ledger_entry(log) -> SegmentEntry:
    (path,) = log.glob("_ledger/*/*.json")
    return SegmentEntry.model_validate_json(path.read_bytes())


def test_lost_rows_unreadable_entries_and_unrecognized_files_give_warnings(log):
    write_traffic(log, traffic_rows(10, seed=2), segment="s2", lost={"torn": 3, "slow": 1})
    (log / "_ledger/date=2026-03-01/broken.json").write_text("{")
    shutil.copy(log / V1 / HOURS[0] / "s1.parquet", log / "copy.parquet")
    result = provenance(log)
    assert result.log.reading.lost_rows == {"slow": 1, "torn": 3}
    assert warned(result, "lost 3 rows", "killed during a write")
    assert warned(result, "1 entry of the ledger", "broken.json")
    assert warned(result, "copy.parquet", "not read")
    assert not result.complete


def test_lost_rows_of_segments_outside_the_window_do_not_count(log):
    after = START + dt.timedelta(hours=6)
    write_traffic(log, traffic_rows(10, seed=2, since=after), segment="s2", lost={"torn": 3})
    assert provenance(log, until=after).log.reading.lost_rows == {}
    assert provenance(log).log.reading.lost_rows == {"torn": 3}


def segment_file(log, begun, suffix=".segment"):
    path = log / "_segments" / f"{begun:%Y%m%dT%H%M%SZ}-0a1b2c3d-00001{suffix}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"rows")
    return path


END = START + dt.timedelta(hours=6)


def test_a_pending_segment_makes_a_window_incomplete_although_later_ones_are_compacted(log):
    segment = segment_file(log, START + dt.timedelta(hours=1))
    write_traffic(log, traffic_rows(10, seed=2, since=END), segment="s2")
    result = provenance(log, until=END)
    assert result.log.reading.pending_segments == 1
    assert warned(result, "1 segment of the traffic log", "not compacted")
    assert not result.complete
    segment.unlink()
    assert provenance(log, until=END).complete


def test_a_pending_segment_that_began_at_the_end_of_the_window_does_not_matter(log):
    segment_file(log, END)
    assert provenance(log, until=END).complete
    assert provenance(log, until=END).log.reading.pending_segments == 0
    assert not provenance(log, until=END + dt.timedelta(microseconds=1)).complete
    assert not provenance(log).complete


def test_a_segment_without_a_time_in_its_name_may_hold_rows_of_any_window(log):
    (log / "_segments").mkdir()
    (log / "_segments/now.segment").write_bytes(b"rows")
    assert not provenance(log, until=START + dt.timedelta(hours=1)).complete


def test_a_pending_segment_of_outcomes_makes_a_window_incomplete_whenever_it_began(log, tmp_path):
    write_outcomes(tmp_path / "outcomes", outcome_rows(traffic_rows(400)))
    assert provenance(log, tmp_path / "outcomes", until=END).complete
    segment_file(tmp_path / "outcomes", END + dt.timedelta(days=30))
    result = provenance(log, tmp_path / "outcomes", until=END)
    assert warned(result, "1 segment of the outcomes", "not compacted")
    assert not result.complete


def test_quarantined_segments_give_a_warning_if_they_may_hold_rows_of_the_window(log):
    path = segment_file(log, START, ".unreadable")
    for span in ({}, {"since": START + dt.timedelta(hours=1), "until": END}):
        result = provenance(log, **span)
        assert result.log.reading.quarantined_segments == (f"_segments/{path.name}",)
        assert warned(result, "1 segment of the traffic log", "quarantined", path.name)
        assert not result.complete
        assert json.loads(json.dumps(result.to_dict()))["log"]["quarantined_segments"]
    for span in ({"until": START}, {"since": START + dt.timedelta(days=3)}):
        assert provenance(log, **span).log.reading.quarantined_segments == ()


LOST = (START + dt.timedelta(hours=5), START + dt.timedelta(hours=9))


@pytest.mark.parametrize("files", [True, False], ids=["with files", "without files"])
@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (None, None, True),
        (LOST[0] + dt.timedelta(hours=1), LOST[0] + dt.timedelta(hours=2), True),
        (LOST[1], None, True),
        (LOST[1] + dt.timedelta(microseconds=1), None, False),
        (START - dt.timedelta(hours=1), LOST[0] + dt.timedelta(microseconds=1), True),
        (START - dt.timedelta(hours=1), LOST[0], False),
    ],
)
def test_lost_rows_of_a_segment_without_files_count_in_every_span_that_it_overlaps(
    tmp_path, files, since, until, expected
):
    if files:
        write_traffic(tmp_path, traffic_rows(40))
    entry = SegmentEntry(
        segment="s2",
        kind="traffic",
        model=MODEL,
        version="1",
        since=LOST[0],
        until=LOST[1],
        rows=0,
        lost={"disk": 7},
    )
    write_entry(Store.open(tmp_path), entry)
    result = provenance(tmp_path, since=since, until=until)
    assert result.log.reading.lost_rows == ({"disk": 7} if expected else {})
    assert warned(result, "lost 7 rows", "a disk error") == expected
    assert result.complete != expected


def test_files_of_outcomes_are_checked_in_the_same_way(log, tmp_path):
    write_outcomes(tmp_path / "outcomes", outcome_rows(traffic_rows(400)))
    first, second, *_ = sorted((tmp_path / "outcomes").rglob("*.parquet"))
    first.unlink()
    flip(second)
    result = provenance(log, tmp_path / "outcomes")
    assert len(result.outcomes.missing) == len(result.outcomes.corrupt) == 1
    assert warned(result, "of the outcomes", "missing")
    assert not result.complete


def test_a_missing_folder_of_outcomes_gives_a_warning(log, tmp_path):
    result = provenance(log, tmp_path / "nowhere")
    assert warned(result, "no outcomes at", "nowhere")
    assert (result.complete, result.outcome_facts.rows) == (False, 0)


def test_hours_without_a_file_are_named(log):
    shutil.rmtree(log / "_ledger")
    shutil.rmtree(log / V1 / HOURS[1])
    result = provenance(log)
    assert result.hours_without_files == ("2026-03-01 23h",)
    assert "2026-03-01 23h" in str(result)


def test_a_change_of_the_favourable_decision_gives_a_warning(log):
    shutil.rmtree(log / "_ledger")
    rewrite(log / V1 / HOURS[2] / "s1.parquet", lambda t: with_metadata(t, favourable=0))
    assert warned(provenance(log), "favourable decision changed within the window")


def treated(name, *treatments):
    """Columns of a model with one feature, one for each treatment."""
    return [
        TrafficColumns(
            features=(
                FeatureColumn(
                    name=name, feature=name, index=0, kind="numeric", treatment=treatment
                ),
            ),
            attributes=("sex",),
        )
        for treatment in treatments
    ]


def hourly(log, columns, keys):
    for hour, (hour_columns, key) in enumerate(zip(columns, keys, strict=True)):
        since = START + dt.timedelta(hours=hour)
        rows = traffic_rows(10, seed=hour, columns=hour_columns, since=since, hours=1)
        write_traffic(log, rows, segment=f"s{hour}", columns=hour_columns, pseudonyms=key)
    return provenance(log)


def test_a_change_of_the_treatment_of_a_feature_gives_a_warning(tmp_path):
    result = hourly(tmp_path, treated("age", "keep", "bucket", "bucket"), [None] * 3)
    assert result.changes == {"treatment of age": ("keep", "bucket")}
    assert warned(result, "The logged form of age changed", "keep, then bucket", "compared")
    assert result.to_dict()["changes"] == {"treatment of age": ["keep", "bucket"]}


def test_a_change_of_the_key_matters_to_hashed_features_only(tmp_path):
    result = hourly(tmp_path / "hashed", treated("age", "hash", "hash"), ["k1", "k2"])
    assert result.changes["treatment of age"] == ("hash by key k1", "hash by key k2")
    assert result.changes["pseudonyms"] == ("k1", "k2")
    assert warned(result, "pseudonym", "changed", "k1, then k2")
    result = hourly(tmp_path / "kept", treated("age", "keep", "keep"), [None, "k2"])
    assert result.changes == {"pseudonyms": ("no key", "k2")}


def test_treatments_are_compared_without_regard_to_the_case_of_names(tmp_path):
    (older,), (newer,) = treated("Age", "keep"), treated("age", "bucket")
    result = hourly(tmp_path, [older, newer], [None, None])
    assert result.changes == {"treatment of age": ("keep", "bucket")}


@pytest.mark.parametrize("about", [{"columns": 3}, {"columns": {"features": [{}]}}])
def test_a_file_with_invalid_metadata_is_not_read(log, about):
    shutil.rmtree(log / "_ledger")
    rewrite(log / V1 / HOURS[0] / "s1.parquet", lambda t: with_metadata(t, **about))
    (flaw,) = provenance(log).log.corrupt
    assert "metadata" in flaw.reason


def test_column_names_that_differ_in_case_or_clash_with_outcomes_are_resolved(tmp_path):
    for segment, names in (("s1", ("Age", "label")), ("s2", ("age", "label"))):
        columns = traffic_columns(*names)
        since = START + dt.timedelta(hours=int(segment[1]))
        rows = traffic_rows(10, columns=columns, since=since, hours=1)
        write_traffic(tmp_path / "log", rows, columns=columns, segment=segment)
    with Window.read(tmp_path / "log") as window:
        assert {"age", "feature_label", "label"} <= set(window.table.columns)
        assert "Age" not in window.table.columns
        sample = window.sample(100)
    assert sample["age"].null_count == sample["feature_label"].null_count == 0


def test_provenance_is_json_and_fits_a_terminal(log, tmp_path):
    write_outcomes(tmp_path / "outcomes", outcome_rows(traffic_rows(400)))
    (log / V1 / HOURS[0] / "s1.parquet").unlink()
    result = provenance(
        log, tmp_path / "outcomes", since=START, until=START + dt.timedelta(hours=3)
    )
    values = json.loads(json.dumps(result.to_dict()))
    assert values["log"]["missing"][0]["rows"] == 100
    assert values["complete"] is False
    assert values["warnings"] == list(result.warnings)
    assert values["log"]["files"][0].keys() == {
        "path", "rows", "bytes", "sha256", "verified", "erased",
    }  # fmt: skip
    folder = str(tmp_path)
    assert all(len(line) <= 100 for line in str(result).splitlines() if folder not in line)
