"""The search service: `python -m serving.search --index INDEX`."""
