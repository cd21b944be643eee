"""The pipeline's own TFX components."""
