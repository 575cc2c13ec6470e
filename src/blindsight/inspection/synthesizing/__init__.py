"""`synthesize`: synthetic rows from released tables of single fields and of pairs."""

__all__: list[str] = []
