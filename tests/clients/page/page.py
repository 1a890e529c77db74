"""The page of locks in a headless Chromium, with locks of redis-py."""

import json
import os
import threading
import time
import urllib.request

import redis
from checks import HOST, PORT, check
from chromium import WAIT_MAX, Chromium

PAGE = f"http://{HOST}:{os.environ['REDLATCH_HTTP_PORT']}/"
MANY = 10_000
ROWS_MAX = 60  # Elements of the list: what is visible, and a few.

client = redis.Redis(host=HOST, port=PORT, client_name="orders-7", protocol=3)
other = redis.Redis(host=HOST, port=PORT, client_name="billing-2")

KEYS = "[...document.querySelectorAll('#rows .row:not([hidden]) .key span')].map((key) => key.textContent)"


def row_of(key):
    return f"[...document.querySelectorAll('#rows .row:not([hidden])')].find((row) => row.querySelector('.key span').textContent === {key!r})"


def shows(page, *keys):
    """Waits until the list shows just these."""
    page.until(f"JSON.stringify({KEYS}.sort()) === JSON.stringify({sorted(keys)!r})", f"the locks are {keys}")


def text_of(page, element):
    return page.evaluate(f"document.getElementById({element!r}).textContent")


def is_live(page):
    page.until("document.getElementById('state').dataset.state === 'live'", "events arrive")


def wait_for(key, owner, granted, *options):
    """A thread that waits for a lock."""

    def run():
        connection = redis.Redis(host=HOST, port=PORT, client_name=owner, socket_timeout=600)
        connection.execute_command("LOCK.ACQUIRE", key, owner, "LEASE", 600_000, "WAIT", 600_000, *options)
        granted.append(owner)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def until(is_so):
    """Waits until the server says so."""
    deadline = time.monotonic() + WAIT_MAX
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {WAIT_MAX} s")
        time.sleep(0.01)


def waiters(key):
    return [waits[b"owner"].decode() for waits in client.execute_command("LOCK.WAITERS", key)]


def loads(page):
    page.open(PAGE)
    is_live(page)
    page.until("!document.getElementById('empty').hidden", "no lock is held")
    check("the page loads, and says that no lock is held", "No lock is held" in text_of(page, "empty"))


def hides_nothing(page):
    """An owner that would turn its row around, and a key that ends its line."""
    client.execute_command("LOCK.ACQUIRE", "lock:\n\x1b[2J", "eve\u202ebob", "LEASE", 600_000)
    shown = r"lock:\u{a}\u{1b}[2J"
    shows(page, shown)
    row = page.evaluate("document.querySelector('#rows .row:not([hidden]) .owner').textContent")
    check("what is hidden is shown", "eve\\u{202e}bob" in row and "\u202e" not in row, row)
    client.delete("lock:\n\x1b[2J")
    shows(page)


def follows(page):
    lock = client.lock("lock:stock", timeout=600)
    lock.acquire()
    shows(page, "lock:stock")
    row = page.evaluate(f"{row_of('lock:stock')}.textContent")
    check("a lock of redis-py is shown with its owner and its client",
          lock.local.token.decode() in row and "orders-7" in row and "redis-py" in row, row)
    lock.release()
    shows(page)
    check("the lock goes when it is released", True)


def shows_text_alone(page):
    keys = ["<script>hit = 1</script>", "<img src=x onerror='hit = 1'>", "a b", "&lt;"]
    for key in keys:
        client.set(key, f"{key} owner", nx=True, ex=600)
    shows(page, *keys)
    for key in keys:
        page.evaluate(f"{row_of(key)}.click()")
        page.until(f"document.getElementById('detail-explain').textContent.includes('held by')", "the lock is explained")
        check(f"the details of {key!r} are text", text_of(page, "detail-key") == key)
    page.evaluate("document.getElementById('detail-close').click()")
    made = page.evaluate("document.querySelectorAll('main script, main img').length")
    check("keys are never markup", made == 0 and page.evaluate("typeof hit") == "undefined")
    client.delete(*keys)
    shows(page)


