"""A window says what it was read from, and what is not in it."""

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
    """A log of 400 rows in four hours, that the test may spoil."""
    write_traffic(tmp_path / "log", traffic_rows(400))
    return tmp_path / "log"


def provenance(log, *args, **options):
    with Window.read(log, *args, **options) as window:
        assert window.counts().rows == window.provenance.rows.rows
        return window.provenance


def said(found, *words):
    return any(all(word in warning for word in words) for warning in found.warnings)


def flip(path, place=300):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_sound_log_is_complete_with_nothing_to_warn_of(log):
    found = provenance(log)
    assert found.complete
    assert found.warnings == ()
    assert [file.rows for file in found.log.files] == [100] * 4
    assert all(file.verified and file.sha256 for file in found.log.files)
    assert found.rows.rows == 400
    assert (found.label_share, found.group_shares) == (0, {"sex": 0, "ethnicity": 0})
    assert "Nothing to warn of." in str(found)


def test_a_missing_partition_a_corrupt_file_and_an_old_schema_are_told_at_once(log, tmp_path):
    older = traffic_columns("age", attributes=("sex",), hashed=("age",))
    before = traffic_rows(60, seed=5, columns=older, since=START - dt.timedelta(hours=2), hours=1)
    write_traffic(log, before, columns=older, segment="s0", version="0")
    kept = traffic_rows(400).slice(200)
    told = outcome_rows(
        pa.concat_tables(
            [
                before.select([*kept.schema.names[:3], "logit"]),
                kept.select([*kept.schema.names[:3], "logit"]),
            ]
        )
    )
    write_outcomes(tmp_path / "outcomes", told)
    shutil.rmtree(log / V1 / HOURS[0])
    flip(log / V1 / HOURS[1] / "s1.parquet")
    found = provenance(log, tmp_path / "outcomes")
    assert not found.complete
    assert [(f.path, f.rows) for f in found.log.missing] == [(f"{V1}/{HOURS[0]}/s1.parquet", 100)]
    assert [(f.path, f.rows) for f in found.log.corrupt] == [(f"{V1}/{HOURS[1]}/s1.parquet", 100)]
    (variant,) = found.log.variants
    assert variant.paths == (f"model={MODEL}/version=0/date=2026-03-01/hour=20/s0.parquet",)
    assert set(variant.lacks) >= {"income", "verdict_ethnicity"}
    assert variant.differs == (("age", "string", "float"),)
    assert said(found, "missing", HOURS[0], "100 rows")
    assert said(found, "corrupt", HOURS[1], "digest")
    assert said(found, "another schema", "income", "age as string, read as float")
    assert found.rows.by_version == {"0": 60, "1": 200}
    rows = joined_rows(before, told) + joined_rows(kept, told)
    with Window.read(log, tmp_path / "outcomes") as window:
        counted = {(c.groups, c.label, c.decision): c.rows for c in window.counts("sex").cells}
        assert window.verdicts().verdicts["ethnicity"][None] >= 60
        ages = {row["version"]: row["age"] for row in window.sample(1, ("version",)).to_pylist()}
    assert ages["0"] is None
    assert ages["1"] is not None
    assert counted == group_cells(rows, ("sex",))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda f: f.write_bytes(f.read_bytes()[:-9]), "bytes, the ledger says"),
        (lambda f: f.write_bytes(b""), "0 bytes, the ledger says"),
        (flip, "not those that the ledger has the digest of"),
    ],
    ids=["truncated", "empty", "a bit flipped"],
)
def test_a_file_whose_bytes_changed_is_left_out_with_a_reason(log, spoil, reason):
    spoil(log / V1 / HOURS[0] / "s1.parquet")
    found = provenance(log)
    assert [reason in file.reason for file in found.log.corrupt] == [True]
    assert found.rows.rows == 300
    assert not found.complete


def test_without_verification_digests_are_not_checked_and_that_is_said(log):
    found = provenance(log, verify=False)
    assert not any(file.verified for file in found.log.files)
    assert said(found, "not checked")


