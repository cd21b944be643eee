"""Plots and HTML pages. Apart from the tuner's and the experiments' plots, matplotlib is imported only here."""
