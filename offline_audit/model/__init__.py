"""The audited model: a function, a bundle or an endpoint that is asked for decisions.

audited_model ─► local, torch_module, endpoint ─► batches ─► outputs ─► cache
"""
