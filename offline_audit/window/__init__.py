"""Windows: slices of the traffic log, joined with outcomes and read by an engine.

span ─► listing, files, segments ─► schema ─► join ─► engine ─► counts, scores, sample ─► window

`provenance` and `row_facts` say what is missing; `summary` describes a whole log.
"""
