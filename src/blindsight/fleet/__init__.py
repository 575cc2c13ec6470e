"""Fleet: the same questions, asked at sites that keep their data. Start with `fleet_of`."""

__all__: list[str] = []
