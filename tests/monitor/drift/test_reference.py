"""The reference summarises the baseline's predictions, and is read as it was written."""

from __future__ import annotations

import io
import json
import pickle

import numpy as np
import pytest

from monitor.drift.reference import DriftReference
from monitor.errors import BundleError, FitError
from monitor.scoring.scores import Signals
from tests.monitor.drift.streams import predictions, reference


def make_reference(margin, change, *, seed=0, name="sex") -> DriftReference:
    n = len(margin)
    half = np.full((n, 2), 0.5)
    signals = Signals(hard_flips=np.zeros(n), expected_change=np.array(change), posterior=half)
    return DriftReference.from_rows(np.array(margin, float), {name: signals}, seed=seed)


def test_one_half_of_the_rows_sets_the_bins_and_the_other_half_is_counted():
    rng = np.random.default_rng(1)
    ref = make_reference(rng.normal(size=1_001), rng.gamma(1, size=1_001))
    assert ref.counts.sum(1).tolist() == [500] * 3
    assert ref.shares["sex"].count == 1_001


def test_bins_are_not_set_by_the_counted_rows():
    """Counted rows exceed the last edge as often as new rows, not as the rows that set it."""
    rng, beyond, own = np.random.default_rng(2), 0, 0
    for _ in range(400):
        margin = rng.normal(size=100)
        ref = make_reference(margin, margin)
        edge = ref.edges[0][-1]
        counted = ref.counts[0, len(ref.edges[0])]
        beyond += counted
        own += (margin >= edge).sum() - counted
    # 49 of 50 rows are below the last edge; a new row is at or above it with probability 2/51.
    assert beyond == pytest.approx(400 * 50 * 2 / 51, rel=0.15)
    assert own == 400 * 2


def test_a_frequent_value_has_its_own_bin():
    rng = np.random.default_rng(3)
    change = np.where(rng.random(2_000) < 0.4, 0.0, rng.gamma(1, size=2_000))
    ref = make_reference(rng.normal(size=2_000), change)
    bin_index = ref.edges[0].searchsorted(0.0, side="right")
    assert ref.edges[0].searchsorted(5e-324, side="right") == bin_index + 1
    assert ref.counts[0, bin_index] == pytest.approx(400, abs=5 * np.sqrt(240))


def test_bins_are_finer_in_the_tails():
    ref = reference(8_000)
    shares = ref.counts[1, 1 : len(ref.edges[1]) + 1] / ref.counts[1].sum()
    assert shares[[0, 1, -2, -1]].max() < 0.01
    assert shares.max() < 0.05


@pytest.mark.parametrize(
    "scores", [np.zeros(50), np.full(50, -np.inf), np.array([-np.inf, 1] * 25)]
)
def test_constant_and_infinite_scores_can_be_counted(scores):
    ref = make_reference(scores, scores)
    assert ref.counts[:, 1:].sum(1).tolist() == [25] * 3


@pytest.mark.parametrize("name", ["sex", "a/b", "head", "edges0", "ж 'x' \\ ../", "日本"])
def test_a_reference_is_read_as_it_was_written_for_any_attribute_name(name):
    rng = np.random.default_rng(4)
    ref = make_reference(rng.normal(size=60), rng.normal(size=60), name=name)
    again = DriftReference.from_npz(ref.to_npz())
    assert again.shares == ref.shares
    assert again.layout == ref.layout
    assert (again.counts == ref.counts).all()
    assert all((a == b).all() for a, b in zip(again.edges, ref.edges, strict=True))


def changed_file(change) -> bytes:
    with np.load(io.BytesIO(reference(200).to_npz())) as file:
        arrays = dict(file)
    change(arrays)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def head(**fields):
    return lambda a: a.update(head=np.array(json.dumps(json.loads(str(a["head"])) | fields)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("edges1"), "is damaged"),
        (lambda a: a.update(edges1=a["edges1"][::-1].copy()), "not in ascending order"),
        (lambda a: a.update(edges1=a["edges1"][:0]), "not in ascending order"),
        (lambda a: a.update(edges1=np.array(-np.inf)), "not in ascending order"),
        (lambda a: a.update(edges1=a["edges1"].astype("U9")), "not in ascending order"),
        (lambda a: a.update(counts=a["counts"][:, 1:]), "do not match"),
        (lambda a: a.update(counts=a["counts"] - 1), "do not match"),
        (lambda a: a.update(counts=a["counts"] * np.nan), "do not match"),
        (lambda a: a.update(counts=a["counts"] * 1e300), "do not match"),
        (lambda a: a["counts"].__setitem__((1, 0), 1.0), "outside of its bins"),
        (lambda a: a["counts"].__setitem__((0, -1), 1.0), "outside of its bins"),
        (lambda a: a.update(shares=a["shares"][:, :2]), "flip shares"),
        (lambda a: a.update(shares=a["shares"] * [1, 100, 1]), "flip shares"),
        (lambda a: a.update(shares=a["shares"] * [1, 1, 1e6]), "flip shares"),
        (lambda a: a.update(shares=a["shares"] + [0.5, 0, 0]), "flip shares"),
        (lambda a: a.update(head=np.array("{}")), "is damaged"),
        (head(version=9), "version 9"),
        (head(version=True), "version True"),
        (head(groups=[["sex", 7]]), "is damaged"),
        (head(groups=[["sex", float("inf")]]), "numbers of groups"),
        (head(groups=[["sex", 10**9]]), "numbers of groups"),
        (head(groups=[["sex", 10**9], ["age", -(10**9)]]), "numbers of groups"),
        (head(groups=[]), "numbers of groups"),
        (head(groups=7), "is damaged"),
        (lambda a: a.update(head=np.array("[" * 100_000)), "is damaged"),
    ],
)
def test_an_inconsistent_file_is_rejected(change, message):
    with pytest.raises(BundleError, match=message):
        DriftReference.from_npz(changed_file(change))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", pickle.dumps({"a": 1}), b"\x93NUMPY"])
def test_bytes_that_are_not_a_reference_are_rejected(data):
    with pytest.raises(BundleError, match=r"drift\.npz"):
        DriftReference.from_npz(data)


def test_a_flipped_bit_is_rejected_or_changes_nothing():
    """Every bit of the zip and npy headers; the arrays themselves have checksums."""
    ref = reference(200)
    whole = ref.to_npz()
    for position in [*range(200), *range(whole.index(b"PK\x01\x02"), len(whole))]:
        for bit in range(8):
            data = bytearray(whole)
            data[position] ^= 1 << bit
            try:
                again = DriftReference.from_npz(bytes(data))
            except BundleError:
                continue
            assert (again.counts == ref.counts).all()


def test_a_pickle_inside_is_not_loaded():
    def change(arrays):
        arrays["counts"] = np.array([{"a": 1}], dtype=object)

    with pytest.raises(BundleError, match="is damaged"):
        DriftReference.from_npz(changed_file(change))


def test_unsuitable_calibration_rows_are_rejected():
    with pytest.raises(FitError, match="not a number"):
        make_reference([1.0, 2, 3, np.nan], [0.0] * 4)
    with pytest.raises(FitError, match="at least 4 rows"):
        make_reference([1.0], [0.0])
    with pytest.raises(FitError, match="protected attribute"):
        DriftReference.from_rows(np.zeros(9), {}, seed=0)


def test_signals_of_different_lengths_are_rejected():
    batch = predictions(np.random.default_rng(0), 9)
    with pytest.raises(ValueError, match="do not have the shapes of 8 predictions and 2 groups"):
        DriftReference.from_rows(batch.margin[:8], batch.attributes, seed=0)