def test_an_unlisted_file_is_read_and_told_and_an_unlisted_corrupt_one_is_not_read(log):
    write_traffic(log, traffic_rows(20, seed=3, hours=1), segment="s2", listed=False)
    shutil.copy(log / V1 / HOURS[0] / "s2.parquet", log / V1 / HOURS[0] / "s3.parquet")
    whole = (log / V1 / HOURS[0] / "s3.parquet").read_bytes()
    (log / V1 / HOURS[0] / "s3.parquet").write_bytes(whole[:4] + bytes(400) + whole[404:])
    found = provenance(log)
    assert [file.path for file in found.log.reading.unlisted] == [f"{V1}/{HOURS[0]}/s2.parquet"]
    assert [file.path for file in found.log.corrupt] == [f"{V1}/{HOURS[0]}/s3.parquet"]
    assert found.rows.rows == 420
    assert said(found, "does not list 1 file")
    assert said(found, "s3.parquet", "cannot be read as Parquet")


def rewrite(path, change):
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def renewed(table, **about):
    known = json.loads(table.schema.metadata[METADATA_KEY]) | about
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(known)})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: renewed(t, format=2), "format 2"),
        (lambda t: renewed(t, kind="outcomes"), "holds outcomes"),
        (lambda t: t.drop_columns(["decision", "time"]), "lacks decision, time"),
    ],
)
def test_a_file_that_is_no_part_of_this_log_is_left_out_with_a_reason(log, change, reason):
    shutil.rmtree(log / "_ledger")
    rewrite(log / V1 / HOURS[0] / "s1.parquet", change)
    (flaw,) = provenance(log).log.corrupt
    assert reason in flaw.reason


@pytest.mark.parametrize(
    ("why", "complete"), [("expired", False), ("quota", False), ("erased", True)]
)
def test_files_that_were_taken_away_on_purpose_are_told_apart_from_missing_ones(log, why, complete):
    entry = ledger_entry(log)
    first, *rest = entry.files
    gone = first.model_copy(update={"removed": why})
    partly = rest[0].model_copy(update={"erased": 4})
    write_entry(Store.open(log), entry.model_copy(update={"files": (gone, partly, *rest[1:])}))
    (log / first.path).unlink()
    found = provenance(log)
    assert found.log.missing == ()
    assert [(f.path, f.rows, f.why) for f in found.log.removed] == [(first.path, 100, why)]
    assert found.complete == complete
    assert said(found, "on purpose", why)
    assert said(found, "4 rows", "erased")


def ledger_entry(log) -> SegmentEntry:
    (path,) = log.glob("_ledger/*/*.json")
    return SegmentEntry.model_validate_json(path.read_bytes())


def test_losses_and_unreadable_entries_and_strays_are_told(log):
    write_traffic(log, traffic_rows(10, seed=2), segment="s2", lost={"torn": 3, "slow": 1})
    (log / "_ledger/date=2026-03-01/broken.json").write_text("{")
    shutil.copy(log / V1 / HOURS[0] / "s1.parquet", log / "copy.parquet")
    found = provenance(log)
    assert found.log.reading.lost == {"slow": 1, "torn": 3}
    assert said(found, "lost 3 rows", "a crash cut them off")
    assert said(found, "1 entry of the ledger", "broken.json")
    assert said(found, "copy.parquet", "not read")
    assert not found.complete


def test_losses_of_segments_outside_the_window_are_not_told(log):
    after = START + dt.timedelta(hours=6)
    write_traffic(log, traffic_rows(10, seed=2, since=after), segment="s2", lost={"torn": 3})
    assert provenance(log, until=after).log.reading.lost == {}
    assert provenance(log).log.reading.lost == {"torn": 3}


def segment_file(log, begun, suffix=".segment"):
    path = log / "_segments" / f"{begun:%Y%m%dT%H%M%SZ}-0a1b2c3d-00001{suffix}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"rows")
    return path


