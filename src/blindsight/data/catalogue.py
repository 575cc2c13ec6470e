"""Catalogue of the real data sets: contents, licence, origin, and the checksums of their files.

Checksums are those of the published files: SHA-256, or the MD5 that the publisher's own loader checks.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from blindsight.data import originals, prepared
from blindsight.data.downloads import RemoteFile
from blindsight.data.population import Population

__all__ = ["DATASETS", "Dataset"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """A real data set: contents, licence, origin, files, and how to read it as a population."""

    name: str
    description: str
    clients: str
    examples: str
    licence: str
    origin: str
    files: tuple[str, ...]
    """Prepared files that `read` needs."""
    downloads: tuple[RemoteFile, ...]
    """Files that `get` fetches; a file without an address is available only from a mirror."""
    prepare: Callable[[Path, Path], None]
    """Turns the downloads in the first folder into the prepared files in the second."""
    read: Callable[..., Population]
    has_clients: bool = True

    @property
    def public(self) -> bool:
        """Whether its publisher offers it for download."""
        return all(file.urls for file in self.downloads)


def _listed(listing: str, *addresses: str) -> tuple[RemoteFile, ...]:
    """One file per line: bytes (? if not published), checksum, name. Every address serves every file."""
    lines = [line.split() for line in listing.strip().splitlines()]
    return tuple(
        RemoteFile(
            name=name,
            urls=tuple(address + name for address in addresses),
            checksum=checksum,
            size=None if size == "?" else int(size),
        )
        for size, checksum, name in lines
    )


MNIST = Dataset(
    name="mnist",
    description="handwritten digits by writer, 28x28 grey",
    clients="539 writers; 297 others to test",
    examples="60,000; 10,000 to test",
    licence="none stated for the images (NIST's own are public domain); the table of writers is BSD",
    origin="LeCun, Cortes and Burges; writers from QMNIST, Yadav and Bottou 2019",
    files=("mnist.npz", "mnist_writers.npz"),
    downloads=_listed(
        """
        9912422 sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609 train-images-idx3-ubyte.gz
        28881 sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c train-labels-idx1-ubyte.gz
        1648877 sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6 t10k-images-idx3-ubyte.gz
        4542 sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6 t10k-labels-idx1-ubyte.gz
        """,
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    + _listed(
        """
        ? md5:0058f8dd561b90ffdd0f734c6a30e5e4 qmnist-train-labels-idx2-int.gz
        ? md5:5b5b05890a5e13444e108efe57b788aa qmnist-test-labels-idx2-int.gz
        """,
        "https://raw.githubusercontent.com/facebookresearch/qmnist/master/",
    ),
    prepare=originals.mnist,
    read=prepared.mnist,
)

FASHION_MNIST = Dataset(
    name="fashion_mnist",
    description="pictures of garments, 28x28 grey, 10 classes",
    clients="none: one example each",
    examples="60,000; 10,000 to test",
    licence="MIT, Zalando SE",
    origin="Xiao, Rasul and Vollgraf 2017",
    files=("fashion_mnist.npz",),
    downloads=_listed(
        """
        26421880 sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84 train-images-idx3-ubyte.gz
        29515 sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845 train-labels-idx1-ubyte.gz
        4422102 sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073 t10k-images-idx3-ubyte.gz
        5148 sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5 t10k-labels-idx1-ubyte.gz
        """,
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    prepare=functools.partial(originals.idx_images, name="fashion_mnist"),
    read=prepared.fashion_mnist,
    has_clients=False,
)

FEMNIST = Dataset(
    name="femnist",
    description="handwritten digits and letters by writer, 28x28 grey, 62 classes",
    clients="541 writers",
    examples="57,587",
    licence="public domain (NIST Special Database 19)",
    origin="a pool of published samples of LEAF's FEMNIST, Caldas et al. 2018",
    files=("femnist_writers.npz",),
    downloads=_listed(
        "5565281 sha256:69e19a2b4a8e1d96bc37954c37abdc1eef7677a93259f13aacfaa25be36d4b34 femnist_writers.npz"
    ),
    prepare=originals.as_it_is,
    read=prepared.femnist,
)

ADULT = Dataset(
    name="adult",
    description="rows of the US census of 1994, income above or below 50,000 dollars",
    clients="none: one row each",
    examples="32,561; 16,281 to test",
    licence="CC BY 4.0, UCI",
    origin="Becker and Kohavi 1996, UCI Machine Learning Repository",
    files=("adult.csv.xz",),
    downloads=_listed(
        """
        3974305 sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d adult.data
        2003153 sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05 adult.test
        """,
        "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",
    ),
    prepare=originals.adult,
    read=prepared.adult,
    has_clients=False,
)

STACKEXCHANGE = Dataset(
    name="stackexchange",
    description="posts and comments of 17 Stack Exchange sites by author, with times",
    clients="6,848 authors",
    examples="41,114 posts",
    licence="CC BY-SA 2.5, 3.0 or 4.0 by date, the authors of the posts",
    origin="a selection from the Stack Exchange data dumps",
    files=("stackexchange_users.jsonl.xz",),
    downloads=_listed(
        "5929940 sha256:eef5fb1978d2d72c16b3c87c11617335285f39756df479597ab87931374d122a stackexchange_users.jsonl.xz"
    ),
    prepare=originals.as_it_is,
    read=prepared.stackexchange,
)

SHAKESPEARE = Dataset(
    name="shakespeare",
    description="36 plays by speaking role",
    clients="1,088 roles",
    examples="29,722 speeches",
    licence="public domain",
    origin="cut from the plays in github.com/ravexina/shakespeare-plays-dataset-scraper",
    files=("shakespeare_roles.jsonl.xz",),
    downloads=_listed(
        "1375188 sha256:5ecedb50fe6850d338b0e12969d6aaa7eae231922958fb3111e371f5009e345d shakespeare_roles.jsonl.xz"
    ),
    prepare=originals.as_it_is,
    read=prepared.shakespeare,
)

PHISHING = Dataset(
    name="phishing",
    description="web addresses, legitimate or phishing; never open them",
    clients="none: one address each",
    examples="74,377",
    licence="none stated; for research",
    origin="joined from github.com/ESDAUNG/PhishDataset and PhishTank",
    files=("phishing_urls.csv.xz",),
    downloads=_listed(
        "1098552 sha256:255e456d4479c381e1eb8e232ff59b6d6d1cec44fe96dd7b5e3bd553bed03b67 phishing_urls.csv.xz"
    ),
    prepare=originals.as_it_is,
    read=prepared.phishing,
    has_clients=False,
)

DATASETS = {each.name: each for each in (MNIST, FASHION_MNIST, FEMNIST, ADULT, STACKEXCHANGE, SHAKESPEARE, PHISHING)}
"""Every data set by its name."""
