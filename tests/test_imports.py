"""The ledger, the plan and the help start without JAX; the package itself starts with nothing."""

import importlib
import pkgutil
import subprocess
import sys
import types
from importlib.util import find_spec

import pytest

import blindsight

LATER = ["pages", "runs", "service", "studio"]
WITHOUT_JAX = ["accounting", "cli", "config", *(unit for unit in LATER if find_spec(f"blindsight.{unit}"))]

IMPORT_EVERY_MODULE = """
import importlib, pkgutil, sys
for name in {units}:
    unit = importlib.import_module("blindsight." + name)
    for module in pkgutil.walk_packages(getattr(unit, "__path__", []), unit.__name__ + "."):
        importlib.import_module(module.name)
    assert "jax" not in sys.modules, name
"""
HELP = """
import sys
from blindsight.cli import main
for words in {commands}:
    sys.argv = ["blindsight", *words, "--help"]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, (words, stop.code)
    assert "numpy" not in sys.modules, words
"""


def test_a_public_function_is_not_hidden_by_the_module_of_its_name():
    """Python binds a submodule in its package when it is imported, which may be after the function of that name."""
    names = [found.name for found in pkgutil.walk_packages(blindsight.__path__, "blindsight.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    packages = [module for module in modules if hasattr(module, "__path__") and hasattr(module, "__all__")]
    assert {"blindsight.accounting", "blindsight.inspection"} <= {package.__name__ for package in packages}
    for package in packages:
        for public in package.__all__:
            assert not isinstance(getattr(package, public), types.ModuleType), (package.__name__, public)


def loaded(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter holds after running `code`."""
    code += "\nimport sys; print('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.splitlines()[-1].split())


def test_the_check_can_fail():
    assert {"jax", "numpy"} <= loaded("import jax")


def test_units_load_without_jax():
    assert loaded(IMPORT_EVERY_MODULE.format(units=WITHOUT_JAX)).isdisjoint({"jax", "jaxlib"})


def test_help_loads_nothing_that_takes_long():
    commands = [
        [],
        ["data"],
        ["data", "get"],
        ["label"],
        ["train"],
        ["train", "student"],
        ["inspect"],
        ["inspect", "slices"],
        ["ask"],
        ["synthesize"],
    ]
    assert loaded(HELP.format(commands=commands)).isdisjoint({"jax", "jaxlib", "numpy", "pyarrow", "sklearn"})


def test_the_package_alone_loads_nothing():
    assert loaded("import blindsight").isdisjoint({"dp_accounting", "jax", "jaxlib", "numpy", "scipy", "sklearn"})


def test_a_client_of_draw_and_discard_loads_neither_jax_nor_accountants():
    assert loaded("import blindsight.algorithms.draw_and_discard").isdisjoint({"dp_accounting", "jax", "scipy"})


def test_a_secure_sum_loads_neither_jax_nor_accountants():
    every = (
        "from blindsight.fleet.secure_sum import coordinator, identities, masks, messages, rounds, shamir, site, terms"
    )
    assert loaded(every).isdisjoint({"dp_accounting", "jax", "scipy"})


def test_reviewing_what_a_site_was_asked_loads_neither_jax_nor_accountants():
    every = "from blindsight.fleet.site import book, book_file, diary, policy, settings"
    assert loaded(every).isdisjoint({"dp_accounting", "jax", "numpy", "scipy", "cryptography"})


def test_every_public_name_can_be_had():
    for name in dir(blindsight):
        getattr(blindsight, name)


def test_jax_is_strict_here():
    import jax.numpy as jnp

    with pytest.raises(Exception, match="promotion"):
        jnp.add(jnp.zeros(3, jnp.float32), jnp.zeros(3, jnp.int32))
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.add(jnp.zeros((3, 3)), jnp.zeros(3))
