"""Drift: has the stream of predictions changed, and does the classifier treat groups as before?

Numpy only. `reference.py` is made at fit time; `watch.py` follows the stream with it: flip shares
as bands (`share.py`, `separation.py`), change detectors (`detector.py`), and alarms with a likely
cause (`alarms.py`).
"""

from monitor.drift.alarms import Alarm
from monitor.drift.layout import Predictions, Signals, Watcher
from monitor.drift.readings import Evidence, FlipShare
from monitor.drift.reference import DriftReference
from monitor.drift.share import Band, ShareSums
from monitor.drift.watch import Drift

__all__ = [
    "Alarm",
    "Band",
    "Drift",
    "DriftReference",
    "Evidence",
    "FlipShare",
    "Predictions",
    "ShareSums",
    "Signals",
    "Watcher",
]
