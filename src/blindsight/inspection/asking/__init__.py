"""`ask`: histograms, means, quantiles, missing rates, top words and cross-tabs, by slice."""

__all__: list[str] = []
