"""The names of what travels between components as features of a tf.Example."""

IMAGE = "image"
IMAGE_BYTES = "image_bytes"
TEXT = "text"
CAPTION = "caption"
# What a network made of `image_bytes` and `caption`, computed once by ExampleGen.
IMAGE_FEATURES = "image_features"
CAPTION_FEATURES = "caption_features"
LABELS = "labels"
ID = "id"
# The row within its split. Beam writes in any order; training in the order of the split is what makes a run with the
# pipeline and one without it the same.
POSITION = "position"

TRAIN, DATABASE, QUERY = SPLITS = ("train", "database", "query")
