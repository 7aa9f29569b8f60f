"""The two doors of the sidecar: gRPC and REST, each thin, to one pipeline.

A door reads a message, calls the pipeline and writes the answer; what goes wrong on the way becomes
a status in one place of each door.
"""
