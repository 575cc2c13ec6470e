"""The contestants of `simulation.py`; each is run as a module, in an environment of its own."""
