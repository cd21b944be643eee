"""MIR-Flickr25k as a TFDS data set."""
