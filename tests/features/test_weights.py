"""PyTorch's files read without PyTorch, and without running what they ask for."""

import struct
import zipfile

import numpy as np
import pytest

from cmimh_tf.features.weights import read_pth

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def integers(values) -> bytes:
    return b"(" + b"".join(map(integer, values)) + b"t"


def name_of(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def tensor(key: str, count: int, shape, strides, *, offset: int = 0, kind: str = "FloatStorage") -> bytes:
    """The opcodes that PyTorch writes for a tensor."""
    storage = b"(" + text("storage") + name_of("torch", kind) + text(key) + text("cpu") + integer(count) + b"tQ"
    hooks = name_of("collections", "OrderedDict") + b")R"
    view = b"(" + storage + integer(offset) + integers(shape) + integers(strides) + b"\x89" + hooks + b"t"
    return name_of("torch._utils", "_rebuild_tensor_v2") + view + b"R"


def state(**tensors: bytes) -> bytes:
    items = b"".join(text(name) + value for name, value in tensors.items())
    return b"\x80\x02" + name_of("collections", "OrderedDict") + b")R(" + items + b"u."


def number(value: int) -> bytes:
    return b"\x80\x02\x8a\x0a" + value.to_bytes(10, "little") + b"."


def write_old(path, pickled: bytes, storages: dict[str, np.ndarray]):
    sizes = b"\x80\x02}(" + text("little_endian") + b"\x88u."
    keys = b"\x80\x02](" + b"".join(map(text, storages)) + b"e."
    numbers = b"".join(struct.pack("<q", array.size) + array.tobytes() for array in storages.values())
    path.write_bytes(number(MAGIC) + number(PROTOCOL) + sizes + pickled + keys + numbers)
    return path


def write_zip(path, pickled: bytes, storages: dict[str, np.ndarray], **members: bytes):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickled)
        for key, array in storages.items():
            archive.writestr(f"model/data/{key}", array.tobytes())
        for name, content in members.items():
            archive.writestr(f"model/{name}", content)
    return path


@pytest.fixture(params=[write_old, write_zip])
def write(request):
    return request.param


NUMBERS = np.arange(12, dtype="<f4")


def test_tensors_are_read_by_name(tmp_path, write):
    pickled = state(a=tensor("0", 12, [3, 4], [4, 1]), steps=tensor("1", 1, [], [], kind="LongStorage"))
    arrays = read_pth(write(tmp_path / "a.pth", pickled, {"0": NUMBERS, "1": np.array([7], "<i8")}))
    assert list(arrays) == ["a", "steps"]
    np.testing.assert_array_equal(arrays["a"], NUMBERS.reshape(3, 4), strict=True)
    np.testing.assert_array_equal(arrays["steps"], np.array(7, "<i8"), strict=True)


def test_views_of_one_storage(tmp_path, write):
    pickled = state(turned=tensor("0", 12, [4, 3], [1, 4]), part=tensor("0", 12, [2, 2], [4, 1], offset=5))
    arrays = read_pth(write(tmp_path / "a.pth", pickled, {"0": NUMBERS}))
    np.testing.assert_array_equal(arrays["turned"], NUMBERS.reshape(3, 4).T)
    np.testing.assert_array_equal(arrays["part"], [[5, 6], [9, 10]])


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("builtins", "eval"), ("torch", "load"), ("numpy", "load"), ("collections", "deque")],
)
def test_other_names_are_refused_before_anything_is_called(tmp_path, write, module, name):
    trap = tmp_path / "trap"
    pickled = b"\x80\x02" + name_of(module, name) + b"(" + text(f"touch {trap}") + b"tR."
    with pytest.raises(ValueError, match=rf"must hold the weights .* Received: a pickle that names {module}\.{name},"):
        read_pth(write(tmp_path / "a.pth", pickled, {}))
    assert not trap.exists()


@pytest.mark.parametrize(
    "view",
    [
        tensor("0", 12, [3, 5], [5, 1]),
        tensor("0", 12, [12], [1], offset=1),
        tensor("0", 12, [2], [-1], offset=5),
        tensor("0", 12, [2], [1], offset=-1),
        tensor("0", 12, [2**30, 2**30], [0, 0]),
    ],
)
def test_views_beyond_their_storage_are_refused(tmp_path, write, view):
    with pytest.raises(ValueError, match=r"a\.pth: must hold the weights .* `x` of shape .*12 numbers in the file"):
        read_pth(write(tmp_path / "a.pth", state(x=view), {"0": NUMBERS}))


def test_state_cannot_be_set_on_what_was_made(tmp_path, write):
    # BUILD is how a pickle changes an object's attributes.
    changed = tensor("0", 12, [3, 4], [4, 1]) + b"}(" + text("shape") + integers([10**6]) + b"ub"
    with pytest.raises(ValueError, match=r"is truncated, damaged or not a \.pth file"):
        read_pth(write(tmp_path / "a.pth", state(x=changed), {"0": NUMBERS}))


@pytest.mark.parametrize(
    ("pickled", "received"),
    [(b"\x80\x02K\x07.", "an object of type int"), (state(x=integer(3)), "'x' of type int, not a tensor")],
)
def test_other_contents_are_refused(tmp_path, write, pickled, received):
    with pytest.raises(ValueError, match=f"must hold the weights of a PyTorch model. Received: {received}"):
        read_pth(write(tmp_path / "a.pth", pickled, {}))


def test_damaged_files_are_reported(tmp_path, write):
    whole = write(tmp_path / "a.pth", state(a=tensor("0", 12, [3, 4], [4, 1])), {"0": NUMBERS}).read_bytes()
    for length in range(0, len(whole) - 1, 9):
        path = tmp_path / "cut.pth"
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut\.pth: "):
            read_pth(path)


def test_big_endian_numbers_are_refused(tmp_path):
    path = write_zip(tmp_path / "a.pth", state(), {}, byteorder=b"big")
    with pytest.raises(ValueError, match="Received: numbers in big-endian order"):
        read_pth(path)
