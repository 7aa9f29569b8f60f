"""Compile the joint pass ahead of time: trace, export with a batch of any size, AOTInductor."""

from __future__ import annotations

import io
import shutil
import warnings
import zipfile
from pathlib import Path

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from monitor.bundle.classifier import probe_features
from monitor.errors import KernelError, first_line
from monitor.scoring.kernel.folder import private_folder
from monitor.scoring.kernel.target import LEVELS, Target
from monitor.scoring.sensitivity import Sensitivity
from monitor.threads import one_thread

__all__ = ["compile_kernel"]

_BITS = {"avx2": 256, "avx512": 512}
# Traced with several rows, since torch takes a batch of 0 or 1 for one that never grows.
_TRACED_ROWS = 4


def compile_kernel(sensitivity: Sensitivity, target: Target) -> bytes:
    """The joint pass as native code, for batches of any size on one thread.

    Args:
        sensitivity: What is compiled, with all its parameters.
        target: For which processors; at most as able as this one, and for the torch that is here.

    Raises:
        KernelError: There is no C++ compiler, or torch cannot compile the pass.
    """
    _check(target)
    features = torch.from_numpy(probe_features(sensitivity.spec, _TRACED_ROWS))
    # What the compiler leaves behind holds weights and quantiles of people, so it is not left.
    with private_folder("TORCHINDUCTOR_CACHE_DIR") as folder, one_thread():
        package = Path(folder, "kernel.pt2")
        try:
            with warnings.catch_warnings():
                # torch warns of its own habits.
                warnings.simplefilter("ignore")
                torch._inductor.aoti_compile_and_package(
                    _exported(sensitivity, features),
                    package_path=str(package),
                    inductor_configs=_options(target),
                )
            return _stripped(package)
        except Exception as error:
            told = first_line(error)
            raise KernelError(f"torch cannot compile the joint pass: {told}") from error


def _stripped(package: Path) -> bytes:
    """The package without its sources, and without the names of this machine's folders."""
    folders = (Path(torch.__file__).parent, package.parent)
    out = io.BytesIO()
    with zipfile.ZipFile(package) as archive, zipfile.ZipFile(out, "w") as rebuilt:
        for name in archive.namelist():
            data = archive.read(name)
            if name.endswith((".cpp", ".kernel_metadata.json")):
                continue
            if name.endswith(".so"):
                # In messages of checks; of the same length, since code points behind them.
                for folder in folders:
                    data = data.replace(str(folder).encode(), b"/" * len(str(folder)))
            rebuilt.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def _check(target: Target) -> None:
    here = Target.here()
    if here is None or not target.runs_on(here):
        able = "nothing" if here is None else f"{here.level} and torch {here.torch}"
        raise KernelError(
            f"cannot compile for {target.level} and torch {target.torch}: what is compiled is "
            f"tried before it is stored, and this machine runs {able}"
        )
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        raise KernelError("no C++ compiler was found (g++ or clang++)")


def _exported(sensitivity: Sensitivity, features: Tensor) -> torch.export.ExportedProgram:
    """The joint pass as one graph, gradients included, that asks nothing of the batch's size."""

    def joint(features: Tensor) -> tuple[Tensor, Tensor]:
        return sensitivity.joint(features)

    # Not torch.export alone, which does not see through autograd.grad; this traces what runs.
    traced: fx.GraphModule = make_fx(joint, tracing_mode="symbolic", _allow_non_fake_inputs=True)(
        features
    )
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(traced, (features,), dynamic_shapes=({0: batch},))


def _options(target: Target) -> dict[str, object]:
    return {
        # Code for every processor of the level, not for this very one.
        "cpp.march": LEVELS[target.level],
        "cpp.simdlen": _BITS[target.level],
        # A batch of people is too little work to share out.
        "cpp.threads": 1,
        # A look-up that is used more than once is stored, not done again within every loop.
        "realize_reads_threshold": 1,
        # No lines of debugging, which name folders of this machine.
        "aot_inductor.enable_line_tables": False,
    }
