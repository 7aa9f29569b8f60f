"""Compile the joint pass ahead of time: trace, export with a dynamic batch size, AOTInductor.

A module of its own, since it imports much of torch's compiler, which serving does not need.
"""

from __future__ import annotations

import io
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from monitor.bundle.classifier import probe_features
from monitor.errors import KernelError, first_line
from monitor.scoring.kernel import LEVELS, Target, private_folder
from monitor.threads import one_thread

if TYPE_CHECKING:
    from monitor.scoring.sensitivity import Sensitivity

__all__ = ["compile_kernel"]

_BITS = {"avx2": 256, "avx512": 512}
# Traced with several rows: torch specializes on a batch of 0 or 1, and treats sizes that are equal
# in the example as equal always, so the number of rows must differ from that of the columns.
_TRACED_ROWS = (4, 5)


def compile_kernel(sensitivity: Sensitivity, target: Target) -> bytes:
    """Compile the joint pass to native code, for batches of any size on one thread.

    Args:
        sensitivity: Joint pass to compile, with all its parameters.
        target: Processor level and torch version; this machine must be able to run them.

    Raises:
        KernelError: There is no C++ compiler, or torch cannot compile the pass.
    """
    _check(target)
    rows = next(rows for rows in _TRACED_ROWS if rows != sensitivity.width)
    features = torch.from_numpy(probe_features(sensitivity.spec, rows))
    # The compiler's cache holds weights and quantiles of the training data, so it is deleted.
    with private_folder("TORCHINDUCTOR_CACHE_DIR") as folder, one_thread():
        package = Path(folder, "kernel.pt2")
        try:
            with warnings.catch_warnings():
                # Warnings about torch's own code, which the user cannot act on.
                warnings.simplefilter("ignore")
                torch._inductor.aoti_compile_and_package(
                    _exported(sensitivity, features),
                    package_path=str(package),
                    inductor_configs=_options(target),
                )
            return _stripped(package)
        except Exception as error:
            message = f"torch cannot compile the joint pass: {first_line(error)}"
            raise KernelError(message) from error


def _stripped(package: Path) -> bytes:
    """Contents of the package without source files and without paths of this machine."""
    folders = (Path(torch.__file__).parent, package.parent)
    out = io.BytesIO()
    with zipfile.ZipFile(package) as archive, zipfile.ZipFile(out, "w") as rebuilt:
        for name in archive.namelist():
            data = archive.read(name)
            if name.endswith((".cpp", ".kernel_metadata.json")):
                continue
            if name.endswith(".so"):
                # Paths occur in messages of checks. The length stays, since offsets follow.
                for folder in folders:
                    data = data.replace(str(folder).encode(), b"/" * len(str(folder)))
            rebuilt.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def _check(target: Target) -> None:
    here = Target.here()
    if here is None or not target.runs_on(here):
        machine = "neither" if here is None else f"{here.level} and torch {here.torch}"
        raise KernelError(
            f"cannot compile for {target.level} and torch {target.torch}: this machine has "
            f"{machine}, and a kernel is tested before it is stored"
        )
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        raise KernelError("no C++ compiler was found; install g++ or clang++")


def _exported(sensitivity: Sensitivity, features: Tensor) -> torch.export.ExportedProgram:
    """The joint pass with its gradients as one graph with a dynamic batch size."""

    def joint(features: Tensor) -> tuple[Tensor, Tensor]:
        return sensitivity.joint(features)

    # torch.export alone does not trace through autograd.grad; make_fx does.
    traced: fx.GraphModule = make_fx(joint, tracing_mode="symbolic", _allow_non_fake_inputs=True)(
        features
    )
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(traced, (features,), dynamic_shapes=({0: batch},))


def _options(target: Target) -> dict[str, object]:
    return {
        # Code for every processor of the level, not only for this one.
        "cpp.march": LEVELS[target.level],
        "cpp.simdlen": _BITS[target.level],
        # A batch is too little work for several threads.
        "cpp.threads": 1,
        # Store a look-up that is used more than once, instead of repeating it in every loop.
        "realize_reads_threshold": 1,
        # Debugging information would contain paths of this machine.
        "aot_inductor.enable_line_tables": False,
    }
