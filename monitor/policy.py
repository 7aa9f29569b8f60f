"""Policy: verdicts and actions from the p-values and flip probabilities of predictions.

Two statements are made about a prediction and a protected attribute. *Likely flip*, in absolute
terms: its flip probability reaches a limit. *Unusual*, relative to the baseline: few calibration
rows have such a score. A rule combines them into the verdict; by default either is enough. Policy
uses sensitivity only, never the predicted group of a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from monitor.errors import ConfigError

if TYPE_CHECKING:
    from monitor.scoring.baseline import Baseline, Signal
    from monitor.settings import AttributePolicy, PolicyConfig, Rule

__all__ = [
    "ACTION_NAMES",
    "VERDICT_NAMES",
    "Action",
    "AttributeRule",
    "Policy",
    "PolicyResult",
    "Verdict",
]

Float = NDArray[np.float64]


class Verdict(IntEnum):
    """Whether the rule of a protected attribute is met (`ABOVE`), in order of severity.

    The codes are used in arrays and in segments of the traffic log, the names (`VERDICT_NAMES`) in
    responses, metrics and Parquet files.
    """

    WITHIN = 0
    UNKNOWN = 1
    ABOVE = 2


_ABOVE = np.int8(Verdict.ABOVE)


class Action(IntEnum):
    """Action of policy on a prediction, in order of severity; coded as `Verdict` is."""

    NONE = 0
    OBSERVE = 1
    FLAG = 2
    WITHHOLD = 3
    REVIEW = 4


# Names by code.
VERDICT_NAMES = tuple(verdict.name.lower() for verdict in Verdict)
ACTION_NAMES = tuple(action.name.lower() for action in Action)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeRule:
    """The rule of one protected attribute."""

    action: Action
    rule: Rule
    signal: Signal
    alpha: float
    flip_probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """Verdicts and actions of n predictions for a protected attributes.

    Attributes:
        likely_flip: Whether the decision likely flips for another group, `[n, a]`.
        unusual: Whether the score is unusual compared with the baseline, `[n, a]`.
        verdicts: `Verdict` codes, `[n, a]`. Where one is `UNKNOWN`, both statements are false.
        actions: Most severe `Action` that an attribute calls for, `[n]`.
    """

    likely_flip: NDArray[np.bool_]
    unusual: NDArray[np.bool_]
    verdicts: NDArray[np.int8]
    actions: NDArray[np.int8]


class Policy:
    """Rules of the protected attributes, which turn p-values into verdicts and actions.

    Attributes:
        config: Configuration of the policy.
        rules: Rule of every protected attribute, by name.
    """

    def __init__(self, config: PolicyConfig, attributes: Sequence[str]) -> None:
        if unknown := sorted(set(config.attributes) - set(attributes)):
            raise ConfigError(
                f"policy.attributes.{unknown[0]}: the bundle has no such protected attribute; it "
                f"has {', '.join(attributes)}"
            )
        self.config = config
        self.rules = {name: _rule(config, config.attributes.get(name)) for name in attributes}
        rules = self.rules.values()
        self._alpha = np.array([rule.alpha for rule in rules])
        self._bound = np.array([rule.flip_probability for rule in rules])
        self._actions = np.array([rule.action for rule in rules], np.int8)
        kinds = np.array([rule.rule for rule in rules])
        self._by_flip, self._by_p = kinds != "unusual", kinds != "likely_flip"
        self._both = kinds == "both"
        self._withholds_unknown = config.on_fault == "withhold"

    def check(self, baseline: Baseline) -> None:
        """Check that the baseline supports the rules.

        Raises:
            ConfigError: A signal is missing, or the baseline is too small for an alpha.
        """
        for name, rule in self.rules.items():
            reference = baseline.scores[name].get(rule.signal)
            if reference is None:
                raise ConfigError(
                    f"policy.signal: {rule.signal} cannot be computed for this classifier, which "
                    "has no gradient; use expected_change or flip_probability"
                )
            if len(reference) < 1 / rule.alpha - 1:
                raise ConfigError(
                    f"policy.alpha: a baseline of {len(reference)} rows is too small for alpha "
                    f"{rule.alpha:g} ({name}); the smallest is {1 / (len(reference) + 1):.2g}"
                )

    def apply(self, p_values: Float, flip_probability: NDArray[np.floating]) -> PolicyResult:
        """Verdicts and actions from p-values and flip probabilities `[n, a]`, NaN for unknown."""
        likely_flip, unusual = flip_probability >= self._bound, p_values <= self._alpha
        above = (likely_flip & self._by_flip) | (unusual & self._by_p)
        if self._both.any():
            above = np.where(self._both, likely_flip & unusual, above)
        unknown = np.isnan(p_values + flip_probability)
        if unknown.any():
            likely_flip, unusual, above = (x & ~unknown for x in (likely_flip, unusual, above))
        verdicts, actions = above * _ABOVE, (above * self._actions).max(1)
        if unknown.any():
            verdicts[unknown] = Verdict.UNKNOWN
            if self._withholds_unknown:
                actions[unknown.any(1) & (actions < Action.WITHHOLD)] = Action.WITHHOLD
        return PolicyResult(
            likely_flip=likely_flip, unusual=unusual, verdicts=verdicts, actions=actions
        )

    def on_fault(self, rows: int) -> PolicyResult:
        """Verdicts and actions of n predictions without scores, as `policy.on_fault` says."""
        withheld = self.config.on_fault == "withhold"
        shape = (rows, len(self.rules))
        return PolicyResult(
            likely_flip=np.zeros(shape, bool),
            unusual=np.zeros(shape, bool),
            verdicts=np.full(shape, Verdict.UNKNOWN, np.int8),
            actions=np.full(rows, Action.WITHHOLD if withheld else Action.NONE, np.int8),
        )

    @property
    def in_words(self) -> str:
        """The rules on one line, as printed at the start."""
        rules = [_in_words(name, rule) for name, rule in self.rules.items()]
        return "; ".join(rules) + f"; if scoring fails: {self.config.on_fault}"


def _rule(config: PolicyConfig, own: AttributePolicy | None) -> AttributeRule:
    override = own or config
    return AttributeRule(
        action=Action[(override.action or config.action).upper()],
        rule=override.rule or config.rule,
        signal=override.signal or config.signal,
        alpha=override.alpha or config.alpha,
        flip_probability=override.flip_probability or config.flip_probability,
    )


def _in_words(name: str, rule: AttributeRule) -> str:
    by_p = f"p-value of {rule.signal} ≤ {rule.alpha:g}"
    by_flip = f"flip probability ≥ {rule.flip_probability:g}"
    condition = {
        "unusual": by_p,
        "likely_flip": by_flip,
        "either": f"{by_flip} or {by_p}",
        "both": f"{by_flip} and {by_p}",
    }[rule.rule]
    return f"{name}: {rule.action.name.lower()} if {condition}"
