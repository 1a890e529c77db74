"""The image, without a daemon: an OCI layout in a tar, with a static program for each processor.

The settings are those of the Dockerfile, which this module reads. `podman load`, `skopeo copy oci-archive:` and registries' clients
take the file.

Source  https://github.com/opencontainers/image-spec: image-layout.md, image-index.md, manifest.md, config.md. `Healthcheck` is
        Docker's own; others ignore it.
"""

import hashlib
import json
import pathlib
import re
import shlex
import tempfile

from .archive import copy_licences, copy_program, gzipped, tar_of
from .common import ROOT, Failure, Release
from .home import home
from .program import Program
from .sbom import Papers

MEDIA = "application/vnd.oci.image"
JOURNAL = "var/lib/redlatch"
HEALTH = re.compile(r"--interval=(\d+)s --timeout=(\d+)s --start-period=(\d+)s --retries=(\d+) CMD (\[.*\])")


def instructions() -> dict[str, str]:
    """The last stage of the Dockerfile: the words after each instruction. Of COPY, the last one."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    last = text.split("\nFROM ")[-1]
    lines = [line.split(" ", 1) for line in last.splitlines()[1:] if line and not line.startswith("#")]
    return {name: words.strip() for name, words in lines}


def user(words: dict[str, str]) -> int:
    return int(words["USER"].split(":")[0])


def configuration() -> dict:
    """What a container has, in the form of the OCI."""
    words = instructions()
    health = HEALTH.fullmatch(words["HEALTHCHECK"])
    if health is None:
        raise Failure(f"the HEALTHCHECK of the Dockerfile is not understood: {words['HEALTHCHECK']}")
    interval, timeout, start, retries = (int(number) for number in health.groups()[:4])
    seconds = 1_000_000_000
    return {
        "User": words["USER"],
        "ExposedPorts": {f"{words['EXPOSE']}/tcp": {}},
        "Env": shlex.split(words["ENV"]),
        "Cmd": json.loads(words["CMD"]),
        "Volumes": {words["VOLUME"]: {}},
        "WorkingDir": "/",
        "StopSignal": words["STOPSIGNAL"],
        "Healthcheck": {
            "Test": ["CMD", *json.loads(health[5])],
            "Interval": interval * seconds,
            "Timeout": timeout * seconds,
            "StartPeriod": start * seconds,
            "Retries": retries,
        },
    }


def layer(release: Release, program: Program, papers: Papers) -> bytes:
    """The files of the image, as a tar: those that the Dockerfile copies, and the licences of the crates."""
    with tempfile.TemporaryDirectory() as parent:
        root = pathlib.Path(parent)
        copy_program(program.path, root / "usr/local/bin/redlatch")
        for name in ("redis-cli", "redis-server"):
            (root / "usr/local/bin" / name).symlink_to("redlatch")
        copy_licences(root / "usr/share/licenses/redlatch", papers)
        (root / JOURNAL).mkdir(parents=True)
        return tar_of(root, "", release.seconds, {JOURNAL: (user(instructions()), 0o700)})


class Layout:
    """The blobs of a layout, in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}

    def add(self, kind: str, data: bytes) -> dict:
        """Adds a blob, and returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(self, kind: str, value: dict) -> dict:
        return self.add(kind, json.dumps(value, separators=(",", ":"), sort_keys=True).encode())

    def write(self, file: pathlib.Path, seconds: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, data in self.files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            file.write_bytes(tar_of(pathlib.Path(folder), "", seconds))


def manifest(layout: Layout, release: Release, program: Program, papers: Papers, annotations: dict[str, str]) -> dict:
    """Adds the image of a processor, and returns its descriptor."""
    files = layer(release, program, papers)
    config = {
        "created": release.date,
        "architecture": program.target.oci,
        "os": "linux",
        "config": configuration() | {"Labels": annotations},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files).hexdigest()}"]},
        "history": [{"created": release.date, "created_by": "packages/release.py --image"}],
    }
    made = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": layout.add_json("config.v1+json", config),
        "layers": [layout.add("layer.v1.tar+gzip", gzipped(files))],
        "annotations": annotations,
    }
    descriptor = layout.add_json("manifest.v1+json", made)
    return descriptor | {"platform": {"architecture": program.target.oci, "os": "linux"}}


def pack(release: Release, programs: list[tuple[Program, Papers]]) -> pathlib.Path:
    """Writes the image for the processors of these programs."""
    layout = Layout()
    annotations = dict(each.split("=", 1) for each in shlex.split(instructions()["LABEL"])) | {
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.created": release.date,
        "org.opencontainers.image.source": home().repository,
        "org.opencontainers.image.url": home().homepage,
        "org.opencontainers.image.documentation": home().documentation,
    }
    annotations = {name: value for name, value in annotations.items() if value}
    manifests = [manifest(layout, release, program, papers, annotations) for program, papers in programs]
    index = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.index.v1+json",
        "manifests": manifests,
        "annotations": annotations,
    }
    all_of_them = layout.add_json("index.v1+json", index)
    named = all_of_them | {"annotations": {"org.opencontainers.image.ref.name": release.version}}
    top = {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [named]}
    layout.files["index.json"] = json.dumps(top, separators=(",", ":"), sort_keys=True).encode()
    file = release.out / f"redlatch-{release.version}-image.tar"
    layout.write(file, release.seconds)
    return file
