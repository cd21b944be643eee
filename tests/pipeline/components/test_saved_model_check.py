"""The check of an export finds a single bit that differs."""

import numpy as np
import pytest

from cmimh_tf.codes import pack_bits
from pipeline.components.saved_model_check import compare


def answers(image_bits, text_bits):
    hexadecimal = {
        name: np.array([row.tobytes().hex() for row in pack_bits(bits)])
        for name, bits in {"image": image_bits, "text": text_bits}.items()
    }
    return {
        "hash_image/code_bytes": hexadecimal["image"],
        "hash_caption/code_bytes": hexadecimal["text"],
        "serving_default/code_bytes": np.concatenate([hexadecimal["image"], hexadecimal["text"]]),
        "hash_image/probs": image_bits,
    }


@pytest.fixture
def expected():
    probs = np.random.default_rng(0).choice([0.1, 0.9], (2, 4, 16))
    return {
        name: (values, (values >= 0.5).astype(np.uint8)) for name, values in zip(("image", "text"), probs, strict=True)
    }


def test_same_codes_are_no_problem(expected):
    assert compare(answers(expected["image"][1], expected["text"][1]), expected) == []


def test_one_bit_is_found_in_both_signatures(expected):
    text = expected["text"][1].copy()
    text[2, 5] ^= 1
    problems = compare(answers(expected["image"][1], text), expected)
    assert [problem.split()[0] for problem in problems] == ["hash_caption", "serving_default"]
    assert "1 different bits, the first in row 2" in problems[0]
    assert "the first in row 6" in problems[1]


def test_bit_that_hangs_in_the_balance_may_differ(expected):
    text = expected["text"][1].copy()
    text[2, 5] ^= 1
    expected["text"][0][2, 5] = 0.5
    assert compare(answers(expected["image"][1], text), expected) == []
