"""Run audits on a window of logged traffic, and correct for the number of tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from inspect import signature
from typing import TYPE_CHECKING, Any

from offline_audit.errors import AuditInputError
from offline_audit.finding import Correction, Finding, Findings
from offline_audit.groups import By
from offline_audit.progress import Progress
from offline_audit.validation import require_alpha
from offline_audit.window.window import Window

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from monitor.bundle import Bundle
    from offline_audit.model.audited_model import AuditedModel

__all__ = ["AUDITS", "audit_window"]

# Modules with an adapter `findings`, by name of the audit; imported when the audit runs.
AUDITS: Mapping[str, str] = {
    "permutation": "offline_audit.permutation.window",
    "selection": "offline_audit.permutation.selection_window",
    "projection": "offline_audit.projection.window",
    "fliptest": "offline_audit.fliptest.window",
}
# Packages that figures of an audit depend on, in addition to numpy and scipy.
_PACKAGES: Mapping[str, tuple[str, ...]] = {"fliptest": ("torch", "POT")}


def audit_window(
    window: Window | Path | str | pa.Table,
    audits: str | Sequence[str] | Mapping[str, Mapping[str, Any]] = "permutation",
    by: By = None,
    *,
    model: Bundle | AuditedModel | Path | str | None = None,
    correction: Correction = "bh",
    alpha: float = 0.05,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Findings:
    """Run audits on a window of logged traffic, and correct for the number of tests.

    The favourable decision and the favourable label count as positive in every audit. Tests of
    earlier calls on the same window count, too; `Findings.together` corrects their findings again.

    Args:
        window: Window with outcomes; without them no group is known. FlipTest also takes a Parquet
            or CSV file, or a table, with the features and a column for each protected attribute.
        audits: Name of an audit (`permutation`, `selection`, `projection`, `fliptest`), a sequence
            of names, or options by name: `{"permutation": {"metrics": ["tpr"]}, "projection": {}}`.
            See the function `findings` of each audit's `window` module for its options.
        by: Protected attributes; a tuple means the crossing of its attributes. None: every
            attribute by itself.
        model: Bundle, its path, or an `AuditedModel`; required by FlipTest.
        correction: Correction for multiple tests, over all tests of the window so far: `bh`, `by`,
            `holm` or `none`. For a file or a table, over the tests of this call.
        alpha: Significance level.
        seed: Seed of the random generator.
        progress: Progress function; True for a bar, False for none, None for a bar on a terminal.

    Raises:
        AuditInputError: Unknown audit or option, or input that an audit cannot use.
        UnknownColumnError: The window has no such protected attribute.
    """
    require_alpha(alpha)
    options = _options(audits)
    of_windows = [name for name in options if name != "fliptest"]
    if of_windows and not isinstance(window, Window):
        raise AuditInputError(
            f"window: {of_windows[0]} needs a Window; open one by Window.read(log, outcomes). Only "
            "fliptest reads a file or a table"
        )
    findings: list[Finding] = []
    earlier = window.tests if isinstance(window, Window) else ()
    versions = {package: version(package) for package in ("evenhand", "numpy", "scipy")}
    for name, own in options.items():
        adapter = import_module(AUDITS[name])
        findings += adapter.findings(
            window, by, model=model, alpha=alpha, seed=seed, progress=progress, **own
        )
        versions |= {package: version(package) for package in _PACKAGES.get(name, ())}
    return Findings.corrected(
        findings,
        correction=correction,
        alpha=alpha,
        earlier=earlier,
        window=window.facts if isinstance(window, Window) else None,
        versions=versions,
    )


def _options(
    audits: str | Sequence[str] | Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Options of each requested audit, by name."""
    if isinstance(audits, Mapping):
        options = {name: dict(own) for name, own in audits.items()}
    else:
        options = {name: {} for name in ([audits] if isinstance(audits, str) else audits)}
    if not options:
        raise AuditInputError(f"audits: name at least one of {', '.join(AUDITS)}")
    for name, own in options.items():
        if name not in AUDITS:
            raise AuditInputError(
                f"audits: unknown audit {name!r}; use one or several of {', '.join(AUDITS)}"
            )
        if shared := sorted({"model", "alpha", "seed", "progress", "by"} & own.keys()):
            raise AuditInputError(
                f"audits: {', '.join(shared)} of {name}: pass to audit_window itself, since all "
                "audits share them"
            )
        _check_names(name, own)
    return options


def _check_names(audit: str, options: Mapping[str, Any]) -> None:
    known = signature(import_module(AUDITS[audit]).findings).parameters
    if unknown := [name for name in options if name not in known]:
        own = set(known) - {"window", "by", "model", "alpha", "seed", "progress"}
        raise AuditInputError(
            f"audits: {audit} has no option {unknown[0]!r}; options are {', '.join(sorted(own))}"
        )
