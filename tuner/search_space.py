"""The search space: the loss weights, and other values on request, on log scales around a preset."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.overrides import flatten, override
from cmimh_tf.terms import TERMS

if TYPE_CHECKING:
    import keras_tuner

# The factor by which a weight may differ from its preset, in both directions. The terms named here decide whether a
# training works at all. The codes of the others remain comparable even at a tenth or ten times the weight.
_NARROW_SPANS = {"mutual_information": 4.0, "modality_gap": 4.0}
_WIDE_SPAN = 10.0
EXTRA_SPANS = {
    "input_norm": {"network.input_norm": 2.0},
    "rates": {"optimizer.encoder_rate": 3.0, "optimizer.decoder_rate": 3.0, "optimizer.critic_rate": 3.0},
    "epochs": {"training.epochs": 2.0},
}
# See `tuner.oracles`.
ALGORITHMS = ("bayesian", "random", "hyperband", "grid")
# KerasTuner sends 32-bit floats between processes, which keep six digits. Trainings and files use the same six.
_DIGITS = 6


@dataclass(frozen=True)
class Dimension:
    """One value of the configuration and its range, on a log scale.

    Attributes:
        key: its dotted name.
        low, high: the ends of the range, both positive.
        start: the preset's value, within the range.
        values: the points of a grid, including `start`; empty for a continuous range.
        is_integer: whether the value is a count.
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
                f"The range of `{self.key}` must have two different, positive ends and contain its value in the "
                f"configuration, {self.start:g}. Received: {self.low:g}:{self.high:g}."
            )

    def rounded(self, value: float) -> float | int:
        """`value` as the training uses it."""
        return round(value) if self.is_integer else float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True)
class SearchSpace:
    """The configuration that a search starts from, and the values that it varies.

    Attributes:
        config: the preset, with the values at which weights of 0 start; the first trial uses it unchanged.
        dimensions: at least one; each key occurs once.
    """

    config: CMIMHConfig
    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise ValueError(
                "`dimensions` must not be empty. Name what to search with --weights or --tune-also. Received: none."
            )

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
        """The configuration keys among a trial's values, rounded. KerasTuner's own entries are dropped."""
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
        config: the preset.
        weights: the loss weights to search, such as "balance"; None for all that are not 0 in `config`, or for all
            four if all are 0. A weight of 0 starts from its value in `cmimh_tf.terms.TERMS`.
        extras: other values to search: "input_norm", "rates", "epochs", or any number of the configuration as
            "KEY=LOW:HIGH".
        grid_points: values per dimension for a grid, an odd number of at least 3; None for a continuous space.

    Raises:
        ValueError: for an unknown name or an invalid range.
    """
    current = flatten(config.to_dict())
    spans: dict[str, float] = {}
    terms = [_term_name(name) for name in weights] if weights else searched_terms()
    starts_from_zero = weights or not any(current[weight_key(term)] for term in terms)
    for term in terms:
        key = weight_key(term)
        if not current[key] and starts_from_zero:
            current[key] = _search_start(term)
        if current[key]:
            spans[key] = _NARROW_SPANS.get(term, _WIDE_SPAN)
    config = override(config, {key: current[key] for key in spans})
    given: dict[str, tuple[float, float]] = {}
    for extra in extras:
        if extra == "epochs" and current["training.epochs"] is None:
            # The length is given in steps.
            spans["training.steps"] = EXTRA_SPANS[extra]["training.epochs"]
        elif extra in EXTRA_SPANS:
            spans |= EXTRA_SPANS[extra]
        else:
            key, ends = _parse_extra(extra, current)
            given[key] = ends
    for key in spans:
        if current[key] is None:
            raise ValueError(f"`{key}` must be a number in the configuration to be searched. Received: {key}=null.")
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
                f"`grid_points` must be an odd number of at least 3: the preset is the middle point. Received: "
                f"grid_points={grid_points}."
            )
        half = grid_points // 2
        down = [start * (low / start) ** (step / half) for step in range(half, 0, -1)]
        up = [start * (high / start) ** (step / half) for step in range(1, half + 1)]
        values = tuple(dict.fromkeys(dimension.rounded(value) for value in [*down, start, *up]))
    return Dimension(key, low, high, start, values, is_integer)


def searched_terms() -> list[str]:
    """The terms whose weights are searched: those that are a λ. The reconstructions set the scale and stay fixed."""
    return [term.name for term in TERMS if term.weight_symbol]


def _search_start(name: str) -> float:
    return next(term.search_start for term in TERMS if term.name == name)


def weight_key(term: str) -> str:
    """The configuration key of a term's weight."""
    return f"loss.{term}_weight"


def _term_name(name: str) -> str:
    """`balance`, `balance_weight` or `loss.balance_weight` -> `balance`."""
    term = name.removeprefix("loss.").removesuffix("_weight")
    if term not in searched_terms():
        raise ValueError(f"`weights` must be among {', '.join(searched_terms())}. Received: {name!r}.")
    return term


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
