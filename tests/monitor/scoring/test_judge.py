"""Compiled code scores predictions if it may and can run; otherwise uncompiled code does."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from monitor import Bundle, Drift, FitData, FitSpec, Judge, Model, World, fit
from monitor.drift.reference import DriftReference
from monitor.errors import BundleError
from monitor.fitting.spec import Output, ProtectedColumn
from monitor.npz import read_npz, write_npz
from monitor.scoring.judge import maps_to_npz
from monitor.scoring.kernel import Target
from monitor.scoring.scores import Signals
from tests.commands import evenhand
from tests.families import seeded

HERE = Target.here() or pytest.skip("nothing is compiled here", allow_module_level=True)
WORLD = World()
PEOPLE = WORLD.people(3_000, seed=5)
ROWS = torch.from_numpy(PEOPLE.features[:500])
SPEC = FitSpec(
    model=Model(name="lending", version="1"),
    classifier=Output(output="logit"),
    features=WORLD.features,
    one_hot_groups=WORLD.one_hot_groups,
    protected_attributes=(ProtectedColumn(column="sex", **WORLD.attributes[0].model_dump()),),
)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """A bundle with compiled code, as `fit` writes it."""
    path = tmp_path_factory.mktemp("judge") / "bundle"
    data = FitData(features=PEOPLE.features, groups={"sex": PEOPLE.groups["sex"]})
    result = fit(seeded("MLP"), data, SPEC, path)
    assert result.not_compiled == ""
    assert "compiled for torch" in result.compiled_in_words
    return path


def pinned(path: Path) -> Bundle:
    return Bundle.read(path, manifest_sha256=Bundle.read(path).manifest_sha256)


def with_files(bundle: Bundle, **kernels: bytes) -> Bundle:
    """A copy with other files in kernel/, by name."""
    files = {n: d for n, d in bundle.files.items() if not n.startswith("kernel/")}
    return replace(bundle, files=files | kernels)


def test_a_pinned_bundle_is_scored_by_compiled_code(fitted, caplog):
    judge = Judge.load(pinned(fitted))
    assert judge.kernel is not None
    assert judge.no_kernel_reason == ""
    assert caplog.records == []
    assert judge.code_in_words == f"compiled code, for torch {HERE.torch} on {HERE.level}"
    expected = judge.sensitivity.scores(ROWS)
    scores = judge.scores(ROWS)
    assert torch.allclose(scores.logit, expected.logit, rtol=1e-5, atol=1e-6)
    ours, theirs = scores.attributes["sex"], expected.attributes["sex"]
    for name in ours.__slots__:
        assert torch.allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pin", [True, False], ids=["compiled", "uncompiled"])
@pytest.mark.parametrize(
    "rows",
    [ROWS.numpy(), ROWS.double(), ROWS[:, :-1], ROWS[0], ROWS.long(), [[0.0] * 25]],
    ids=["numpy", "float64", "narrow", "one dimension", "integers", "list"],
)
def test_wrong_features_get_the_same_error_with_and_without_a_kernel(fitted, rows, pin):
    judge = Judge.load(pinned(fitted) if pin else Bundle.read(fitted))
    with pytest.raises(
        ValueError, match=r"^features are .*; they must be a float32 tensor \[n, 25\]"
    ):
        judge.scores(rows)


def test_zero_rows_can_be_scored(fitted):
    judge = Judge.load(pinned(fitted))
    assert len(judge.scores(ROWS[:0]).logit) == 0


def test_native_code_of_an_unpinned_bundle_is_never_run(fitted, caplog, monkeypatch):
    def fail_on_load(*_: object) -> None:
        raise AssertionError("native code was loaded")

    monkeypatch.setattr("monitor.scoring.judge.load_kernel", fail_on_load)
    with caplog.at_level(logging.WARNING):
        judge = Judge.load(Bundle.read(fitted))
    assert judge.kernel is None
    assert "pinned" in judge.no_kernel_reason
    assert "uncompiled code: native code runs only if" in caplog.text
    assert len(judge.scores(ROWS).logit) == len(ROWS)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("kernel/torch-2.6.0-avx2.aoti", "compiled for torch 2.6.0 on avx2; this is torch"),
        ("kernel/torch-{torch}-avx1024.aoti", "on avx1024; this is torch"),
        ("kernel/torch-{torch}-avx2.aoti", "cannot be loaded"),
        ("kernel/notes.txt", "contains no compiled code"),
    ],
)
def test_unsuitable_kernels_are_rejected_and_uncompiled_code_is_used(fitted, name, reason, caplog):
    name = name.format(torch=HERE.torch)
    judge = Judge.load(with_files(pinned(fitted), **{name: b"made for something else"}))
    assert judge.kernel is None
    assert reason in judge.no_kernel_reason
    assert reason in caplog.text
    assert torch.isfinite(judge.scores(ROWS).attributes["sex"].flip_probability).all()


def test_a_kernel_of_another_torch_is_not_loaded(fitted, monkeypatch):
    """The right code with the file name of another version; the name determines the target."""
    bundle = pinned(fitted)
    other = Target("2.12.1", HERE.level).file
    monkeypatch.setattr("monitor.scoring.judge.load_kernel", None)
    judge = Judge.load(with_files(bundle, **{other: bundle.files[HERE.file]}))
    assert "compiled for torch 2.12.1" in judge.no_kernel_reason


def test_a_kernel_with_different_output_is_rejected(fitted, tmp_path):
    """For example of an older evenhand, or of another classifier."""
    data = FitData(features=PEOPLE.features, groups={"sex": PEOPLE.groups["sex"]})
    other = fit(seeded("MLP", seed=9), data, SPEC, tmp_path / "other", compiled=False)
    mixed = with_files(other.bundle, **{HERE.file: pinned(fitted).files[HERE.file]})
    judge = Judge.load(mixed)
    assert judge.kernel is None
    assert "differs from that of the uncompiled pass" in judge.no_kernel_reason


def test_a_kernel_runs_without_a_compiler(fitted, tmp_path):
    """In another process with other folders, an empty PATH and no compiler cache."""
    moved = shutil.copytree(fitted, tmp_path / "moved")
    script = (
        "import sys, torch; from monitor import Bundle, Judge\n"
        "judge = Judge.load(Bundle.read(sys.argv[1], manifest_sha256=sys.argv[2]))\n"
        "assert judge.kernel is not None, judge.no_kernel_reason\n"
        "scores = judge.scores(torch.zeros(3, 25)); print(judge.code_in_words)"
    )
    digest = Bundle.read(moved).manifest_sha256
    result = subprocess.run(
        [sys.executable, "-c", script, moved, digest],
        env={"PATH": "", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith("compiled code")
    # No extracted file remains.
    assert not [p for p in tmp_path.rglob("*.so") if "moved" not in p.parts]


def test_a_kernel_contains_no_paths_of_the_machine_that_compiled_it(fitted):
    with zipfile.ZipFile(fitted / HERE.file) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            for secret in (str(Path.home()), str(Path(__file__).parents[3]), "/tmp/"):  # noqa: S108
                assert secret.encode() not in data, (name, secret)


@pytest.mark.live
def test_bundle_compile_adds_a_kernel_for_an_older_processor(fitted, tmp_path):
    path = shutil.copytree(fitted, tmp_path / "bundle")
    digest = Bundle.read(path).manifest_sha256
    result = evenhand("bundle", "compile", path, "--for", "avx2", "--pin", digest)
    assert result.exit_code == 0, result.stderr
    made = Bundle.read(path)
    assert made.manifest_sha256 in result.stdout
    assert {Target(HERE.torch, "avx2").file, HERE.file} <= made.files.keys()
    before = Bundle.read(fitted)
    assert made.manifest.fitted == before.manifest.fitted
    assert made.files["classifier.pt2"] == before.files["classifier.pt2"]
    older = with_files(pinned(path), **{k: d for k, d in made.files.items() if "avx2" in k})
    judge = Judge.load(older)
    assert judge.kernel is not None
    assert judge.kernel.target.level == "avx2"
    verified = evenhand("bundle", "verify", path, "--pin", made.manifest_sha256)
    assert f"compiled code, for torch {HERE.torch}" in verified.stdout
    unpinned = evenhand("bundle", "verify", path)
    assert "scored by uncompiled code: native code runs only if" in unpinned.stdout


def test_bundle_compile_drops_kernels_of_an_unpinned_bundle(fitted, tmp_path, monkeypatch):
    """The printed digest must not cover native code of an unpinned bundle."""
    monkeypatch.setattr("monitor.scoring.compiling.compile_kernel", lambda *_: b"made here")
    monkeypatch.setattr("monitor.scoring.kernel.load_kernel", lambda *_: None)
    path = shutil.copytree(fitted, tmp_path / "bundle")
    other = "avx2" if HERE.level == "avx512" else "avx512"
    result = evenhand("bundle", "compile", path, "--for", other)
    assert result.exit_code == 2
    assert "use --pin to keep that code, or --alone to drop it" in result.stderr
    assert Bundle.read(path) == Bundle.read(fitted)
    assert evenhand("bundle", "compile", path, "--for", other, "--alone").exit_code == 0
    kernels = {n: d for n, d in Bundle.read(path).files.items() if n.startswith("kernel/")}
    assert kernels == {Target(HERE.torch, other).file: b"made here"}


def test_extracted_files_are_deleted_after_loading(fitted, tmp_path, monkeypatch):
    """Otherwise a process that is killed repeatedly would fill the disk."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    bundle = pinned(fitted)
    judge = Judge.load(bundle)
    assert judge.kernel is not None
    assert not list(tmp_path.rglob("*.so"))
    broken = with_files(bundle, **{HERE.file: bundle.files[HERE.file][:-100]})
    assert Judge.load(broken).kernel is None
    assert not list(tmp_path.rglob("*.so"))
    assert len(judge.scores(ROWS).logit) == len(ROWS)


