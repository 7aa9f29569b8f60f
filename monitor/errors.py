"""Errors of the monitor, by situation.

    EvenhandError
    ├── ConfigError              a config file or environment variable is invalid
    ├── EncodingError            a raw input has a value that its encoding refuses
    ├── FitError                 the data or the spec does not allow a fit
    ├── PopulationError          a synthetic population is not possible
    ├── ServeError               the sidecar cannot start or stop
    ├── TrafficError             a log or outcomes cannot be read, written or changed
    ├── RequestError             a request failed and no prediction is returned
    │   ├── BadRequestError      the request is malformed or does not match the model
    │   ├── NotFoundError        the model, version or alarm does not exist
    │   ├── TooLargeError        the request exceeds a limit of the config
    │   ├── NotReadyError        the sidecar is starting or stopping
    │   ├── OverloadedError      too many requests are in flight, or one waited too long
    │   ├── ForbiddenError       the operation is allowed from the sidecar's own machine only
    │   ├── NotOfferedError      the operation is not enabled in this sidecar
    │   ├── WithheldError        policy withholds the prediction
    │   └── PredictionError      the classifier fails on the request
    └── BundleError
        ├── BundleNotFoundError  there is no bundle at the path
        ├── BundleExistsError    the path to write a bundle to is not free
        ├── BundleTamperedError  the contents differ from the manifest, or the manifest from its pin
        ├── ManifestError        the manifest does not describe a usable bundle
        ├── KernelError          the kernel cannot be compiled, loaded or trusted
        └── ClassifierError      the classifier does not match the manifest
            └── UnsafeArchiveError   the model file could run code while it is read

They know nothing of transports; every transport maps a class to its own status.
"""

__all__ = [
    "BadRequestError",
    "BundleError",
    "BundleExistsError",
    "BundleNotFoundError",
    "BundleTamperedError",
    "ClassifierError",
    "ConfigError",
    "EncodingError",
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
    """First line of the text of another library's error, cut to 300 characters."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


class EvenhandError(Exception):
    """Root of the errors that a user can cause and correct."""


class ConfigError(EvenhandError):
    """A config file or an environment variable is invalid."""


class EncodingError(EvenhandError):
    """A raw input has a missing or unseen value that its encoding refuses.

    Attributes:
        name: Name of the raw input.
        reason: What is wrong, without the value.
        row: First such row.
        rows: Number of such rows.
    """

    def __init__(self, name: str, reason: str, row: int, rows: int) -> None:
        super().__init__(f"input {name!r} of row {row} {reason}")
        self.name, self.reason, self.row, self.rows = name, reason, row, rows


class FitError(EvenhandError):
    """The data, or the spec that describes them, does not allow a fit."""


class PopulationError(EvenhandError):
    """A synthetic population is not possible with these settings."""


class ServeError(EvenhandError):
    """The sidecar cannot start or stop."""


class TrafficError(EvenhandError):
    """A log or its outcomes cannot be read, written or changed."""


class RequestError(EvenhandError):
    """A request failed and no prediction is returned.

    The text is sent to the client, without feature values.
    """


class BadRequestError(RequestError):
    """The request is malformed, or does not match the model."""


class NotFoundError(RequestError):
    """The model, version or alarm of the request does not exist."""


class TooLargeError(RequestError):
    """The request exceeds a limit of the config."""


class NotReadyError(RequestError):
    """The sidecar is starting or stopping."""


class OverloadedError(RequestError):
    """Too many requests are in flight, or the request waited too long."""


class ForbiddenError(RequestError):
    """The operation is allowed from the sidecar's own machine only."""


class NotOfferedError(RequestError):
    """The operation is not enabled in this sidecar."""


class WithheldError(RequestError):
    """Policy withholds the prediction."""


class PredictionError(RequestError):
    """The classifier fails on the request."""


class BundleError(EvenhandError):
    """A bundle cannot be written, read or trusted."""


class BundleNotFoundError(BundleError):
    """There is no bundle at the path."""


class BundleExistsError(BundleError):
    """The path that the bundle is to be written to is not free."""


class BundleTamperedError(BundleError):
    """The contents differ from the manifest, or the manifest differs from its pin."""


class ManifestError(BundleError):
    """The manifest does not describe a usable bundle."""


class KernelError(BundleError):
    """The kernel cannot be compiled, loaded or trusted."""


class ClassifierError(BundleError):
    """The classifier does not match the manifest."""


class UnsafeArchiveError(ClassifierError):
    """The model file contains something that would run code while it is read."""
