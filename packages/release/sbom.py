"""What goes with a program: the bill of materials, in the form CycloneDX 1.5, and the licences of what is in it."""

import dataclasses
import hashlib
import json
import re
import tomllib
import uuid

from . import licences
from .build import feature_flags
from .common import ROOT, output
from .targets import Target

SPDX_OR = re.compile(r"\s*/\s*")


@dataclasses.dataclass(frozen=True)
class Papers:
    """The bill of materials, and the texts of the licences."""

    bill: str
    licences: str


def licence(package: dict) -> list[dict]:
    text = package.get("license")
    # Old manifests write MIT/Apache-2.0 for `MIT OR Apache-2.0`.
    return [{"expression": SPDX_OR.sub(" OR ", text)}] if text else []


def papers(target: Target, features: str, date: str) -> Papers:
    """Those of the crates in the program: what cargo resolves, without what only tests use."""
    metadata = json.loads(
        output("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target.triple, *feature_flags(features))
    )
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock}

    def needs(name: str) -> list[str]:
        is_shipped = lambda edge: any(kind["kind"] != "dev" for kind in edge["dep_kinds"])
        return sorted(edge["pkg"] for edge in nodes[name]["deps"] if is_shipped(edge))

    root = metadata["resolve"]["root"]
    found, open_ = {root}, [root]
    while open_:
        new = [name for name in needs(open_.pop()) if name not in found]
        found.update(new)
        open_ += new

    def purl(name: str) -> str:
        return f"pkg:cargo/{packages[name]['name']}@{packages[name]['version']}"

    def component(name: str) -> dict:
        package = packages[name]
        kind = "application" if name == root else "library"
        made = {"type": kind, "bom-ref": purl(name), "name": package["name"], "version": package["version"]}
        checksum = checksums.get((package["name"], package["version"]))
        if checksum:
            made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if licence(package):
            made["licenses"] = licence(package)
        return {**made, "purl": purl(name)}

    others = sorted(found - {root}, key=purl)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": date, "component": component(root)},
        "components": [component(name) for name in others],
        "dependencies": [{"ref": purl(name), "dependsOn": [purl(other) for other in needs(name)]} for name in [root, *others]],
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).digest()
    bill = {**document, "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}"}
    linked = [packages[name] for name in others if packages[name]["source"]]
    return Papers(json.dumps(bill, indent=1) + "\n", licences.collected(linked, target))
