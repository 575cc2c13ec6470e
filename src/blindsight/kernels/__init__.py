"""Convolutions that stay fast when every client has weights of its own."""

__all__: list[str] = []
