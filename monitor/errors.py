"""What can go wrong in the monitor, by situation.

    EvenhandError
    ├── ConfigError              a config file or variable that cannot be used
    ├── FitError                 data or a spec from which nothing can be fitted
    ├── PopulationError          a world that cannot exist or a group it does not have
    └── BundleError
        ├── BundleNotFoundError  no bundle at that path
        ├── BundleExistsError    something else stands where a bundle is to be written
        ├── BundleTamperedError  contents differ from what the manifest or its pin states
        ├── ManifestError        a manifest that does not describe a usable bundle
        ├── KernelError          code that cannot be compiled, or not be trusted
        └── ClassifierError      a classifier that does not do what the manifest says
            └── UnsafeArchiveError   a model file that could run code while it is read

None of them knows of a transport: each door maps a class to its own status.
"""

__all__ = [
    "BundleError",
    "BundleExistsError",
    "BundleNotFoundError",
    "BundleTamperedError",
    "ClassifierError",
    "ConfigError",
    "EvenhandError",
    "FitError",
    "KernelError",
    "ManifestError",
    "PopulationError",
    "UnsafeArchiveError",
    "first_line",
]


def first_line(error: Exception) -> str:
    """First line of a foreign error's text, without the rest of its essay."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


class EvenhandError(Exception):
    """Root of the errors that a user can cause and mend."""


class ConfigError(EvenhandError):
    """A config file or an environment variable cannot be used."""


class FitError(EvenhandError):
    """The data, or the spec that describes it, do not allow a fit."""


class PopulationError(EvenhandError):
    """A world was asked for people that it cannot have."""


class BundleError(EvenhandError):
    """A bundle cannot be written, read or trusted."""


class BundleNotFoundError(BundleError):
    """There is no bundle at the path."""


class BundleExistsError(BundleError):
    """Something else already stands where the bundle is to be written."""


class BundleTamperedError(BundleError):
    """The contents differ from what the manifest, or the pin of the manifest, states."""


class ManifestError(BundleError):
    """The manifest does not describe a usable bundle."""


class KernelError(BundleError):
    """The joint pass cannot be compiled here, or what was compiled cannot be used."""


class ClassifierError(BundleError):
    """The classifier does not do what the manifest says."""


class UnsafeArchiveError(ClassifierError):
    """The model file holds something that would run code while it is read."""
