"""The terms of the CMIMH objective: pure functions of named tensors, without weights inside."""
