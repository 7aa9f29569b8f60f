"""The traffic log and the outcomes: written by the sidecar, read by the audits."""

from monitor.errors import TrafficError

__all__ = ["TrafficError"]
