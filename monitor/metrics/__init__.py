"""Prometheus metrics of the sidecar and of the stream that it monitors.

Labels take their values from the code, the config or the bundle, never from a request. No metric
holds values of a person; request ids are shown as exemplars of histograms if the config allows it.
"""
