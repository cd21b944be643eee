"""The CMIMH model: encoders, decoders, critic and discriminators, trained together in one step."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.losses.balance import balance_loss
from cmimh_tf.losses.objective import term_names, weighted_sum
from cmimh_tf.losses.reconstruction import reconstruction_loss
from cmimh_tf.losses.symmetric_kl import symmetric_kl
from cmimh_tf.losses.total_correlation import discriminator_loss, total_correlation
from cmimh_tf.models.critic import Critic
from cmimh_tf.models.decoder import Decoder
from cmimh_tf.models.discriminator import Discriminator
from cmimh_tf.models.encoder import Encoder
from cmimh_tf.models.feature_scaler import FeatureScaler
from cmimh_tf.models.grouped_optimizers import GroupedOptimizers
from cmimh_tf.models.hashing import hash_in_blocks
from cmimh_tf.models.settled_signs import settle_signs
from cmimh_tf.ops.bernoulli import sample_codes
from cmimh_tf.ops.shuffle import shuffle_bits

Batch = Mapping[str, tf.Tensor]
Losses = dict[str, tf.Tensor]

MODALITIES = ("image", "text")


@keras.saving.register_keras_serializable(package="cmimh_tf")
class CMIMH(keras.Model):
    """Cross-modal info-max hashing.

    Minimises, over encoders, decoders and critic,

        reconstruction - l1 * I_JS(mu_image; mu_text) + l2 * D_SKL + l3 * L_ind + l4 * L_bal

    while the discriminators behind L_ind learn to tell codes from shuffled codes with their own optimiser.

    Args:
        config: the configuration, or its dictionary.
        image_units: width of the image features.
        text_units: width of the text features.

    Example:
        >>> model = CMIMH(get_preset("default"), image_units=1280, text_units=384)
        >>> model.adapt(image, text)
        >>> model.compile()
        >>> model.fit(batches, epochs=25)
        >>> codes = model.hash_images(image)  # uint8 [rows, code_length / 8]

    Reference:
        Hoang, Do, Nguyen, Cheung: Multi-Modal Mutual Information Maximization: A Novel Approach for Unsupervised
        Deep Cross-Modal Hashing. IEEE TNNLS 2023.
    """

    def __init__(self, config: CMIMHConfig | Mapping[str, Any], image_units: int, text_units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, CMIMHConfig) else CMIMHConfig.from_dict(config)
        self.image_units, self.text_units = image_units, text_units
        network, weights, bits = self.config.network, self.config.loss, self.config.code_length
        hidden, limit = network.hidden_units, network.logit_limit

        self.scalers: dict[str, FeatureScaler] = {}
        self.encoders: dict[str, Encoder] = {}
        self.decoders: dict[str, Decoder] = {}
        self.cross_decoders: dict[str, Decoder] = {}
        self.discriminators: dict[str, Discriminator] = {}
        self.critic: Critic | None = None
        self.compiled_logits: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {}
        for position, (name, units) in enumerate((("image", image_units), ("text", text_units))):
            # Every network has its own range of seeds, so that switching one off leaves the others as they were.
            seed = 1000 * self.config.seed + 100 * position
            self.scalers[name] = FeatureScaler(network.input_norm or 1.0, name=f"{name}_scaler")
            self.encoders[name] = Encoder(hidden, bits, limit, network.input_noise, seed + 100, name=f"{name}_encoder")
            shared = weights.cross_reconstruction_weight and weights.cross_decoders == "shared"
            if weights.reconstruction_weight or shared:
                self.decoders[name] = Decoder(hidden[::-1], units, seed + 300, name=f"{name}_decoder")
            if weights.cross_reconstruction_weight and not shared:
                self.cross_decoders[name] = Decoder(hidden[::-1], units, seed + 500, name=f"cross_{name}_decoder")
            if weights.independence_weight:
                self.discriminators[name] = Discriminator(
                    network.critic_units, seed + 700, name=f"{name}_discriminator"
                )
        if weights.mutual_information_weight:
            seed = 1000 * self.config.seed + 900
            self.critic = Critic(network.critic_units, network.critic_embedding_units, seed, name="critic")
        self.trackers = {name: keras.metrics.Mean(name=name) for name in ("objective", *term_names(weights))}
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates all weights; the widths are known from the constructor."""
        if hasattr(self, "step"):
            return
        for name, units in (("image", self.image_units), ("text", self.text_units)):
            self.scalers[name].build((None, units))
            self.encoders[name].build((None, units))
        on_codes: list[keras.layers.Layer] = [*self.decoders.values(), *self.cross_decoders.values()]
        on_codes += [*self.discriminators.values(), *([self.critic] if self.critic is not None else [])]
        for layer in on_codes:
            layer.build((None, self.config.code_length))
        self.step = self.add_weight(shape=(), dtype="int64", initializer="zeros", trainable=False, name="step")
        self.built = True

    def adapt(self, image: np.ndarray, text: np.ndarray) -> None:
        """Fits centring and scaling on the training rows, unless `network.input_norm` is null.

        Args:
            image: [rows, image_units] array.
            text: [rows, text_units] array.
        """
        if self.config.network.input_norm is not None:
            self.scalers["image"].adapt(image)
            self.scalers["text"].adapt(text)

    def image_logits(self, image: tf.Tensor) -> tf.Tensor:
        """[batch, image_units] features -> [batch, code_length] logits."""
        return self.encoders["image"](self.scalers["image"](image))

    def text_logits(self, text: tf.Tensor) -> tf.Tensor:
        """[batch, text_units] features -> [batch, code_length] logits."""
        return self.encoders["text"](self.scalers["text"](text))

    def code_logits(self, name: str, features: tf.Tensor) -> tf.Tensor:
        """The logits of one modality by name, with signs that do not depend on the batch: codes are made of these."""
        logits = self.encoders[name](self.scalers[name](features))
        return settle_signs(logits, features, self.scalers[name], self.encoders[name])

    def call(self, batch: Batch, training: bool = False) -> dict[str, tf.Tensor]:
        """Probabilities P(h = 1 | x) of both modalities, each [batch, code_length]."""
        return {
            "image_probs": tf.sigmoid(self.image_logits(batch["image"])),
            "text_probs": tf.sigmoid(self.text_logits(batch["text"])),
        }

    def hash_images(self, image: np.ndarray) -> np.ndarray:
        """Packed codes of image features, in constant memory: uint8 [rows, code_length / 8]."""
        return self._hash("image", image, self.image_units)

    def hash_texts(self, text: np.ndarray) -> np.ndarray:
        """Packed codes of text features, in constant memory: uint8 [rows, code_length / 8]."""
        return self._hash("text", text, self.text_units)

    def compute_losses(self, batch: Batch, training: bool) -> Losses:
        """The unweighted terms of the objective; terms with weight 0 are left out.

        Args:
            batch: "image" [batch, image_units] and "text" [batch, text_units]; "image_target" and "text_target" of the
                same shapes are reconstructed in their place where given.
            training: samples fresh codes each step; evaluation uses one fixed seed.

        Returns:
            Scalars by name, with "discriminator" for the discriminators' own loss.
        """
        weights = self.config.loss
        step = self.step.value if training else tf.constant(-1, tf.int64)
        seeds = tf.unstack(tf.random.split(tf.stack([tf.constant(self.config.seed, tf.int64), step]), num=8))
        features = {name: self.scalers[name](batch[name]) for name in MODALITIES}
        noise_seeds = dict(zip(MODALITIES, seeds[6:8] if training else (None, None), strict=True))
        logits = {name: self.encoders[name](features[name], noise_seeds[name]) for name in MODALITIES}
        probs = {name: tf.sigmoid(logits[name]) for name in MODALITIES}
        losses: Losses = {}
        if self.decoders or self.cross_decoders:
            targets = {
                name: self.scalers[name](batch[f"{name}_target"]) if f"{name}_target" in batch else features[name]
                for name in MODALITIES
            }
            codes = {name: sample_codes(logits[name], seed) for name, seed in zip(MODALITIES, seeds[:2], strict=True)}
            losses.update(self._reconstructions(codes, targets))
        if self.critic is not None:
            losses["mutual_information"] = self.critic.mutual_information(
                logits["image"], logits["text"], weights, seeds[2:4]
            )
        if weights.modality_gap_weight:
            losses["modality_gap"] = symmetric_kl(logits["image"], logits["text"])
        if self.discriminators:
            losses.update(self._independence(probs, seeds[4:6]))
        if weights.balance_weight:
            losses["balance"] = tf.add_n([balance_loss(probs[name]) for name in MODALITIES])
        return losses

    def objective(self, losses: Losses) -> tf.Tensor:
        """The weighted sum that encoders, decoders and critic minimise."""
        return weighted_sum(losses, self.config.loss, self.config.code_length, self.step.value)

    def compile(self, total_steps: int | None = None, **kwargs: Any) -> None:
        """Makes the four optimisers.

        Args:
            total_steps: length of the training, which the cosine schedule needs.
            **kwargs: passed to `keras.Model.compile`.
        """
        members: dict[str, list[keras.layers.Layer]] = {
            "encoder": list(self.encoders.values()),
            "decoder": [*self.decoders.values(), *self.cross_decoders.values()],
            "critic": [self.critic] if self.critic is not None else [],
            "discriminator": list(self.discriminators.values()),
        }
        groups = {
            group: [variable for layer in layers for variable in layer.trainable_variables]
            for group, layers in members.items()
        }
        self.grouped_optimizers = GroupedOptimizers(
            groups, self.trainable_variables, self.config.optimizer, total_steps
        )
        encoder_optimizer = self.grouped_optimizers.optimizers["encoder"]
        super().compile(optimizer=encoder_optimizer, **{"jit_compile": False, **kwargs})

    def train_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """One step of all four optimisers.

        Args:
            batch: as `compute_losses` takes it.

        Returns:
            Means over the epoch of each term and of the objective.
        """
        with tf.GradientTape(persistent=True) as tape:
            losses = self.compute_losses(batch, training=True)
            objective = self.objective(losses)
        own_objectives = {name: losses[name] for name in ("discriminator",) if name in losses}
        self.grouped_optimizers.apply(self.grouped_optimizers.gradients(tape, objective, own_objectives))
        self.step.assign_add(1)
        return self._track(losses, objective)

    def test_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The same terms on held-out pairs, without an update."""
        losses = self.compute_losses(batch, training=False)
        return self._track(losses, self.objective(losses))

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The running means that Keras resets at each epoch."""
        return list(self.trackers.values())

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "config": self.config.to_dict(),
            "image_units": self.image_units,
            "text_units": self.text_units,
        }

    def _hash(self, name: str, features: np.ndarray, units: int) -> np.ndarray:
        if name not in self.compiled_logits:
            # One graph for any number of rows, made on first use: it fuses bias and activation into the products.
            self.compiled_logits[name] = tf.function(
                partial(self.code_logits, name), [tf.TensorSpec([None, units], tf.float32)]
            )
        return hash_in_blocks(self.compiled_logits[name], features, units, self.config.code_length, name)

    def _reconstructions(self, codes: Batch, targets: Batch) -> Losses:
        """Both modalities' features from their own codes, and from each other's."""
        weights = self.config.loss
        own_errors, cross_errors = [], []
        for name, other in zip(MODALITIES, reversed(MODALITIES), strict=True):
            if weights.reconstruction_weight and weights.cross_reconstruction_weight and not self.cross_decoders:
                # One pass over both codes: the decoder's weights and their gradients are read and written once.
                decoded = self.decoders[name](tf.concat([codes[name], codes[other]], axis=0))
                own, cross = tf.split(decoded, 2)
            else:
                own = self.decoders[name](codes[name]) if weights.reconstruction_weight else None
                cross_decoders = self.cross_decoders or self.decoders
                cross = cross_decoders[name](codes[other]) if weights.cross_reconstruction_weight else None
            own_errors += [reconstruction_loss(targets[name], own)] if own is not None else []
            cross_errors += [reconstruction_loss(targets[name], cross)] if cross is not None else []
        errors = {"reconstruction": own_errors, "cross_reconstruction": cross_errors}
        return {name: tf.add_n(values) for name, values in errors.items() if values}

    def _independence(self, probs: Mapping[str, tf.Tensor], seeds: Sequence[tf.Tensor]) -> Losses:
        """Total correlation of both modalities, and the loss of the discriminators that estimate it."""
        correlations, own_losses = [], []
        for (name, discriminator), seed in zip(self.discriminators.items(), seeds, strict=True):
            shuffled = shuffle_bits(tf.stop_gradient(probs[name]), seed)
            on_probs, on_shuffled = tf.split(discriminator(tf.concat([probs[name], shuffled], axis=0)), 2)
            correlations.append(total_correlation(on_probs))
            own_losses.append(discriminator_loss(on_probs, on_shuffled))
        return {"total_correlation": tf.add_n(correlations), "discriminator": tf.add_n(own_losses)}

    def _track(self, losses: Losses, objective: tf.Tensor) -> dict[str, tf.Tensor]:
        for name, value in {"objective": objective, **losses}.items():
            self.trackers[name].update_state(value)
        return {name: tracker.result() for name, tracker in self.trackers.items()}