def test_another_kernel_is_used_if_the_best_is_broken(fitted, monkeypatch):
    if HERE.level == "avx2":
        pytest.skip("no processor level is below this one")
    bundle = pinned(fitted)
    older = Target(HERE.torch, "avx2").file
    both = with_files(bundle, **{HERE.file: b"broken", older: bundle.files[HERE.file]})
    judge = Judge.load(both)
    assert judge.kernel is not None
    assert judge.kernel.target.level == "avx2"


def test_bundle_compile_rejects_a_bundle_that_cannot_score(tmp_path, bundle_path):
    (bundle_path / "maps.npz").write_bytes(b"x")
    result = evenhand("bundle", "compile", bundle_path)
    assert result.exit_code == 2
    assert "maps.npz" in result.stderr


def test_a_bundle_that_was_not_fitted_cannot_be_compiled(bundle_path):
    result = evenhand("bundle", "compile", bundle_path)
    assert result.exit_code == 2
    assert "which scoring needs; create the bundle with `evenhand fit`" in result.stderr


def test_fit_succeeds_without_a_compiler_and_reports_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    data = FitData(features=PEOPLE.features, groups={"sex": PEOPLE.groups["sex"]})
    result = fit(seeded("MLP"), data, SPEC, tmp_path / "bundle")
    assert "no C++ compiler" in result.not_compiled
    assert "`evenhand bundle compile` adds" in result.compiled_in_words
    judge = Judge.load(result.bundle)
    assert "contains no compiled code" in judge.no_kernel_reason


