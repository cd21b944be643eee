"""One loaded version of a model, run as TF Serving runs it: a session over the SavedModel's signatures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from serving.export import EXTRA_ASSETS
from serving.server.errors import ServingError, clean_message, invalid_argument
from serving.warmup import WARMUP_FILE, read_warmup

# A float tensor as an array, a string tensor [rows] as a list of bytes: lists join faster than arrays of objects.
Column = np.ndarray | list[bytes]

DEFAULT_SIGNATURE = "serving_default"
_INTERNAL_SIGNATURE = "__saved_model_init_op"


@dataclass(frozen=True)
class InputSpec:
    """What one input of a signature takes.

    Attributes:
        name: its alias in the signature.
        dtype: numpy's type; `object` for strings.
        type_name: TensorFlow's name of it, for messages.
        shape: sizes with None where any will do; None if the rank is open.
    """

    name: str
    dtype: np.dtype
    type_name: str
    shape: tuple[int | None, ...] | None

    @functools.cached_property
    def is_string_a_row(self) -> bool:
        """Whether a column of it is a list of bytes."""
        return self.dtype == object and self.shape == (None,)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuses a shape that the signature does not take, with both shapes."""
        if self.shape is None:
            return
        fits = len(shape) == len(self.shape) and all(
            size in (None, received) for size, received in zip(self.shape, shape, strict=True)
        )
        if not fits:
            raise invalid_argument(
                f"`{self.name}` must have shape {show_shape(self.shape)}. Received: {show_shape(shape)}."
            )


@dataclass(frozen=True, eq=False)
class Runner:
    """One signature, ready to run.

    Attributes:
        name: the signature's name.
        inputs: by alias.
        output_names: aliases, sorted.
        call: arrays in the order of `inputs` -> arrays in the order of `output_names`; safe to call from any thread.
    """

    name: str
    inputs: Mapping[str, InputSpec]
    output_names: tuple[str, ...]
    call: Callable[..., list[np.ndarray]]

    def count_rows(self, inputs: Mapping[str, Column], max_rows: int) -> int:
        """The number of rows that all inputs have; shapes are compared with the signature's.

        Raises:
            ServingError: INVALID_ARGUMENT if they do not fit, to the signature or together, or there are too many.
        """
        sizes = set()
        for name, value in inputs.items():
            if type(value) is list and self.inputs[name].is_string_a_row:
                sizes.add(len(value))
                continue
            shape = (len(value),) if isinstance(value, list) else value.shape
            self.inputs[name].check(shape)
            if not shape:
                raise invalid_argument(f"`{name}` must have a batch dimension. Received: a scalar.")
            sizes.add(shape[0])
        if len(sizes) != 1:
            raise invalid_argument(f"All inputs must have the same number of rows. Received: {sorted(sizes)}.")
        rows = sizes.pop()
        if not 1 <= rows <= max_rows:
            raise invalid_argument(f"A request must have 1 to {max_rows} rows. Received: {rows}.")
        return rows

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs one batch.

        Raises:
            tf.errors.OpError, ServingError: what the graph refused.
        """
        try:
            outputs = self.call(*(inputs[name] for name in self.inputs))
        except UnicodeDecodeError as error:
            # TensorFlow's Python cannot raise an error whose message quotes bytes of the client that are no text.
            raise invalid_argument(clean_message(error.object.decode("utf-8", errors="replace"))) from None
        return dict(zip(self.output_names, outputs, strict=True))


class Servable:
    """A SavedModel in memory.

    Args:
        name: of the model.
        version: its number.
        folder: of the SavedModel.
        num_threads: processors that one run may use; 0 lets TensorFlow take all of them.

    Raises:
        Exception: whatever TensorFlow raises for a folder that is no sound SavedModel.
    """

    def __init__(self, name: str, version: int, folder: Path, num_threads: int = 1):
        self.name, self.version = name, version
        self.uses = 0
        graph = tf.Graph()
        # With one thread a run stays in the thread that calls it: no hand-over and no idle thread that spins.
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=num_threads,
            inter_op_parallelism_threads=-1 if num_threads == 1 else num_threads,
            use_per_session_threads=True,
        )
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        try:
            with graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(self._session, [tf.saved_model.SERVING], str(folder))
            self.signature_defs = {
                key: signature for key, signature in meta_graph.signature_def.items() if key != _INTERNAL_SIGNATURE
            }
            if not self.signature_defs:
                raise ValueError(f"{folder} must have at least one signature. Received: none.")
            self.runners = {key: self._make_runner(key, value) for key, value in self.signature_defs.items()}
            self._warm_up(folder / EXTRA_ASSETS / WARMUP_FILE)
            # What is loaded stays as it is, so a request cannot add operations behind our back.
            graph.finalize()
        except BaseException:
            self._session.close()
            raise

    def runner(self, signature_name: str) -> Runner | None:
        """The signature by name; the empty name means the default one. None if there is none."""
        return self.runners.get(signature_name or DEFAULT_SIGNATURE)

    def close(self) -> None:
        """Frees the model; it must not be running."""
        self._session.close()

    def _make_runner(self, name: str, signature: meta_graph_pb2.SignatureDef) -> Runner:
        inputs = {alias: _input_spec(alias, signature.inputs[alias]) for alias in sorted(signature.inputs)}
        output_names = tuple(sorted(signature.outputs))
        # The public `make_callable` goes through `run`, which costs as much as a small model itself.
        options = config_pb2.CallableOptions(
            feed=[signature.inputs[alias].name for alias in inputs],
            fetch=[signature.outputs[alias].name for alias in output_names],
        )
        call = self._session._make_callable_from_options(options)
        return Runner(name, inputs, output_names, call)

    def _warm_up(self, path: Path) -> None:
        if not path.is_file():
            return
        for request in read_warmup(path):
            runner = self.runner(request.model_spec.signature_name)
            if runner is None or set(request.inputs) != set(runner.inputs):
                raise ServingError(
                    "INVALID_ARGUMENT", f"Warm-up request does not fit signature {request.model_spec.signature_name!r}."
                )
            runner.run({alias: tf.make_ndarray(tensor) for alias, tensor in request.inputs.items()})


def show_shape(shape: tuple[int | None, ...]) -> str:
    """[rows, 20] for (None, 20): the first open size is the batch's."""
    return "[" + ", ".join("rows" if size is None else str(size) for size in shape) + "]"


def _input_spec(alias: str, info: Any) -> InputSpec:
    dtype = tf.dtypes.as_dtype(info.dtype)
    shape = None
    if not info.tensor_shape.unknown_rank:
        shape = tuple(None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim)
    return InputSpec(alias, np.dtype(dtype.as_numpy_dtype), dtype.name, shape)
