"""The networks of CMIMH and the model that trains them together."""
