"""Models as plain pytrees (Equinox modules), one readable file each."""

from blindsight.models.classifiers import CNN, MLP, Logistic, accuracy, cross_entropy

__all__ = ["CNN", "MLP", "Logistic", "accuracy", "cross_entropy"]
