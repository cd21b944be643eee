"""The CMIMH model: encoders, decoders, critic and discriminators, trained together in one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf import losses as loss_functions
from cmimh_tf.config import CMIMHConfig, batches_per_epoch, get_preset
from cmimh_tf.hashing import hash_in_blocks, settled_logits
from cmimh_tf.layers import Critic, Decoder, Discriminator, Encoder, FeatureScaler
from cmimh_tf.ops import sample_codes, shuffle_bits
from cmimh_tf.optimizers import GroupedOptimizer, make_optimizer, set_schedule_length
from cmimh_tf.overrides import override
from cmimh_tf.stored_rows import Rows, take_rows
from cmimh_tf.terms import Term, active_terms, equation, weighted_sum
from cmimh_tf.training import dataset as datasets
from cmimh_tf.training.neighbourhood import coordinate_units, find_neighbourhood, held_out_coordinates

Batch = Mapping[str, tf.Tensor]
Tensors = dict[str, tf.Tensor]

MODALITIES = ("image", "text")
_OTHER = {"image": "text", "text": "image"}


@keras.saving.register_keras_serializable(package="cmimh_tf")
class CMIMH(keras.Model):
    """Cross-modal info-max hashing: binary codes for images and texts, learned without labels.

    The weighted sum of the terms in `cmimh_tf.terms.TERMS` is minimised over encoders, decoders and critic; `equation`
    prints it as it is configured. The discriminators learn with an optimizer of their own.

    Args:
        code_length: the number of bits, a positive multiple of 8; None takes the configuration's.
        config: a `CMIMHConfig` or its dictionary; None is the recommended recipe.
        seed: of the initialisation, the order of the pairs and every sample; None takes the configuration's.
        image_units: width of the image features; None infers it from the data.
        text_units: width of the text features; None infers it from the data.

    Example:
        >>> model = CMIMH(code_length=32)
        >>> model.compile()
        >>> model.fit({"image": image, "text": text})
        >>> codes = model.hash_images(image)  # uint8 [rows, 4]
        >>> model.save("model.keras")

    Reference:
        Hoang, Do, Nguyen, Cheung: Multi-Modal Mutual Information Maximization: A Novel Approach for Unsupervised
        Deep Cross-Modal Hashing. IEEE TNNLS 2023.
    """

    def __init__(
        self,
        code_length: int | None = None,
        *,
        config: CMIMHConfig | Mapping[str, Any] | None = None,
        seed: int | None = None,
        image_units: int | None = None,
        text_units: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if isinstance(code_length, CMIMHConfig | Mapping):
            raise TypeError("`code_length` must be an int. Pass a configuration as `config=...`.")
        base = config if isinstance(config, CMIMHConfig) else CMIMHConfig.from_dict(config or {})
        given = {"code_length": code_length, "seed": seed}
        self.config = override(base, {key: value for key, value in given.items() if value is not None})
        self.image_units, self.text_units = image_units, text_units
        self.terms = active_terms(self.config.loss)
        self.scalers: dict[str, FeatureScaler] = {}
        self.encoders: dict[str, Encoder] = {}
        self.coordinate_decoder: Decoder | None = None
        self.decoders: dict[str, Decoder] = {}
        self.cross_decoders: dict[str, Decoder] = {}
        self.discriminators: dict[str, Discriminator] = {}
        self.critic: Critic | None = None
        self.compiled_logits: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {}
        tracked = ["loss", *(term.name for term in self.terms)]
        if "image_joint_logits" in self._needed_tensors():
            tracked.append("discriminator")
        self.trackers = {name: keras.metrics.Mean(name=name) for name in tracked}
        if image_units and text_units:
            self.build()

    @classmethod
    def from_preset(
        cls, name: str, *, code_length: int | None = None, seed: int | None = None, **overrides: Any
    ) -> CMIMH:
        """A model with a preset's configuration: "default", or the paper's "mscoco", "mirflickr25k" and "nuswide".

        Args:
            name: the preset.
            code_length: the number of bits; None takes the preset's.
            seed: None takes the preset's.
            **overrides: configuration keys with a double underscore for the dot, such as
                `loss__mutual_information_weight=2.0`.
        """
        values = {key.replace("__", "."): value for key, value in overrides.items()}
        return cls(code_length, config=override(get_preset(name), values), seed=seed)

    @property
    def equation(self) -> str:
        """The objective with the configured weights, such as "L_rec - 4 I_JS + 1.5 D_SKL"."""
        return equation(self.config.loss)

    # Networks

    def build(self, input_shape: Mapping[str, Sequence[int | None]] | None = None) -> None:
        """Creates all networks.

        Args:
            input_shape: the shapes of "image" and "text"; not needed if the widths were given.

        Raises:
            ValueError: if a width is neither known nor in `input_shape`, or is another one than before.
        """
        shapes = input_shape if isinstance(input_shape, Mapping) else {}
        if hasattr(self, "step"):
            for name in shapes.keys() & set(MODALITIES):
                self._check_width(name, shapes[name])
            return
        for name in MODALITIES:
            units = getattr(self, f"{name}_units") or (shapes[name][-1] if name in shapes else None)
            if not units:
                raise ValueError(
                    f"The width of the {name} features must be known before the model is built: call `fit` on both "
                    f"modalities, or pass `{name}_units`. Received: {input_shape}."
                )
            setattr(self, f"{name}_units", int(units))
        self._make_networks()
        # Weights exist from here on, and in an order that checkpoints rely on.
        for name in MODALITIES:
            self.scalers[name].build((None, self._units(name)))
            self.encoders[name].build((None, self._units(name)))
        on_codes: list[keras.layers.Layer | None] = [*self.decoders.values(), *self.cross_decoders.values()]
        on_codes += [*self.discriminators.values(), self.critic, self.coordinate_decoder]
        for layer in filter(None, on_codes):
            layer.build((None, self.config.code_length))
        self.step = self.add_weight(
            shape=(), dtype="int64", initializer="zeros", trainable=False, name="step",
            aggregation="only_first_replica",
        )  # fmt: skip
        self.built = True
        if self.compiled:
            self._build_optimizer()

    def _make_networks(self) -> None:
        network, bits = self.config.network, self.config.code_length
        hidden, initializer = network.hidden_units, network.initializer
        needed = self._needed_tensors()
        needs_own = bool(needed & {"image_from_image", "text_from_text"})
        needs_cross = bool(needed & {"image_from_text", "text_from_image"})
        shared = needs_cross and self.config.loss.cross_decoders == "shared"
        for position, name in enumerate(MODALITIES):
            # Every network has its own range of seeds, so that switching one off leaves the others as they were.
            seed = 1000 * self.config.seed + 100 * position
            self.scalers[name] = FeatureScaler(network.input_norm or 1.0, name=f"{name}_scaler")
            self.encoders[name] = Encoder(
                hidden,
                bits,
                network.logit_limit,
                network.input_noise,
                seed + 100,
                initializer=initializer,
                name=f"{name}_encoder",
            )
            decoder = partial(Decoder, network.decoder_layers(), self._units(name), initializer=initializer)
            if needs_own or shared:
                self.decoders[name] = decoder(seed + 300, name=f"{name}_decoder")
            if needs_cross and not shared:
                self.cross_decoders[name] = decoder(seed + 500, name=f"cross_{name}_decoder")
            if needed & {"image_joint_logits", "text_joint_logits"}:
                self.discriminators[name] = Discriminator(
                    network.critic_units, seed + 700, initializer=initializer, name=f"{name}_discriminator"
                )
        if self.needs_coordinates:
            self.coordinate_decoder = Decoder(
                network.decoder_layers(),
                coordinate_units(self.config.neighbourhood),
                1000 * self.config.seed + 950,
                initializer=initializer,
                name="coordinate_decoder",
            )
        if "critic_scores" in needed:
            seed = 1000 * self.config.seed + 900
            self.critic = Critic(
                network.critic_units,
                network.critic_embedding_units,
                seed,
                network.critic_networks,
                initializer,
                name="critic",
            )

    @property
    def needs_coordinates(self) -> bool:
        """Whether a training needs the coordinates of its pairs (`find_neighbourhood`)."""
        return "coordinates" in self._needed_tensors()

    def _needed_tensors(self) -> set[str]:
        return {tensor for term in self.terms for tensor in term.tensors}

    def _units(self, name: str) -> int:
        return getattr(self, f"{name}_units")

    def variable_groups(self) -> dict[str, list[keras.Variable]]:
        """The trainable variables of each group of networks; a group without networks is empty."""
        members: dict[str, list[keras.layers.Layer]] = {
            "encoder": list(self.encoders.values()),
            "decoder": [
                *self.decoders.values(),
                *self.cross_decoders.values(),
                *([self.coordinate_decoder] if self.coordinate_decoder is not None else []),
            ],
            "critic": [self.critic] if self.critic is not None else [],
            "discriminator": list(self.discriminators.values()),
        }
        return {
            group: [variable for layer in layers for variable in layer.trainable_variables]
            for group, layers in members.items()
        }

    def adapt(self, image: Rows, text: Rows) -> None:
        """Fits centring and scaling on the training rows, unless `network.input_norm` is null. `fit` calls it.

        Args:
            image: [rows, image_units] array or stored rows.
            text: [rows, text_units] array or stored rows.
        """
        self.build({"image": image.shape, "text": text.shape})
        if self.config.network.input_norm is not None:
            self.scalers["image"].adapt(image)
            self.scalers["text"].adapt(text)

    # Codes

    def image_logits(self, image: tf.Tensor) -> tf.Tensor:
        """[batch, image_units] features -> [batch, code_length] logits."""
        return self._encode("image", image)

    def text_logits(self, text: tf.Tensor) -> tf.Tensor:
        """[batch, text_units] features -> [batch, code_length] logits."""
        return self._encode("text", text)

    def code_logits(self, name: str, features: tf.Tensor) -> tf.Tensor:
        """The logits of one modality by name, with signs that do not depend on the batch. Codes are their signs."""
        return settled_logits(partial(self._encode, name), features)

    def call(self, batch: Batch, training: bool = False) -> Tensors:
        """P(h = 1 | x) of the given modalities: "image_probs" and "text_probs", each [batch, code_length]."""
        if not isinstance(batch, Mapping) or not any(name in batch for name in MODALITIES):
            received = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
            raise ValueError(f"`batch` must be a dict with 'image', 'text' or both. Received: {received}.")
        return {f"{name}_probs": tf.sigmoid(self._encode(name, batch[name])) for name in MODALITIES if name in batch}

    def hash_images(self, image: np.ndarray) -> np.ndarray:
        """Packed codes of image features, in constant memory: uint8 [rows, code_length / 8]."""
        return self._hash("image", image)

    def hash_texts(self, text: np.ndarray) -> np.ndarray:
        """Packed codes of text features, in constant memory: uint8 [rows, code_length / 8]."""
        return self._hash("text", text)

    def _encode(self, name: str, features: tf.Tensor) -> tf.Tensor:
        return self.encoders[name](self._scale(name, features))

    def _scale(self, name: str, features: tf.Tensor) -> tf.Tensor:
        self._check_width(name, features.shape)
        return self.scalers[name](features)

    def _check_widths(self, arrays: Mapping[str, Any]) -> None:
        for name in MODALITIES:
            if name in arrays:
                self._check_width(name, np.shape(arrays[name]))

    def _check_width(self, name: str, shape: Sequence[int | None]) -> None:
        if len(shape) != 2 or shape[1] not in (None, self._units(name)):
            raise ValueError(f"`{name}` must have shape [rows, {self._units(name)}]. Received: {tuple(shape)}.")

    def _hash(self, name: str, features: np.ndarray) -> np.ndarray:
        if not self.built:
            raise ValueError("The model must be trained, or its weights loaded, before it can hash.")
        if name not in self.compiled_logits:
            # One graph for any number of rows, made on first use: it fuses bias and activation into the products.
            self.compiled_logits[name] = tf.function(
                partial(self.code_logits, name), [tf.TensorSpec([None, self._units(name)], tf.float32)]
            )
        return hash_in_blocks(self.compiled_logits[name], features, self._units(name), self.config.code_length, name)

    # Losses

    def compute_losses(self, batch: Batch, training: bool) -> Tensors:
        """The unweighted terms of the objective; terms with weight 0 are left out.

        Args:
            batch: "image" [batch, image_units], "text" [batch, text_units], and "coordinates" [batch, units] of
                `find_neighbourhood`. Without coordinates, as on held-out pairs, their term is left out too.
            training: samples fresh codes each step; evaluation uses one fixed seed.

        Returns:
            Scalars by name, with "discriminator" for the discriminators' own loss.
        """
        step = self.step.value if training else tf.constant(-1, tf.int64)
        seed = tf.stack([tf.constant(self.config.seed, tf.int64), step])
        replica = tf.distribute.get_replica_context()
        if training and replica is not None and replica.num_replicas_in_sync > 1:
            seed = tf.random.fold_in(seed, replica.replica_id_in_sync_group)
        seeds = tf.unstack(tf.random.split(seed, num=8))
        noise_seeds = dict(zip(MODALITIES, seeds[6:8] if training else (None, None), strict=True))
        tensors: Tensors = {}
        for name in MODALITIES:
            features = self._scale(name, batch[name])
            logits = self.encoders[name](features, noise_seeds[name])
            tensors[f"{name}_features"] = features
            tensors[f"{name}_logits"], tensors[f"{name}_probs"] = logits, tf.sigmoid(logits)
        if "coordinates" in batch:
            tensors["coordinates"] = batch["coordinates"]
        elif training and self.needs_coordinates:
            raise ValueError("`batch` must have coordinates to train on, see `find_neighbourhood`.")
        if self.decoders or self.cross_decoders or self.coordinate_decoder is not None:
            tensors.update(self._reconstructions(tensors, seeds[:2]))
        if self.critic is not None:
            tensors.update(self._critic_scores(tensors, seeds[2:4]))
        if self.discriminators:
            tensors.update(self._discriminator_logits(tensors, seeds[4:6]))
        terms = self.terms if "coordinates" in batch else self._terms_without_coordinates()
        losses = {term.name: term.value(tensors, self.config.loss) for term in terms}
        if self.discriminators:
            suffixes = ("joint_logits", "shuffled_logits")
            logits = {f"{name}_{suffix}": tensors[f"{name}_{suffix}"] for name in MODALITIES for suffix in suffixes}
            losses["discriminator"] = loss_functions.discriminator(**logits)
        return losses

    def objective(self, losses: Tensors) -> tf.Tensor:
        """The weighted sum that encoders, decoders and critic minimise."""
        return weighted_sum(losses, self.config.loss, self.config.code_length, self.step.value)

    def _reconstructions(self, tensors: Tensors, seeds: Sequence[tf.Tensor]) -> Tensors:
        """The coordinates from both codes, and both modalities' features from their own codes and each other's."""
        needed = self._needed_tensors()
        codes = {
            name: sample_codes(tensors[f"{name}_logits"], seed) for name, seed in zip(MODALITIES, seeds, strict=True)
        }
        decoded: Tensors = {f"{name}_codes": codes[name] for name in MODALITIES}
        if self.coordinate_decoder is not None:
            both = self.coordinate_decoder(tf.concat([codes[name] for name in MODALITIES], axis=0))
            decoded["coordinates_from_image"], decoded["coordinates_from_text"] = tf.split(both, 2)
        for name, other in _OTHER.items():
            own, cross = f"{name}_from_{name}", f"{name}_from_{other}"
            if own in needed and cross in needed and not self.cross_decoders:
                # One pass over both codes: the decoder's weights and their gradients are read and written once.
                both = self.decoders[name](tf.concat([codes[name], codes[other]], axis=0))
                decoded[own], decoded[cross] = tf.split(both, 2)
                continue
            if own in needed:
                decoded[own] = self.decoders[name](codes[name])
            if cross in needed:
                decoded[cross] = (self.cross_decoders or self.decoders)[name](codes[other])
        return decoded

    def _critic_scores(self, tensors: Tensors, seeds: Sequence[tf.Tensor]) -> Tensors:
        """The critic's scores of all pairs, and which of them are negatives."""
        options = self.config.loss
        assert self.critic is not None
        if options.critic_inputs.endswith("probs"):
            pairs = [[tensors[f"{name}_probs"] for name in MODALITIES]]
        else:
            image_seeds, text_seeds = (tf.unstack(tf.random.split(seed, num=options.critic_samples)) for seed in seeds)
            pairs = [
                [sample_codes(tensors["image_logits"], image_seed), sample_codes(tensors["text_logits"], text_seed)]
                for image_seed, text_seed in zip(image_seeds, text_seeds, strict=True)
            ]
        if options.critic_inputs.startswith("signed"):
            pairs = [[2.0 * inputs - 1.0 for inputs in pair] for pair in pairs]
        scores = [self.critic(*pair) for pair in pairs]
        diagonal = tf.eye(tf.shape(scores[0])[0])
        # The batch is already shuffled: with "shuffle", image i meets text i - 1, one negative each.
        negatives = 1.0 - diagonal if options.critic_negatives == "all" else tf.roll(diagonal, shift=-1, axis=1)
        return {"critic_scores": tf.stack(scores), "critic_negatives": negatives}

    def _discriminator_logits(self, tensors: Tensors, seeds: Sequence[tf.Tensor]) -> Tensors:
        """The discriminators' logits of the probs, and of the probs shuffled per bit."""
        found: Tensors = {}
        for (name, discriminator), seed in zip(self.discriminators.items(), seeds, strict=True):
            probs = tensors[f"{name}_probs"]
            shuffled = shuffle_bits(tf.stop_gradient(probs), seed)
            joint_logits, shuffled_logits = tf.split(discriminator(tf.concat([probs, shuffled], axis=0)), 2)
            found[f"{name}_joint_logits"], found[f"{name}_shuffled_logits"] = joint_logits, shuffled_logits
        return found

    # Training

    def compile(
        self,
        optimizer: keras.optimizers.Optimizer | Mapping[str, keras.optimizers.Optimizer] | str | None = None,
        **kwargs: Any,
    ) -> None:
        """Sets the optimizer.

        Args:
            optimizer: None for the configured one (SGD with one rate per group of networks), any Keras optimizer or its
                name for all networks, or one per group: "encoder", "decoder", "critic" and "discriminator".
            **kwargs: passed to `keras.Model.compile`.
        """
        for name in ("loss", "loss_weights", "metrics", "weighted_metrics"):
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"`{name}` must not be given: CMIMH minimises and reports the terms of its own objective, see "
                    "`CMIMH.equation`."
                )
        if optimizer is None:
            optimizer = make_optimizer(self.config.optimizer)
        elif isinstance(optimizer, Mapping):
            optimizer = GroupedOptimizer(optimizer)
        super().compile(optimizer=optimizer, **{"jit_compile": False, **kwargs})
        if self.built:
            self._build_optimizer()

    def get_compile_config(self) -> dict[str, Any]:
        """The serialised optimizer."""
        return {"optimizer": keras.saving.serialize_keras_object(self.optimizer)} if self.compiled else {}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """The inverse of `get_compile_config`."""
        self.compile(keras.saving.deserialize_keras_object(config["optimizer"]))

    def _build_optimizer(self) -> None:
        if self.optimizer.built:
            return
        if isinstance(self.optimizer, GroupedOptimizer):
            self.optimizer.assign_groups(self.variable_groups())
        self.optimizer.build(self.trainable_variables)

    def fit(
        self,
        x: Mapping[str, np.ndarray] | tf.data.Dataset | None = None,
        y: None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        verbose: str | int = "auto",
        callbacks: list[keras.callbacks.Callback] | None = None,
        validation_split: float = 0.0,
        validation_data: Mapping[str, np.ndarray] | tf.data.Dataset | None = None,
        shuffle: bool = True,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains the model, as `keras.Model.fit` does, by default for as long as the configuration says.

        On arrays, the first call infers the feature widths and fits the scaling; each call computes the
        coordinates that the codes reconstruct. Incomplete batches are dropped. The order of the pairs depends on
        the seed and the epoch alone, so that a loaded model with `initial_epoch` set ends in the same weights as an
        unbroken training. A dataset must have been prepared by `cmimh_tf.prepare_dataset`.

        Args:
            x: {"image": [pairs, image_units], "text": [pairs, text_units]}, arrays or `StoredRows`, or a dataset of
                such batches. "coordinates" of `find_neighbourhood` may be given too.
            y: must be None; no labels are used.
            batch_size: pairs per step; None takes the configuration's. Only for arrays.
            epochs: number of epochs, `initial_epoch` included; None takes the configuration's. With the recommended
                recipe these make about 1,500 steps of any number of pairs. The cosine schedule ends with the last one.
            verbose, callbacks, validation_split, validation_data, initial_epoch, **kwargs: as in `keras.Model.fit`.
            shuffle: whether arrays are shuffled before each epoch.
            steps_per_epoch: batches per epoch, for a dataset whose size is not known.

        Returns:
            Keras's history, with the epoch means of "loss" and of each term.
        """
        if y is not None:
            raise ValueError("`y` must be None: CMIMH learns without labels.")
        if not self.compiled:
            raise ValueError("Call `compile()` before calling `fit()`.")
        for name in ("class_weight", "sample_weight"):
            if kwargs.get(name) is not None:
                raise ValueError(f"`{name}` must be None: all pairs count equally.")
        if not 0 <= validation_split < 1:
            raise ValueError(f"`validation_split` must be at least 0 and below 1. Received: {validation_split}.")
        if epochs is not None and (isinstance(epochs, bool) or not isinstance(epochs, int | np.integer) or epochs < 1):
            raise ValueError(f"`epochs` must be a positive integer. Received: epochs={epochs!r}.")
        if isinstance(validation_data, tuple):
            validation_data = _pairs_of(validation_data)
        if isinstance(x, Mapping):
            batch_size = self._checked_batch_size(batch_size)
            columns = datasets.check_pairs(x)
            if isinstance(validation_data, Mapping):
                validation_data = self._with_coordinates(datasets.check_pairs(validation_data), columns)
            if self.needs_coordinates and "coordinates" not in columns:
                # Before the validation pairs are split off, so that they have coordinates, too.
                columns |= find_neighbourhood(columns["image"], columns["text"], self.config.neighbourhood)
            if validation_split and validation_data is None:
                kept = len(columns["image"]) - round(len(columns["image"]) * validation_split)
                validation_data = {name: values[kept:] for name, values in columns.items()}
                columns = {name: take_rows(values, np.arange(kept)) for name, values in columns.items()}
            image, text = columns["image"], columns["text"]
            steps = steps_per_epoch or batches_per_epoch(len(image), batch_size)
            epochs = self.config.training.num_epochs_by_steps(steps) if epochs is None else epochs
            with self.distribute_strategy.scope():
                self.build({"image": image.shape, "text": text.shape})
            if not any(scaler.is_fitted for scaler in self.scalers.values()):
                self.adapt(image, text)
            dataset = datasets.training_batches(
                columns, batch_size, self.config.seed, initial_epoch, epochs, shuffle=shuffle
            )
            kwargs.setdefault("validation_batch_size", batch_size)
        elif isinstance(x, tf.data.Dataset):
            if batch_size is not None:
                raise ValueError(f"`batch_size` must be None for a dataset. Received: batch_size={batch_size}.")
            if validation_split:
                raise ValueError(
                    "`validation_split` needs arrays: split the dataset, and pass `validation_data`. Received: "
                    f"validation_split={validation_split} with a dataset."
                )
            with self.distribute_strategy.scope():
                steps = self._check_dataset(x, steps_per_epoch)
            epochs = self.config.training.num_epochs_by_steps(steps) if epochs is None else epochs
            dataset = x
        else:
            raise TypeError(f"`x` must be a dict of arrays or a tf.data.Dataset. Received: {type(x).__name__}.")
        if validation_data is not None:
            self._check_measurable(validation_data, "validation_data")
        with self.distribute_strategy.scope():
            self._build_optimizer()
        set_schedule_length(self.optimizer, max(0, epochs - initial_epoch) * steps)
        return super().fit(
            dataset,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_data=validation_data,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps if isinstance(x, Mapping) else steps_per_epoch,
            shuffle=False,
            **kwargs,
        )

    def _with_coordinates(self, held_out: dict[str, Rows], train: Mapping[str, Rows]) -> dict[str, Rows]:
        """Held-out pairs with their coordinates among the training pairs, if the model needs them."""
        for name in MODALITIES:
            if held_out[name].shape[1] != train[name].shape[1]:
                raise ValueError(
                    f"`{name}` must have shape [rows, {train[name].shape[1]}] in `validation_data`, as in `x`. "
                    f"Received: {held_out[name].shape}."
                )
        if not self.needs_coordinates or "coordinates" in held_out:
            return held_out
        coordinates = held_out_coordinates(
            held_out["image"], held_out["text"], train["image"], train["text"], self.config.neighbourhood
        )
        return {**held_out, **coordinates}

    def _check_measurable(self, pairs: Any, name: str) -> None:
        """Raises ValueError for held-out pairs on which no term of the objective can be computed."""
        given = getattr(pairs, "element_spec", pairs)
        if isinstance(given, Mapping) and "coordinates" not in given and not self._terms_without_coordinates():
            raise ValueError(
                f"`{name}` must have coordinates among the training pairs, which are all that this model reconstructs. "
                "`fit` adds them to held-out arrays; elsewhere, use "
                f"cmimh_tf.training.neighbourhood.held_out_coordinates. Received: {', '.join(given)}."
            )

    def _terms_without_coordinates(self) -> list[Term]:
        return [term for term in self.terms if "coordinates" not in term.tensors]

    def _checked_batch_size(self, batch_size: Any) -> int:
        if batch_size is None:
            return self.config.training.batch_size
        is_integer = isinstance(batch_size, int | np.integer) and not isinstance(batch_size, bool)
        if not is_integer or batch_size < 2:
            raise ValueError(
                "`batch_size` must be an integer of at least 2, since pairs are compared within a batch. Received: "
                f"batch_size={batch_size!r}."
            )
        return int(batch_size)

    def _check_dataset(self, dataset: tf.data.Dataset, steps_per_epoch: int | None) -> int:
        """Builds the model for a dataset and returns the number of batches per epoch."""
        spec = dataset.element_spec
        if not isinstance(spec, Mapping) or any(name not in spec or len(spec[name].shape) != 2 for name in MODALITIES):
            raise ValueError(
                "`x` must be a dataset of batches {'image': [batch, units], 'text': [batch, units]}. "
                f"Received: {spec}."
            )
        self.build({name: tuple(spec[name].shape) for name in MODALITIES})
        unscaled = self.config.network.input_norm is not None and not self.scalers["image"].is_fitted
        if unscaled or (self.needs_coordinates and "coordinates" not in spec):
            raise ValueError(
                "`x` must be prepared first, so that features are scaled and coordinates are known: "
                "dataset = cmimh_tf.prepare_dataset(dataset, model)."
            )
        steps = steps_per_epoch or int(dataset.cardinality())
        if steps < 1:
            raise ValueError("`steps_per_epoch` must be given for a dataset of unknown size.")
        return steps

    def evaluate(self, x: Any = None, y: None = None, batch_size: int | None = None, **kwargs: Any) -> Any:
        """The loss and its terms on held-out pairs, as `keras.Model.evaluate`.

        The neighbourhood term needs the "coordinates" of the pairs among the training pairs
        (`cmimh_tf.training.neighbourhood.held_out_coordinates`). It is left out if `x` does not have them, and refused
        if it is the only term. `fit` computes them for its `validation_data`.
        """
        if not self.built:
            raise ValueError("The model must be trained, or its weights loaded, before it can be evaluated.")
        if isinstance(x, Mapping):
            x, batch_size = datasets.check_pairs(x), self._checked_batch_size(batch_size)
            self._check_widths(x)
        self._check_measurable(x, "x")
        return super().evaluate(x, y, batch_size=batch_size, **kwargs)

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """P(h = 1 | x) of the given modalities, as `keras.Model.predict`: "image_probs" and "text_probs"."""
        if isinstance(x, Mapping) and self.built:
            self._check_widths(x)
        return super().predict(x, batch_size=batch_size, **kwargs)

    def train_step(self, batch: Batch) -> Tensors:
        """One step of all networks.

        Args:
            batch: as for `compute_losses`. With several replicas, each has a part of the batch, computes all terms
                within its part, and the step follows the mean of their gradients.

        Returns:
            Means over the epoch of the loss and of each term.
        """
        batch = _pairs_of(batch)
        with tf.GradientTape(persistent=True) as tape:
            losses = self.compute_losses(batch, training=True)
            loss = self.objective(losses)
        groups = self.variable_groups()
        own = groups.pop("discriminator")
        others = [variable for variables in groups.values() for variable in variables]
        gradients = tape.gradient(loss, [variable.value for variable in others])
        if own:
            gradients += tape.gradient(losses["discriminator"], [variable.value for variable in own])
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if num_replicas > 1:
            # Optimizers add up the gradients of the replicas.
            gradients = [gradient / num_replicas for gradient in gradients]
        self.optimizer.apply(gradients, [*others, *own])
        self.step.assign_add(1)
        return self._track(losses, loss, batch)

    def test_step(self, batch: Batch) -> Tensors:
        """The same terms on held-out pairs, without an update."""
        batch = _pairs_of(batch)
        losses = self.compute_losses(batch, training=False)
        return self._track(losses, self.objective(losses), batch)

    def _track(self, losses: Tensors, loss: tf.Tensor, batch: Batch) -> Tensors:
        values = {"loss": loss, **losses}
        pairs = tf.shape(batch["image"])[0]
        # The last batch of an evaluation may be smaller. A single pair cannot be compared with any other.
        weight = tf.where(pairs > 1, tf.cast(pairs, tf.float32), 0.0)
        for name, value in values.items():
            self.trackers[name].update_state(value, weight)
        return {name: self.trackers[name].result() for name in values}

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


def _pairs_of(batch: Any) -> Batch:
    """The pairs of what Keras passes to a step: a batch, or a tuple with targets and weights, which must be None."""
    pairs, *others = keras.utils.unpack_x_y_sample_weight(batch)
    if any(other is not None for other in others):
        raise ValueError("`y` and `sample_weight` must be None: CMIMH learns without labels.")
    return pairs
