# SPDX-License-Identifier: Apache-2.0
"""webdriver.py - a browser in a test: headless Chromium through chromedriver.

Only the standard library is used, and only this machine is talked to.
"""
import base64
import http.client
import json
import shutil
import subprocess
import tempfile
import time

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Left": "\ue012", "Up": "\ue013",
        "Right": "\ue014", "Down": "\ue015", "Home": "\ue011", "Tab": "\ue004",
        "Control": "\ue009", "Shift": "\ue008"}


def programs():
    """chromedriver and the browser, or None for the one that is missing."""
    driver = shutil.which("chromedriver")
    names = ("chromium", "chromium-browser", "google-chrome")
    return driver, next(filter(None, map(shutil.which, names)), None)


class Browser:
    """A session. Waits are generous: the machine may be busy."""

    def __init__(self, patience=60):
        driver, chromium = programs()
        self.patience = patience
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.driver = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            if "on port" in line and "successfully" in line:
                self.port = int(line.rsplit(" ", 1)[1].strip().rstrip("."))
                break
        else:
            raise RuntimeError("chromedriver does not start")
        options = {"binary": chromium, "args": [
            "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
            "--disable-background-networking", "--no-proxy-server",
            "--user-data-dir=" + self.profile.name]}
        self.base = ""
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.base = "/session/" + answer["sessionId"]

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=240)
        connection.request(method, self.base + path,
                           json.dumps(body or {}) if method == "POST" else None,
                           {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())["value"]
        connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(answer["error"] + ": " + answer["message"])
        return answer

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.profile.cleanup()

    # ---- pages -----------------------------------------------------------

    def cdp(self, command, **params):
        return self.call("POST", "/goog/cdp/execute",
                         {"cmd": command, "params": params})

    def size(self, width, height, mobile=False, scale=1):
        """The size of the view: a window alone cannot be as narrow."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width,
                 height=height, deviceScaleFactor=scale, mobile=mobile)

    def scheme(self, name, still=False):
        """light or dark, and whether motion is unwanted."""
        motion = "reduce" if still else "no-preference"
        self.cdp("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": name},
            {"name": "prefers-reduced-motion", "value": motion}])

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def js(self, script, *args):
        return self.call("POST", "/execute/sync",
                         {"script": script, "args": list(args)})

    def until(self, script, *args):
        """Wait until the expression holds; gives its value."""
        end = time.monotonic() + self.patience
        while True:
            value = self.js("return " + script, *args)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError("this never holds: " + script)
            time.sleep(0.05)

    def log(self):
        """What the browser has logged since the last call."""
        return self.call("POST", "/se/log", {"type": "browser"})

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    # ---- elements --------------------------------------------------------

    def find(self, css):
        return self.call("POST", "/element", {"using": "css selector",
                                              "value": css})[ELEMENT]

    def all(self, css):
        return [e[ELEMENT] for e in self.call("POST", "/elements", {
            "using": "css selector", "value": css})]

    def text(self, css):
        return self.js("return document.querySelector(arguments[0])"
                       ".textContent", css)

    def click(self, css, index=0):
        self.js("document.querySelectorAll(arguments[0])[arguments[1]]"
                ".scrollIntoView({block: 'center', behavior: 'instant'})",
                css, index)
        self.call("POST", "/element/" + self.all(css)[index] + "/click")

    def send(self, css, keys):
        """Keys for an element, one after another."""
        self.call("POST", "/element/" + self.find(css) + "/value",
                  {"text": keys})

    def type(self, css, text):
        """Write over what is in a field."""
        self.js("const e = document.querySelector(arguments[0]);"
                "e.scrollIntoView({block: 'center'}); e.focus(); e.select()",
                css)
        self.call("POST", "/element/" + self.find(css) + "/value",
                  {"text": text})

    def press(self, *keys):
        """Keys for the element with the focus: all of them held at once."""
        names = [KEYS.get(key, key) for key in keys]
        down = [{"type": "keyDown", "value": name} for name in names]
        up = [{"type": "keyUp", "value": name} for name in reversed(names)]
        self.call("POST", "/actions", {"actions": [
            {"type": "key", "id": "keys", "actions": down + up}]})

    def hover(self, css, x=0, y=0):
        """Point at an element: at its middle, or so far from it."""
        self.call("POST", "/actions", {"actions": [
            {"type": "pointer", "id": "mouse", "actions": [
                {"type": "pointerMove", "duration": 0, "x": x, "y": y,
                 "origin": {ELEMENT: self.find(css)}}]}]})
