"""Populations drawn from a world, with their exact counterfactuals."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import Feature, OneHotGroup, ProtectedAttribute
from monitor.errors import PopulationError
from monitor.world import structure
from monitor.world.structure import Noise, Parameters

__all__ = ["Population", "World"]

# Rows per random stream. It fits the cache; another value would change the people of a seed.
_CHUNK = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class World(Parameters):
    """A synthetic lending market.

    Attributes:
        visible: Names of the protected attributes that are features; none by default.

    Example:
        >>> world = World(proxy_bias=0.0, label_bias=0.0)
        >>> people = world.people(1_000, seed=1)
        >>> counterfactual = people.counterfactual("sex", "woman")
        >>> bool((counterfactual == people.features).all())
        True
    """

    visible: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for parameter in fields(Parameters):
            value = getattr(self, parameter.name)
            low = -5.0 if parameter.name == "drift" else 0.0
            if not low <= value <= 5.0:
                raise PopulationError(
                    f"{parameter.name} is {value}; it must be between {low:g} and 5"
                )
        for name in self.visible:
            _attribute(name)
        if len(set(self.visible)) != len(self.visible):
            raise PopulationError("visible lists an attribute twice")

    @property
    def attributes(self) -> tuple[ProtectedAttribute, ...]:
        """The protected attributes, with their feature if they are visible."""
        return tuple(
            attribute.model_copy(update={"feature": attribute.name})
            if attribute.name in self.visible
            else attribute
            for attribute in structure.ATTRIBUTES
        )

    @property
    def features(self) -> tuple[Feature, ...]:
        """The encoded columns, in order."""
        visible = [f for name in self.visible for f in _visible_features(_attribute(name))]
        return (*structure.LEGITIMATE_FEATURES, *structure.DESCENDANT_FEATURES, *visible)

    @property
    def one_hot_groups(self) -> tuple[OneHotGroup, ...]:
        """The groups of one-hot columns."""
        visible = [
            OneHotGroup(name=name, features=tuple(f.name for f in _visible_features(attribute)))
            for name in self.visible
            if len((attribute := _attribute(name)).groups) > 2
        ]
        return (*structure.ONE_HOT_GROUPS, *visible)

    @property
    def legitimate(self) -> NDArray[np.bool_]:
        """Whether each column has no protected ancestor, `[d]`."""
        mask = np.zeros(len(self.features), bool)
        mask[: len(structure.LEGITIMATE_FEATURES)] = True
        return mask

    def people(self, n: int, *, seed: int) -> Population:
        """Draw n people; a larger n with the same seed adds people and keeps the first ones."""
        if n < 1:
            raise PopulationError(f"n is {n}; it must be at least 1")
        if seed < 0:
            raise PopulationError(f"seed is {seed}; it must be at least 0")
        features = np.empty((n, len(self.features)), np.float32)
        groups = {a.name: np.empty(n, np.int8) for a in structure.ATTRIBUTES}
        repaid, labels = np.empty(n, bool), np.empty(n, np.int8)

        def fill(noise: Noise, rows: slice) -> None:
            drawn = structure.draw_groups(noise)
            legitimate = structure.legitimate(noise, self)
            cut = len(legitimate)
            features[rows, :cut] = legitimate.T
            features[rows, cut:] = self._group_columns(noise, drawn).T
            for name, values in drawn.items():
                groups[name][rows] = values
            repaid[rows] = structure.repayment(noise, legitimate)
            labels[rows] = structure.recorded_labels(noise, self, drawn, repaid[rows])

        _for_each_chunk(n, seed, fill)
        return Population(
            world=self, seed=seed, features=features, groups=groups, repaid=repaid, labels=labels
        )

    def _group_columns(self, noise: Noise, groups: structure.Groups) -> structure.Float:
        """Columns that depend on a group: descendants, then visible attributes."""
        visible = [
            _encode(_attribute(name), groups[name]).astype(np.float32) for name in self.visible
        ]
        return np.concatenate([structure.descendants(noise, self, groups), *visible])


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """People drawn from a world.

    Attributes:
        world: World that the people were drawn from.
        seed: Seed of the random generator.
        features: Input of the classifier, float32 `[n, d]`.
        groups: Index of each person's group by protected attribute, int8 `[n]`.
        repaid: Whether each loan is repaid in truth, bool `[n]`.
        labels: The bank's records with label bias, 1 for repaid, int8 `[n]`.
    """

    world: World
    seed: int
    features: NDArray[np.float32] = field(repr=False)
    groups: dict[str, NDArray[np.int8]] = field(repr=False)
    repaid: NDArray[np.bool_] = field(repr=False)
    labels: NDArray[np.int8] = field(repr=False)

    def __len__(self) -> int:
        return len(self.features)

    def counterfactual(self, attribute: str, group: str) -> NDArray[np.float32]:
        """Counterfactual features of all people in one group, with the same noise, `[n, d]`."""
        index = _group_index(_attribute(attribute), group)
        cut = len(structure.LEGITIMATE_FEATURES)
        features = np.empty_like(self.features)

        def fill(noise: Noise, rows: slice) -> None:
            groups = {name: values[rows] for name, values in self.groups.items()}
            groups[attribute] = np.full(noise.rows, index, np.int8)
            features[rows, :cut] = self.features[rows, :cut]
            features[rows, cut:] = self.world._group_columns(noise, groups).T

        _for_each_chunk(len(self), self.seed, fill)
        return features

    def counterfactuals(self, attribute: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Counterfactual features of all people in each group of an attribute, group by group."""
        for group in _attribute(attribute).groups:
            yield group, self.counterfactual(attribute, group)

    def true_flips(
        self, decide: Callable[[NDArray[np.float32]], NDArray[np.bool_]], attribute: str
    ) -> NDArray[np.bool_]:
        """Whether each decision would change for another group of the attribute, bool `[n]`."""
        decisions = decide(self.features)
        if getattr(decisions, "dtype", None) is not np.dtype(bool):
            raise PopulationError(
                "decide must return one bool per row, not scores; see monitor.decide"
            )
        flips = np.zeros(len(self), bool)
        for _, features in self.counterfactuals(attribute):
            flips |= decide(features) != decisions
        return flips


