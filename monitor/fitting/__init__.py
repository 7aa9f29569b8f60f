"""Fits a bundle from a classifier and data with known groups."""

from monitor.fitting.data import FitData, read_data
from monitor.fitting.spec import FitSpec, read_spec

__all__ = ["FitData", "FitSpec", "read_data", "read_spec"]
