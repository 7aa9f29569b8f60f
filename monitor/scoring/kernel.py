"""The kernel: the joint pass as native code.

`fit` compiles `Sensitivity.joint` ahead of time (`monitor.scoring.compiling`) and stores the code
in the folder `kernel/` of the bundle, one file per torch version and processor level. Compiling
needs a C++ compiler, running does not. If no file matches this machine, or if the output of the
code differs from that of the uncompiled pass, the uncompiled pass is used.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from monitor.bundle.classifier import probe_features
from monitor.errors import KernelError, first_line

if TYPE_CHECKING:
    from monitor.scoring.sensitivity import Sensitivity

__all__ = ["LEVELS", "Kernel", "Target", "load_kernel", "matching_targets", "private_folder"]

# Processor levels, each a superset of those before it, and the compiler's names for them.
LEVELS = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}
_FOLDER, _SUFFIX = "kernel/", ".aoti"
_PROBE_ROWS = 64
# Every batch size that takes its own path through the compiled code.
_PROBE_BATCHES = (1, 2, 17, 64)
# Name of the model in the package, run_single_threaded, number of runners, device index.
_LOADING = ("model", False, 1, -1)
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """A torch version and a processor level that a kernel is compiled for.

    Attributes:
        torch: Version of torch, without the local build tag.
        level: One of `LEVELS`.
    """

    torch: str
    level: str

    @classmethod
    def here(cls) -> Target | None:
        """Target of this process; None if its processor is not supported."""
        level = torch.backends.cpu.get_cpu_capability().lower()
        if platform.machine() not in ("x86_64", "AMD64") or level not in LEVELS:
            return None
        # 2.13.0+cpu and 2.13.0 run the same kernels.
        return cls(torch.__version__.partition("+")[0], level)

    @classmethod
    def of_file(cls, name: str) -> Target | None:
        """Target of a file of a bundle, by its name; None if the file is not a kernel."""
        if not (name.startswith(_FOLDER) and name.endswith(_SUFFIX)):
            return None
        version, _, level = name[len(_FOLDER) : -len(_SUFFIX)].rpartition("-")
        target = cls(version.removeprefix("torch-"), level)
        return target if target.file == name else None

    @property
    def file(self) -> str:
        """Name of the kernel's file in a bundle."""
        return f"{_FOLDER}torch-{self.torch}-{self.level}{_SUFFIX}"

    def runs_on(self, machine: Target) -> bool:
        """Whether a machine can run a kernel for this target."""
        order = list(LEVELS)
        return (
            self.torch == machine.torch
            and self.level in LEVELS
            and order.index(self.level) <= order.index(machine.level)
        )


def matching_targets(files: Iterable[str], machine: Target) -> list[Target]:
    """Targets of a bundle's kernels that a machine can run, the highest level first."""
    targets = [target for name in files if (target := Target.of_file(name)) is not None]
    order = list(LEVELS)
    runnable = [target for target in targets if target.runs_on(machine)]
    return sorted(runnable, key=lambda target: order.index(target.level), reverse=True)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled joint pass. Not safe for concurrent calls.

    Attributes:
        target: Target that it was compiled for.
        width: Number of feature columns, d.
    """

    target: Target
    width: int
    _loader: torch._C._aoti.AOTIModelPackageLoader

    def joint(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Result of `Sensitivity.joint`: features `[n, d]` to `[n, w]` and `[n, a, d]`.

        Raises:
            ValueError: The features have another dtype or shape than the kernel was compiled for.
        """
        # Native code does not check dtype and shape, and would read memory out of bounds.
        fits = features.dtype == torch.float32 and features.dim() == 2
        if not fits or features.shape[1] != self.width or features.shape[0] == 0:
            actual = f"{features.dtype} {list(features.shape)}"
            raise ValueError(f"compiled for torch.float32 [n, {self.width}], not for {actual}")
        packed, contributions = self._loader.run([features.contiguous()])
        return packed, contributions


def load_kernel(data: bytes, target: Target, sensitivity: Sensitivity) -> Kernel:
    """Load a kernel and compare it with the uncompiled pass on probe rows. Runs native code.

    Raises:
        KernelError: It cannot be loaded, or its output differs from that of the uncompiled pass.
    """
    try:
        # torch unpacks the package into TMPDIR and leaves it there if the process is killed. The
        # unpacked files are not needed once the code is loaded.
        with private_folder("TMPDIR") as folder:
            package = Path(folder, "kernel.pt2")
            package.write_bytes(data)
            loader = torch._C._aoti.AOTIModelPackageLoader(str(package), *_LOADING)
    except (RuntimeError, OSError) as error:
        raise KernelError(f"the kernel cannot be loaded: {first_line(error)}") from None
    kernel = Kernel(target, sensitivity.spec.width, loader)
    _compare(kernel, sensitivity)
    return kernel


def _compare(kernel: Kernel, sensitivity: Sensitivity) -> None:
    features = torch.from_numpy(probe_features(sensitivity.spec, _PROBE_ROWS))
    for rows in _PROBE_BATCHES:
        expected = sensitivity.joint(features[:rows])
        try:
            actual = kernel.joint(features[:rows])
        except (RuntimeError, ValueError) as error:
            raise KernelError(f"the kernel fails on {rows} rows: {first_line(error)}") from None
        for compiled, uncompiled in zip(actual, expected, strict=True):
            if compiled.shape != uncompiled.shape or not torch.allclose(
                compiled,
                uncompiled.to(compiled.dtype),
                rtol=_RELATIVE,
                atol=_ABSOLUTE,
                equal_nan=True,
            ):
                raise KernelError(
                    f"on {rows} probe rows the output of the kernel differs from that of the "
                    "uncompiled pass"
                )


@contextmanager
def private_folder(variable: str) -> Iterator[str]:
    """A temporary folder that only this user can read, set as an environment variable."""
    before = os.environ.get(variable)
    with tempfile.TemporaryDirectory(prefix="evenhand-", ignore_cleanup_errors=True) as folder:
        os.environ[variable] = folder
        try:
            yield folder
        finally:
            if before is None:
                del os.environ[variable]
            else:
                os.environ[variable] = before