def test_a_drift_watch_starts_from_the_reference_of_the_bundle(fitted):
    """The fitted population raises no alarm; another population does, with cause covariates."""
    bundle = pinned(fitted)
    judge = Judge.load(bundle)
    drift = Drift.start(
        judge.drift, bundle_digest=bundle.manifest_sha256, rng=np.random.default_rng(1)
    )
    alike = torch.from_numpy(WORLD.people(3_000, seed=6).features)
    for rows in alike.split(32):
        drift.update(judge.scores(rows).predictions)
    assert not drift.alarms
    others = WORLD.people(6_000, seed=7)
    women = torch.from_numpy(others.features[others.groups["sex"] == 1])
    for rows in women.split(32):
        drift.update(judge.scores(rows).predictions)
    assert {alarm.cause for alarm in drift.alarms} == {"covariates"}
    restored = Drift.from_npz(drift.to_npz(), judge.drift, bundle_digest=bundle.manifest_sha256)
    assert restored.alarms == drift.alarms


def test_a_drift_reference_of_other_attributes_is_rejected(fitted, tmp_path):
    bundle = pinned(fitted)
    other = DriftReference.from_rows(
        np.arange(8.0),
        {
            "age": Signals(
                hard_flips=np.zeros(8), expected_change=np.ones(8), posterior=np.ones((8, 2)) / 2
            )
        },
        seed=0,
    )
    with pytest.raises(BundleError, match="other protected attributes"):
        Judge.load(replace(bundle, files=bundle.files | {"drift.npz": other.to_npz()}))


def test_inconsistent_maps_are_rejected(fitted):
    bundle = pinned(fitted)
    with pytest.raises(BundleError, match=r"maps\.npz is damaged"):
        Judge.load(replace(bundle, files=bundle.files | {"maps.npz": b"PK\x03\x04"}))


@pytest.mark.parametrize("draws", [[0], [65], [3, 3], [], ["3"], [True], [2.0], 3])
def test_a_bad_number_of_draws_is_refused(fitted, draws):
    bundle = pinned(fitted)
    header, arrays = read_npz(bundle.files["maps.npz"])
    assert len(header["draws"]) == 1
    damaged = write_npz({**header, "draws": draws}, arrays)
    with pytest.raises(BundleError, match="draws must be 1 numbers between 1 and 64"):
        Judge.load(replace(bundle, files={**bundle.files, "maps.npz": damaged}))


def test_the_number_of_draws_is_stored_and_shown(fitted):
    bundle = Bundle.read(fitted)
    judge = Judge.load(bundle, warn=False)
    maps = {"sex": replace(judge.sensitivity.maps["sex"], draws=8)}
    stored = maps_to_npz(maps, judge.sensitivity.logit_spread)
    loaded = Judge.load(replace(bundle, files={**bundle.files, "maps.npz": stored}), warn=False)
    assert loaded.sensitivity.maps["sex"].draws == 8
    # A bundle that is older than the choice has the fewest draws.
    header, arrays = read_npz(stored)
    older = write_npz({"logit_spread": header["logit_spread"]}, arrays)
    loaded = Judge.load(replace(bundle, files={**bundle.files, "maps.npz": older}), warn=False)
    assert loaded.sensitivity.maps["sex"].draws == 3
    shown = evenhand("bundle", "inspect", fitted).stdout
    assert f"draws       sex {judge.sensitivity.maps['sex'].draws}" in shown
