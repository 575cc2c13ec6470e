"""Carriers take bytes between the coordinator and each site: within a process, over NATS with mutual TLS, or Flower."""

__all__: list[str] = []
