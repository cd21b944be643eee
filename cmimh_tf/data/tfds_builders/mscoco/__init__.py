"""MS-COCO 2017 as a TFDS data set."""