def works_by_keyboard(page):
    client.execute_command("LOCK.ACQUIRE", "lock:stock", "orders-7-a1", "LEASE", 600_000, "META", "host", "web-3")
    granted = []
    threads = []
    for owner in ["billing-2-b", "mailer-4"]:
        threads.append(wait_for("lock:stock", owner, granted, "PRIORITY", 3))
        until(lambda: owner in waiters("lock:stock"))
    client.set("lock:invoice", "i-1", nx=True, ex=600)
    shows(page, "lock:invoice", "lock:stock")
    page.until(f"{row_of('lock:stock')}.textContent.includes('2')", "two wait")
    page.evaluate("document.getElementById('filter-kind').focus()")
    for _ in range(6 + 1):
        page.press("Tab")
    check("Tab reaches the first row", page.evaluate("document.activeElement.getAttribute('aria-rowindex')") == "2",
          page.evaluate("document.activeElement.outerHTML"))
    page.press("ArrowDown")
    check("the arrow keys move it", page.evaluate(f"document.activeElement === {row_of('lock:invoice')}"))
    page.press("ArrowUp")
    page.press("Enter")
    page.until("document.querySelectorAll('#detail-waiters li').length === 2", "the waiters are shown")
    check("Enter opens a lock", page.evaluate("document.activeElement.id") == "detail-key" and text_of(page, "detail-key") == "lock:stock")
    order = page.evaluate("[...document.querySelectorAll('#detail-waiters .who')].map((who) => who.textContent)")
    check("waiters are in order", order == ["billing-2-b", "mailer-4"], order)
    how = page.evaluate("document.querySelector('#detail-waiters .time').textContent")
    check("a waiter is shown with its priority", how.startswith("priority 3, "), how)
    how = page.evaluate("howText({ how: 'queued', any: 1, of: 2 }).join()")
    check("and with the choice that it has", how == "any 1 of 2", how)
    facts = text_of(page, "detail-facts")
    check("the details name token, client and meta", "web-3" in facts and "orders-7" in facts and "Token" in facts, facts)
    return granted, threads


def breaks(page, granted, threads):
    token = client.execute_command("LOCK.WHO", "lock:stock")[b"holders"][0][b"token"]

    def try_to_break(typed):
        page.evaluate("document.getElementById('break-result').textContent = ''")
        page.evaluate("document.getElementById('break-token').value = ''")
        page.evaluate("document.getElementById('break-token').focus()")
        page.type(typed)
        page.press("Enter")

    check("a lock can be broken here", page.evaluate("!document.getElementById('break').hidden"))
    page.evaluate("document.querySelector('#break button').click()")
    check("nothing is sent without a token", not any("/api/break" in url for url in page.urls))
    try_to_break(str(token + 1))
    page.until("document.getElementById('break-result').textContent.startsWith('Not broken')", "it is refused")
    check("another token breaks nothing", granted == [] and waiters("lock:stock") == ["billing-2-b", "mailer-4"])
    try_to_break(str(token))
    page.until("document.getElementById('break-result').textContent.startsWith('Broken')", "it is broken")
    threads[0].join(60)
    check("with its token the lock is broken, and the first waiter has it", granted == ["billing-2-b"], granted)
    client.execute_command("LOCK.RELEASE", "lock:stock", "billing-2-b")
    threads[1].join(60)
    owners = "[...document.querySelectorAll('#timeline .hold .who')].map((who) => who.textContent)"
    # A holder of before may be remembered, too.
    page.until(f"['orders-7-a1', 'billing-2-b', 'mailer-4'].every((owner) => {owners}.includes(owner))",
               "the timeline has the three holders")
    told = text_of(page, "detail-explain")
    check("the timeline and the sentences tell of it", "broken" in told and "broken" in text_of(page, "timeline"), told)
    page.press("Escape")
    check("Escape closes the details", page.evaluate("document.getElementById('detail').hidden"))


def keeps_bytes(page):
    key = b"bin:\xff\x00"
    client.set(key, "b-1", nx=True, ex=600)
    shows(page, "lock:invoice", "lock:stock", r"bin:\xff\x00")
    page.evaluate(f"{row_of(chr(92).join(['bin:', 'xff', 'x00']))}.click()")
    page.until("document.getElementById('detail-facts').textContent.includes('b-1')", "the server knows the key")
    check("a key that is no UTF-8 is found again", True)
    page.evaluate("document.getElementById('detail-close').click()")


