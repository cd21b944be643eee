"""An exported model in a fresh process."""

import numpy as np
import pytest
import tensorflow as tf

from pipeline.exported_model import _call_in_fresh_process, call_signatures


class Echo(tf.Module):
    """Returns the lengths of its inputs, and the inputs with a zero byte appended."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="caption")])
    def __call__(self, caption):
        return {"length": tf.strings.length(caption), "text": caption + "\0"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    model = Echo()
    tf.saved_model.save(model, str(folder), signatures={"echo": model.__call__})
    return str(folder)


def test_byte_strings_travel_in_full(exported, tmp_path):
    np.savez(tmp_path / "inputs.npz", caption=np.array([b"a\0".hex(), b"".hex()]))
    _call_in_fresh_process(exported, str(tmp_path / "inputs.npz"), str(tmp_path / "outputs.npz"))
    outputs = np.load(tmp_path / "outputs.npz")
    assert outputs["echo/length"].tolist() == [2, 0]
    assert [bytes.fromhex(text) for text in outputs["echo/text"]] == [b"a\0\0", b"\0"]


def test_signature_without_a_test_input_is_an_error(exported, tmp_path):
    np.savez(tmp_path / "inputs.npz", image=np.zeros((1, 2), np.float32))
    with pytest.raises(SystemExit, match=r"The signature echo needs `caption`, for which there is no test input."):
        _call_in_fresh_process(exported, str(tmp_path / "inputs.npz"), str(tmp_path / "outputs.npz"))


def test_model_that_cannot_be_loaded_in_a_fresh_process_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match=r"(?s)model cannot be called: .*SavedModel file does not exist"):
        call_signatures(str(tmp_path), {"image": np.zeros((1, 2), np.float32)})
