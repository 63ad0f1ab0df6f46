-- basic: the metrics of an evaluation.

metric "loss" { doc = "mean over the weight of the rows", better = "lower" }

metric "accuracy" { doc = "share of targets that have the largest logit", better = "higher" }

metric "f1" { doc = "F1 of class 1 of two classes", better = "higher" }

metric "perplexity" { doc = "e to the mean loss of a target", better = "lower" }

metric "mae" { doc = "mean of the absolute errors of numbers", better = "lower" }

metric "rmse" { doc = "root of the mean of their squares", better = "lower" }
