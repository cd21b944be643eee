"""How long cells will take, learned from those that are done."""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from cmimh_tf.experiments.cell import Cell

# Seconds of a cell before one of its method is done: rough, only the order of methods matters much.
_FIRST_GUESS = {"CMIMH": 300.0, "CMIMH step time": 60.0, "DJSRH": 60.0, "PDH": 40.0}
_OTHER_GUESS = 10.0


class ExpectedTime:
    """Mean seconds of a method per training pair, over the cells that are done."""

    def __init__(self) -> None:
        self._rates: dict[str, list[float]] = defaultdict(list)

    def learn(self, cell: Cell, seconds: float) -> None:
        """Takes a finished cell into account."""
        self._rates[cell.method].append(seconds / self._size(cell))

    def seconds(self, cell: Cell) -> float:
        """What a cell will probably take."""
        rates = self._rates.get(cell.method)
        if rates:
            return self._size(cell) * sum(rates) / len(rates)
        return self._size(cell) / 5000 * _FIRST_GUESS.get(cell.method, _OTHER_GUESS)

    def left(self, waiting: Iterable[Cell], running: Sequence[tuple[Cell, float]], jobs: int) -> float:
        """Seconds until all is done.

        Args:
            waiting: cells not begun.
            running: cells with the moment, of time.monotonic, at which they began.
            jobs: cells at a time.
        """
        now = time.monotonic()
        rest = [max(0.0, self.seconds(cell) - (now - begun)) for cell, begun in running]
        return max([(sum(rest) + sum(map(self.seconds, waiting))) / jobs, *rest])

    @staticmethod
    def _size(cell: Cell) -> float:
        """Work relative to other cells of the method: training goes epochs times over the pairs."""
        epochs = cell.config.training.epochs if cell.config is not None else 40
        return cell.split.num_train * epochs / 40
