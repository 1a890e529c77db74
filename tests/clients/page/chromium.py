"""A headless Chromium, driven by the DevTools protocol over a pipe: no driver program, and no port."""

import base64
import collections
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

WAIT_MAX = 60


def high_pipe():
    """A pipe whose descriptors are not those that the browser wants."""
    low = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 16) for end in low]
    for end in low:
        os.close(end)
    return high


class Chromium:
    """One page of one browser, which ends with the `with` block."""

    def __init__(self, width=1280, height=800):
        self.dir = tempfile.mkdtemp(prefix="redlatch-chromium-")
        to_us, from_browser = high_pipe()
        to_browser, from_us = high_pipe()

        def give_pipes():
            os.dup2(to_browser, 3)
            os.dup2(from_browser, 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--force-color-profile=srgb", f"--window-size={width},{height}", f"--user-data-dir={self.dir}",
             "--remote-debugging-pipe", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=give_pipes, pass_fds=(3, 4))
        os.close(to_browser)
        os.close(from_browser)
        self.reads, self.writes = to_us, from_us
        self.received, self.number, self.session = b"", 0, None
        self.errors, self.urls, self.statuses = [], [], {}
        self.events = collections.deque()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Network", "Log"]:
            self.send(f"{domain}.enable")
        self.resize(width, height)
        self.show_scrollbars(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.reads)
        os.close(self.writes)
        shutil.rmtree(self.dir, ignore_errors=True)

    def send(self, method, **params):
        """Sends a command, and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.writes, data):]
        deadline = time.monotonic() + WAIT_MAX
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def receive(self, deadline):
        """The next message. Notes requests and errors of the page."""
        while b"\0" not in self.received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.reads], [], [], left)[0]:
                raise AssertionError("Chromium does not answer")
            data = os.read(self.reads, 1 << 20)
            if not data:
                raise AssertionError("Chromium has ended")
            self.received += data
        message, self.received = self.received.split(b"\0", 1)
        message = json.loads(message)
        params = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.urls.append(params["request"]["url"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"])
        return message

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'", "the page is loaded")

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression, what):
        """Waits until an expression is true."""
        deadline = time.monotonic() + WAIT_MAX
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                seen = self.evaluate("document.body.innerText")
                raise AssertionError(f"not so after {WAIT_MAX} s: {what}: {expression}\n{seen[:2000]}\n{self.errors}")
            time.sleep(0.05)

    def press(self, key):
        """Presses a key, as a person does."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
                 "ArrowRight": 39, "ArrowDown": 40, "PageDown": 34}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ["keyDown", "keyUp"]:
            more = text if kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **more)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def resize(self, width, height):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def show_scrollbars(self, are_shown):
        self.send("Emulation.setScrollbarsHidden", hidden=not are_shown)

    def shade(self, scheme):
        """Light or dark."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))
