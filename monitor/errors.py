"""What can go wrong in the monitor, by situation.

    EvenhandError
    ├── ConfigError              a config file or variable that cannot be used
    ├── FitError                 data or a spec from which nothing can be fitted
    ├── PopulationError          a world that cannot exist or a group it does not have
    ├── ServeError               a sidecar that cannot start or stop as told
    ├── TrafficError             a log or outcomes that cannot be read, written or changed
    ├── RequestError             a request that gets no prediction
    │   ├── BadRequestError      it says something that cannot be read or used
    │   ├── NotFoundError        it names a model, a version or an alarm that does not exist
    │   ├── TooLargeError        it is larger than the config allows
    │   ├── NotReadyError        the sidecar does not answer yet, or no longer
    │   ├── OverloadedError      more is waiting than the sidecar takes on
    │   ├── ForbiddenError       it asks from afar for what is done on the spot only
    │   ├── NotOfferedError      it asks for what this sidecar does not do
    │   ├── WithheldError        policy holds the prediction back
    │   └── PredictionError      the classifier fails on it
    └── BundleError
        ├── BundleNotFoundError  no bundle at that path
        ├── BundleExistsError    something else stands where a bundle is to be written
        ├── BundleTamperedError  contents differ from what the manifest or its pin states
        ├── ManifestError        a manifest that does not describe a usable bundle
        ├── KernelError          code that cannot be compiled, or not be trusted
        └── ClassifierError      a classifier that does not do what the manifest says
            └── UnsafeArchiveError   a model file that could run code while it is read

None of them knows of a transport: each transport maps a class to its own status.
"""

__all__ = [
    "BadRequestError",
    "BundleError",
    "BundleExistsError",
    "BundleNotFoundError",
    "BundleTamperedError",
    "ClassifierError",
    "ConfigError",
    "EvenhandError",
    "FitError",
    "ForbiddenError",
    "KernelError",
    "ManifestError",
    "NotFoundError",
    "NotOfferedError",
    "NotReadyError",
    "OverloadedError",
    "PopulationError",
    "PredictionError",
    "RequestError",
    "ServeError",
    "TooLargeError",
    "TrafficError",
    "UnsafeArchiveError",
    "WithheldError",
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


class ServeError(EvenhandError):
    """The sidecar cannot start, or cannot stop, as it was told to."""


class TrafficError(EvenhandError):
    """A log or its outcomes cannot be read, written or changed."""


class RequestError(EvenhandError):
    """A request gets no prediction. Its text goes to the client, and holds no value of a person."""


class BadRequestError(RequestError):
    """The request says something that cannot be read, or cannot be used."""


class NotFoundError(RequestError):
    """The request names a model, a version or an alarm that does not exist."""


class TooLargeError(RequestError):
    """The request is larger than the config allows."""


class NotReadyError(RequestError):
    """The sidecar does not answer yet, or no longer."""


class OverloadedError(RequestError):
    """More is waiting than the sidecar takes on."""


class ForbiddenError(RequestError):
    """What was asked for is done on the sidecar's own machine only."""


class NotOfferedError(RequestError):
    """This sidecar does not do what was asked for."""


class WithheldError(RequestError):
    """Policy holds the prediction back."""


class PredictionError(RequestError):
    """The classifier fails on the request."""


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