def filters_and_sorts(page):
    page.evaluate("document.getElementById('filter-text').focus()")
    page.type("INVOICE")
    shows(page, "lock:invoice")
    page.evaluate("{ const text = document.getElementById('filter-text'); text.value = 'mailer-4'; text.dispatchEvent(new Event('input')); }")
    shows(page, "lock:stock")
    page.evaluate("{ const text = document.getElementById('filter-text'); text.value = ''; text.dispatchEvent(new Event('input')); }")
    page.evaluate("document.querySelector('[data-sort=token] button').click()")
    tokens = page.evaluate("[...document.querySelectorAll('#rows .row:not([hidden])')].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map((row) => Number(row.lastChild.textContent))")
    check("locks are filtered and sorted", tokens == sorted(tokens, reverse=True) and len(tokens) == 3, tokens)
    page.evaluate("document.querySelector('[data-sort=key] button').click()")


ORDER = "[...document.querySelectorAll('#rows .row:not([hidden])')].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map((row) => row.querySelector('.key span').textContent)"
COLUMNS = "[...document.querySelectorAll('#grid-head [role=columnheader]')].filter((head) => head.checkVisibility()).map((head) => head.textContent)"
# Whether the ends of the long key are there, and its middle is not.
CUT = '''(() => {
    const [start, end] = document.querySelector('#rows .row[aria-selected=true] .key span').children;
    const [key, last] = [start.closest('.key').getBoundingClientRect(), end.getBoundingClientRect()];
    return start.clientWidth > 20 && start.scrollWidth > start.clientWidth && end.scrollWidth <= end.clientWidth && last.right <= key.right + 1;
})()'''
# Pixels between the selected row and the edges of the list, and between the last columns of the head and of the row. At the right
# there may be a scroll bar, but only where there is something to scroll.
EDGES = '''(() => {
    const box = (element) => element.getBoundingClientRect();
    const scroller = document.getElementById('scroller');
    const row = document.querySelector('#rows .row[aria-selected=true]');
    const column = document.querySelector('[data-sort=waiters]');
    const right = scroller.scrollHeight > scroller.clientHeight ? scroller.clientWidth : scroller.offsetWidth;
    return [box(row).left - box(scroller).left, box(scroller).left + right - box(row).right,
        box(column).left - box(row.querySelector('.waits')).left].map(Math.abs);
})()'''
SCROLLBAR = "document.getElementById('scroller').offsetWidth - document.getElementById('scroller').clientWidth"


def fill_text(page, element, text):
    page.evaluate(f"{{ const field = document.getElementById({element!r}); field.value = {text!r}; field.dispatchEvent(new Event('input')); }}")


def sorts_what_is_waited_for_first(page):
    """Many locks, two of which are waited for, on a wide screen and on that of a phone."""
    lower, upper = "lock:zebra", "lock:warehouse:berlin:hall-3:rack-0004:shelf:000017"
    keys = [lower, upper] + [f"lock:{number:02}" for number in range(40)]
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.execute_command("LOCK.ACQUIRE", key, "holder-1", "LEASE", 600_000)
    pipe.execute()
    threads = []
    for key, owners in [(upper, ["wait-1"]), (lower, ["wait-2", "wait-3"]), ("lock:07", ["wait-4"])]:
        for owner in owners:
            threads.append(wait_for(key, owner, []))
            until(lambda: owner in waiters(key))
    page.open(PAGE)
    is_live(page)
    first = [lower, upper, "lock:07", r"bin:\xff\x00", "lock:00"]
    page.until(f"JSON.stringify({ORDER}.slice(0, 5)) === JSON.stringify({first!r})", "what is waited for comes first")
    check("the longest queue comes first, then the longest wait, then the others by their keys", True)
    for width, height, columns in [(1280, 800, ["Lock", "Holder", "Held for", "Lease", "Waiting"]), (390, 844, ["Lock", "Held for", "Waiting"])]:
        page.resize(width, height)
        page.evaluate(f"{row_of(upper)}.click()")
        page.until("document.querySelectorAll('#detail-waiters li').length === 1", "the details are shown")
        shown = page.evaluate(COLUMNS)
        check(f"at {width} pixels the columns are {columns}", shown == columns, shown)
        page.until(CUT, "the key is cut in the middle")
        check(f"at {width} pixels a long key is cut in the middle", True)
        page.show_scrollbars(True)
        for text, has_scrollbar in [("", True), ("warehouse", False)]:
            fill_text(page, "filter-text", text)
            page.until(f"({SCROLLBAR} > 0) === {str(has_scrollbar).lower()}", f"there is a scroll bar: {has_scrollbar}")
            page.until(f"Math.max(...{EDGES}) < 1", "the highlight reaches the edges, and columns are straight")
        fill_text(page, "filter-text", "")
        page.show_scrollbars(False)
        check(f"at {width} pixels the highlight reaches the edges, and columns are straight", True)
        share = page.evaluate("document.getElementById('detail').offsetHeight / innerHeight")
        visible = page.evaluate("document.getElementById('scroller').clientHeight / ROW")
        check(f"at {width} pixels the details leave room for rows", share < 0.8 and visible >= 2, (share, visible))
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        check(f"at {width} pixels nothing is wider than the screen", wide <= 0, wide)
    page.resize(1280, 800)
    # Each deletion grants the lock to the next one who waits.
    until(lambda: client.delete(*keys) == 0 and not any(thread.is_alive() for thread in threads))
    shows(page, "lock:invoice", "lock:stock", r"bin:\xff\x00")


