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

PUBLISHED_ROWS: tuple[PublishedRow, ...] = (
    PublishedRow(
        "CVH",
        "mirflickr25k",
        "map50",
        "map_at_50",
        _CCAH,
        {
            "image_to_text": {16: 60.6, 32: 59.9, 64: 59.6, 128: 59.8},
            "text_to_image": {16: 59.1, 32: 58.3, 64: 57.6, 128: 57.6},
        },
    ),
    PublishedRow(
        "CVH",
        "nuswide",
        "map50",
        "map_at_50",
        _CCAH,
        {
            "image_to_text": {16: 37.2, 32: 36.2, 64: 40.6, 128: 39.0},
            "text_to_image": {16: 40.1, 32: 38.4, 64: 44.2, 128: 43.2},
        },
    ),
    PublishedRow(
        "CMFH",
        "mirflickr25k",
        "map50",
        "map_at_50",
        _CCAH,
        {
            "image_to_text": {16: 62.1, 32: 62.4, 64: 62.5, 128: 62.7},
            "text_to_image": {16: 64.2, 32: 66.2, 64: 67.6, 128: 68.5},
        },
    ),
    PublishedRow(
        "CMFH",
        "nuswide",
        "map50",
        "map_at_50",
        _CCAH,
        {
            "image_to_text": {16: 45.5, 32: 45.9, 64: 46.5, 128: 46.7},
            "text_to_image": {16: 52.9, 32: 57.7, 64: 61.4, 128: 64.5},
        },
    ),
    PublishedRow(
        "UDCMH",
        "mirflickr25k",
        "map50",
        "map_at_50",
        _UDCMH,
        {
            "image_to_text": {16: 68.9, 32: 69.8, 64: 71.4, 128: 71.7},
            "text_to_image": {16: 69.2, 32: 70.4, 64: 71.8, 128: 73.3},
        },
    ),
    PublishedRow(
        "UDCMH",
        "nuswide",
        "map50",
        "map_at_50",
        _UDCMH,
        {
            "image_to_text": {16: 51.1, 32: 51.9, 64: 52.4, 128: 55.8},
            "text_to_image": {16: 63.7, 32: 65.3, 64: 69.5, 128: 71.6},
        },
    ),
    PublishedRow(
        "DJSRH",
        "mirflickr25k",
        "map50",
        "map_at_50",
        _DJSRH,
        {
            "image_to_text": {16: 81.0, 32: 84.3, 64: 86.2, 128: 87.6},
            "text_to_image": {16: 78.6, 32: 82.2, 64: 83.5, 128: 84.7},
        },
    ),
    PublishedRow(
        "DJSRH",
        "nuswide",
        "map50",
        "map_at_50",
        _DJSRH,
        {
            "image_to_text": {16: 72.4, 32: 77.3, 64: 79.8, 128: 81.7},
            "text_to_image": {16: 71.2, 32: 74.4, 64: 77.1, 128: 78.9},
        },
    ),
)