END = START + dt.timedelta(hours=6)


def test_an_older_segment_that_waits_makes_a_window_incomplete_though_later_ones_are_compacted(log):
    segment = segment_file(log, START + dt.timedelta(hours=1))
    write_traffic(log, traffic_rows(10, seed=2, since=END), segment="s2")
    found = provenance(log, until=END)
    assert found.log.reading.waiting == 1
    assert said(found, "1 segment of the log", "not compacted")
    assert not found.complete
    segment.unlink()
    assert provenance(log, until=END).complete


def test_a_segment_that_began_at_the_end_of_a_window_or_later_leaves_it_complete(log):
    segment_file(log, END)
    assert provenance(log, until=END).complete
    assert provenance(log, until=END).log.reading.waiting == 0
    assert not provenance(log, until=END + dt.timedelta(microseconds=1)).complete
    assert not provenance(log).complete


def test_a_segment_whose_name_tells_no_time_may_hold_rows_of_any_window(log):
    (log / "_segments").mkdir()
    (log / "_segments/now.segment").write_bytes(b"rows")
    assert not provenance(log, until=START + dt.timedelta(hours=1)).complete


def test_a_segment_of_outcomes_that_waits_makes_a_window_incomplete_whenever_it_began(
    log, tmp_path
):
    write_outcomes(tmp_path / "outcomes", outcome_rows(traffic_rows(400)))
    assert provenance(log, tmp_path / "outcomes", until=END).complete
    segment_file(tmp_path / "outcomes", END + dt.timedelta(days=30))
    found = provenance(log, tmp_path / "outcomes", until=END)
    assert said(found, "1 segment of the outcomes", "not compacted")
    assert not found.complete


def test_segments_that_were_set_aside_are_told_where_they_may_hold_rows_of_the_window(log):
    path = segment_file(log, START, ".unreadable")
    for span in ({}, {"since": START + dt.timedelta(hours=1), "until": END}):
        found = provenance(log, **span)
        assert found.log.reading.set_aside == (f"_segments/{path.name}",)
        assert said(found, "1 segment of the log", "set aside", path.name)
        assert not found.complete
        assert json.loads(json.dumps(found.to_dict()))["log"]["set_aside"]
    for span in ({"until": START}, {"since": START + dt.timedelta(days=3)}):
        assert provenance(log, **span).log.reading.set_aside == ()


LOST = (START + dt.timedelta(hours=5), START + dt.timedelta(hours=9))


