"""A saved state is restored exactly; a damaged one starts a new watch with a note."""

from __future__ import annotations

import json

import numpy as np
import pytest

from monitor import Drift
from monitor.drift.reference import DetectorId
from monitor.drift.state import read_state_file, write_state_file
from monitor.errors import ServeError
from monitor.npz import read_npz, write_npz
from tests.monitor.drift.streams import DIGEST, predictions, reference, watch

REF = reference(400)
ALARM = {
    "watcher": ["change", "sex"],
    "at": 3,
    "value": 14.0,
    "cause": "unclear",
    "decides_at": 1_003,
}


def used_watch(seed=1) -> Drift:
    """A watch after a change and an acknowledged alarm, with partial blocks."""
    rng, drift = np.random.default_rng(seed), watch(REF, seed=seed, window=1_000)
    drift.update(predictions(rng, 500))
    drift.update(predictions(rng, 777, treatment=3.0))
    drift.acknowledge(DetectorId("change", "sex"))
    drift.update(predictions(rng, 100, treatment=3.0))
    return drift


DATA = used_watch().to_npz()


def restored(data: bytes) -> Drift:
    return Drift.from_npz(data, REF, bundle_digest=DIGEST, window=1_000)


def changed_state(**changes) -> bytes:
    """The state with header fields or arrays replaced by values or by functions of the old ones."""
    head, arrays = read_npz(DATA)
    for name, change in changes.items():
        part = arrays if name in arrays else head
        part[name] = change(part[name]) if callable(change) else change
    return write_npz(head, arrays)


def with_(index, value):
    def change(array):
        array[index] = value
        return array

    return change


def assert_restarted(drift: Drift, message: str) -> None:
    assert message in drift.note
    assert len(drift.note) < 400
    assert (drift.seen, drift.alarms) == (0, ())
    drift.update(predictions(np.random.default_rng(0), 300))
    assert drift.seen == 300


def test_the_unchanged_state_is_restored():
    again = restored(changed_state(alarms=[ALARM]))
    assert again.note == ""
    assert again.seen == 1_377
    assert [alarm.watcher for alarm in again.alarms] == [DetectorId("change", "sex")]
    again.update(predictions(np.random.default_rng(0), 50))


def test_any_state_of_a_watch_can_be_restored():
    """The checks accept every state after restarts, merges, missing scores and long streams."""
    drift = used_watch()
    for round_ in range(4):
        rng = np.random.default_rng(round_)
        other = used_watch(seed=round_ + 2)
        batch = predictions(rng, 700, treatment=20.0 * (round_ % 2))
        batch.margin[::3] = np.nan
        batch.attributes["sex"].hard_flips[::5] = -9e-6
        batch.attributes["sex"].posterior[:] = np.nan
        batch.attributes["sex"].expected_change[::4] = np.inf
        drift = drift.merged(other)
        drift.update(batch)
        assert restored(drift.to_npz()).note == ""
        for alarm in drift.alarms[::2]:
            drift.acknowledge(alarm.watcher)
        again = restored(drift.to_npz())
        assert (again.note, again.streams, again.seen) == ("", drift.streams, drift.seen)
        assert again.alarms == drift.alarms


def test_a_flipped_bit_is_detected_or_changes_nothing():
    """Every bit of the zip and npy headers; the arrays themselves have checksums."""
    directory = DATA.index(b"PK\x01\x02")
    for position in [*range(200), *range(directory, len(DATA))]:
        for bit in range(8):
            data = bytearray(DATA)
            data[position] ^= 1 << bit
            again = restored(bytes(data))
            assert again.note or again.seen == 1_377


@pytest.mark.parametrize("length", [0, 1, 30, 1_000, len(DATA) - 1])
def test_a_truncated_state_starts_a_new_watch(length):
    assert_restarted(restored(DATA[:length]), "cannot be read")


def test_a_state_of_another_size_starts_a_new_watch():
    assert_restarted(restored(changed_state(more="x" * 400_000)), "too large")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": True}, "another format: True"),
        ({"version": 1.0}, "another format: 1.0"),
        ({"version": "9" * 5_000}, "another format"),
        ({"window": 1_000.0}, "another window"),
        ({"seen": float("inf")}, "number of predictions"),
        ({"seen": -7}, "number of predictions"),
        ({"seen": 1_377.0}, "number of predictions"),
        ({"seen": 10**300}, "number of predictions"),
        ({"seen": 1_376}, "counts"),
        ({"tested": 21}, "number of windows"),
        ({"tested": None}, "number of windows"),
        ({"streams": []}, "streams"),
        ({"streams": ["x"]}, "streams"),
        ({"streams": "0" * 16}, "streams"),
        ({"streams": [7]}, "cannot be read"),
        ({"streams": [f"{n:016x}" for n in range(10_001)]}, "streams"),
        ({"alarms": 7}, "cannot be read"),
        ({"alarms": ["x"]}, "cannot be read"),
    ],
)
def test_an_invalid_header_starts_a_new_watch(changes, message):
    assert_restarted(restored(changed_state(**changes)), message)


