"""Configuration: frozen dataclasses, and presets by name."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cmimh_tf.codes import check_code_length
from cmimh_tf.overrides import flatten, override
from cmimh_tf.terms import TERMS, active_terms


def _with_term_weights(cls: type) -> type:
    """Adds one field per term of the objective, `<name>_weight`, before the fields that the class has."""
    weights = {term.weight_key: term for term in TERMS}
    cls.__annotations__ = {**dict.fromkeys(weights, float), **cls.__annotations__}
    for key, term in weights.items():
        setattr(cls, key, term.weight)
    return cls


@dataclass(frozen=True)
@_with_term_weights
class LossConfig:
    """The weights of the objective and the variants of its terms.

    Besides the attributes below there is one weight per term of `cmimh_tf.terms.TERMS`, `<name>_weight`, such as
    `mutual_information_weight`. A weight of 0 switches the term off, and its networks with it.

    Attributes:
        cross_decoders: the networks of cross reconstruction: "separate", as in the paper, or the modality's own
            decoder, "shared", which aligns the two codes.
        reconstruction_reduction: "sum" or "mean" of the squared error over the dimensions of the features.
        modality_gap_reduction: "sum" or "mean" of the divergence over bits.
        critic_inputs: the critic's inputs: "probs", "signed_probs" (2 probs - 1), or sampled "codes" (0 and 1) or
            "signed_codes" (-1 and 1).
        critic_samples: number of sampled pairs when `critic_inputs` are codes.
        critic_negatives: "all" off-diagonal pairs of the batch, or one "shuffle" of it.
        scale_by_code_length: multiplies the weights of the terms that sum over bits by 32 / code_length.
        modality_gap_warmup_steps: steps over which the weight of the modality gap rises from 0.
    """

    cross_decoders: str = "shared"
    reconstruction_reduction: str = "sum"
    modality_gap_reduction: str = "sum"
    critic_inputs: str = "probs"
    critic_samples: int = 1
    critic_negatives: str = "all"
    scale_by_code_length: bool = True
    modality_gap_warmup_steps: int = 300

    def weight(self, term: str) -> float:
        """The weight of a term by its name."""
        return getattr(self, f"{term}_weight")

    if TYPE_CHECKING:
        # The weights are fields that the decorator adds.
        def __init__(self, **values: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...


@dataclass(frozen=True)
class NetworkConfig:
    """The shapes of the networks.

    Attributes:
        hidden_units: hidden layers of the encoders.
        decoder_units: hidden layers of the decoders; null mirrors the encoders'.
        critic_units: hidden layers of the critic's networks and of the discriminators.
        critic_networks: "separate" for each modality, or one "shared" by both, so that only equal bits score high.
        critic_embedding_units: width of the space in which the critic multiplies.
        logit_limit: logits are clipped to [-logit_limit, logit_limit]; null leaves them free.
        input_noise: norm of the noise that a training step adds to an encoder's features, relative to their own.
        input_norm: root-mean-square norm to which centred features are scaled; null trains on them as they are.
        initializer: of all weights: "glorot" (uniform, with biases of 0), or "pytorch", PyTorch's default, uniform
            within 1 / sqrt(inputs) for weights and biases.
    """

    hidden_units: tuple[int, ...] = (1024,)
    decoder_units: tuple[int, ...] | None = (512,)
    critic_units: tuple[int, ...] = (512, 512)
    critic_embedding_units: int = 512
    critic_networks: str = "separate"
    logit_limit: float | None = 5.0
    input_noise: float = 0.7
    input_norm: float | None = 10.0
    initializer: str = "glorot"

    def decoder_layers(self) -> tuple[int, ...]:
        """The hidden layers of the decoders."""
        return self.hidden_units[::-1] if self.decoder_units is None else self.decoder_units


@dataclass(frozen=True)
class OptimizerConfig:
    """SGD with momentum, coupled weight decay, and one learning rate per group of networks.

    Attributes:
        encoder_rate, decoder_rate, critic_rate, discriminator_rate: learning rates.
        momentum: of all four optimizers.
        weight_decay: L2 added to the gradient.
        gradient_clip_norm: limit of the joint norm of all gradients except the discriminators'; null never clips.
        schedule: "constant", or "cosine" down to 0 over the training.
    """

    encoder_rate: float = 0.01
    decoder_rate: float = 0.001
    critic_rate: float = 0.01
    discriminator_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    gradient_clip_norm: float | None = 50.0
    schedule: str = "cosine"


@dataclass(frozen=True)
class NeighbourhoodConfig:
    """The targets of `default`: coordinates of each pair in a graph of its nearest pairs; not part of the paper.

    Attributes:
        neighbours: how many nearest pairs, in both feature spaces together, a pair is linked with; null takes one in a
            hundred of the pairs, but at least 5 and at most 30.
        coordinates: how many coordinates a pair has in the graph of these links.
        text_similarity_weight: weight of the texts' similarity against the images', between 0 and 1.
        own_share: share of the pair's own features in what is reconstructed; the rest are its coordinates.
        landmarks: how many pairs make the graph at most; the places of others follow from their nearest landmarks.
    """

    neighbours: int | None = None
    coordinates: int = 64
    text_similarity_weight: float = 0.6
    own_share: float = 0.2
    landmarks: int = 50_000


@dataclass(frozen=True)
class TrainingConfig:
    """Length and batches of a training.

    Attributes:
        batch_size: pairs per step.
        steps: about how many steps a training has, whatever the number of pairs, but at least one epoch.
        epochs: passes over the training pairs; null follows from `steps`.
        validation_share: share of the training pairs held out for early stopping; 0 trains on all.
        patience: epochs without a better label-free validation score before stopping.
    """

    batch_size: int = 512
    steps: int = 1500
    epochs: int | None = None
    validation_share: float = 0.0
    patience: int = 5

    def num_epochs(self, num_pairs: int) -> int:
        """The passes over `num_pairs` training pairs."""
        return self.num_epochs_by_steps(batches_per_epoch(num_pairs, self.batch_size))

    def num_epochs_by_steps(self, steps_per_epoch: int) -> int:
        """The passes if one has so many steps."""
        return self.epochs or max(1, round(self.steps / steps_per_epoch))


def batches_per_epoch(num_pairs: int, batch_size: int) -> int:
    """Full batches in one pass; a set smaller than a batch is one batch of itself."""
    return max(1, num_pairs // batch_size)


_CHOICES = {
    "loss.cross_decoders": ("separate", "shared"),
    "loss.reconstruction_reduction": ("sum", "mean"),
    "loss.modality_gap_reduction": ("sum", "mean"),
    "loss.critic_inputs": ("probs", "signed_probs", "codes", "signed_codes"),
    "loss.critic_negatives": ("all", "shuffle"),
    "network.critic_networks": ("separate", "shared"),
    "network.initializer": ("glorot", "pytorch"),
    "optimizer.schedule": ("constant", "cosine"),
}
_POSITIVE = {
    "loss.critic_samples", "network.hidden_units", "network.decoder_units", "network.critic_units",
    "network.critic_embedding_units",
    "network.logit_limit", "network.input_norm", "optimizer.gradient_clip_norm", "training.epochs",
    "training.steps", "training.patience", "neighbourhood.coordinates",
}  # fmt: skip

_SHARES = {"neighbourhood.text_similarity_weight", "neighbourhood.own_share"}


def _check_range(key: str, value: Any) -> None:
    if key in _CHOICES and value not in _CHOICES[key]:
        raise ValueError(f"`{key}` must be one of {', '.join(_CHOICES[key])}. Received: {key}={value!r}.")
    numbers = value if isinstance(value, tuple | list) else [value]
    for number in numbers:
        if isinstance(number, str | bool) or number is None:
            continue
        if key in _POSITIVE and not number > 0:
            raise ValueError(f"`{key}` must be positive. Received: {key}={value!r}.")
        if not 0 <= number < float("inf"):
            raise ValueError(f"`{key}` must be a finite number of at least 0. Received: {key}={value!r}.")
    if key == "seed" and value >= 2**32:
        raise ValueError(f"`seed` must be below 2^32. Received: seed={value}.")
    if key == "training.batch_size" and value < 2:
        raise ValueError(f"`{key}` must be at least 2, since pairs are compared within a batch. Received: {value}.")
    if key == "neighbourhood.landmarks" and value < 2:
        raise ValueError(f"`{key}` must be at least 2. Received: {value}.")
    if key in _SHARES and value > 1:
        raise ValueError(f"`{key}` must be at most 1. Received: {key}={value!r}.")
    if key in ("training.validation_share", "optimizer.momentum") and value >= 1:
        raise ValueError(f"`{key}` must be below 1. Received: {key}={value!r}.")


@dataclass(frozen=True)
class CMIMHConfig:
    """Everything that determines what is learned. It is saved with every result.

    Attributes:
        code_length: number of bits, a positive multiple of 8.
        seed: of the initialisation, the data order and every sample.
        loss, network, optimizer, neighbourhood, training: the parts.
    """

    code_length: int = 32
    seed: int = 0
    loss: LossConfig = field(default_factory=LossConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    neighbourhood: NeighbourhoodConfig = field(default_factory=NeighbourhoodConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        check_code_length(self.code_length)
        for key, value in flatten(self.to_dict()).items():
            _check_range(key, value)
        if not active_terms(self.loss):
            raise ValueError("At least one weight in `loss` must be positive. Received: all are 0.")
        if self.loss.weight("neighbourhood") and self.neighbourhood.neighbours == 0:
            raise ValueError(
                "`neighbourhood.neighbours` must be positive, unless `loss.neighbourhood_weight` is 0. Received: "
                "neighbourhood.neighbours=0."
            )

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionary, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "CMIMHConfig":
        """The inverse of `to_dict`; keys that are left out keep their defaults."""
        given = flatten(values)
        if "loss.reconstruction_weight" in given:
            # A complete configuration. Before version 0.2 there was no such term, and decoders mirrored encoders.
            given.setdefault("loss.neighbourhood_weight", 0.0)
            given.setdefault("network.decoder_units", None)
        return override(cls(), given)


# The paper does not say whether errors are summed or averaged, how features are scaled, in which range the critic sees
# probs, and how long to train. This reading makes most of its claims hold (docs/results/paper_regime.md).
_PAPER = CMIMHConfig(
    loss=LossConfig(
        neighbourhood_weight=0.0,
        reconstruction_weight=1.0,
        mutual_information_weight=1.5,
        modality_gap_weight=1.0,
        independence_weight=0.25,
        balance_weight=0.01,
        cross_reconstruction_weight=0.0,
        cross_decoders="separate",
        reconstruction_reduction="mean",
        modality_gap_reduction="mean",
        critic_inputs="signed_probs",
        scale_by_code_length=False,
        modality_gap_warmup_steps=0,
    ),
    network=NetworkConfig(hidden_units=(1024, 1024), decoder_units=None, input_noise=0.0, input_norm=80.0),
    optimizer=OptimizerConfig(schedule="constant"),
    neighbourhood=NeighbourhoodConfig(neighbours=0),
    # 12 epochs of the paper's 5,000 training pairs.
    training=TrainingConfig(batch_size=128, steps=468),
)
_MSCOCO = override(_PAPER, {"loss.mutual_information_weight": 4.0, "loss.modality_gap_weight": 1.5})
PRESETS: dict[str, CMIMHConfig] = {
    "default": CMIMHConfig(),
    "mirflickr25k": _PAPER,
    "nuswide": _PAPER,
    "mscoco": _MSCOCO,
    # The reading under which the paper's objective gives its best codes.
    "mscoco_summed": override(
        _MSCOCO,
        {
            "loss.reconstruction_reduction": "sum",
            "loss.modality_gap_reduction": "sum",
            "loss.critic_inputs": "probs",
            "network.input_norm": 10.0,
            "optimizer.gradient_clip_norm": None,
            "training.epochs": 40,
        },
    ),
    "smoke": CMIMHConfig(
        code_length=16,
        # Every term, so that a short run goes through all networks.
        loss=LossConfig(
            reconstruction_weight=1.0,
            cross_reconstruction_weight=1.0,
            mutual_information_weight=40.0,
            modality_gap_weight=0.75,
            independence_weight=2.5,
            balance_weight=0.01,
            modality_gap_warmup_steps=20,
        ),
        network=NetworkConfig(
            hidden_units=(64, 64), decoder_units=None, critic_units=(32, 32), critic_embedding_units=32
        ),
        training=TrainingConfig(batch_size=64, epochs=5),
    ),
}


def get_preset(name: str) -> CMIMHConfig:
    """A preset by name.

    Raises:
        ValueError: naming the presets that exist.
    """
    if name not in PRESETS:
        raise ValueError(f"`preset` must be one of {', '.join(PRESETS)}. Received: preset={name!r}.")
    return PRESETS[name]
