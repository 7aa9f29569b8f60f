"""Scores of predictions, and their comparison with the baseline.

first_layer ─┐
status_model ├─► sensitivity ─► scores ─► baseline ─► policy
counterfactual ─┘  (kernel)

- `Sensitivity` computes all scores of a batch in one pass, the joint pass; `Kernel` is the same
  pass as compiled code.
- `Scores` are the result by name, for users; `ScoreColumns` says which column holds which score,
  for the hot path, which reads columns.
- `Baseline` holds calibration scores, and turns a score into a p-value.
- `Judge` loads all of these from a bundle. It is the public entry, and knows no policy.
- `Scorer` combines a judge with a policy, and returns a `ScoringResult` per batch: scores,
  p-values, verdicts and actions.
"""
