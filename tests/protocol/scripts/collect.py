#!/usr/bin/env python3
"""Collects the exact Lua texts that lock clients send, for tests/protocol/scripts.rs.

Usage: collect.py DIRECTORY

Downloads the clients' packages with their ordinary package managers into DIRECTORY/packages, looks through every
string literal and Lua file in them and in this project's own clients, and writes a text to DIRECTORY/<sha1>.lua when its SHA-1 is one that
crates/core/src/scripts/ names. A text is thus never guessed: the SHA-1 says it is the one on the wire. The test is then run
with REDLATCH_SCRIPTS_DIR=DIRECTORY. Texts that cannot be had are listed at the end; a package manager that is missing
or a package that cannot be fetched is reported and skipped, and makes the exit status 1 only with --strict.

Standard library only.
"""

import ast
import hashlib
import itertools
import os
import re
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

PYPI = [
    "redis==8.1.0", "valkey==6.2.0", "coredis==6.9.0", "python-redis-lock==4.0.1", "pottery==3.0.1",
    "redlock-py==1.0.8", "redlock==1.2.0", "redlock-ng==2.0.4", "aioredlock==0.7.3", "sherlock==0.4.1",
    "celery-redbeat==2.4.2", "rq==2.12.0", "redis-lock-py==1.3.0", "walrus==0.9.8", "cashews==7.6.0",
]
NPM = [
    "redlock@4.2.0", "redlock@5.0.0-beta.2", "redlock@3.1.2", "@sesamecare-oss/redlock@1.4.0",
    "redis-semaphore@5.8.0", "@microfleet/ioredis-lock@6.0.1", "simple-redis-mutex@3.0.0",
    "node-redis-warlock@1.0.2", "redlock-universal@0.8.5", "@verrou/core@0.5.2", "redislock@1.3.0",
    "@upstash/lock@0.2.1", "bullmq@6.7.0", "bull@4.16.5",
]
MAVEN = [
    "org.redisson:redisson:4.7.0",
    "org.springframework.integration:spring-integration-redis:7.1.2",
    "net.javacrumbs.shedlock:shedlock-support-redis:7.10.1",
]
GO = [
    "github.com/go-redsync/redsync/v4@v4.18.1", "github.com/go-redsync/redsync/v4@v4.11.0",
    "github.com/bsm/redislock@v0.10.0", "github.com/bsm/redislock@v0.9.4",
    "github.com/redis/rueidis@v1.0.79",
]
# Of Debian 12: Symfony 5.4, Laravel 8.83.
DEBIAN = ["php-symfony-lock", "php-illuminate-cache", "php-illuminate-redis"]
CRATES = ["rslock@0.10.0", "redlock@2.0.0", "redis-lock@0.5.1"]

CRATES_OF_OURS = Path(__file__).resolve().parents[3] / "crates"
OWN = [CRATES_OF_OURS / "client/src", CRATES_OF_OURS / "cli/src/load"]

TEXT_SUFFIXES = {".py", ".js", ".cjs", ".mjs", ".ts", ".lua", ".java", ".go", ".rs", ".rb", ".php", ".ex", ".cs"}
FILE_BYTES_MAX = 4_000_000


def wanted():
    """The SHA-1s that the table names."""
    found = set()
    for path in sorted((CRATES_OF_OURS / "core/src/scripts").rglob("*.rs")):
        found.update(re.findall(r'"([0-9a-f]{40})"', path.read_text()))
    return found


def run(command, cwd, env=None):
    """Runs a package manager; its complaint is shown, not fatal."""
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"  skipped: {command[0]}: {error}")
        return False
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
        print(f"  failed: {' '.join(command)}: {' '.join(tail)}")
    return done.returncode == 0


def download(into):
    """Fetches every package; answers how many could not be had."""
    missing = 0
    for package in PYPI:
        here = into / "pypi" / re.sub(r"\W+", "-", package)
        if fresh(here):
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(here), package]
            missing += not run(pip, here)
    for package in NPM:
        here = into / "npm" / re.sub(r"\W+", "-", package)
        if fresh(here):
            missing += not run(["npm", "pack", "--silent", package], here)
    for package in MAVEN:
        here = into / "maven" / re.sub(r"\W+", "-", package)
        if fresh(here):
            goal = ["dependency:copy", f"-Dartifact={package}:jar:sources", f"-DoutputDirectory={here}"]
            missing += not run(["mvn", "-q", "-B", *goal], here)
    for package in GO:
        here = into / "go" / re.sub(r"\W+", "-", package)
        if fresh(here):
            env = dict(os.environ, GOMODCACHE=str(here), GOFLAGS="-modcacherw")
            missing += not run(["go", "mod", "download", package], here, env)
    for package in DEBIAN:
        here = into / "debian" / package
        if fresh(here) and not run(["apt-get", "download", "-q", package], here):
            missing += 1
        for archive in here.glob("*.deb"):
            run(["dpkg-deb", "-x", archive.name, "."], here)
            archive.unlink()
    for package in CRATES:
        here = into / "crates" / re.sub(r"\W+", "-", package)
        if fresh(here):
            name, version = package.split("@")
            manifest = f'[package]\nname = "fetch"\nversion = "0.0.0"\n[dependencies]\n{name} = "={version}"\n[workspace]\n'
            (here / "Cargo.toml").write_text(manifest)
            (here / "src").mkdir()
            (here / "src" / "lib.rs").write_text("")
            missing += not run(["cargo", "vendor", "-q", "--versioned-dirs", "vendor"], here)
    return missing


def fresh(directory):
    """True when this package is still to be fetched."""
    if directory.is_dir() and any(directory.iterdir()):
        return False
    directory.mkdir(parents=True, exist_ok=True)
    return True


