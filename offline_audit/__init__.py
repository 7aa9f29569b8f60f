"""Audits of logged traffic: from a window of the traffic log to findings."""
