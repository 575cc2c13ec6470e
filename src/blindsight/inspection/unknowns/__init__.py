"""`unknowns`: words that a vocabulary lacks, before and after a change."""

__all__: list[str] = []
