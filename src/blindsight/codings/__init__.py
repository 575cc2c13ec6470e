"""How examples are written as numbers: for generators, for moments, and for clients of linear models."""

__all__: list[str] = []
