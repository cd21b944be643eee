"""The signatures of the exported model: from vectors, bytes, captions or tf.Examples to codes.

Every signature returns, per row,

    code_bytes  string [B], the packed code of L/8 bytes; base64 over REST, because the name ends in _bytes
    bits        int32 [B, L] of 0 and 1
    probs       float32 [B, L], P(h = 1 | x)

Wrong input raises an InvalidArgumentError with the expected and the received value.

Beside the signatures, the module keeps one function for each kind of input, such as `encoder_inputs_of_caption`, which
returns what the encoder gets: float32 [B, units]. `python -m cmimh_tf.data check --model` calls them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from cmimh_tf.codes import pack_bits_graph
from serving.preprocessing import EXAMPLE_KEYS, GraphFunction, Preprocessing

if TYPE_CHECKING:
    from cmimh_tf.model import CMIMH

Outputs = dict[str, tf.Tensor]

FLOAT_BYTES = 4


class HashingSignatures(tf.Module):
    """Preprocessing and encoders as functions for `tf.saved_model.save`.

    Decoders, critic and discriminators are not saved.

    Args:
        model: the trained model.
        preprocessing: applied to vectors, pictures and captions.
    """

    def __init__(self, model: CMIMH, preprocessing: Preprocessing):
        super().__init__(name="hashing_signatures")
        self.preprocessing = preprocessing
        self.code_length = model.config.code_length
        assert model.image_units is not None
        assert model.text_units is not None
        # Tuples hide the model from TensorFlow's tracking, which would save all of it.
        self._image = (partial(model.code_logits, "image"), model.image_units)
        self._text = (partial(model.code_logits, "text"), model.text_units)
        self._scalers = ({"image": model.scalers["image"], "text": model.scalers["text"]},)

    def functions(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """The traced signatures by name."""
        image_width, text_width = self.preprocessing.image_width, self.preprocessing.text_width
        signatures = {
            "hash_image": self._of_floats("image", image_width, self.image_vector_logits),
            "hash_text": self._of_floats("text", text_width, self.text_vector_logits),
            "hash_image_float_bytes": self._of_strings(
                "image_float_bytes", lambda rows: self.image_vector_logits(decode_floats(rows, image_width, "image"))
            ),
            "hash_text_float_bytes": self._of_strings(
                "text_float_bytes", lambda rows: self.text_vector_logits(decode_floats(rows, text_width, "text"))
            ),
            "serving_default": self._of_strings("examples", self.example_logits),
        }
        if self.preprocessing.image_bytes_vectors is not None:
            signatures["hash_image_bytes"] = self._of_strings("image_bytes", self.image_bytes_logits)
        if self.preprocessing.caption_vectors is not None:
            signatures["hash_caption"] = self._of_strings("caption", self.caption_logits)
        inputs = self._encoder_inputs()
        for name, function in inputs.items():
            setattr(self, f"encoder_inputs_of_{name}", function)
        # Save the variables that the traces use.
        traced = [*signatures.values(), *(function.get_concrete_function() for function in inputs.values())]
        captured = [variable for function in traced for variable in function.variables]
        self.encoder_variables = list({id(variable): variable for variable in captured}.values())
        return signatures

    def _encoder_inputs(self) -> dict[str, tf.types.experimental.GenericFunction]:
        """For each kind of input that a client may send, a function to the encoder's scaled inputs."""
        preprocessing = self.preprocessing
        kinds = {
            "image": ("image", preprocessing.image_vectors, [None, preprocessing.image_width], tf.float32),
            "text": ("text", preprocessing.text_vectors, [None, preprocessing.text_width], tf.float32),
            "image_bytes": ("image", preprocessing.image_bytes_vectors, [None], tf.string),
            "caption": ("text", preprocessing.caption_vectors, [None], tf.string),
        }

        def function(modality: str, vectors: GraphFunction, spec: tf.TensorSpec) -> Any:
            scaler = self._scalers[0][modality]
            return tf.function(
                lambda inputs: scaler(tf.cast(vectors(inputs), tf.float32)), input_signature=[spec], autograph=False
            )

        return {
            name: function(modality, vectors, tf.TensorSpec(shape, dtype))
            for name, (modality, vectors, shape, dtype) in kinds.items()
            if vectors is not None
        }

    def image_vector_logits(self, image: tf.Tensor) -> tf.Tensor:
        """float [B, image_width] -> logits [B, L]."""
        return self._encode(self._image, self.preprocessing.image_vectors, image, "image")

    def text_vector_logits(self, text: tf.Tensor) -> tf.Tensor:
        """float [B, text_width] -> logits [B, L]."""
        return self._encode(self._text, self.preprocessing.text_vectors, text, "text")

    def image_bytes_logits(self, image_bytes: tf.Tensor) -> tf.Tensor:
        """string [B] of encoded pictures -> logits [B, L]."""
        vectors = self.preprocessing.image_bytes_vectors
        assert vectors is not None
        return self._encode(self._image, vectors, image_bytes, "image_bytes")

    def caption_logits(self, caption: tf.Tensor) -> tf.Tensor:
        """string [B] of UTF-8 -> logits [B, L]."""
        vectors = self.preprocessing.caption_vectors
        assert vectors is not None
        return self._encode(self._text, vectors, caption, "caption")

    def example_logits(self, examples: tf.Tensor) -> tf.Tensor:
        """string [B] of serialized tf.Examples -> logits [B, L]; rows of one batch may hold different inputs."""
        parsed = tf.io.parse_example(examples, dict(self.preprocessing.example_spec))
        keys = [key for key in EXAMPLE_KEYS if key in parsed]
        lengths = tf.stack([parsed[key].row_lengths() for key in keys])
        found = tf.reduce_any(lengths > 0, axis=0)
        holds_one = check(
            tf.reduce_all(found),
            [f"`examples` must each hold one of {', '.join(keys)}. Received: none of them in row ",
             first_false(found)],
        )  # fmt: skip
        with tf.control_dependencies([holds_one]):
            first = tf.argmax(tf.cast(lengths > 0, tf.int32), axis=0)
        rows = [tf.where(first == position)[:, 0] for position in range(len(keys))]
        logits = [self._example_rows(key, tf.gather(parsed[key], at)) for key, at in zip(keys, rows, strict=True)]
        stitched = tf.dynamic_stitch([tf.cast(at, tf.int32) for at in rows], logits)
        return tf.reshape(stitched, [-1, self.code_length])

    def _example_rows(self, key: str, values: tf.RaggedTensor) -> tf.Tensor:
        """The logits of the Examples that are hashed by the feature `key`."""
        widths = {"image": self.preprocessing.image_width, "text": self.preprocessing.text_width}
        width = widths.get(key, 1)
        lengths = values.row_lengths()
        received = tf.concat([lengths, [width]], axis=0)[first_false(lengths == width)]
        fits = check(
            tf.reduce_all(lengths == width),
            [f"`{key}` of each Example must have shape [{width}]. Received: [", received, "]."],
        )
        with tf.control_dependencies([fits]):
            flat = tf.identity(values.flat_values)
        if key == "image":
            return self.image_vector_logits(tf.reshape(flat, [-1, width]))
        if key == "text":
            return self.text_vector_logits(tf.reshape(flat, [-1, width]))
        return self.image_bytes_logits(flat) if key == "image_bytes" else self.caption_logits(flat)

    def _encode(
        self, encoder: tuple[GraphFunction, int], vectors: GraphFunction, inputs: tf.Tensor, name: str
    ) -> tf.Tensor:
        encoder_logits, units = encoder
        with tf.control_dependencies(_checks(self.preprocessing, inputs, name)):
            inputs = tf.identity(inputs)
        if inputs.dtype.is_floating:
            inputs = tf.ensure_shape(inputs, [None, getattr(self.preprocessing, f"{name}_width")])
        logits = encoder_logits(tf.ensure_shape(tf.cast(vectors(inputs), tf.float32), [None, units]))
        refusal = check_finite(logits, name)
        with tf.control_dependencies([refusal]):
            return tf.identity(logits)

    def _of_floats(self, name: str, width: int, logits: GraphFunction) -> tf.types.experimental.ConcreteFunction:
        # The width is open in the trace, so that the check in the graph, not TensorFlow, reports a wrong one.
        # `export_model` declares it in the signature.
        return self._traced(name, tf.TensorSpec([None, None], tf.float32, name=name), logits)

    def _of_strings(self, name: str, logits: GraphFunction) -> tf.types.experimental.ConcreteFunction:
        return self._traced(name, tf.TensorSpec([None], tf.string, name=name), logits)

    def _traced(self, name: str, spec: tf.TensorSpec, logits: GraphFunction) -> tf.types.experimental.ConcreteFunction:
        def signature(inputs: tf.Tensor) -> Outputs:
            return self._outputs(logits(inputs))

        return tf.function(signature, autograph=False).get_concrete_function(spec)

    def _outputs(self, logits: tf.Tensor) -> Outputs:
        """Logits [B, L] to the three outputs. A bit is 1 where mu >= 0.5, that is where the logit is at least 0."""
        bits = tf.ensure_shape(logits >= 0, [None, self.code_length])
        return {
            "code_bytes": bytes_to_strings(pack_bits_graph(bits)),
            "bits": tf.cast(bits, tf.int32),
            "probs": tf.sigmoid(logits),
        }