@pytest.mark.parametrize(
    "field",
    [
        {"watcher": ["change", "age"]},
        {"watcher": ["share", None]},
        {"watcher": ["other", "sex"]},
        {"watcher": [["change"], "sex"]},
        {"at": "x"},
        {"at": 0},
        {"at": 1_378},
        {"at": True},
        {"value": "x"},
        {"value": float("nan")},
        {"value": None},
        {"cause": "weather"},
        {"decides_at": 2},
        {"decides_at": 1e3},
        {"more": 1},
    ],
)
def test_an_impossible_alarm_starts_a_new_watch(field):
    assert_restarted(restored(changed_state(alarms=[ALARM | field])), "the saved state")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counts": with_((1, 3), -1.0)}, "counts"),
        ({"counts": with_((1, 3), 0.5)}, "counts"),
        ({"counts": with_((0, 3), 1e308)}, "counts"),
        ({"counts": with_((0, 3), 1_378)}, "counts"),
        ({"based": with_(0, value=True)}, "counts"),
        ({"log_sr": with_(0, 1e300)}, "log_sr"),
        ({"log_sr": with_(0, -1e3)}, "log_sr"),
        ({"log_product": with_(0, 1e5)}, "log_product"),
        ({"log_product": with_(0, -1e5)}, "log_product"),
        ({"totals": with_((0, 0), 1_378.0)}, "totals"),
        ({"totals": with_((0, 1), 1e308)}, "totals"),
        ({"totals": with_((0, 1), -1.0)}, "totals"),
        ({"totals": with_((0, 2), -1.0)}, "totals"),
        ({"totals": lambda totals: np.floor(totals / 2)}, "starts"),
        ({"starts": with_((0, 0), 1.0)}, "starts"),
        ({"starts": with_((0, 20, 0), 1_370.5)}, "starts"),
        ({"starts": with_((0, 20), [1_377.0, 1_000.0, 1_000.0])}, "starts"),
        ({"starts": with_((0, 5, 0), -2.0)}, "starts"),
        ({"raised_for": with_(0, -1)}, "raised_for"),
        ({"raised_for": with_(0, 1_378)}, "raised_for"),
        ({"counts": lambda counts: counts.astype(np.float32)}, "counts"),
        ({"log_sr": lambda logs: logs[:, None]}, "log_sr"),
        ({"log_sr": lambda logs: logs * np.nan}, "log_sr"),
    ],
)
def test_arrays_that_no_stream_produces_start_a_new_watch(changes, message):
    assert_restarted(restored(changed_state(**changes)), f"invalid {message}")


def test_a_deeply_nested_header_starts_a_new_watch(monkeypatch):
    real = json.dumps
    monkeypatch.setattr(json, "dumps", lambda head: real(head)[:-1] + ', "x": ' + "[" * 100_000)
    assert_restarted(restored(changed_state()), "cannot be read")


def test_the_state_file_is_replaced_and_no_temporary_file_remains(tmp_path):
    path = tmp_path / "deep" / "drift.npz"
    assert read_state_file(path) is None
    for data in (b"one", b"two"):
        write_state_file(path, data)
        assert read_state_file(path) == data
    assert [file.name for file in path.parent.iterdir()] == ["drift.npz"]


def test_a_failed_write_keeps_the_old_state_file(tmp_path):
    path = tmp_path / "drift.npz"
    write_state_file(path, b"old")
    with pytest.raises(TypeError):
        write_state_file(path, "no bytes")  # type: ignore[arg-type]
    assert read_state_file(path) == b"old"


def test_a_state_path_that_cannot_be_written_is_a_startup_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ServeError, match=r"drift\.state_path"):
        read_state_file(tmp_path / "file" / "drift.npz")
    with pytest.raises(ServeError, match=r"drift\.state_path"):
        read_state_file(tmp_path)


@pytest.mark.parametrize("version", [1, 2])
def test_a_state_of_an_older_format_starts_a_new_watch(version):
    message = f"belongs to another format: {version}, not 3"
    assert_restarted(restored(changed_state(version=version)), message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bound_sums": with_((0, 0, 0), 5.0)}, "has invalid bounds"),
        ({"bound_sums": with_((..., 0), 2_000.0)}, "has invalid bounds"),
        ({"bound_sums": with_((0, 1, 1), 1e308)}, "has invalid bounds"),
        ({"bound_sums": with_((1, 0, 2), -1.0)}, "has invalid bounds"),
        ({"bound_sums": lambda sums: sums[:1]}, "has invalid bound_sums"),
        ({"bound_guesses": with_((0, 1), 1.1)}, "has invalid guesses"),
        ({"bound_guesses": with_((0, 1), np.nan)}, "has invalid bound_guesses"),
    ],
)
def test_bounds_that_no_stream_produces_start_a_new_watch(changes, message):
    assert_restarted(restored(changed_state(**changes)), message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"effect_totals": with_((0, 0), 5.5)}, "has invalid effects"),
        ({"effect_totals": with_(0, (2_000.0, 3.0, 1.0))}, "has invalid effects"),
        ({"effect_totals": with_(0, (20.0, 3.0, 1.0))}, "has effects without an alarm"),
        ({"effect_changes": with_((1, 0), 3.0)}, "has effects without an alarm"),
        ({"effect_changes": with_((1, 0), -3.0)}, "has invalid expected changes"),
        ({"effect_changes": with_((1, 1), np.nan)}, "has invalid effect_changes"),
        ({"effect_rose": with_(0, value=True)}, "has effects without an alarm"),
        (
            {"effect_rose": with_(0, value=True), "alarms": [ALARM]},
            "has effects without predictions",
        ),
    ],
)
def test_impossible_effects_start_a_new_watch(changes, message):
    # `changed_state` changes the list of alarms in place when a state is read.
    changes = {k: [dict(a) for a in v] if k == "alarms" else v for k, v in changes.items()}
    assert_restarted(restored(changed_state(**changes)), message)
