"""Readers, one kind of data per file. `cmimh_tf.data.sources.open_records` chooses among them."""
