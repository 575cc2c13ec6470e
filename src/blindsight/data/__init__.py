"""Clients' examples: populations of your own, and embedded ones that need no download."""

from blindsight.data.embedded import embedded
from blindsight.data.population import Population, open_population

__all__ = ["Population", "embedded", "open_population"]
