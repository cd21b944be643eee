"""Early stopping on held-out pairs, without labels."""

from pathlib import Path
from tempfile import mkdtemp

import keras
import numpy as np

from cmimh_tf.data.paired import PairedData
from cmimh_tf.metrics.recall_one_at_k import pair_ranks
from cmimh_tf.models.cmimh import CMIMH
from cmimh_tf.training.history import HistoryFile
from cmimh_tf.training.run_folder import RunFolder

SCORE_NAME = "validation_score"


def split_validation(train: PairedData, share: float, seed: int) -> tuple[PairedData, PairedData | None]:
    """Keeps a seeded share of the training pairs aside.

    Args:
        train: the training pairs.
        share: of the pairs to keep aside, in [0, 1); 0 keeps none.
        seed: of the choice.

    Returns:
        The pairs to train on, and those kept aside or None.
    """
    count = round(share * len(train))
    if count == 0:
        return train, None
    order = np.random.default_rng([seed, 1]).permutation(len(train))
    return train.take(np.sort(order[count:])), train.take(np.sort(order[:count]))


def pair_score(image_codes: np.ndarray, text_codes: np.ndarray) -> float:
    """How well pairs find each other: 1 - mean rank / worst rank, over both directions.

    Args:
        image_codes: uint8 [pairs, code_length / 8].
        text_codes: uint8 [pairs, code_length / 8].

    Returns:
        1 when every pair comes first, about 0.5 by chance.
    """
    ranks = [pair_ranks(image_codes, text_codes), pair_ranks(text_codes, image_codes)]
    return float(1.0 - np.mean(ranks) / max(1, len(image_codes) - 1))


class LabelFreeEarlyStopping(keras.callbacks.Callback):
    """Stops when the pair score of held-out pairs has not risen for a while, and keeps the best weights.

    Its state is the history's rows, so that a resumed run stops where an unbroken one would have.

    Args:
        validation: the held-out pairs.
        patience: epochs without a better score before stopping.
        folder: the run's folder, where the best weights are kept; None uses a temporary one.
        history: the rows of all epochs so far.
    """

    def __init__(self, validation: PairedData, patience: int, folder: RunFolder | None, history: HistoryFile):
        super().__init__()
        self.validation = validation
        self.patience = patience
        self.history = history
        self.best_weights = folder.best_weights if folder else Path(mkdtemp()) / "best.weights.h5"

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        model: CMIMH = self.model
        score = pair_score(model.hash_images(self.validation.image), model.hash_texts(self.validation.text))
        scores = self._scores()
        if logs is not None:
            logs[SCORE_NAME] = score
        if not scores or score > max(scores):
            self.best_weights.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.best_weights.with_name("new.weights.h5")
            model.save_weights(temporary)
            temporary.replace(self.best_weights)
        model.stop_training = self.is_exhausted([*scores, score])

    def is_exhausted(self, scores: list[float] | None = None) -> bool:
        """Whether the best score is `patience` epochs old."""
        scores = self._scores() if scores is None else scores
        return len(scores) > 0 and len(scores) - 1 - int(np.argmax(scores)) >= self.patience

    def restore_best(self, model: CMIMH) -> None:
        """Loads the weights of the best epoch into `model`."""
        model.load_weights(self.best_weights)

    def _scores(self) -> list[float]:
        return [row[SCORE_NAME] for row in self.history.rows]
