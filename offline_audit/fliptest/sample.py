"""Who takes part in a FlipTest: rows with a group and a decision, checked, by group and label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.fliptest.features import People
from offline_audit.fliptest.flipset import Asked
from offline_audit.fliptest.options import Options
from offline_audit.groups import require_names, require_two_groups, to_codes
from offline_audit.maps.columns import Columns
from offline_audit.maps.dependence import category_places
from offline_audit.rendering import are, count, some
from offline_audit.validation import UNKNOWN, binary, require_length

__all__ = ["Sample", "pair_warnings"]

# People of each group without a label who are asked about.
_UNLABELLED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """People with their groups, and labels where those matter.

    Attributes:
        attribute: The protected attribute.
        groups: Names, in order.
        codes: Place of each person's group; -1 where it is not known, `[n]`.
        labels: 0 or 1, and -1 where it is not known, `[n]`; None if none were given.
        people: Their features.
        warnings: What is odd about them.
    """

    attribute: str
    groups: tuple[str, ...]
    codes: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    people: People
    warnings: tuple[str, ...]

    @classmethod
    def read(cls, people: People, groups: Any, labels: Any, *, needs_labels: bool) -> Sample:
        """Check groups and labels.

        Raises:
            AuditInputError: Lengths differ, values are none that the test takes, or fewer than two
                groups are known.
        """
        if isinstance(groups, Mapping):
            if len(groups) != 1:
                raise AuditInputError(
                    "groups: one protected attribute at a time, {name: groups}; test each alone"
                )
            ((attribute, values),) = groups.items()
        else:
            attribute, values = str(getattr(groups, "name", None) or "group"), groups
        names, codes = to_codes(values, str(attribute))
        warnings = require_names(names, None, str(attribute))
        require_two_groups(names, str(attribute))
        told = None
        if needs_labels:
            if labels is None:
                raise AuditInputError("labels: the criterion needs them")
            told = binary(labels, "labels")
        lengths = {"features": len(people.features), f"groups of {attribute}": len(codes)}
        require_length(lengths | ({} if told is None else {"labels": len(told)}))
        if unknown := int((codes == UNKNOWN).sum()):
            warnings.append(f"{count(unknown, 'row')} without a group {are(unknown)} left out.")
        if told is not None and (lost := int(((codes != UNKNOWN) & (told == UNKNOWN)).sum())):
            warnings.append(f"{count(lost, 'row')} without a label {are(lost)} left out.")
        return cls(
            attribute=str(attribute),
            groups=names,
            codes=codes,
            labels=told,
            people=people,
            warnings=tuple(warnings),
        )

    def rows(self, group: int, label: int | None) -> NDArray[np.intp]:
        """Members of a group, within an outcome; `UNKNOWN` for those without a label."""
        chosen = self.codes == group
        if label is not None:
            assert self.labels is not None
            chosen &= self.labels == label
        return np.flatnonzero(chosen)

    def asked(self, options: Options) -> NDArray[np.intp]:
        """Places of those whom the model is asked about: some of each group, where it is large.

        Some without a label too, to see whether labels hang on decisions.
        """
        rng = np.random.default_rng(options.seed)
        wanted = [(label, options.max_rows) for label in options.labels]
        if self.labels is not None:
            wanted.append((UNKNOWN, _UNLABELLED))
        parts = [
            _some(self.rows(group, label), most, rng)
            for group in range(len(self.groups))
            for label, most in wanted
        ]
        return np.sort(np.concatenate(parts))

    def left(self, options: Options) -> list[str]:
        """How many take no part since there are enough."""
        groups, most = range(len(self.groups)), options.max_rows
        sizes = [len(self.rows(group, label)) for group in groups for label in options.labels]
        taken = sum(min(size, most) for size in sizes)
        each = "group" if self.labels is None else "group and label"
        told = (
            f"{count(taken, 'row')} {are(taken)} a sample of {sum(sizes):,}: at most {most:,} of "
            f"each {each} (`max_rows`)."
        )
        return [told] if taken < sum(sizes) else []

    def selective(self, group: int, decisions: NDArray[np.int8]) -> str | None:
        """Why flips within labels mean nothing: labels of one decision only; None if they do.

        Args:
            group: Its place.
            decisions: As far as they are known, -1 otherwise, `[n]`; of people without a label too.
        """
        if self.labels is None:
            return None
        members, known = self.codes == group, self.labels != UNKNOWN
        if not (members & known).any():
            return f"no label of {self.groups[group]} is known."
        for decision, other in ((0, "favourable"), (1, "unfavourable")):
            here = members & (decisions == decision)
            if here.any() and not (known & here).any():
                return (
                    f"labels of {self.groups[group]} are known for the {other} decision only, so "
                    "flips within labels are not identified."
                )
        return None


def _some(rows: NDArray[np.intp], most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    return rows if len(rows) <= most else rng.choice(rows, most, replace=False)


def pair_warnings(
    source: Asked, target: Asked, columns: Columns, names: tuple[str, str], smallest: int
) -> list[str]:
    """What a map from one group to the other has to make up; few people are not counted."""
    warnings, constant, telling = [], [], []
    for variable in columns.variables:
        if variable.kind == "category":
            here, there = (category_places(g.features, variable) for g in (source, target))
            alone = ~np.isin(here, np.unique(there))
            if alone.all():
                telling.append(variable.name)
            elif alone.any():
                rows = int(alone.sum())
                many = count(rows, "row") if rows >= smallest else f"fewer than {smallest} rows"
                warnings.append(
                    f"In {names[0]}, {many} are of a category of "
                    f"{variable.name} that nobody of {names[1]} has; the data do not tell what "
                    "their counterparts have."
                )
            continue
        own, theirs = (g.features[:, variable.columns[0]] for g in (source, target))
        if own.min() == own.max() and theirs.min() < theirs.max():
            constant.append(variable.name)
        elif own.max() < theirs.min() or theirs.max() < own.min():
            telling.append(variable.name)
    if telling:
        warnings.append(f"The model can tell the two groups apart by {some(telling)} alone.")
    if constant:
        warnings.append(
            f"All of {names[0]} have one value of {some(constant)}; the data do not tell which of "
            "their counterparts has which."
        )
    return warnings
