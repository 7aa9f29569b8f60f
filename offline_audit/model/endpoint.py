"""A model behind an endpoint: asked over gRPC, again after a pause while it is down or busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Literal

import numpy as np

from monitor.bundle import BundleSpec
from monitor.client import Client, EndpointError, Predictions
from offline_audit.errors import AuditInputError, ModelFailedError, ModelUnreachableError
from offline_audit.model.outputs import (
    Codes,
    DecisionRule,
    Features,
    Output,
    RowsRefusedError,
    Undecided,
)
from offline_audit.rendering import count, duration

__all__ = ["EndpointModel", "EndpointRule"]

# Troubles that pass; the first two, and what a server says that is full or restarts.
_PASSING = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "CANCELLED"}
# Of the call, whichever rows are in it.
_FINAL = {"NOT_FOUND", "UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED"}
_WITHHELD = "FAILED_PRECONDITION"
_HELD_BACK = ("withhold", "review")
# Half of what servers take by default.
_MOST_BYTES = 2 << 20
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRule:
    """What an endpoint's predictions mean.

    Attributes:
        class_names: How a sidecar calls its decisions, the unfavourable one first; None to look
            at scores only.
        scores: For servers that do not say decisions; None if that was not told.
    """

    class_names: tuple[str, str] | None
    scores: DecisionRule | None

    @classmethod
    def told(
        cls,
        manifest: BundleSpec | None,
        *,
        class_names: Sequence[str] | None,
        favourable: Literal[0, 1] | None,
        threshold: float | None,
        output: Output | None,
    ) -> EndpointRule:
        """From a manifest, or piece by piece.

        Raises:
            AuditInputError: They do not tell enough.
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
                "how the endpoint decides is not known: give the manifest of its bundle; or the "
                "class_names of a sidecar; or threshold and output, for servers that answer with "
                "scores only"
            )
        if class_names is not None and (len(class_names) != 2 or len(set(class_names)) != 2):
            raise AuditInputError("class_names: two different names are needed, of classes 0 and 1")
        names = None
        if class_names is not None:
            names = (class_names[1 - favourable], class_names[favourable])
        scores = None
        if threshold is not None and output is not None:
            scores = DecisionRule.of_output(output, threshold, favourable)
        return cls(class_names=names, scores=scores)

    def codes(self, found: Predictions, rows: int) -> Codes:
        """Decisions on n rows, `[n]`.

        Raises:
            AuditInputError: The predictions are not what was told of them.
        """
        if self.class_names is not None and found.decisions:
            codes = self._named(self.class_names, found.decisions, rows)
        elif self.scores is not None:
            codes = self.scores.codes(found.score, rows)
        else:
            raise AuditInputError(
                "the endpoint answers with scores and says no decisions: give threshold, and "
                "output such as 'logit' or 'probability'"
            )
        if found.actions:
            # Whatever stands in for it, a fallback too, is not the model's decision.
            codes[np.isin(found.actions, _HELD_BACK)] = Undecided.WITHHELD
        return codes

    def _named(self, names: tuple[str, str], decisions: Sequence[str], rows: int) -> Codes:
        if len(decisions) != rows:
            told = f"{count(rows, 'row')} with {count(len(decisions), 'decision')}"
            raise AuditInputError(f"the endpoint answers {told}")
        meaning: dict[str, int] = {
            "withheld": Undecided.WITHHELD,
            "unknown": Undecided.NOT_A_NUMBER,
            names[0]: 0,
            names[1]: 1,
        }
        try:
            return np.array([meaning[decision] for decision in decisions], np.int8)
        except KeyError:
            raise AuditInputError(
                f"class_names: the endpoint says other decisions than {names[0]!r} and "
                f"{names[1]!r}; give the names in its manifest"
            ) from None


class EndpointModel:
    """A model behind an endpoint.

    Args:
        endpoint: Such as `127.0.0.1:8081`.
        model: Its name.
        version: Its version; empty lets the server choose.
        rule: What its predictions mean.
        timeout: Seconds that one call may take.
        batch_rows: Most rows of a call.
        retries: Most times that a batch is asked again.
        patience: Seconds after which a batch is not asked again.
        width: Columns that it takes.
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
        self._chance = np.random.default_rng()
        self.width = width

    def batch_rows(self, width: int) -> int:
        """See `RowModel`; fewer where rows are so wide that servers would refuse the message."""
        return max(1, min(self._batch_rows, _MOST_BYTES // max(4 * width, 1)))

    def answers(self, rows: Features) -> Codes:
        """See `RowModel`.

        Raises:
            ModelUnreachableError: It is down or busy for too long.
            ModelFailedError: It refuses, whatever it is asked.
        """
        begun, attempts = monotonic(), 0
        while True:
            attempts += 1
            try:
                return self._rule.codes(self._predict(rows), len(rows))
            except EndpointError as error:
                status = error.status
            wait = min(_FIRST_WAIT * 2 ** (attempts - 1), _LONGEST_WAIT)
            wait *= float(self._chance.uniform(0.5, 1.0))
            spent = monotonic() - begun
            if attempts > self._retries or spent + wait > self._patience:
                raise ModelUnreachableError(
                    f"{self._endpoint} does not answer: {status} on "
                    f"{count(attempts, 'attempt')} in {duration(spent)}{_HINTS.get(status, '')}"
                )
            # gRPC waits long before it tries a broken connection again; a new one it tries at once.
            self.rest()
            sleep(wait)

    def rest(self) -> None:
        """See `RowModel`."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _predict(self, rows: Features) -> Predictions:
        """Predictions; only troubles that pass are raised as they come."""
        if self._client is None:
            self._client = Client(
                self._endpoint, model=self._model, version=self._version, timeout=self._timeout
            )
        try:
            return self._client.predict(rows)
        except EndpointError as error:
            if error.status in _PASSING:
                raise
            if error.status in _FINAL:
                raise ModelFailedError(
                    f"{self._endpoint} refuses with {error.status}; does it serve model "
                    f"{self._model!r}, version {self._version or 'any'}?"
                ) from None
            code = Undecided.WITHHELD if error.status == _WITHHELD else Undecided.ERRORED
            raise RowsRefusedError(error.status, code) from None
        except Exception as error:  # noqa: BLE001 - a foreign server may answer anything
            raise RowsRefusedError(type(error).__name__) from None


_HINTS = {
    "DEADLINE_EXCEEDED": "; fewer batch_rows or a longer timeout may help",
    "RESOURCE_EXHAUSTED": "; fewer batch_rows may help",
}
