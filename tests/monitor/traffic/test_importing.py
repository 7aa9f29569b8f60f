"""Outcomes of a file are validated as a whole, and imported once."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyarrow import dataset
from pyarrow import parquet as pq

from monitor.errors import TrafficError
from monitor.traffic.importing import import_outcomes
from monitor.traffic.ledger import read_ledger
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.store import Store
from tests.commands import evenhand

PLAIN = Pseudonyms(None)
KNOWN = {"sex": ("man", "woman"), "ethnicity": ("a", "b")}
NOW = dt.datetime.now(dt.UTC)


def written(tmp_path, **columns):
    path = tmp_path / "outcomes.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def read(folder) -> list[dict[str, object]]:
    files = sorted(folder.rglob("*.parquet"))
    return [row for f in files for row in dataset.dataset(f).to_table().to_pylist()]


def imported(path, folder, **options):
    chosen = {"model": "lending", "known": KNOWN, **options}
    return import_outcomes(path, Store.open(folder, mode=0o700), PLAIN, **chosen)


def test_imported_outcomes_are_stored_like_recorded_ones(tmp_path):
    path = written(
        tmp_path,
        request_id=["a", "b"],
        row=pa.array([0, None], pa.int64()),
        label=pa.array([1.0, None]),
        group_sex=["man", None],
        ethnicity=pa.array([None, "b"]).dictionary_encode(),
        observed_at=pa.array([NOW, None], pa.timestamp("ns", "Europe/Berlin")),
    )
    result = imported(path, tmp_path / "out")
    assert (result.rows, result.labels, dict(result.groups)) == (2, 1, {"sex": 1, "ethnicity": 1})
    first, second = read(tmp_path / "out")
    assert (first["request_id"], first["row"], first["label"]) == ("a", 0, 1)
    assert (second["row"], second["label"], second["group_ethnicity"]) == (0, None, "b")
    assert first["observed_at"] == NOW
    assert first["source"] == second["source"] == "file"
    (entry,), _ = read_ledger(Store.open(tmp_path / "out"))
    assert (entry.kind, entry.rows) == ("outcomes", 2)


def test_the_same_file_is_imported_once(tmp_path):
    path = written(tmp_path, request_id=["a"], label=[1])
    imported(path, tmp_path / "out")
    assert imported(path, tmp_path / "out").already
    assert len(read(tmp_path / "out")) == 1


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"request_id": ["a", "b"], "label": [1, 2]}, "2 \\(label must be 0 or 1"),
        ({"request_id": ["a", ""], "label": [1, 1]}, "2 \\(request_id"),
        ({"request_id": ["a", "x" * 101], "label": [1, 1]}, "2 \\(request_id"),
        ({"request_id": ["a", None], "label": [1, 1]}, "2 \\(request_id"),
        ({"request_id": ["a", "b"], "row": [0, -1], "label": [1, 1]}, "2 \\(row"),
        ({"request_id": ["a", "b"], "label": [1, None]}, "2 \\(label and groups are both missing"),
        ({"request_id": ["a", "b"], "sex": ["man", "mann"]}, "2 \\(unknown group of sex"),
        (
            {
                "request_id": ["a", "b"],
                "label": [1, 1],
                "observed_at": [NOW, NOW + dt.timedelta(days=2)],
            },
            "2 \\(observed_at is in the future",
        ),
    ],
)
def test_a_file_with_an_invalid_row_is_rejected_with_the_row(tmp_path, columns, words):
    path = written(tmp_path, **columns)
    with pytest.raises(TrafficError, match=words) as error:
        imported(path, tmp_path / "out")
    assert "mann" not in str(error.value)
    assert "1 of 2 rows" in str(error.value)
    assert not read(tmp_path / "out")
    assert imported(path, tmp_path / "out", skip_bad=True).skipped == 1
    assert len(read(tmp_path / "out")) == 1
    (file,) = (tmp_path / "out").rglob("*.parquet")
    words = pq.read_table(file, partitioning=None)["group_sex"].chunk(0).dictionary.to_pylist()
    assert "mann" not in words


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": ["a"], "label": [1]}, "column request_id is missing"),
        ({"request_id": ["a"]}, "no column with labels or groups"),
        ({"request_id": ["a"], "lable": [1]}, "unknown column 'lable'"),
        ({"request_id": ["a"], "label": ["yes"]}, "cannot be converted to int8"),
        ({"request_id": ["a"], "label": [0.5]}, "cannot be converted to int8"),
        ({"request_id": ["a"], "sex": ["man"], "group_sex": ["man"]}, "are the same attribute"),
        (
            {"request_id": ["a"], "label": [1], "observed_at": [1_700_000_000]},
            "expected a timestamp",
        ),
        (
            {"request_id": ["a"], "label": [1], "observed_at": [dt.datetime(2026, 1, 1)]},  # noqa: DTZ001
            "no time zone",
        ),
    ],
)
def test_an_invalid_column_is_named(tmp_path, columns, words):
    with pytest.raises(TrafficError, match=words):
        imported(written(tmp_path, **columns), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_key_that_differs_from_existing_outcomes_is_rejected(tmp_path):
    path = written(tmp_path, request_id=["a"], label=[1])
    imported(path, tmp_path / "out")
    other, store = written(tmp_path, request_id=["b"], label=[1]), Store.open(tmp_path / "out")
    with pytest.raises(TrafficError, match=r"another key \(none\) than traffic.key_path"):
        import_outcomes(other, store, Pseudonyms(b"x" * 32), model="lending", known=KNOWN)
    assert len(read(tmp_path / "out")) == 1


def test_two_models_have_separate_files(tmp_path):
    path = written(tmp_path, request_id=["a"], label=[1])
    for model in ("lending", "hiring"):
        assert imported(path, tmp_path / "out", model=model).rows == 1
    entries, _ = read_ledger(Store.open(tmp_path / "out"))
    assert sorted(entry.model for entry in entries) == ["hiring", "lending"]


def test_a_file_that_is_not_a_table_is_rejected(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no")
    with pytest.raises(TrafficError, match="not a Parquet or CSV file"):
        imported(tmp_path / "a.parquet", tmp_path / "out")
    with pytest.raises(TrafficError, match="No such file"):
        imported(tmp_path / "b.parquet", tmp_path / "out")


def test_csv_files_are_read_with_ids_as_text(tmp_path):
    path = tmp_path / "outcomes.csv"
    path.write_text(
        "request_id,label,group_sex,observed_at\n007,1,man,2026-01-02T03:04:05Z\n8,,woman,\n"
    )
    assert imported(path, tmp_path / "out").rows == 2
    first, second = read(tmp_path / "out")
    assert (first["request_id"], first["label"]) == ("007", 1)
    assert first["observed_at"] == dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert (second["label"], second["group_sex"]) == (None, "woman")


def test_only_empty_csv_fields_are_null_and_leading_zeros_are_kept(tmp_path):
    path = tmp_path / "outcomes.csv"
    path.write_text("request_id,group_region\na,NA\nb,01\n")
    import_outcomes(path, Store.open(tmp_path / "out"), PLAIN, model="m")
    assert [row["group_region"] for row in read(tmp_path / "out")] == ["NA", "01"]


def test_two_models_may_import_the_same_file(tmp_path):
    path = written(tmp_path, request_id=["a"], label=[1])
    assert imported(path, tmp_path / "out").rows == 1
    assert imported(path, tmp_path / "out", model="other").rows == 1
    assert imported(path, tmp_path / "out", model="other").already


def test_a_failed_import_is_not_duplicated_the_next_day(tmp_path, monkeypatch):
    path, out = written(tmp_path, request_id=["a"], label=[1]), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("monitor.traffic.importing.write_entry", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            imported(path, out)
    (file,) = out.rglob("*.parquet")
    yesterday = file.parent.with_name("date=2020-01-01")
    file.parent.rename(yesterday)
    assert imported(path, out).rows == 1
    assert [file.parent for file in out.rglob("*.parquet")] == [yesterday]


def test_ids_are_replaced_by_the_pseudonyms_of_the_log(tmp_path):
    pseudonyms = Pseudonyms(b"k" * 32)
    path = written(tmp_path, request_id=["a"], label=[1])
    import_outcomes(path, Store.open(tmp_path / "out"), pseudonyms, model="m")
    assert read(tmp_path / "out")[0]["request_id"] == pseudonyms.of("a")


def test_the_command_validates_groups_against_the_bundle(lending, tmp_path):
    path = written(tmp_path, request_id=["a"], sex=["woman"], label=[0])
    options = ("log", "import", path, "--outcomes", tmp_path / "out")
    result = evenhand(*options, "--bundle", lending)
    assert result.exit_code == 0
    assert "imported 1 outcomes, 1 with a label, 1 with sex" in result.stdout
    assert "imported before" in evenhand(*options, "--bundle", lending).stdout
    with_unknown_group = written(tmp_path, request_id=["a"], sex=["femme"])
    rejected = evenhand(*options[:2], with_unknown_group, *options[3:], "--bundle", lending)
    assert rejected.exit_code == 2
    assert "unknown group of sex; known: man, woman" in rejected.stderr
    assert "femme" not in rejected.stderr
    assert evenhand(*options).exit_code == 2


def test_index_columns_of_data_frames_are_ignored(tmp_path):
    path = written(tmp_path, request_id=["a"], label=[1], __index_level_0__=[7])
    assert imported(path, tmp_path / "out").rows == 1


def test_a_label_in_words_is_refused_with_what_a_label_is(tmp_path):
    path = written(tmp_path, request_id=["a"], label=["repaid"])
    with pytest.raises(TrafficError, match="a label is 1 or 0, the index of the true class"):
        imported(path, tmp_path / "out")
