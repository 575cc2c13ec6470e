"""`deploy/service` is true: SERVE.toml has every setting, metrics of rules exist, the image is enough."""

import dataclasses
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from blindsight.service import Settings
from blindsight.service.listeners import Listener, limits_of
from blindsight.service.metrics import Totals

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy" / "service"

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="deploy/ is not part of this installation")
yaml = pytest.importorskip("yaml")


def test_serve_toml_has_every_setting_and_its_default():
    text = (DEPLOY / "SERVE.toml").read_text(encoding="utf-8")
    assert Settings.load(DEPLOY / "SERVE.toml").admin_listen
    shown = tomllib.loads("\n".join(re.findall(r"^# (\w+ = .*)$", text, re.MULTILINE)))
    set_here = tomllib.loads(text)
    assert set(shown) | set(set_here) == {field.name for field in dataclasses.fields(Settings)}
    assert not set(shown) & set(set_here)
    for name, value in shown.items():
        default = getattr(Settings(), name)
        if name not in (
            "tasks",
            "tokens",
            "admission",
            "public",
            "certificate",
            "private_key",
        ):  # examples: their default is none
            assert value == (list(default) if isinstance(default, tuple) else default), name


def test_what_a_restart_is_needed_for_is_marked():
    text = (DEPLOY / "SERVE.toml").read_text(encoding="utf-8")
    source = (ROOT / "src/blindsight/service/registry.py").read_text(encoding="utf-8")
    fixed = re.findall(r'"(\w+)"', re.findall(r"fixed = \((.*?)\)", source, re.DOTALL)[0])
    for name in fixed:
        before = text[: text.index(f"\n{name} = ") if f"\n{name} = " in text else text.index(f"\n# {name} = ")]
        assert "(restart)" in before.rsplit("\n\n", 1)[-1], name


def metrics() -> set[str]:
    """The names in a scrape."""
    lines = Totals().text([], [Listener(limits_of(Settings()))]).splitlines()
    found = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in found.items())  # Prometheus' convention
    histograms = {f"{name}_bucket" for name, kind in found.items() if kind == "histogram"}
    return set(found) | histograms


def expressions() -> list[str]:
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    panels = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))["panels"]
    return [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]


def test_rules_and_dashboard_ask_for_metrics_that_exist():
    asked = {name for expression in expressions() for name in re.findall(r"(?:blindsight|process)_\w+", expression)}
    assert len(asked) > 10
    assert asked <= metrics()


def test_the_documentation_names_every_metric_and_a_rule_watches_the_alarm():
    page = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
    for name in metrics():
        assert name in page or name.startswith("process_") or name.endswith("_bucket"), name
    assert any("blindsight_alarm" in expression for expression in expressions())


def test_causes_in_rules_exist():
    text = Totals().text([], [Listener(limits_of(Settings()))])
    for expression in expressions():
        for causes in re.findall(r'cause=~?"([\w|]+)"', expression):
            for cause in causes.split("|"):
                assert f'cause="{cause}"' in text, cause


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml", "alerts.yaml"])
def test_files_are_yaml(name):
    documents = list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))
    assert all(documents)
    for document in documents:
        if document.get("kind") == "ConfigMap":
            Settings.parse(tomllib.loads(document["data"]["SERVE.toml"]))


def test_the_unit_is_one_that_systemd_takes():
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd on this machine")
    words = ["systemd-analyze", "verify", "--man=no", str(DEPLOY / "blindsight.service")]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stderr
    complaints = [line for line in said.splitlines() if "blindsight.service" in line and "not executable" not in line]
    assert not [line for line in complaints if "Unknown" in line or "Invalid" in line or "Failed to parse" in line]


SERVE = """
import sys, json, tempfile, pathlib
class Only:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)
sys.meta_path.insert(0, Only())
from blindsight.service import Settings, running
from blindsight.service.addresses import make_task
import blindsight.cli, blindsight.cli.issuer, blindsight.service.issuer, blindsight.service.redis_store
import httpx2
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "task.json").write_text(json.dumps(make_task().to_dict()))
with running(Settings(port=0, data=folder / "kept", tasks=(folder / "task.json",))) as service:
    token = (folder / "kept" / "tokens.toml").read_text().split('"')[1]
    headers = {"Authorization": f"Bearer {token}"}
    paths = [f"/v1/admin/models/phishing/average?format={form}" for form in ("json", "safetensors", "onnx")]
    for path in (*paths, "/metrics", "/openapi.json", "/readyz"):
        assert httpx2.get(service.address + path, headers=headers).status_code == 200, path
"""


def needed() -> set[str]:
    namespace: dict = {"__name__": "image_requirements"}
    exec((DEPLOY / "image_requirements.py").read_text(encoding="utf-8"), namespace)
    locked = namespace["blocks"]((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    assert set(namespace["NEEDED"]) <= set(locked)
    assert all("--hash=sha256:" in block for name in namespace["NEEDED"] for block in locked[name])
    return set(namespace["NEEDED"])


def test_the_image_is_locked_and_small():
    assert not needed() & {"jax", "jaxlib", "scikit-learn", "pyarrow", "matplotlib"}


def test_the_image_has_all_that_the_extra_service_asks_for():
    """And what that asks for in turn: a package that is not in the image is one that stops it at its start."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    asked, found = list(extras["service"]), set[str]()
    while asked:
        requirement = Requirement(asked.pop())
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            asked.extend(importlib.metadata.requires(name) or ())
    assert len(found) > 10
    assert found <= needed()


@pytest.mark.slow
def test_the_image_has_everything_that_the_service_imports():
    """Everything else that is installed here is hidden from it."""
    packages = importlib.metadata.packages_distributions()
    names = {top: {name.lower().replace("_", "-") for name in owners} for top, owners in packages.items()}
    blocked = {top for top, owners in names.items() if not owners & (needed() | {"blindsight"})}
    code = SERVE.replace("BLOCKED", repr(blocked))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
