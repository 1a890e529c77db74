#!/usr/bin/env python3
"""Checks that the code blocks of the documentation are the examples that the packages run.

    packages/docs.py [--write]

A block is found by the comment in front of it, which names a file from the root of the repository:

    <!-- code: packages/node/examples/lease.test.js -->

With --write the blocks are replaced by their files.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = [*ROOT.glob("packages/*/README.md"), *ROOT.glob("packages/clients/*/README.md")]
GUIDES = [ROOT / "docs/fencing.md", ROOT / "docs/from-redis.md", *ROOT.glob("docs/locks-in-*.md"), ROOT / "docs/testing-examples.md"]
PAGES = sorted(str(page.relative_to(ROOT)) for page in [*GUIDES, *PACKAGES])
MARKER = re.compile(r"^<!-- code: (\S+) -->\n", re.MULTILINE)
BLOCK = re.compile(r"```\w*\n.*?^```\n", re.DOTALL | re.MULTILINE)
LANGUAGES = {".go": "go", ".java": "java", ".js": "js", ".py": "python", ".rs": "rust", ".ts": "ts"}


def filled(text: str, wrong: list[str]) -> str:
    """The page with the files in place of their blocks; `wrong` gets the files whose blocks differ."""
    parts = []
    done = 0
    for marker in MARKER.finditer(text):
        file = ROOT / marker[1]
        wanted = f"```{LANGUAGES[file.suffix]}\n{file.read_text().rstrip()}\n```\n"
        block = BLOCK.match(text, marker.end())
        if block is None or block[0] != wanted:
            wrong.append(marker[1])
        parts += [text[done : marker.end()], wanted]
        done = block.end() if block else marker.end()
    return "".join([*parts, text[done:]])


def main() -> int:
    is_writing = sys.argv[1:] == ["--write"]
    found = 0
    status = 0
    for page in PAGES:
        path = ROOT / page
        text = path.read_text()
        wrong: list[str] = []
        new = filled(text, wrong)
        found += len(MARKER.findall(text))
        if is_writing:
            path.write_text(new)
        for file in wrong:
            print(f"{page}: the block of {file} {'is written' if is_writing else 'differs from it; --write updates it'}")
            status = int(not is_writing)
    if found == 0:
        print("no page has a block that names its file")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
