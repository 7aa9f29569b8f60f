"""A kernel runs only with its torch version and on processors with its instructions."""

from __future__ import annotations

import pytest
import torch

from monitor import Bundle, write_bundle
from monitor.scoring.kernel import Target, matching_targets
from tests.bundles import exported_classifier, small_spec

OLD, NEW = Target("2.13.0", "avx2"), Target("2.13.0", "avx512")


@pytest.mark.parametrize("target", [OLD, NEW, Target("2.14.0.dev20261101", "avx2")])
def test_a_target_is_parsed_from_its_file_name(target):
    assert Target.of_file(target.file) == target


@pytest.mark.parametrize(
    "name",
    ["classifier.pt2", "kernel/readme.txt", "kernel/avx2/kernel.so", "kernel/2.13.0-avx2.aoti"],
)
def test_other_file_names_are_not_targets(name):
    assert Target.of_file(name) is None


@pytest.mark.parametrize(
    ("target", "machine", "runs"),
    [
        (OLD, OLD, True),
        (OLD, NEW, True),
        (NEW, OLD, False),
        (Target("2.12.0", "avx2"), NEW, False),
        (Target("2.13.0", "sve"), NEW, False),
    ],
)
def test_a_kernel_runs_if_the_processor_has_its_instructions(target, machine, runs):
    assert target.runs_on(machine) is runs


def test_the_best_runnable_kernel_is_first():
    files = ["maps.npz", OLD.file, NEW.file, Target("2.12.0", "avx512").file]
    assert matching_targets(files, NEW) == [NEW, OLD]
    assert matching_targets(files, OLD) == [OLD]


def test_the_target_of_this_machine_has_the_torch_version_without_build():
    here = Target.here()
    assert here is None or here.torch == torch.__version__.partition("+")[0]


def test_a_kernel_is_a_valid_file_of_a_bundle(tmp_path):
    files = {"classifier.pt2": exported_classifier(), NEW.file: b"native code"}
    write_bundle(tmp_path / "bundle", small_spec(), files)
    assert Bundle.read(tmp_path / "bundle").files[NEW.file] == b"native code"
