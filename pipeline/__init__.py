"""The TFX pipeline from paired data to a blessed model in a TF Serving directory."""
