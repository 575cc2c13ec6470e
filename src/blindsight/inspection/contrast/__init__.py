"""Arms of clients, measured, compared, diagnosed and illustrated: `sanity`, `mistakes`, `slices`."""

__all__: list[str] = []
