"""The compiled pass: everything about a prediction in one call of native code.

`fit` compiles `Sensitivity.joint` ahead of time and puts it into the bundle, in `kernel/`, a file a
torch version and processor. It needs a C++ compiler where it is made and none where it runs. Where
none fits, or one answers differently from the uncompiled pass, the latter serves.

`monitor.scoring.kernel.compiling`, which loads much of torch's compiler, is for those who compile.
"""

from monitor.scoring.kernel.loading import Kernel, load_kernel
from monitor.scoring.kernel.target import LEVELS, Target

__all__ = ["LEVELS", "Kernel", "Target", "load_kernel"]
