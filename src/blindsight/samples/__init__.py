"""Synthetic samples: pictures of them, as Parquet, as Label Studio imports them, read again with their guarantee."""

__all__: list[str] = []
