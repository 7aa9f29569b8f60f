"""Load a compiled pass, and hold it against the uncompiled one before it judges anybody."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from monitor.bundle.classifier import probe_features
from monitor.errors import KernelError, first_line
from monitor.scoring.kernel.folder import private_folder
from monitor.scoring.kernel.target import Target
from monitor.scoring.sensitivity import Sensitivity

__all__ = ["Kernel", "load_kernel"]

_PROBE_ROWS = 64
# Made-up people of every size of batch that takes a path of its own through the code.
_PROBE_BATCHES = (1, 2, 17, 64)
# Name of the model in the package, not without locks, one at a time, no device.
_LOADING = ("model", False, 1, -1)
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled joint pass. One caller at a time.

    Attributes:
        target: What it was made for.
        width: Columns that it takes, d.
    """

    target: Target
    width: int
    _loader: torch._C._aoti.AOTIModelPackageLoader

    def joint(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """What `Sensitivity.joint` returns, `[n, d]` to `[n, w]` and `[n, a, d]`.

        Raises:
            ValueError: The features are not what it was compiled for: native code would not notice.
        """
        # The very checks that native code leaves out; whoever calls with anything else is wrong.
        fits = features.dtype == torch.float32 and features.dim() == 2
        if not fits or features.shape[1] != self.width or features.shape[0] == 0:
            told = f"{features.dtype} {list(features.shape)}"
            raise ValueError(f"compiled for torch.float32 [n, {self.width}], not for {told}")
        packed, contributions = self._loader.run([features.contiguous()])
        return packed, contributions


def load_kernel(data: bytes, target: Target, sensitivity: Sensitivity) -> Kernel:
    """A compiled pass from its file's bytes, tried on made-up people. It runs native code.

    Raises:
        KernelError: It cannot be loaded, or its answers are not those of the uncompiled pass.
    """
    try:
        # torch unpacks it into a folder that outlives a killed process; once it is loaded, what was
        # unpacked need not stay.
        with private_folder("TMPDIR") as folder:
            package = Path(folder, "kernel.pt2")
            package.write_bytes(data)
            loader = torch._C._aoti.AOTIModelPackageLoader(str(package), *_LOADING)
    except (RuntimeError, OSError) as error:
        raise KernelError(f"the compiled pass cannot be loaded: {first_line(error)}") from None
    kernel = Kernel(target, sensitivity.spec.width, loader)
    _compare(kernel, sensitivity)
    return kernel


def _compare(kernel: Kernel, sensitivity: Sensitivity) -> None:
    features = torch.from_numpy(probe_features(sensitivity.spec, _PROBE_ROWS))
    for rows in _PROBE_BATCHES:
        expected = sensitivity.joint(features[:rows])
        try:
            found = kernel.joint(features[:rows])
        except (RuntimeError, ValueError) as error:
            raise KernelError(
                f"the compiled pass fails on {rows} rows: {first_line(error)}"
            ) from None
        for ours, theirs in zip(found, expected, strict=True):
            if ours.shape != theirs.shape or not torch.allclose(
                ours, theirs.to(ours.dtype), rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True
            ):
                raise KernelError(
                    f"the compiled pass answers {rows} made-up people differently from the "
                    "uncompiled one"
                )