def files(root):
    """Every text of every package: (suffix, content)."""
    for path in sorted(root.rglob("*")):
        if not path.is_file():
            continue
        if path.name.endswith((".whl", ".jar")) or (path.suffix == ".zip" and "cache" not in path.parts):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if Path(name).suffix in TEXT_SUFFIXES:
                        yield Path(name).suffix, archive.read(name)
        elif path.name.endswith((".tgz", ".tar.gz", ".tar.bz2")):
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.isfile() and Path(member.name).suffix in TEXT_SUFFIXES:
                        yield Path(member.name).suffix, archive.extractfile(member).read()
        elif path.suffix in TEXT_SUFFIXES and path.stat().st_size <= FILE_BYTES_MAX:
            yield path.suffix, path.read_bytes()


QUOTED = r'"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*'"
RAW_RUST = re.compile(r'r(#*)"(.*?)"\1', re.S)
BACKTICK = re.compile(r"`((?:[^`\\]|\\.)*)`", re.S)
NAMED_TEMPLATE = re.compile(r"const (\w+) = `((?:[^`\\]|\\.)*)`", re.S)
TEXT_BLOCK = re.compile(r'"""[ \t]*\n(.*?)"""', re.S)
MULTILINE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"' + r"|'((?:[^'\\]|\\.)*)'", re.S)
HEREDOC = re.compile(r"<<<'(\w+)'\n(.*?)\n\s*\1;", re.S)
PHP_METHOD = re.compile(r"function (\w+)\(\)[^{]*\{(.*?)\n    \}", re.S)
PHP_CALL = re.compile(r"'([^']*)'\.\$this->(\w+)\(\)\.'([^']*)'")
CHAIN = re.compile(rf"(?:{QUOTED})(?:\s*(?:\+|\.|,|\\)?\s*(?:{QUOTED}))*", re.S)


def literals(suffix, content):
    """Every string that this source could be sending."""
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    if suffix == ".lua":
        yield text
        return
    if suffix == ".py":
        try:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                    value = node.value
                    yield value if isinstance(value, str) else value.decode("utf-8", "replace")
        except SyntaxError:
            pass
        return
    if suffix == ".rs":
        yield from (found.group(2) for found in RAW_RUST.finditer(text))
    if suffix in {".go", ".js", ".cjs", ".mjs", ".ts"}:
        named = dict(NAMED_TEMPLATE.findall(text))
        for found in BACKTICK.finditer(text):
            whole = re.sub(r"\$\{(\w+)\}", lambda part: named.get(part.group(1), part.group(0)), found.group(1))
            yield whole
            yield unescape(whole)
    if suffix == ".java":
        # Comments stand between the lines of a text.
        text = re.sub(r"^\s*//.*$", "", text, flags=re.M)
        for found in TEXT_BLOCK.finditer(text):
            yield text_block(found.group(1))
    if suffix == ".php":
        yield from (found.group(2) for found in HEREDOC.finditer(text))
        returned = {name: re.findall(r"return '([^']*)'", body) for name, body in PHP_METHOD.findall(text)}
        for before, method, after in PHP_CALL.findall(text):
            yield from (before + middle + after for middle in returned.get(method, []))
    for found in CHAIN.finditer(text):
        parts = [unescape(part[1:-1]) for part in re.findall(QUOTED, found.group(0), re.S)]
        for glue in ("", " ", "\n"):
            yield glue.join(parts)
    for found in MULTILINE_QUOTED.finditer(text):
        yield unescape(found.group(1) or found.group(2) or "")


def text_block(body):
    """Java's rule: the common indent, the closing line's included, goes, and so do blanks at the end of a line."""
    lines = body.split("\n")
    indents = [len(line) - len(line.lstrip()) for line in lines[:-1] if line.strip()]
    indents.append(len(lines[-1]) - len(lines[-1].lstrip()) if not lines[-1].strip() else 10**9)
    cut = min(indents)
    return unescape("\n".join(line[cut:].rstrip() for line in lines))


def unescape(text):
    """The escapes that all these languages share."""
    text = re.sub(r"\\\n\s*", "", text)
    plain = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda found: plain.get(found.group(1), found.group(1)), text, flags=re.S)


def forms(text):
    """What clients do to a literal before they send it."""
    bases = [text, text.strip(), text.rstrip("\n"), text + "\n", textwrap.dedent(text), textwrap.dedent(text).strip()]
    for base in bases:
        yield base
        yield base.replace("\n", " ")
        yield base.replace("\n", "")
        yield base.replace("\n", "\r\n")
        yield re.sub(r"\s+", " ", base)
        yield "\n".join(line.strip() for line in base.split("\n"))
        yield " ".join(line.strip() for line in base.split("\n"))


def main():
    arguments = [word for word in sys.argv[1:] if word != "--strict"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    target = Path(arguments[0]).resolve()
    packages = target / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    missing = download(packages)
    want, have = wanted(), set()
    for suffix, content in itertools.chain.from_iterable(map(files, [*OWN, packages])):
        if len(content) > FILE_BYTES_MAX or (b"redis" not in content and b"KEYS" not in content):
            continue
        for text in literals(suffix, content):
            if "call" not in text or len(text) > 20_000:
                continue
            for form in forms(text):
                digest = hashlib.sha1(form.encode()).hexdigest()
                if digest in want and digest not in have:
                    have.add(digest)
                    (target / f"{digest}.lua").write_bytes(form.encode())
    for digest in sorted(want - have):
        print(f"  not found in any package: {digest}")
    print(f"{len(have)} of {len(want)} texts collected, {missing} packages missing")
    sys.exit(1 if missing and "--strict" in sys.argv else 0)


if __name__ == "__main__":
    main()