@pytest.mark.parametrize("files", [True, False], ids=["beside rows", "in a log without a file"])
@pytest.mark.parametrize(
    ("since", "until", "told"),
    [
        (None, None, True),
        (LOST[0] + dt.timedelta(hours=1), LOST[0] + dt.timedelta(hours=2), True),
        (LOST[1], None, True),
        (LOST[1] + dt.timedelta(microseconds=1), None, False),
        (START - dt.timedelta(hours=1), LOST[0] + dt.timedelta(microseconds=1), True),
        (START - dt.timedelta(hours=1), LOST[0], False),
    ],
)
def test_losses_of_a_segment_without_a_file_are_told_of_every_hour_that_it_reports(
    tmp_path, files, since, until, told
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
    found = provenance(tmp_path, since=since, until=until)
    assert found.log.reading.lost == ({"disk": 7} if told else {})
    assert said(found, "lost 7 rows", "the disk refused them") == told
    assert found.complete != told


def test_the_outcomes_files_are_checked_in_the_same_way(log, tmp_path):
    write_outcomes(tmp_path / "outcomes", outcome_rows(traffic_rows(400)))
    first, second, *_ = sorted((tmp_path / "outcomes").rglob("*.parquet"))
    first.unlink()
    flip(second)
    found = provenance(log, tmp_path / "outcomes")
    assert len(found.outcomes.missing) == len(found.outcomes.corrupt) == 1
    assert said(found, "of the outcomes", "missing")
    assert not found.complete


def test_an_outcomes_folder_that_is_not_there_is_told(log, tmp_path):
    found = provenance(log, tmp_path / "nowhere")
    assert said(found, "no outcomes at", "nowhere")
    assert (found.complete, found.told.rows) == (False, 0)


def test_hours_without_a_file_are_named(log):
    shutil.rmtree(log / "_ledger")
    shutil.rmtree(log / V1 / HOURS[1])
    found = provenance(log)
    assert found.hours_without_files == ("2026-03-01 23h",)
    assert "2026-03-01 23h" in str(found)


def test_a_model_that_changes_its_mind_on_what_is_favourable_is_told(log):
    shutil.rmtree(log / "_ledger")
    rewrite(log / V1 / HOURS[2] / "s1.parquet", lambda t: renewed(t, favourable=0))
    assert said(provenance(log), "favourable changed within the window")


def treated(name, *treatments):
    """Columns of a model with one feature, as it was treated in turn."""
    return [
        TrafficColumns(
            features=(
                FeatureColumn(name=name, feature=name, place=0, kind="numeric", treatment=each),
            ),
            attributes=("sex",),
        )
        for each in treatments
    ]


def hourly(log, columns, keys):
    for hour, (each, key) in enumerate(zip(columns, keys, strict=True)):
        since = START + dt.timedelta(hours=hour)
        rows = traffic_rows(10, seed=hour, columns=each, since=since, hours=1)
        write_traffic(log, rows, segment=f"s{hour}", columns=each, pseudonyms=key)
    return provenance(log)


def test_a_feature_that_is_treated_in_another_way_is_told(tmp_path):
    found = hourly(tmp_path, treated("age", "keep", "bucket", "bucket"), [None] * 3)
    assert found.changes == {"treatment of age": ("keep", "bucket")}
    assert said(found, "What is written of age changed", "keep, then bucket", "compared")
    assert found.to_dict()["changes"] == {"treatment of age": ["keep", "bucket"]}


def test_a_hashed_feature_is_told_if_the_key_changed_and_one_that_is_kept_is_not(tmp_path):
    found = hourly(tmp_path / "hashed", treated("age", "hash", "hash"), ["k1", "k2"])
    assert found.changes["treatment of age"] == ("hash by key k1", "hash by key k2")
    assert found.changes["pseudonyms"] == ("k1", "k2")
    assert said(found, "pseudonym", "changed", "k1, then k2")
    found = hourly(tmp_path / "kept", treated("age", "keep", "keep"), [None, "k2"])
    assert found.changes == {"pseudonyms": ("no key", "k2")}


def test_treatments_are_compared_of_names_that_stand_in_one_column(tmp_path):
    (older,), (newer,) = treated("Age", "keep"), treated("age", "bucket")
    found = hourly(tmp_path, [older, newer], [None, None])
    assert found.changes == {"treatment of age": ("keep", "bucket")}


@pytest.mark.parametrize("about", [{"columns": 3}, {"columns": {"features": [{}]}}])
def test_a_file_whose_metadata_is_of_another_kind_is_left_out(log, about):
    shutil.rmtree(log / "_ledger")
    rewrite(log / V1 / HOURS[0] / "s1.parquet", lambda t: renewed(t, **about))
    (flaw,) = provenance(log).log.corrupt
    assert "metadata" in flaw.reason


def test_names_that_differ_in_case_or_are_those_of_outcomes_can_be_told_apart(tmp_path):
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
    found = provenance(log, tmp_path / "outcomes", since=START, until=START + dt.timedelta(hours=3))
    told = json.loads(json.dumps(found.to_dict()))
    assert told["log"]["missing"][0]["rows"] == 100
    assert told["complete"] is False
    assert told["warnings"] == list(found.warnings)
    assert told["log"]["files"][0].keys() == {
        "path", "rows", "bytes", "sha256", "verified", "erased",
    }  # fmt: skip
    place = str(tmp_path)
    assert all(len(line) <= 100 for line in str(found).splitlines() if place not in line)
