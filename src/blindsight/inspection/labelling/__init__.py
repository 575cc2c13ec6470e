"""`labelling`: synthetic examples for people to label."""

__all__: list[str] = []
