"""The version: the only place that states it. The build, the command line and every run folder read it here."""

__all__ = ["__version__"]

__version__ = "0.1.0"
