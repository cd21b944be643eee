"""TFDS builders of the published data sets, one package per data set as TFDS requires, and what they share."""
