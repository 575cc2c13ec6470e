from .classifiers import (
    CNN as CNN,
    MLP as MLP,
    Logistic as Logistic,
    accuracy as accuracy,
    cross_entropy as cross_entropy,
)
