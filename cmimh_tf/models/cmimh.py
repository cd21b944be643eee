"""The CMIMH model: encoders, decoders, critic and discriminators, trained together in one step."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.losses.balance import balance_loss
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
from cmimh_tf.ops.bernoulli import sample_codes
from cmimh_tf.ops.shuffle import shuffle_bits

Batch = Mapping[str, tf.Tensor]
Losses = dict[str, tf.Tensor]

_REFERENCE_CODE_LENGTH = 32


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
        network, loss, seed = self.config.network, self.config.loss, 1000 * self.config.seed
        hidden, bits, limit = network.hidden_units, self.config.code_length, network.logit_limit

        self.image_scaler = FeatureScaler(network.input_norm, name="image_scaler")
        self.text_scaler = FeatureScaler(network.input_norm, name="text_scaler")
        self.image_encoder = Encoder(hidden, bits, limit, seed + 100, name="image_encoder")
        self.text_encoder = Encoder(hidden, bits, limit, seed + 200, name="text_encoder")
        self.image_decoder = self.text_decoder = None
        self.cross_image_decoder = self.cross_text_decoder = None
        self.critic = self.image_discriminator = self.text_discriminator = None
        if loss.reconstruction_weight:
            self.image_decoder = Decoder(hidden[::-1], image_units, seed + 300, name="image_decoder")
            self.text_decoder = Decoder(hidden[::-1], text_units, seed + 400, name="text_decoder")
        if loss.cross_reconstruction_weight:
            self.cross_image_decoder = Decoder(hidden[::-1], image_units, seed + 500, name="cross_image_decoder")
            self.cross_text_decoder = Decoder(hidden[::-1], text_units, seed + 600, name="cross_text_decoder")
        if loss.mutual_information_weight:
            self.critic = Critic(network.critic_units, network.critic_embedding_units, seed + 700, name="critic")
        if loss.independence_weight:
            self.image_discriminator = Discriminator(network.critic_units, seed + 800, name="image_discriminator")
            self.text_discriminator = Discriminator(network.critic_units, seed + 900, name="text_discriminator")
        self.trackers = {name: keras.metrics.Mean(name=name) for name in ("objective", *self.term_names())}
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates all weights; the widths are known from the constructor."""
        if self.built:
            return
        code_shape = (None, self.config.code_length)
        for layer in (self.image_scaler, self.image_encoder):
            layer.build((None, self.image_units))
        for layer in (self.text_scaler, self.text_encoder):
            layer.build((None, self.text_units))
        for layer in (*self._decoders(), self.critic, *self.discriminators()):
            if layer is not None:
                layer.build(code_shape)
        self.step = self.add_weight(shape=(), dtype="int64", initializer="zeros", trainable=False, name="step")
        self.built = True

    def adapt(self, image: np.ndarray, text: np.ndarray) -> None:
        """Fits centring and scaling on the training rows, unless `network.input_norm` is null.

        Args:
            image: [rows, image_units] array.
            text: [rows, text_units] array.
        """
        if self.config.network.input_norm is not None:
            self.image_scaler.adapt(image)
            self.text_scaler.adapt(text)

    def image_logits(self, image: tf.Tensor) -> tf.Tensor:
        """[batch, image_units] features -> [batch, code_length] logits."""
        return self.image_encoder(self.image_scaler(image))

    def text_logits(self, text: tf.Tensor) -> tf.Tensor:
        """[batch, text_units] features -> [batch, code_length] logits."""
        return self.text_encoder(self.text_scaler(text))

    def call(self, batch: Batch, training: bool = False) -> dict[str, tf.Tensor]:
        """Probabilities P(h = 1 | x) of both modalities, each [batch, code_length]."""
        return {
            "image_probs": tf.sigmoid(self.image_logits(batch["image"])),
            "text_probs": tf.sigmoid(self.text_logits(batch["text"])),
        }

    def hash_images(self, image: np.ndarray) -> np.ndarray:
        """Packed codes of image features, in constant memory: uint8 [rows, code_length / 8]."""
        return hash_in_blocks(self.image_logits, image, self.image_units, self.config.code_length, "image")

    def hash_texts(self, text: np.ndarray) -> np.ndarray:
        """Packed codes of text features, in constant memory: uint8 [rows, code_length / 8]."""
        return hash_in_blocks(self.text_logits, text, self.text_units, self.config.code_length, "text")

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
        seeds = tf.random.split(tf.stack([tf.constant(self.config.seed, tf.int64), step]), num=6)
        seeds = tf.unstack(seeds)
        image, text = self.image_scaler(batch["image"]), self.text_scaler(batch["text"])
        image_target = self.image_scaler(batch["image_target"]) if "image_target" in batch else image
        text_target = self.text_scaler(batch["text_target"]) if "text_target" in batch else text
        image_logits, text_logits = self.image_encoder(image), self.text_encoder(text)
        image_probs, text_probs = tf.sigmoid(image_logits), tf.sigmoid(text_logits)
        losses: Losses = {}
        if weights.reconstruction_weight or weights.cross_reconstruction_weight:
            image_codes, text_codes = sample_codes(image_logits, seeds[0]), sample_codes(text_logits, seeds[1])
        if weights.reconstruction_weight:
            losses["reconstruction"] = reconstruction_loss(image_target, self.image_decoder(image_codes)) + (
                reconstruction_loss(text_target, self.text_decoder(text_codes))
            )
        if weights.cross_reconstruction_weight:
            losses["cross_reconstruction"] = reconstruction_loss(image_target, self.cross_image_decoder(text_codes)) + (
                reconstruction_loss(text_target, self.cross_text_decoder(image_codes))
            )
        if weights.mutual_information_weight:
            losses["mutual_information"] = self.critic.mutual_information(
                image_logits, text_logits, self.config.loss, seeds[2:4]
            )
        if weights.modality_gap_weight:
            losses["modality_gap"] = symmetric_kl(image_logits, text_logits)
        if weights.independence_weight:
            losses.update(self._independence(image_probs, text_probs, seeds[4:6]))
        if weights.balance_weight:
            losses["balance"] = balance_loss(image_probs) + balance_loss(text_probs)
        return losses

    def term_names(self) -> list[str]:
        """The names of the terms that are switched on, as `compute_losses` returns them."""
        weights = self.config.loss
        switches = {
            "reconstruction": weights.reconstruction_weight,
            "cross_reconstruction": weights.cross_reconstruction_weight,
            "mutual_information": weights.mutual_information_weight,
            "modality_gap": weights.modality_gap_weight,
            "total_correlation": weights.independence_weight,
            "discriminator": weights.independence_weight,
            "balance": weights.balance_weight,
        }
        return [name for name, weight in switches.items() if weight]

    def objective(self, losses: Losses) -> tf.Tensor:
        """The weighted sum that encoders, decoders and critic minimise."""
        weights = self.config.loss
        # Terms that sum over bits would outgrow the others as codes get longer.
        per_bit = _REFERENCE_CODE_LENGTH / self.config.code_length if weights.scale_by_code_length else 1.0
        gap_weight = per_bit * weights.modality_gap_weight
        if weights.modality_gap_warmup_steps:
            gap_weight *= tf.minimum(1.0, tf.cast(self.step, tf.float32) / weights.modality_gap_warmup_steps)
        signed_weights = {
            "reconstruction": weights.reconstruction_weight,
            "cross_reconstruction": weights.cross_reconstruction_weight,
            "mutual_information": -weights.mutual_information_weight,
            "modality_gap": gap_weight,
            "total_correlation": per_bit * weights.independence_weight,
            "balance": per_bit * weights.balance_weight,
        }
        return tf.add_n([signed_weights[name] * losses[name] for name in signed_weights if name in losses])

    def compile(self, total_steps: int | None = None, **kwargs: Any) -> None:
        """Makes the four optimisers.

        Args:
            total_steps: length of the training, which the cosine schedule needs.
            **kwargs: passed to `keras.Model.compile`.
        """
        members = {
            "encoder": (self.image_encoder, self.text_encoder),
            "decoder": self._decoders(),
            "critic": (self.critic,),
            "discriminator": self.discriminators(),
        }
        groups = {
            group: [variable for layer in layers if layer is not None for variable in layer.trainable_variables]
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
            batch: "image" [batch, image_units] and "text" [batch, text_units].

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

    def _decoders(self) -> tuple[Decoder | None, ...]:
        return (self.image_decoder, self.text_decoder, self.cross_image_decoder, self.cross_text_decoder)

    def discriminators(self) -> tuple[Discriminator | None, ...]:
        """Those of images and of texts; None each when independence is switched off."""
        return (self.image_discriminator, self.text_discriminator)

    def _independence(self, image_probs: tf.Tensor, text_probs: tf.Tensor, seeds: list[tf.Tensor]) -> Losses:
        """Total correlation of both modalities, and the loss of the discriminators that estimate it."""
        losses = {"total_correlation": 0.0, "discriminator": 0.0}
        inputs = zip(self.discriminators(), (image_probs, text_probs), seeds, strict=True)
        for discriminator, probs, seed in inputs:
            on_probs = discriminator(probs)
            on_shuffled = discriminator(shuffle_bits(tf.stop_gradient(probs), seed))
            losses["total_correlation"] += total_correlation(on_probs)
            losses["discriminator"] += discriminator_loss(on_probs, on_shuffled)
        return losses

    def _track(self, losses: Losses, objective: tf.Tensor) -> dict[str, tf.Tensor]:
        values = {"objective": objective, **losses}
        for name, value in values.items():
            self.trackers[name].update_state(value)
        return {name: tracker.result() for name, tracker in self.trackers.items()}
