"""Readers of the kinds of data that `cmimh_tf.data.records.open_records` knows, one kind a file."""
