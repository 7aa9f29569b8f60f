"""Scores of a prediction and their verdict against the baseline, in the order of computation.

first_layer ─► status_model × counterfactual ─► sensitivity ─► scores ─► baseline ─► judge
"""
