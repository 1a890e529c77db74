"""What other package managers read: a formula for Homebrew, a manifest for scoop, the chart for Helm.

The first two name archives of the release by URL and checksum, so that they are made after these. There is no place yet that these
archives can be had from: `--url` says where it will be.
"""

import hashlib
import json
import pathlib
import re
import tempfile

from .archive import copy_tracked, gzipped, tar_of
from .common import ROOT, SUMMARY, Failure, Release
from .home import home

CHART = ROOT / "packages/deploy/chart"
# How a formula tells the platforms of these targets apart. Linux has the static program.
BLOCKS = {
    "on_macos": {"on_arm": "aarch64-apple-darwin", "on_intel": "x86_64-apple-darwin"},
    "on_linux": {"on_arm": "aarch64-unknown-linux-musl", "on_intel": "x86_64-unknown-linux-musl"},
}
FORMULA = """class Redlatch < Formula
  desc "{summary}"
  homepage "{home}"
  version "{version}"
  license any_of: ["MIT", "Apache-2.0"]

{platforms}
  def install
    bin.install "redlatch"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/redlatch.bash" => "redlatch"
    fish_completion.install "completions/redlatch.fish"
    zsh_completion.install "completions/_redlatch"
    doc.install "README.md", "LICENSE-THIRD-PARTY", "docs", "sbom.cdx.json"
  end

  service do
    run [opt_bin/"redlatch", "--dir", var/"redlatch"]
    keep_alive crashed: true
    log_path var/"log/redlatch.log"
    error_log_path var/"log/redlatch.log"
  end

  test do
    system bin/"redlatch", "check-config", "--port", "auto"
  end
end
"""


def sha256(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check_url(url: str) -> str:
    """Where the archives can be had: a folder."""
    if not re.fullmatch(r"https://[^\s\"'#]+", url):
        raise Failure(f"--url is '{url}': it must be the https address of the folder that the archives will be in")
    return url.rstrip("/")


def check_tag(release: Release, url: str) -> None:
    """The folder of a version has the name of its tag: a wrong tag would be the address in each package."""
    if url and url.rstrip("/").split("/")[-1] != f"v{release.version}":
        raise Failure(f"--url is '{url}': it must end in v{release.version}, the tag of these sources")


def archives(release: Release, triples: list[str], ending: str) -> dict[str, pathlib.Path]:
    """Those that there are in the folder of the release, by target."""
    files = {triple: release.out / f"redlatch-{release.version}-{triple}{ending}" for triple in triples}
    return {triple: file for triple, file in files.items() if file.exists()}


def block(name: str, lines: list[str]) -> list[str]:
    return [f"{name} do", *[f"  {line}" for line in lines], "end"] if lines else []


def pack_formula(release: Release, url: str) -> pathlib.Path:
    """Writes the formula for the archives in the folder of the release."""
    there = archives(release, [triple for kinds in BLOCKS.values() for triple in kinds.values()], ".tar.gz")
    if not there:
        raise Failure("a formula takes an archive for macOS or a static one for Linux: make these in the same command")
    lines: list[str] = []
    for system, machines in BLOCKS.items():
        inner: list[str] = []
        for machine, triple in machines.items():
            if triple in there:
                file = there[triple]
                inner += block(machine, [f'url "{url}/{file.name}"', f'sha256 "{sha256(file)}"'])
        lines += [*block(system, inner), ""] if inner else []
    platforms = "".join(f"  {line}\n" if line else "\n" for line in lines).rstrip("\n") + "\n"
    # Homebrew wants no article in front.
    summary = SUMMARY.removeprefix("A ")
    summary = summary[0].upper() + summary[1:]
    file = release.out / "redlatch.rb"
    text = FORMULA.format(summary=summary, home=home().homepage or url, version=release.version, platforms=platforms)
    file.write_text(text, encoding="utf-8")
    return file


def pack_scoop(release: Release, url: str) -> pathlib.Path:
    """Writes the manifest for scoop."""
    there = archives(release, ["x86_64-pc-windows-gnu"], ".zip")
    if not there:
        raise Failure("the manifest for scoop takes the archive for Windows: make it in the same command")
    (archive,) = there.values()
    made = {
        "version": release.version,
        "description": SUMMARY,
        "homepage": home().homepage or url,
        "license": "MIT|Apache-2.0",
        "architecture": {"64bit": {"url": f"{url}/{archive.name}", "hash": sha256(archive), "extract_dir": archive.stem}},
        "bin": "redlatch.exe",
    }
    file = release.out / "redlatch.json"
    file.write_text(json.dumps(made, indent=4) + "\n", encoding="utf-8")
    return file


def chart_fields() -> list[str]:
    """The lines of Chart.yaml that tell of the project; the last one is empty."""
    place, (name, address) = home(), home().person
    people = [{"name": name, "email": address}] if name else []
    found = {"home": place.homepage, "sources": [place.repository] if place.repository else [], "maintainers": people}
    # JSON is YAML.
    return [*[f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in found.items() if value], ""]


def pack_chart(release: Release) -> pathlib.Path:
    """Writes the chart as `helm install` takes it."""
    text = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    for key in ["version", "appVersion"]:
        if not re.search(rf'^{key}: "?{re.escape(release.version)}"?$', text, re.MULTILINE):
            raise Failure(f"{key} in packages/deploy/chart/Chart.yaml is not {release.version}, that of Cargo.toml")
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent) / "redlatch"
        copy_tracked("packages/deploy/chart", folder)
        (folder / "Chart.yaml").write_text(text + "\n".join(chart_fields()), encoding="utf-8")
        file = release.out / f"redlatch-chart-{release.version}.tgz"
        file.write_bytes(gzipped(tar_of(pathlib.Path(parent), "", release.seconds)))
    return file
