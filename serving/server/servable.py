"""One loaded version of a model: a session over the signatures of a SavedModel, as in TF Serving."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from cmimh_tf.checksums import EXTRA_ASSETS, verify_export
from serving.errors import ServingError, clean_message, invalid_argument
from serving.export import WARMUP_FILE, read_warmup

# The values of one input or output: an array, or a list of bytes for strings [rows], because lists join faster.
Column = np.ndarray | list[bytes]

DEFAULT_SIGNATURE = "serving_default"
_INTERNAL_SIGNATURE = "__saved_model_init_op"


@dataclass(frozen=True)
class InputSpec:
    """Type and shape of one input of a signature.

    Attributes:
        name: its alias in the signature.
        dtype: the NumPy type; `object` for strings.
        type_name: TensorFlow's name of the type, for messages.
        shape: sizes, None where a size is open; None if the rank is open.
    """

    name: str
    dtype: np.dtype
    type_name: str
    shape: tuple[int | None, ...] | None

    @functools.cached_property
    def is_string_a_row(self) -> bool:
        """Whether its columns are lists of bytes."""
        return self.dtype == object and self.shape == (None,)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises an INVALID_ARGUMENT with both shapes if `shape` does not fit the signature."""
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
        """Checks the shapes of all inputs and returns their number of rows.

        Raises:
            ServingError: INVALID_ARGUMENT if a shape does not fit the signature, the inputs differ in their number of
                rows, or there are too many rows.
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
            tf.errors.OpError, ServingError: the error of the graph.
        """
        try:
            outputs = self.call(*(inputs[name] for name in self.inputs))
        except UnicodeDecodeError as error:
            # TensorFlow fails to raise an error whose message quotes bytes that are not UTF-8.
            raise invalid_argument(clean_message(error.object.decode("utf-8", errors="replace"))) from None
        return dict(zip(self.output_names, outputs, strict=True))


class Servable:
    """A SavedModel in memory.

    Args:
        name: of the model.
        version: its number.
        folder: of the SavedModel.
        num_threads: number of processors for one run; 0 means all.

    Raises:
        DamagedFile: if a file is not what was exported.
        Exception: any error of TensorFlow for a folder that is not a valid SavedModel.
    """

    def __init__(self, name: str, version: int, folder: Path, num_threads: int = 1):
        self.name, self.version = name, version
        self.uses = 0
        verify_export(folder)
        graph = tf.Graph()
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=num_threads,
            inter_op_parallelism_threads=num_threads,
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
            self.runners = {
                key: self._make_runner(key, value, num_threads) for key, value in self.signature_defs.items()
            }
            self._warm_up(folder / EXTRA_ASSETS / WARMUP_FILE)
            # A request must not add operations to the graph.
            graph.finalize()
        except BaseException:
            self._session.close()
            raise

    def runner(self, signature_name: str) -> Runner | None:
        """The signature of this name, or None. The empty name means the default signature."""
        return self.runners.get(signature_name or DEFAULT_SIGNATURE)

    def close(self) -> None:
        """Frees the model. It must not be running."""
        self._session.close()

    def _make_runner(self, name: str, signature: meta_graph_pb2.SignatureDef, num_threads: int) -> Runner:
        inputs = {alias: _input_spec(alias, signature.inputs[alias]) for alias in sorted(signature.inputs)}
        output_names = tuple(sorted(signature.outputs))
        # The public `make_callable` goes through `run`, which takes as long as a small model.
        options = config_pb2.CallableOptions(
            feed=[signature.inputs[alias].name for alias in inputs],
            fetch=[signature.outputs[alias].name for alias in output_names],
            # -1 runs the graph in the caller's thread: with one thread a run does not wake, or wait for, other threads.
            run_options=config_pb2.RunOptions(inter_op_thread_pool=-1 if num_threads == 1 else 0),
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
    """[rows, 20] for (None, 20)."""
    return "[" + ", ".join("rows" if size is None else str(size) for size in shape) + "]"


def _input_spec(alias: str, info: Any) -> InputSpec:
    dtype = tf.dtypes.as_dtype(info.dtype)
    shape = None
    if not info.tensor_shape.unknown_rank:
        shape = tuple(None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim)
    return InputSpec(alias, np.dtype(dtype.as_numpy_dtype), dtype.name, shape)
