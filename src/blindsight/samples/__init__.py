"""Synthetic samples: how they are shown, exported and read back together with their guarantee.

::

    synthetic_set  a set of samples on disk, with the guarantee they were generated under
    gallery        samples as images
    views          what a report shows of one arm: its share of clients and its samples
    export         samples as Parquet
    label_studio   samples as Label Studio tasks
    as_json        arrays, images and numbers as JSON and back, without loss
"""

__all__: list[str] = []
