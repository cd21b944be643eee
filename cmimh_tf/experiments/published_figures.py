"""Figures as published, in percent, never measured here; each with the place where it was read.

What could not be read at a source is left out rather than copied from memory: an entry for another method, data set or
setting is one more `PublishedRow`.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PublishedRow:
    """One method's published figures on one data set under one setting.

    Attributes:
        method: its name.
        data_set: one of `cmimh_tf.experiments.published.DATA_SETS`.
        setting: the experiment whose setting the figures belong to.
        measure: what was measured, as the metrics call it, such as "map_at_50".
        source: where the figures were read, and whom that cites.
        figures: task -> bits -> percent.
    """

    method: str
    data_set: str
    setting: str
    measure: str
    source: str
    figures: dict[str, dict[int, float]] = field(default_factory=dict)


_CCAH = (
    "CCAH: A CLIP-Based Cycle Alignment Hashing Method for Unsupervised Vision-Text Retrieval, International Journal "
    "of Intelligent Systems 2023, 7992047, Table 1"
)
_UDCMH = f"{_CCAH}, citing Wu et al., Unsupervised Deep Hashing via Binary Latent Factor Models, IJCAI 2018"
_DJSRH = f"{_CCAH}, citing Su et al., Deep Joint-Semantics Reconstructing Hashing, ICCV 2019"


def _map50(
    method: str, data_set: str, source: str, image_to_text: tuple[float, ...], text_to_image: tuple[float, ...]
) -> PublishedRow:
    """mAP@50 at 16, 32, 64 and 128 bits."""
    by_task = {"image_to_text": image_to_text, "text_to_image": text_to_image}
    figures = {task: dict(zip((16, 32, 64, 128), values, strict=True)) for task, values in by_task.items()}
    return PublishedRow(method, data_set, "map50", "map_at_50", source, figures)


PUBLISHED_ROWS: tuple[PublishedRow, ...] = (
    _map50("CVH", "mirflickr25k", _CCAH, (60.6, 59.9, 59.6, 59.8), (59.1, 58.3, 57.6, 57.6)),
    _map50("CVH", "nuswide", _CCAH, (37.2, 36.2, 40.6, 39.0), (40.1, 38.4, 44.2, 43.2)),
    _map50("CMFH", "mirflickr25k", _CCAH, (62.1, 62.4, 62.5, 62.7), (64.2, 66.2, 67.6, 68.5)),
    _map50("CMFH", "nuswide", _CCAH, (45.5, 45.9, 46.5, 46.7), (52.9, 57.7, 61.4, 64.5)),
    _map50("UDCMH", "mirflickr25k", _UDCMH, (68.9, 69.8, 71.4, 71.7), (69.2, 70.4, 71.8, 73.3)),
    _map50("UDCMH", "nuswide", _UDCMH, (51.1, 51.9, 52.4, 55.8), (63.7, 65.3, 69.5, 71.6)),
    _map50("DJSRH", "mirflickr25k", _DJSRH, (81.0, 84.3, 86.2, 87.6), (78.6, 82.2, 83.5, 84.7)),
    _map50("DJSRH", "nuswide", _DJSRH, (72.4, 77.3, 79.8, 81.7), (71.2, 74.4, 77.1, 78.9)),
)