def _checks(preprocessing: Preprocessing, inputs: tf.Tensor, name: str) -> list[tf.Operation]:
    """Checks the width and finiteness of float inputs; strings need no check."""
    if not inputs.dtype.is_floating:
        return []
    width = getattr(preprocessing, f"{name}_width")
    shape = tf.shape(inputs)
    fits = check(
        tf.equal(shape[1], width),
        [f"`{name}` must have shape [rows, {width}]. Received: [", shape[0], ", ", shape[1], "]."],
    )
    return [fits, check_finite(inputs, name)]


def check_finite(values: tf.Tensor, name: str) -> tf.Operation:
    """Raises an InvalidArgumentError that names the first row of [B, n] with a NaN or an infinity."""
    finite = tf.reduce_all(tf.math.is_finite(values), axis=1)
    message = f"`{name}` must be finite. Received: NaN or infinite values in row "
    return check(tf.reduce_all(finite), [message, first_false(finite), "."])


def first_false(values: tf.Tensor) -> tf.Tensor:
    """The index of the first False of bool [B]; B if there is none. Unlike argmin it supports an empty batch."""
    return tf.reduce_sum(tf.math.cumprod(tf.cast(values, tf.int32)))


def check(condition: tf.Tensor, message: list[str | tf.Tensor]) -> tf.Operation:
    """Raises an InvalidArgumentError with the joined parts of `message` if `condition` is false."""
    parts = [part if isinstance(part, str) else tf.strings.as_string(part) for part in message]
    return tf.debugging.Assert(condition, [tf.strings.join(parts)])


def decode_floats(rows: tf.Tensor, width: int, name: str) -> tf.Tensor:
    """string [B] of little-endian float32 -> float32 [B, width]."""
    lengths = tf.strings.length(rows)
    received = tf.concat([lengths, [FLOAT_BYTES * width]], axis=0)[first_false(lengths == FLOAT_BYTES * width)]
    fits = check(
        tf.reduce_all(lengths == FLOAT_BYTES * width),
        [f"`{name}_float_bytes` must hold {width} little-endian float32, {FLOAT_BYTES * width} bytes a row. "
         "Received: ", received, " bytes."],
    )  # fmt: skip
    with tf.control_dependencies([fits]):
        return tf.reshape(tf.io.decode_raw(rows, tf.float32, little_endian=True), [-1, width])


def bytes_to_strings(codes: tf.Tensor) -> tf.Tensor:
    """uint8 [B, n] -> string [B] of n bytes each, by a table: TensorFlow cannot cast bytes to strings."""
    table = tf.constant([bytes([value]) for value in range(256)])
    return tf.strings.reduce_join(tf.gather(table, tf.cast(codes, tf.int32)), axis=1)
