"""Plots and the HTML report. matplotlib is imported only here."""
