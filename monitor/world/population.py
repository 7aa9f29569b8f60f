"""People of a world, and what each would have been in another group."""

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
from monitor.world.structure import Knobs, Noise

__all__ = ["Population", "World"]

# Fits the cache, and fixes which stream a person's noise comes from.
_CHUNK = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class World(Knobs):
    """A lending market whose truth is known.

    Attributes:
        visible: Names of the protected attributes that stand among the features; none by default.

    Example:
        >>> world = World(proxy_bias=0.0, label_bias=0.0)
        >>> people = world.people(1_000, seed=1)
        >>> twins = people.counterfactual("sex", "woman")
        >>> bool((twins == people.features).all())
        True
    """

    visible: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for knob in fields(Knobs):
            value = getattr(self, knob.name)
            low = -5.0 if knob.name == "drift" else 0.0
            if not low <= value <= 5.0:
                raise PopulationError(f"{knob.name} is {value}; it must lie in [{low:g}, 5]")
        for name in self.visible:
            _attribute(name)
        if len(set(self.visible)) != len(self.visible):
            raise PopulationError("visible names an attribute twice")

    @property
    def attributes(self) -> tuple[ProtectedAttribute, ...]:
        """The protected attributes, saying where each stands in the features."""
        return tuple(
            attribute.model_copy(update={"feature": attribute.name})
            if attribute.name in self.visible
            else attribute
            for attribute in structure.ATTRIBUTES
        )

    @property
    def features(self) -> tuple[Feature, ...]:
        """The encoded columns, in order."""
        shown = [f for name in self.visible for f in _visible_features(_attribute(name))]
        return (*structure.LEGITIMATE_FEATURES, *structure.DESCENDANT_FEATURES, *shown)

    @property
    def one_hot_groups(self) -> tuple[OneHotGroup, ...]:
        """The groups of one-hot columns."""
        shown = [
            OneHotGroup(name=name, features=tuple(f.name for f in _visible_features(attribute)))
            for name in self.visible
            if len((attribute := _attribute(name)).groups) > 2
        ]
        return (*structure.ONE_HOT_GROUPS, *shown)

    @property
    def legitimate(self) -> NDArray[np.bool_]:
        """Which columns have no protected ancestor, `[d]`."""
        mask = np.zeros(len(self.features), bool)
        mask[: len(structure.LEGITIMATE_FEATURES)] = True
        return mask

    def people(self, n: int, *, seed: int) -> Population:
        """Draw n people. The first people of a longer draw with the same seed are the same."""
        if n < 1:
            raise PopulationError(f"a population needs at least one person, not {n}")
        if seed < 0:
            raise PopulationError(f"seed is {seed}; it must not be negative")
        features = np.empty((n, len(self.features)), np.float32)
        groups = {a.name: np.empty(n, np.int8) for a in structure.ATTRIBUTES}
        repaid, labels = np.empty(n, bool), np.empty(n, np.int8)

        def fill(noise: Noise, rows: slice) -> None:
            drawn = structure.draw_groups(noise)
            legitimate = structure.legitimate(noise, self)
            cut = len(legitimate)
            features[rows, :cut] = legitimate.T
            features[rows, cut:] = self._touched(noise, drawn).T
            for name, values in drawn.items():
                groups[name][rows] = values
            repaid[rows] = structure.repayment(noise, legitimate)
            labels[rows] = structure.recorded_labels(noise, self, drawn, repaid[rows])

        _for_each_chunk(n, seed, fill)
        return Population(
            world=self, seed=seed, features=features, groups=groups, repaid=repaid, labels=labels
        )

    def _touched(self, noise: Noise, groups: structure.Groups) -> structure.Float:
        """Columns that depend on a group: descendants, then visible attributes themselves."""
        shown = [
            _encode(_attribute(name), groups[name]).astype(np.float32) for name in self.visible
        ]
        return np.concatenate([structure.descendants(noise, self, groups), *shown])


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """People drawn from a world.

    Attributes:
        world: The world they come from.
        seed: The seed of their noise.
        features: What the classifier sees, float32 `[n, d]`.
        groups: For each protected attribute the index of each person's group, int8 `[n]`.
        repaid: Whether each loan is truly repaid, bool `[n]`.
        labels: What the bank recorded, 1 for repaid, int8 `[n]`; label bias is in here.
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
        """Features of everyone as a member of a group, all else the same noise, `[n, d]`."""
        index = _group_index(_attribute(attribute), group)
        cut = len(structure.LEGITIMATE_FEATURES)
        twins = np.empty_like(self.features)

        def fill(noise: Noise, rows: slice) -> None:
            groups = {name: values[rows] for name, values in self.groups.items()}
            groups[attribute] = np.full(noise.rows, index, np.int8)
            twins[rows, :cut] = self.features[rows, :cut]
            twins[rows, cut:] = self.world._touched(noise, groups).T

        _for_each_chunk(len(self), self.seed, fill)
        return twins

    def counterfactuals(self, attribute: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Each group of an attribute with everyone's features in it, one group at a time."""
        for group in _attribute(attribute).groups:
            yield group, self.counterfactual(attribute, group)

    def true_flips(
        self, decide: Callable[[NDArray[np.float32]], NDArray[np.bool_]], attribute: str
    ) -> NDArray[np.bool_]:
        """Whose decision would change for at least one other group of the attribute, `[n]`."""
        decisions = decide(self.features)
        if getattr(decisions, "dtype", None) is not np.dtype(bool):
            raise PopulationError(
                "decide must give decisions, a bool for each person, not scores; see "
                "monitor.world.classifiers.decide"
            )
        flips = np.zeros(len(self), bool)
        for _, twins in self.counterfactuals(attribute):
            flips |= decide(twins) != decisions
        return flips


def _for_each_chunk(n: int, seed: int, fill: Callable[[Noise, slice], None]) -> None:
    """Run `fill` on every chunk; numpy lets go of the interpreter, so threads share the work."""

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
    raise PopulationError(f"no protected attribute {name!r} in this world; it has {known}")


def _group_index(attribute: ProtectedAttribute, group: str) -> int:
    if group not in attribute.groups:
        known = ", ".join(attribute.groups)
        raise PopulationError(f"{attribute.name} has no group {group!r}; its groups are {known}")
    return attribute.groups.index(group)


def _visible_features(attribute: ProtectedAttribute) -> list[Feature]:
    if len(attribute.groups) == 2:
        return [Feature(name=attribute.name, kind="binary")]
    return [Feature(name=f"{attribute.name}={g}", kind="onehot") for g in attribute.groups]


def _encode(attribute: ProtectedAttribute, groups: NDArray[np.int8]) -> NDArray[np.bool_]:
    """The attribute as it stands among the features, `[1 or groups, rows]`."""
    codes = np.array([1]) if len(attribute.groups) == 2 else np.arange(len(attribute.groups))
    encoded: NDArray[np.bool_] = codes[:, None] == groups
    return encoded
