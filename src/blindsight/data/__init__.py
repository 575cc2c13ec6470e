"""Data that make the main jobs run without a download."""

from blindsight.data.embedded import Digits, digits

__all__ = ["Digits", "digits"]
