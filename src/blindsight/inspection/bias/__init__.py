"""`bias`: clients compared with public data."""

__all__: list[str] = []
