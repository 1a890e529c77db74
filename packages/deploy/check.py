#!/usr/bin/env python3
"""Checks the files for deployment, and a release.

    packages/deploy/check.py [--redlatch PROGRAM] [--all] [RELEASE]

Needs the packages `cyclonedx-python-lib[json-validation]`, `helm-python-sdk`, `kubernetes-validate`, `promql-parser` and `pyyaml`.
RELEASE is a directory that packages/release.py has written: each file in it is installed and used. With --all it must have each kind
that docs/platforms.md lists, but those for Windows. PROGRAM is started as the unit, the
image and the manifests say: by itself, and, if it has the feature `etcd` and etcd is there, as the nodes of a cluster. No alert may
fire for these. That takes promtool, of Prometheus. That every query names a metric of the server is a test in tests/operations/service.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import kubernetes_validate
import promql_parser
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import charts
import deployed
import installed

HERE = pathlib.Path(__file__).resolve().parent
# Variables of Grafana in a query, and what stands for them here.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}


def check_queries() -> None:
    """Alerts and panels are PromQL."""
    rules = yaml.safe_load((HERE / "prometheus-alerts.yaml").read_text())
    queries = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    for group in rules["groups"]:
        for rule in group["rules"]:
            promql_parser.parse_duration(rule.get("for", "1s"))
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
            assert rule["labels"]["severity"] in {"page", "warn"}, rule
    dashboard = json.loads((HERE / "grafana-dashboard.json").read_text())
    queries += [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for query in queries:
        plain = query
        for name, value in VARIABLES.items():
            plain = plain.replace(name, value)
        promql_parser.parse(plain)
    print(f"{len(queries)} queries are PromQL")


def check_dashboard() -> None:
    """The dashboard is what its program writes, and its panels do not overlap."""
    file = HERE / "grafana-dashboard.json"
    written = subprocess.run([sys.executable, HERE / "dashboard.py"], check=True, capture_output=True, text=True).stdout
    assert file.read_text() == written, "packages/deploy/dashboard.py > packages/deploy/grafana-dashboard.json"
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(written)["panels"]:
        place = panel["gridPos"]
        rows, columns = range(place["y"], place["y"] + place["h"]), range(place["x"], place["x"] + place["w"])
        cells = {(row, column) for row in rows for column in columns}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells


def check_manifests() -> None:
    """Manifests fit the schemas of Kubernetes; other files are YAML."""
    for file in sorted(HERE.glob("*.yaml")):
        documents = list(yaml.safe_load_all(file.read_text()))
        assert documents and all(documents), file
        if file.name.startswith("kubernetes"):
            for document in documents:
                kubernetes_validate.validate(document, "1.31", strict=True)
    print("the manifests fit their schemas")


def check_cluster_names() -> None:
    """In the file for Compose, etcd and the nodes call each other by the names of their services."""
    services = yaml.safe_load((HERE / "compose-cluster.yaml").read_text())["services"]
    settings = {name: service["environment"] for name, service in services.items()}
    members = {name for name in settings if name.startswith("etcd-")}
    for name in members:
        own = settings[name]
        assert own["ETCD_NAME"] == name and f"//{name}:" in own["ETCD_ADVERTISE_CLIENT_URLS"], name
        peers = dict(peer.split("=") for peer in own["ETCD_INITIAL_CLUSTER"].split(","))
        assert set(peers) == members and peers[name] == own["ETCD_INITIAL_ADVERTISE_PEER_URLS"], name
    for name in set(settings) - members:
        own = settings[name]
        endpoints = set(own["REDLATCH_CLUSTER_ETCD"].split(","))
        assert endpoints == {settings[member]["ETCD_ADVERTISE_CLIENT_URLS"] for member in members}, name
        assert own["REDLATCH_CLUSTER_ANNOUNCE"] == f"{name}:6379", name
    print(f"the {len(members)} members of etcd and {len(settings) - len(members)} nodes know each other")


def check_units() -> None:
    """systemd reads the units without a complaint, if it is here. The program need not be installed."""
    if shutil.which("systemd-analyze") is None:
        print("skipped: systemd-analyze is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        for file in HERE.glob("redlatch.*"):
            text = file.read_text().replace("/usr/local/bin/redlatch", "/bin/true")
            (pathlib.Path(folder) / file.name).write_text(text)
        units = sorted(pathlib.Path(folder).iterdir())
        done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
        complaints = [line for line in done.stderr.splitlines() if "redlatch" in line]
        assert not complaints, "\n".join(complaints)
    print("systemd reads the units")


def check_bill(file: pathlib.Path) -> None:
    """An SBOM fits its schema, and has the crates that are in the program, with their licences."""
    error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(file.read_text())
    assert error is None, error
    components = json.loads(file.read_text())["components"]
    names = {component["name"] for component in components}
    assert {"tokio", "bytes", "clap"} <= names and "proptest" not in names, names
    unlicensed = [component["name"] for component in components if "licenses" not in component]
    assert not unlicensed, unlicensed
    print(f"{file.name}: {len(components)} crates")


def check_release(folder: pathlib.Path) -> None:
    """Checksums fit, SBOMs and charts fit their schemas, and every file is installed and used."""
    bills = sorted(folder.glob("*.cdx.json"))
    assert bills, f"{folder} has no SBOM"
    for bill in bills:
        check_bill(bill)
    for chart in folder.glob("redlatch-chart-*.tgz"):
        charts.check(chart)
    installed.check(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--redlatch", type=pathlib.Path, help="the program to start")
    parser.add_argument("--all", action="store_true", help="the release must have every kind of file")
    parser.add_argument("release", type=pathlib.Path, nargs="*", help="what packages/release.py has written")
    options = parser.parse_args()
    check_dashboard()
    check_queries()
    check_manifests()
    check_cluster_names()
    check_units()
    charts.check()
    installed.check_kinds()
    if options.redlatch:
        deployed.check(options.redlatch)
    for folder in options.release:
        check_release(folder)
        if options.all:
            installed.check_kinds(folder)


if __name__ == "__main__":
    main()