def _for_each_chunk(n: int, seed: int, fill: Callable[[Noise, slice], None]) -> None:
    """Run `fill` on every chunk, in threads, since numpy releases the GIL."""

    def run(chunk: int) -> None:
        rows = slice(chunk * _CHUNK, min((chunk + 1) * _CHUNK, n))
        fill(Noise(seed=seed, chunk=chunk, rows=rows.stop - rows.start), rows)

    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        for _ in pool.map(run, range(-(-n // _CHUNK))):
            pass


def _attribute(name: str) -> ProtectedAttribute:
    for attribute in structure.ATTRIBUTES:
        if attribute.name == name:
            return attribute
    known = ", ".join(a.name for a in structure.ATTRIBUTES)
    raise PopulationError(f"unknown protected attribute {name!r}; known: {known}")


def _group_index(attribute: ProtectedAttribute, group: str) -> int:
    if group not in attribute.groups:
        known = ", ".join(attribute.groups)
        raise PopulationError(f"unknown group {group!r} of {attribute.name}; known: {known}")
    return attribute.groups.index(group)


def _visible_features(attribute: ProtectedAttribute) -> list[Feature]:
    if len(attribute.groups) == 2:
        return [Feature(name=attribute.name, kind="binary")]
    return [Feature(name=f"{attribute.name}={g}", kind="onehot") for g in attribute.groups]


def _encode(attribute: ProtectedAttribute, groups: NDArray[np.int8]) -> NDArray[np.bool_]:
    """The attribute encoded as features, `[1 or number of groups, rows]`."""
    codes = np.array([1]) if len(attribute.groups) == 2 else np.arange(len(attribute.groups))
    encoded: NDArray[np.bool_] = codes[:, None] == groups
    return encoded
