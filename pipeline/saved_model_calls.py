"""Loads a SavedModel in a process of its own and calls every signature, with nothing of this project imported.

    python saved_model_calls.py MODEL_DIRECTORY INPUTS.npz OUTPUTS.npz

INPUTS holds a batch for each name of an input. OUTPUTS gets "<signature>/<output>" for each answer.
"""

import sys


def main() -> None:
    """Calls and saves."""
    import numpy as np
    import tensorflow as tf

    directory, inputs_path, outputs_path = sys.argv[1:]
    with np.load(inputs_path, allow_pickle=False) as archive:
        inputs = {name: archive[name] for name in archive.files}
    outputs = {}
    for name, signature in tf.saved_model.load(directory).signatures.items():
        (input_name,) = signature.structured_input_signature[1]
        if input_name not in inputs:
            sys.exit(f"The signature {name} takes `{input_name}`, of which there is no example.")
        batch = inputs[input_name]
        # NumPy drops zero bytes at the end of a string: they travel as hexadecimal digits.
        values = [bytes.fromhex(text) for text in batch.tolist()] if batch.dtype.kind == "U" else batch
        for output_name, value in signature(**{input_name: tf.constant(values)}).items():
            array = value.numpy()
            is_text = array.dtype.kind == "O"
            outputs[f"{name}/{output_name}"] = np.array([text.hex() for text in array]) if is_text else array
    np.savez(outputs_path, **outputs)


if __name__ == "__main__":
    main()
