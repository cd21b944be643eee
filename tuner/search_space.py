"""What is searched: the four loss weights on log scales around a preset, and what else is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.overrides import flatten, override

if TYPE_CHECKING:
    import keras_tuner

# How far each weight may leave its preset, as a factor in both directions. The first two decide whether a training
# works at all; of the last two even a tenth or the tenfold leaves a code that can be compared.
WEIGHT_SPANS = {
    "loss.mutual_information_weight": 4.0,
    "loss.modality_gap_weight": 4.0,
    "loss.independence_weight": 10.0,
    "loss.balance_weight": 10.0,
}
EXTRA_SPANS = {
    "input_norm": {"network.input_norm": 2.0},
    "rates": {"optimizer.encoder_rate": 3.0, "optimizer.decoder_rate": 3.0, "optimizer.critic_rate": 3.0},
    "epochs": {"training.epochs": 2.0},
}
# How the space is walked through; see `tuner.oracles`.
ALGORITHMS = ("bayesian", "random", "hyperband", "grid")
# Between processes KerasTuner sends 32-bit floats; six digits survive that, and are what is trained with and written.
_DIGITS = 6


@dataclass(frozen=True)
class Dimension:
    """One value of the configuration and where it is searched, on a log scale.

    Attributes:
        key: its dotted name.
        low, high: the ends, both positive.
        start: the preset's value, within them.
        values: the points of a grid, `start` among them; empty for any value between the ends.
        is_integer: whether it is a count.
    """

    key: str
    low: float
    high: float
    start: float
    values: tuple[float, ...] = ()
    is_integer: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.start <= self.high < math.inf or self.low == self.high:
            raise ValueError(
                f"`{self.key}` must be searched between two positive numbers with its own value, {self.start:g}, "
                f"between them. Received: {self.low:g}:{self.high:g}."
            )

    def rounded(self, value: float) -> float | int:
        """`value` as it is trained with."""
        return round(value) if self.is_integer else float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True)
class SearchSpace:
    """The configuration that a search starts from, and the dimensions along which it leaves it.

    Attributes:
        config: the preset, tried first.
        dimensions: at least one, no key twice.
    """

    config: CMIMHConfig
    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise ValueError("`dimensions` must not be empty: every weight of the preset is 0, which switches it off.")

    @property
    def keys(self) -> list[str]:
        return [dimension.key for dimension in self.dimensions]

    def hyperparameters(self) -> keras_tuner.HyperParameters:
        """The space for KerasTuner, with the preset as the defaults."""
        import keras_tuner

        space = keras_tuner.HyperParameters()
        for dimension in self.dimensions:
            if dimension.values:
                space.Choice(dimension.key, list(dimension.values), default=dimension.start, ordered=True)
                continue
            declare = space.Int if dimension.is_integer else space.Float
            kind = int if dimension.is_integer else float
            low, high, start = (kind(value) for value in (dimension.low, dimension.high, dimension.start))
            declare(dimension.key, low, high, sampling="log", default=start)
        return space

    def overrides(self, values: Mapping[str, Any]) -> dict[str, float | int]:
        """The configuration keys among a trial's values, rounded; what KerasTuner keeps beside them is left out."""
        return {dimension.key: dimension.rounded(values[dimension.key]) for dimension in self.dimensions}

    def trial_config(self, values: Mapping[str, Any]) -> CMIMHConfig:
        """The configuration of a full training with a trial's values."""
        return override(self.config, self.overrides(values))

    def to_dict(self) -> list[dict[str, Any]]:
        """JSON-ready, for the description of a search."""
        return [
            {"key": item.key, "low": item.low, "high": item.high, "start": item.start, "values": list(item.values)}
            for item in self.dimensions
        ]


def make_space(
    config: CMIMHConfig,
    *,
    weights: Sequence[str] | None = None,
    extras: Sequence[str] = (),
    grid_points: int | None = None,
) -> SearchSpace:
    """The space around a configuration.

    Args:
        config: what to start from.
        weights: which loss weights, such as "balance"; None for all four that are not 0.
        extras: more to search: "input_norm", "rates", "epochs", or any number of the configuration as "KEY=LOW:HIGH".
        grid_points: points of each dimension for a grid, an odd number of at least 3; None for a continuous space.

    Raises:
        ValueError: for an unknown name, a weight that the configuration switches off, or ends that do not fit.
    """
    current = flatten(config.to_dict())
    spans: dict[str, float] = {}
    for key in map(_weight_key, weights) if weights else WEIGHT_SPANS:
        if current[key]:
            spans[key] = WEIGHT_SPANS[key]
        elif weights:
            raise ValueError(f"`{key}` must not be 0 to be searched on a log scale. Received: {key}={current[key]}.")
    given: dict[str, tuple[float, float]] = {}
    for extra in extras:
        if extra in EXTRA_SPANS:
            spans |= EXTRA_SPANS[extra]
        else:
            key, ends = _parse_extra(extra, current)
            given[key] = ends
    for key in spans:
        if current[key] is None:
            raise ValueError(f"`{key}` must be a number to be searched around. Received: {key}=null.")
    ends_of = {key: (current[key] / span, current[key] * span) for key, span in spans.items()} | given
    return SearchSpace(config, tuple(_dimension(key, ends, current[key], grid_points) for key, ends in ends_of.items()))


def _dimension(key: str, ends: tuple[float, float], start: float, grid_points: int | None) -> Dimension:
    is_integer = isinstance(start, int)
    values: tuple[float, ...] = ()
    low, high = ends
    if is_integer:
        low, high = max(1, round(low)), round(high)
    dimension = Dimension(key, low, high, start, is_integer=is_integer)
    if grid_points is not None:
        if grid_points < 3 or grid_points % 2 == 0:
            raise ValueError(
                f"`grid_points` must be an odd number of at least 3, with the preset in the middle. Received: "
                f"grid_points={grid_points}."
            )
        half = grid_points // 2
        down = [start * (low / start) ** (step / half) for step in range(half, 0, -1)]
        up = [start * (high / start) ** (step / half) for step in range(1, half + 1)]
        values = tuple(dict.fromkeys(dimension.rounded(value) for value in [*down, start, *up]))
    return Dimension(key, low, high, start, values, is_integer)


def _weight_key(name: str) -> str:
    for key in WEIGHT_SPANS:
        if name in (key, key.removeprefix("loss."), key.removeprefix("loss.").removesuffix("_weight")):
            return key
    names = ", ".join(key.removeprefix("loss.").removesuffix("_weight") for key in WEIGHT_SPANS)
    raise ValueError(f"`weights` must be among {names}. Received: {name!r}.")


def _parse_extra(extra: str, current: Mapping[str, Any]) -> tuple[str, tuple[float, float]]:
    key, _, text = extra.partition("=")
    low, separator, high = text.partition(":")
    try:
        ends = (float(low), float(high))
    except ValueError:
        separator = ""
        ends = (0.0, 0.0)
    if not separator:
        raise ValueError(
            f"`extras` must be among {', '.join(EXTRA_SPANS)}, or KEY=LOW:HIGH. Received: {extra!r}."
        ) from None
    value = current.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"`extras` must name a number of the configuration. Received: {key}={value!r}.")
    return key, ends
