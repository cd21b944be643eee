"""Searches for the loss weights with KerasTuner: `python -m tuner.search`."""
