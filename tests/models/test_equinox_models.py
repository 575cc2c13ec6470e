"""Scores do not depend on how many cores compute them, nor on the size of a batch."""

import subprocess
import sys

import pytest

TWO_CORES = """
import jax, numpy as np
from blindsight.backends import use_cores
use_cores(2)
import equinox as eqx
from blindsight.models.classifiers import CNN
from blindsight.models.equinox_models import module_scores

class Mixing(eqx.Module):  # of no known type: it may not see two rows at once
    inner: CNN
    def __call__(self, x):
        return self.inner(x) + jax.numpy.mean(x.astype(jax.numpy.float32))

images = np.random.default_rng(0).integers(0, 256, (41, 8, 8), dtype=np.uint8)
model = CNN((8, 8), 3, key=jax.random.key(0))
assert len(jax.local_devices()) == 2
one_by_one = np.concatenate([np.asarray(model(row[None])) for row in images])
mixed = np.concatenate([np.asarray(Mixing(model)(row[None])) for row in images])
committed = jax.device_put(model, jax.local_devices()[1])
for size in (41, 50, 7 * 41):
    for made in (model, committed):
        found = module_scores(made, size, images)
        assert found.shape == (41, 3) and np.allclose(found, one_by_one, rtol=1e-5, atol=1e-6)
    assert np.allclose(module_scores(Mixing(model), size, images), mixed, rtol=1e-5, atol=1e-6)
print("same")
"""


@pytest.mark.slow
def test_two_cores_score_rows_as_one_by_one():
    done = subprocess.run([sys.executable, "-c", TWO_CORES], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["same"], done.stderr
