"""Each table and figure of the paper as one command: `python -m cmimh_tf.experiments NAME --data FILE`.

An experiment is a list of cells (method, code length, seed, configuration, split), and how their results are laid out
as tables and figures. Cells are measured in processes of their own, each result is one file, and experiments with the
same `--out` share the cells that they have in common.
"""