# Headings that are more than one level below the one before.
SKIPPED = """[...document.querySelectorAll('h1, h2, h3')].filter((h) => h.checkVisibility()).map((h) => Number(h.tagName[1]))
    .filter((level, at, levels) => level > (levels[at - 1] ?? 0) + 1)"""
# What stands within the roles of the list, and may not. What has no role and takes no focus is looked through.
STRAYS = """(() => {
    const allowed = { grid: ['rowgroup', 'row'], rowgroup: ['row'], row: ['gridcell', 'columnheader'], tablist: ['tab'] };
    const owned = (element) => [...element.children].flatMap((child) =>
        child.role || child.hasAttribute('tabindex') ? [child] : owned(child));
    return [...document.querySelectorAll('[role]')].filter((element) => element.role in allowed).flatMap((element) =>
        owned(element).filter((child) => !allowed[element.role].includes(child.role)).map((child) => `${element.role}: ${child.outerHTML}`));
})()"""


def fits_a_phone(page, view):
    """A view without a part that is wider than the screen of a phone, and with headings in their order."""
    page.resize(390, 844)
    wide = page.evaluate(f"""[document.documentElement, ...document.querySelectorAll('#view-{view}, #view-{view} .scrolls')]
        .map((element) => element.scrollWidth - element.clientWidth)""")
    check(f"at 390 pixels {view} is no wider than the screen", max(wide) <= 0, wide)
    page.resize(1280, 800)
    skipped = page.evaluate(SKIPPED)
    check(f"no level of the headings of {view} is left out", skipped == [], skipped)


def shows_other_views(page):
    page.evaluate("document.getElementById('tab-locks').focus()")
    page.press("ArrowRight")
    page.until("document.getElementById('contention').textContent.includes('lock:stock')", "contention is shown")
    check("contention names the lock that was waited for", True)
    columns = page.evaluate("[...document.querySelectorAll('#contention tr:first-child td')].map((cell) => cell.dataset.column)")
    check("each cell has the name of its column", columns[1:3] == ["Waiting", "Longest wait"] and len(columns) == 10, columns)
    fits_a_phone(page, "contention")
    client.set("lock:endless", "x", nx=True)
    page.press("ArrowRight")
    page.until("document.getElementById('lint').textContent.includes('no-lease')", "the finding is shown")
    check("lint names the lock without a lease", "lock:endless" in text_of(page, "lint"))
    fits_a_phone(page, "lint")
    other.ping()
    page.press("ArrowRight")
    page.until("document.getElementById('clients').textContent.includes('billing-2')", "clients are shown")
    known = {entry["id"] for entry in client.client_list()}
    shown = {entry["id"] for entry in json.load(urllib.request.urlopen(f"{PAGE}api/clients"))["clients"]}
    check("HTTP itself is no client", shown <= {int(id) for id in known}, (shown, known))
    fits_a_phone(page, "clients")
    page.press("ArrowRight")
    client.delete("lock:endless")
    shows(page, "lock:invoice", "lock:stock", r"bin:\xff\x00")


def is_labelled(page):
    unnamed = page.evaluate("""[...document.querySelectorAll('input, select, button')].filter((element) =>
        !(element.labels?.length || element.textContent.trim() || element.ariaLabel)).map((element) => element.outerHTML)""")
    check("every control has a name", unnamed == [], unnamed)
    order = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].filter((h) => h.checkVisibility()).map((h) => h.tagName)")
    strays = page.evaluate(STRAYS)
    check("rows and cells are all that the list has", strays == [], strays)
    check("landmarks and headings are there", order[0] == "H1" and page.evaluate("!!document.querySelector('main, nav, header')"))


