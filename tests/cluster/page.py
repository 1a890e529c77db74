"""The page of one of several groups, in a headless Chromium: page.py PORT LOCK ... The locks are in groups of several leaders."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "clients" / "page"))

from chromium import Chromium

port, *locks = sys.argv[1:]
KEYS = "[...document.querySelectorAll('#rows .row:not([hidden]) .key span')].map((key) => key.textContent).sort()"
STATE = "document.getElementById('state').dataset.state"


def shows(page, keys):
    page.until(f"JSON.stringify({KEYS}) === JSON.stringify({sorted(keys)!r})", f"the locks are {keys}")


def break_lock(page, key):
    """Breaks a lock by its token, as a person does."""
    rows = "[...document.querySelectorAll('#rows .row:not([hidden])')]"
    page.evaluate(f"{rows}.find((row) => row.querySelector('.key span').textContent === {key!r}).click()")
    page.until("!document.getElementById('break').hidden", f"the details of {key} are shown, and that it can be broken")
    page.evaluate("document.getElementById('break-token').value = document.getElementById('detail').lock.first.token")
    page.evaluate("document.querySelector('#break button').click()")
    page.until("document.getElementById('break-result').dataset.result === 'good'", f"{key} is broken")


with Chromium() as page:
    page.open(f"http://127.0.0.1:{port}/")
    shows(page, locks)
    page.until(f"{STATE} === 'live'", "all leaders are followed")
    assert "4 groups of slots" in page.evaluate("document.getElementById('group').textContent")
    page.evaluate("marked = true")
    print("shows", flush=True)
    sys.stdin.readline()
    page.until(f"{STATE} === 'live' && sources.length === 4", "the new leaders are followed")
    shows(page, locks)
    assert page.evaluate("marked"), "it is the same page"
    # Those of all groups, also of those that another server leads.
    for key in locks:
        break_lock(page, key)
    shows(page, [])
    print("follows and breaks", flush=True)
