"""Pictures and texts to vectors, as TensorFlow graph code."""

from cmimh_tf.features.bag_of_words import BagOfWords, fit_vocabulary, tokenize
from cmimh_tf.features.descriptor import DESCRIPTOR_DIM, describe_pictures

__all__ = ["DESCRIPTOR_DIM", "BagOfWords", "describe_pictures", "fit_vocabulary", "tokenize"]