def logs_in(page):
    client.config_set("requirepass", "s\u00e9cret")
    page.open(PAGE)
    page.until("document.getElementById('login').open", "a password is asked for")
    for password in ["wrong", "s\u00e9cret"]:
        page.evaluate("document.getElementById('login-password').focus()")
        page.type(password)
        page.press("Enter")
        if password == "wrong":
            page.until("document.getElementById('login-error').textContent !== ''", "it is refused")
    is_live(page)
    check("with the password the page is live", not page.evaluate("document.getElementById('login').open"))
    client.config_set("requirepass", "")
    # A password that is asked for is an error of the network to Chromium.
    page.errors = [error for error in page.errors if "401" not in error.get("text", "")]


def takes_picture(page, path):
    """What the README shows."""
    client.execute_command("LOCK.ACQUIRE", "lock:leader", "scheduler-1", "SESSION")
    other.execute_command("LOCK.ACQUIRE", "pool:render", "gpu-1", "LEASE", 300_000, "PERMITS", 2, "OF", 5)
    for number in range(5):
        other.set(f"lock:order:{8812 + number}", f"worker-{number}", nx=True, px=300_000 + number * 90_000)
    client.execute_command("LOCK.RELEASE", "lock:stock", "mailer-4")
    client.execute_command("LOCK.ACQUIRE", "lock:stock", "orders-7-a2", "LEASE", 300_000, "META", "host", "web-3")
    threads = []
    for owner in ["billing-2-b", "cron-1"]:
        threads.append(wait_for("lock:stock", owner, []))
        until(lambda: owner in waiters("lock:stock"))
    page.open(PAGE)
    is_live(page)
    page.until(f"!!{row_of('lock:stock')}", "the lock is shown")
    page.evaluate(f"{row_of('lock:stock')}.click()")
    page.until("document.querySelectorAll('#detail-waiters li').length === 2", "the details are shown")
    page.shade("light")
    page.picture(path)
    for owner in ["orders-7-a2", "billing-2-b", "cron-1"]:
        until(lambda: client.execute_command("LOCK.RELEASE", "lock:stock", owner) == 1)
    for thread in threads:
        thread.join(60)


def stays_smooth(page):
    pipe = client.pipeline(transaction=False)
    for number in range(MANY):
        pipe.set(f"many:{number:05}", f"worker-{number}", nx=True, ex=600)
    pipe.execute()
    page.open(PAGE)
    page.until(f"locks.size >= {MANY}", "all locks have arrived")
    counts = page.evaluate("""(async () => {
        const [scroller, counts] = [document.getElementById('scroller'), []];
        for (let part = 0; part <= 40; part++) {
            scroller.scrollTop = (scroller.scrollHeight * part) / 40;
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            counts.push(document.querySelectorAll('#rows .row').length);
        }
        return counts;
    })()""")
    check(f"{MANY} locks take {ROWS_MAX} elements at most", max(counts) <= ROWS_MAX, counts)
    page.evaluate("goTo(0)")
    page.press("End")
    last = page.evaluate("document.activeElement.getAttribute('aria-rowindex')")
    check("the End key reaches the last of them", last == str(page.evaluate("view.length") + 1), last)
    check("the last of them is shown", page.evaluate(f"{KEYS}.includes('many:09999') || {KEYS}.includes('pool:render')"))


def main():
    with Chromium() as page:
        loads(page)
        hides_nothing(page)
        follows(page)
        shows_text_alone(page)
        granted, threads = works_by_keyboard(page)
        breaks(page, granted, threads)
        keeps_bytes(page)
        filters_and_sorts(page)
        sorts_what_is_waited_for_first(page)
        shows_other_views(page)
        is_labelled(page)
        logs_in(page)
        picture = os.environ.get("REDLATCH_PICTURE")
        if picture:
            takes_picture(page, picture)
        stays_smooth(page)
        check("no script failed", page.errors == [], page.errors)
        foreign = [url for url in page.urls if not url.startswith(PAGE)]
        check("nothing is asked of another server", foreign == [] and len(page.urls) > 10, foreign)
    print("done")


main()
