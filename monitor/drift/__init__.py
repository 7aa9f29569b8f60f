"""Drift: has the stream of predictions changed, and does the classifier treat groups as before?

Numpy only. `reference.py` is computed at fit time. `watch.py` follows the stream: flip shares with
confidence sequences (`share.py`, `separation.py`) and a lower bound that holds for every map
(`bound.py`), change detectors (`detector.py`), and alarms with a likely cause (`alarms.py`);
`state.py` saves and restores it.
"""
