"""The transports, gRPC and REST: thin adapters around one pipeline.

A transport parses a message, calls the pipeline and writes the response. One table in each maps
errors to statuses.
"""
