"""The audited model: a function, a torch module, a bundle or an endpoint that makes decisions.

audited_model ─► local, endpoint ─► decisions; audited_model ─► cache
"""
