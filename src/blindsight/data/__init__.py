"""Clients' examples: populations of your own, and embedded ones that need no download."""

from blindsight.data.csv_tables import csv
from blindsight.data.datasets import dataset
from blindsight.data.embedded import embedded
from blindsight.data.federated import fedjax_sqlite, leaf, tff_hdf5, tff_sqlite
from blindsight.data.folders import hugging_face, image_folder
from blindsight.data.formats import load
from blindsight.data.in_memory import table
from blindsight.data.json_lines import jsonl
from blindsight.data.population import Population, open_population
from blindsight.data.shards import by_column, dirichlet, iid, pathological
from blindsight.data.sources import source
from blindsight.data.tables import npz, parquet

__all__ = [
    "Population",
    "by_column",
    "csv",
    "dataset",
    "dirichlet",
    "embedded",
    "fedjax_sqlite",
    "hugging_face",
    "iid",
    "image_folder",
    "jsonl",
    "leaf",
    "load",
    "npz",
    "open_population",
    "parquet",
    "pathological",
    "source",
    "table",
    "tff_hdf5",
    "tff_sqlite",
]
