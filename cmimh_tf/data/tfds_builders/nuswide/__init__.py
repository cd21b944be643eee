"""NUS-WIDE as a TFDS data set."""
