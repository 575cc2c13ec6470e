"""Arms of clients, measured, compared, diagnosed and shown: `sanity`, `mistakes`, `slices`."""

__all__: list[str] = []
