"""Windows: slices of the traffic log, joined with outcomes and read by an engine.

files ─► listing ─► schema ─► join ─► engine ─► counts, sample ─► window

`provenance` and `row_facts` describe what was read and what is missing; `summary` describes a whole
log.
"""
