"""The examples of README.md, run as one test file."""

import pathlib
import re

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_the_examples_run(pytester):
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    code = "\n\n".join(blocks)
    pytester.makepyfile(test_examples=code)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    result = pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=code.count("\ndef test_"))
    assert len(blocks) >= 4


def test_every_call_of_the_api_is_told():
    import redlatch

    text = README.read_text()
    for part in (redlatch.Clock, redlatch.Faults, redlatch.Nodes):
        for name in vars(part):
            if not name.startswith("_") and name not in ("urls", "add"):
                assert re.search(rf"\b{name}\b", text), f"{part.__name__}.{name}"
