"""Earlier cross-modal hashing methods to compare with, all behind the `Hasher` interface."""

from cmimh_tf.baselines.acq import ACQ
from cmimh_tf.baselines.cvh import CVH
from cmimh_tf.baselines.hasher import Hasher

__all__ = ["ACQ", "CVH", "Hasher"]
