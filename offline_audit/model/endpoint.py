"""A model behind an endpoint, called over gRPC with retries while it is unavailable or busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Literal

import numpy as np

from monitor.bundle import BundleSpec
from monitor.client import Client, EndpointError, Predictions
from offline_audit.errors import AuditInputError, ModelFailedError, ModelUnreachableError
from offline_audit.model.decisions import (
    Codes,
    DecisionRule,
    Features,
    Output,
    RowsRefusedError,
    Undecided,
)
from offline_audit.rendering import count, duration

__all__ = ["EndpointModel", "EndpointRule"]

# Statuses of temporary problems: timeouts, overload, restarts.
_TEMPORARY = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "CANCELLED"}
# Statuses that do not depend on the rows of the request.
_FINAL = {"NOT_FOUND", "UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED"}
_WITHHELD = "FAILED_PRECONDITION"
_WITHHELD_ACTIONS = ("withhold", "review")
# Half of the default message limit of servers.
_MOST_BYTES = 2 << 20
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRule:
    """How an endpoint's predictions become decisions.

    Attributes:
        class_names: Names of the sidecar's decisions, the unfavourable one first; None to use
            scores only.
        scores: Rule for scores, for servers that return no decisions; None if not configured.
    """

    class_names: tuple[str, str] | None
    scores: DecisionRule | None

    @classmethod
    def of(
        cls,
        manifest: BundleSpec | None,
        *,
        class_names: Sequence[str] | None,
        favourable: Literal[0, 1] | None,
        threshold: float | None,
        output: Output | None,
    ) -> EndpointRule:
        """The rule of a manifest, or of separate arguments, which take precedence.

        Raises:
            AuditInputError: The rule is incomplete or invalid.
        """
        if manifest is not None:
            decision = manifest.decision
            class_names = decision.class_names if class_names is None else class_names
            favourable = decision.favourable if favourable is None else favourable
            threshold = decision.threshold if threshold is None else threshold
            output = manifest.classifier.output if output is None else output
        favourable = 1 if favourable is None else favourable
        if (threshold is None) != (output is None) or (class_names is None and threshold is None):
            raise AuditInputError(
                "the endpoint's decision rule is incomplete: give the manifest of its bundle, or "
                "class_names of a sidecar, or both threshold and output for a server that returns "
                "only scores"
            )
        if class_names is not None and (len(class_names) != 2 or len(set(class_names)) != 2):
            raise AuditInputError("class_names: must be two different names, of classes 0 and 1")
        names = None
        if class_names is not None:
            names = (class_names[1 - favourable], class_names[favourable])
        scores = None
        if threshold is not None and output is not None:
            scores = DecisionRule.of_output(output, threshold, favourable)
        return cls(class_names=names, scores=scores)

    def codes(self, predictions: Predictions, rows: int) -> Codes:
        """Decisions for n rows, `[n]`.

        Raises:
            AuditInputError: The predictions do not match the rule.
        """
        if self.class_names is not None and predictions.decisions:
            codes = self._named(self.class_names, predictions.decisions, rows)
        elif self.scores is not None:
            codes = self.scores.codes(predictions.output, rows)
        else:
            raise AuditInputError(
                "the endpoint returns scores and no decisions: give threshold, and output such as "
                "'logit' or 'probability'"
            )
        if predictions.actions:
            # A fallback in place of a withheld prediction is not the model's decision.
            codes[np.isin(predictions.actions, _WITHHELD_ACTIONS)] = Undecided.WITHHELD
        return codes

    def _named(self, names: tuple[str, str], decisions: Sequence[str], rows: int) -> Codes:
        if len(decisions) != rows:
            raise AuditInputError(
                f"the endpoint returned {count(len(decisions), 'decision')} for "
                f"{count(rows, 'row')}"
            )
        code_by_name: dict[str, int] = {
            "withheld": Undecided.WITHHELD,
            "unknown": Undecided.NOT_A_NUMBER,
            names[0]: 0,
            names[1]: 1,
        }
        try:
            return np.array([code_by_name[decision] for decision in decisions], np.int8)
        except KeyError:
            raise AuditInputError(
                f"class_names: the endpoint returns decisions other than {names[0]!r} and "
                f"{names[1]!r}; give the names in its manifest"
            ) from None


class EndpointModel:
    """A model behind an endpoint.

    Args:
        endpoint: Address, such as `127.0.0.1:8081`.
        model: Name of the model.
        version: Version of the model; empty for the server's default.
        rule: Rule that turns predictions into decisions.
        timeout: Seconds per request.
        batch_rows: Largest number of rows per request.
        retries: Largest number of retries per batch.
        patience: Seconds after which a batch is not retried.
        width: Number of columns that it accepts; None if that is not known.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        model: str,
        version: str,
        rule: EndpointRule,
        timeout: float,
        batch_rows: int,
        retries: int,
        patience: float,
        width: int | None = None,
    ) -> None:
        self._endpoint, self._model, self._version = endpoint, model, version
        self._rule, self._timeout, self._batch_rows = rule, timeout, batch_rows
        self._retries, self._patience = retries, patience
        self._client: Client | None = None
        self._rng = np.random.default_rng()
        self.width = width

    def batch_rows(self, width: int) -> int:
        """See `RowModel`; limited for wide rows, so that servers accept the message."""
        return max(1, min(self._batch_rows, _MOST_BYTES // max(4 * width, 1)))

    def decide(self, rows: Features) -> Codes:
        """See `RowModel`.

        Raises:
            ModelUnreachableError: The endpoint was unavailable or busy for too long.
            ModelFailedError: The endpoint refuses every request.
        """
        started, attempts = monotonic(), 0
        while True:
            attempts += 1
            try:
                return self._rule.codes(self._predict(rows), len(rows))
            except EndpointError as error:
                status = error.status
            wait = min(_FIRST_WAIT * 2 ** (attempts - 1), _LONGEST_WAIT)
            wait *= float(self._rng.uniform(0.5, 1.0))
            spent = monotonic() - started
            if attempts > self._retries or spent + wait > self._patience:
                raise ModelUnreachableError(
                    f"{self._endpoint} is unavailable: {status} on "
                    f"{count(attempts, 'attempt')} in {duration(spent)}{_HINTS.get(status, '')}"
                )
            # gRPC delays reconnecting a broken channel, but connects a new one at once.
            self.close()
            sleep(wait)

    def close(self) -> None:
        """See `RowModel`."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _predict(self, rows: Features) -> Predictions:
        """Predictions; only temporary problems are raised as `EndpointError`."""
        if self._client is None:
            self._client = Client(
                self._endpoint, model=self._model, version=self._version, timeout=self._timeout
            )
        try:
            return self._client.predict(rows)
        except EndpointError as error:
            if error.status in _TEMPORARY:
                raise
            if error.status in _FINAL:
                raise ModelFailedError(
                    f"{self._endpoint} refuses requests with {error.status}; check that it serves "
                    f"model {self._model!r}, version {self._version or 'any'}"
                ) from None
            code = Undecided.WITHHELD if error.status == _WITHHELD else Undecided.ERRORED
            raise RowsRefusedError(error.status, code) from None
        except Exception as error:  # noqa: BLE001 - another server may return anything
            raise RowsRefusedError(type(error).__name__) from None


_HINTS = {
    "DEADLINE_EXCEEDED": "; try a smaller batch_rows or a longer timeout",
    "RESOURCE_EXHAUSTED": "; try a smaller batch_rows",
}
