"""Sparse rows in the form of RCV1's, made by a seed: about 45 features of a row are not 0, their
squares add up to 1, and few features are frequent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

#: So many of the features, the most frequent ones, decide on the label.
_TELLING = 500


def write_sparse(path: Path, features: int, samples: int) -> None:
    """Writes a LIBSVM file: words by Zipf's law, weighted by their rarity; labels of a linear model
    of the most frequent ones, with noise."""
    random = np.random.default_rng(0)
    share = 1 / (np.arange(features) + 10.0)
    share /= share.sum()
    truth, ends = random.normal(size=features), np.cumsum(share)
    truth[_TELLING:] = 0
    with path.open("w") as file:
        for count in 20 + random.poisson(30, samples):
            drawn = np.searchsorted(ends, random.random(count))
            found = np.unique(np.minimum(drawn, features - 1))
            values = -np.log(share[found])
            values /= np.linalg.norm(values)
            label = 1 if values @ truth[found] + 0.1 * random.normal() > 0 else -1
            row = " ".join(f"{at + 1}:{value:.6f}" for at, value in zip(found, values, strict=True))
            file.write(f"{label} {row}\n")
