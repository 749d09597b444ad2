# SPDX-License-Identifier: Apache-2.0
"""page.py - drives the page of bauta serve; see page.sh.

    page.py BAUTA               the test, in a folder with the models of page.sh
    page.py --pictures URL DIR  instead: pictures of the page of a running server
"""
import http.client
import json
import re
import subprocess
import sys
import time

from webdriver import Browser

MODELS = ("writer", "endless", "translator", "filler")
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        raise AssertionError(what)


# ---- the server ----------------------------------------------------------

class Server:
    def __init__(self, bauta, *options):
        self.errors = open("stderr", "a", encoding="utf-8")
        self.process = subprocess.Popen(
            [bauta, "serve", *options, "--port", "0", "--threads", "1",
             "--quiet"], stdout=subprocess.PIPE, stderr=self.errors, text=True)
        line = self.process.stdout.readline()
        check(line.startswith("listening on "), "the server does not start")
        self.url = line.split()[-1]

    def post(self, path, body):
        host = self.url.split("//")[1]
        connection = http.client.HTTPConnection(host, timeout=120)
        connection.request("POST", path, json.dumps(body))
        return json.loads(connection.getresponse().read())

    def stop(self):
        """A sanitizer reports at the end, by the exit status."""
        self.process.terminate()
        status = self.process.wait(timeout=120)
        check(status == 0, f"the server ended with status {status}")


# ---- parts of the page ---------------------------------------------------

TEXT = "document.querySelector(arguments[0]).textContent"
IDLE = "!document.getElementById('run').hidden"
# Text whose contrast with its background is below 4.5, as WCAG asks for.
CONTRAST = """
const light = c => { const [r, g, b] = c.map(v => { v /= 255;
  return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const numbers = s => (s.match(/[\\d.]+/g) || []).map(Number);
const behind = node => { for (; node; node = node.parentElement) {
  const c = numbers(getComputedStyle(node).backgroundColor);
  if (c.length === 3 || c[3] === 1) return c.slice(0, 3); }
  return [255, 255, 255]; };
const dim = node => { for (; node; node = node.parentElement)
  if (Number(getComputedStyle(node).opacity) < 1) return true; return false; };
const bad = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  if (!own || !node.getClientRects().length || dim(node)) continue;
  if (node.closest(".unseen, canvas, .keys-read, svg")) continue;
  const a = light(numbers(getComputedStyle(node).color).slice(0, 3)), b = light(behind(node));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) bad.push(node.tagName + "." + node.className + " " + node.textContent.slice(0, 20) + " " +
    ratio.toFixed(2));
}
return bad;
"""
NAMED = {"button", "textbox", "combobox", "slider", "tab", "radio",
         "spinbutton", "dialog", "link", "tabpanel", "toolbar", "group"}


def text(b, css):
    return b.js("return " + TEXT, css)


def nameless(b):
    """Controls without a name for a screen reader."""
    tree = b.cdp("Accessibility.getFullAXTree")["nodes"]
    return [node["role"]["value"] for node in tree
            if not node.get("ignored") and
            node.get("role", {}).get("value") in NAMED - {"group"} and
            not node.get("name", {}).get("value")]


def sound(b, where):
    """What holds at all times."""
    wide, inner = b.js("return [document.documentElement.scrollWidth, innerWidth]")
    check(wide <= inner, f"{where}: the page is {wide} wide, not {inner}")
    check(nameless(b) == [], f"{where}: without a name: {nameless(b)}")
    faint = b.js(CONTRAST)
    check(faint == [], f"{where}: too little contrast: {faint}")
    log = b.log()
    check(log == [], f"{where}: the browser complains: {log}")


def run(b):
    b.click("#run")
    b.until(IDLE)


def load(b, url):
    b.open(url)
    b.until("!document.getElementById('run').disabled")


def settings(b, **values):
    b.click("#tab-settings")
    for name, value in values.items():
        b.type("#set-" + name, str(value))
    b.click("#tab-attention")


def queries(b):
    """How many queries the matrix has."""
    label = b.js("return document.getElementById('matrix').ariaLabel") or ""
    found = re.search(r"of (\d+) queries over (\d+) keys", label)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def until_queries(b, wanted):
    end = time.monotonic() + b.patience
    while not wanted(*queries(b)):
        check(time.monotonic() < end, f"the matrix stays at {queries(b)}")
        time.sleep(0.05)


# ---- tasks ---------------------------------------------------------------

def write(b, server, phone):
    settings(b, max_tokens=24, temperature=0)
    b.type("#prompt", "the mask")
    run(b)
    want = server.post("/v1/completions", {
        "model": "writer", "prompt": "the mask", "max_tokens": 24,
        "temperature": 0})["choices"][0]["text"]
    check(text(b, "#written") == want, "not the text of the API")
    check(b.js("return document.querySelectorAll('#written .token').length")
          == 24, "not 24 tokens")
    check(text(b, "#stat-first").endswith("s"), "no time to first token")
    check(re.match(r"[\d.]+( k)?$", text(b, "#stat-speed")), "no speed")
    check(text(b, "#stat-tokens") == "24", "not 24 tokens are counted")
    check(text(b, "#stat-end") == "length", "not ended by length")
    check(want.strip() in text(b, "#status"), "nothing for a screen reader")
    alternatives(b, phone)
    before = text(b, "#written")
    b.until("!document.getElementById('more').hidden")
    b.click("#more")
    b.until(IDLE)
    check(text(b, "#written").startswith(before) and
          len(text(b, "#written")) > len(before), "it did not go on")
    sound(b, "write")


def alternatives(b, phone):
    """With the pointer, and with the keyboard; then with another token."""
    shown = "!document.getElementById('popover').hidden"
    third = "#written .token:nth-child(3)"
    if phone:
        b.click(third)
    else:
        b.js("scrollTo(0, 0)")
        b.hover(third)
    b.until(shown)
    shares = b.js("return [...document.querySelectorAll('#popover .share')]"
                  ".map(n => n.textContent)")
    check(len(shares) >= 8 and shares[0].endswith("%"), f"shares {shares}")
    b.press("Escape")
    b.js("document.querySelector('#written .token').focus()")
    b.press("Right")
    check(b.js("return document.activeElement === "
               "document.querySelectorAll('#written .token')[1]"), "no arrows")
    b.until(shown)
    sound(b, "alternatives")
    before = text(b, "#written")
    b.press("Enter")
    b.until("document.activeElement.matches('#popover button')")
    b.press("Down")
    b.press("Enter")
    b.until("document.querySelector('#written').textContent.slice(1, 2) !== "
            "arguments[0]", before[1])
    b.until(IDLE)
    check(text(b, "#written")[0] == before[0], "the first token has changed")


def look(b):
    """The matrix of what was written."""
    until_queries(b, lambda rows, keys: rows == keys > 8)
    b.js("const s = document.getElementById('layer'); s.value = '0';"
         "s.dispatchEvent(new Event('change'))")
    b.until("document.getElementById('matrix').ariaLabel.includes('layer 0')")
    b.click("#heads button:nth-child(2)")
    b.until("document.getElementById('matrix').ariaLabel.includes('head 1')")
    check(b.js("return document.getElementById('head').value") == "1",
          "the menu does not follow")
    check("reads most" in text(b, "#reading"), "no reading")
    b.js("document.getElementById('matrix').focus()")
    last = text(b, "#reading")
    b.press("Up")
    check(text(b, "#reading") != last, "another query reads the same")
    b.press("Left")
    check("with a weight of" in text(b, "#reading"), text(b, "#reading"))
    b.press("Right")
    b.press("Right")
    check("The mask hides" in text(b, "#reading"), text(b, "#reading"))
    b.press("Escape")
    b.click("input[value=mask] + span")
    check(text(b, "#reading").startswith("Causal: a token sees itself"),
          text(b, "#reading"))
    sound(b, "the mask")
    b.click("input[value=weights] + span")


def stream(b):
    """The attention grows with the text, and Stop stops."""
    b.js("const s = document.getElementById('model'); s.value = 'endless';"
         "s.dispatchEvent(new Event('change'))")
    settings(b, max_tokens=1000000)
    b.type("#prompt", "the")
    b.press("Control", "Enter")
    until_queries(b, lambda rows, keys: keys > 4)
    first = queries(b)
    until_queries(b, lambda rows, keys: keys > first[1])
    check(b.js("return !document.getElementById('stop').hidden"), "it ended")
    b.hover("#theme")  # where no token grows below the pointer
    b.until("document.getElementById('popover').hidden")
    b.click("#stop")
    b.until(IDLE)
    check(text(b, "#stat-end") == "you", "it was not stopped")
    b.click("#clear")
    check(text(b, "#written") == "", "it is not cleared")
    b.click("#tab-settings")
    b.click("#reset")
    b.click("#tab-attention")


def repeat(b):
    """A seed gives a text again; without one the page shows what it chose."""
    b.js("const s = document.getElementById('model'); s.value = 'writer';"
         "s.dispatchEvent(new Event('change'))")
    settings(b, max_tokens=16, temperature=1.5)
    b.type("#prompt", "the")
    run(b)
    first, seed = text(b, "#written"), text(b, "#stat-seed")
    check(seed.isdigit(), f"the seed is {seed}")
    settings(b, seed=seed)
    run(b)
    check(text(b, "#written") == first, "the seed does not repeat the text")
    b.click("#tab-settings")
    b.type("#set-stop", first[4:6])
    run(b)
    check(first[4:6] not in text(b, "#written"), "the stop string is there")
    sound(b, "settings")
    b.click("#reset")
    b.click("#tab-attention")


def chat(b, server):
    b.click("#tab-chat")
    settings(b, max_tokens=8)
    b.type("#message", "the mask")
    b.press("Enter")
    b.until(IDLE + " && document.querySelector('#talk .assistant .token')")
    want = server.post("/v1/chat/completions", {
        "model": "writer", "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": "the mask"}]})
    want = want["choices"][0]["message"]["content"]
    check(text(b, "#talk .assistant .text") == want, "not the API's answer")
    until_queries(b, lambda rows, keys: rows > 20)
    b.click("#tab-settings")
    b.type("#set-system", "behind")
    b.type("#message", "again")
    b.click("#curl-open")
    body = text(b, "#curl")
    check('"role": "system"' in body and '"content": "behind"' in body, body)
    check(body.count('"role": "user"') == 2, body)
    b.press("Escape")
    run(b)
    check(b.js("return document.querySelectorAll('#talk li').length") == 4,
          "not four messages")
    sound(b, "chat")
    b.click("#reset")
    b.click("#clear")
    b.click("#tab-attention")


def translate(b, server):
    b.js("document.getElementById('tab-chat').focus()")
    b.press("Right")  # the keyboard changes the task, and the task the model
    check(b.js("return document.getElementById('model').value") ==
          "translator", "the model does not follow the task")
    settings(b, max_tokens=12)
    b.type("#source", "the mask hides the face")
    run(b)
    want = server.post("/translate", {
        "model": "translator", "text": "the mask hides the face",
        "num_beams": 1, "max_tokens": 12})["results"][0]["translations"][0]
    check(text(b, "#target") == want["text"], "not the API's translation")
    b.until("document.getElementById('at').options.length === 3")
    check(b.js("return document.getElementById('at').value") == "cross",
          "not the cross-attention")
    for kind in ("encoder", "decoder"):
        b.js("const s = document.getElementById('at'); s.value = arguments[0];"
             "s.dispatchEvent(new Event('change'))", kind)
        b.until("document.getElementById('at').value === arguments[0] && "
                "document.getElementById('layer').options.length === 1", kind)
    sound(b, "translate")
    settings(b, num_beams=3)
    run(b)
    b.until("document.querySelectorAll('#others li').length === 2")
    sound(b, "beams")
    b.click("#tab-settings")
    b.click("#reset")
    b.click("#tab-attention")


def fill(b):
    b.click("#tab-fill")
    b.type("#blanks", "the face is behind the ")
    b.click("#blank")
    run(b)
    rows = b.js("return [...document.querySelectorAll('#gaps .word')]"
                ".map(n => n.textContent)")
    check(len(rows) == 8, f"candidates: {rows}")
    check(text(b, "#filled mark") == rows[0], text(b, "#filled"))
    b.click("#gaps button:nth-of-type(2)")
    check(text(b, "#filled mark") == rows[1], text(b, "#filled"))
    until_queries(b, lambda rows, keys: rows == keys > 4)
    sound(b, "fill")


def command(b):
    """The curl command runs and gives the text."""
    b.click("#tab-write")
    b.type("#prompt", "it's the mask")
    run(b)
    want = text(b, "#written")
    b.click("#curl-open")
    done = subprocess.run(["sh", "-c", text(b, "#curl")], capture_output=True,
                          text=True, timeout=120, check=True)
    parts = [json.loads(line[6:])["choices"][0]["text"]
             for line in done.stdout.splitlines() if line.startswith("data: {")]
    check("".join(parts) == want, f"curl gives {''.join(parts)}")
    b.click("#curl-copy")
    b.until("document.getElementById('curl-copy').textContent !== 'Copy'")
    sound(b, "the command")
    b.press("Escape")


def theme(b):
    back = "return getComputedStyle(document.body).backgroundColor"
    first = b.js(back)
    b.click("#theme")
    check(b.js(back) != first, "the colours do not change")
    sound(b, "other colours")
    b.click("#theme")
    check(b.js(back) == first, "the colours do not change back")


def errors(b):
    """An error is a sentence. Chromium logs the status of the answer."""
    b.js("const p = document.getElementById('prompt');"
         "p.value = 'the mask '.repeat(40)")
    run(b)
    b.until("!document.getElementById('notice').hidden")
    said = text(b, "#notice span")
    check(re.match(r"[A-Z].* 360 tokens; the limit is 128\.$", said), said)
    check(all(entry["source"] == "network" for entry in b.log()), "a script")
    sound(b, "an error")
    b.click("#notice button")
    b.js("document.getElementById('prompt').value = ''")


def everything(b, server, phone):
    b.open(server.url)
    b.js("localStorage.clear(); sessionStorage.clear()")
    load(b, server.url)
    sound(b, "empty")
    names = b.js("return performance.getEntriesByType('resource')"
                 ".map(entry => entry.name)")
    check(len(names) > 6 and all(name.startswith(server.url) for name in names),
          f"the page loads {names}")
    check(b.js("return document.getElementById('key-open').hidden"),
          "a key is asked for")
    write(b, server, phone)
    look(b)
    stream(b)
    repeat(b)
    chat(b, server)
    translate(b, server)
    fill(b)
    command(b)
    theme(b)
    errors(b)


# ---- a server with a key, and none at all --------------------------------

def keys(b, bauta):
    server = Server(bauta, "filler", "--api-key", "secret")
    b.open(server.url)
    b.until("document.getElementById('key-dialog').open")
    check(all(entry["source"] == "network" for entry in b.log()), "a script")
    sound(b, "the key")
    b.type("#key", "wrong")
    b.press("Enter")
    b.until("document.getElementById('key-dialog').open && "
            "document.getElementById('key').value === ''")
    b.type("#key", "secret")
    b.press("Enter")
    b.until("!document.getElementById('run').disabled")
    b.log()
    check(b.js("return document.getElementById('tab-write').ariaDisabled") ==
          "true", "a task that no model has")
    b.type("#blanks", "the [MASK]")
    run(b)
    check(text(b, "#filled mark"), "nothing was filled")
    b.click("#curl-open")
    check("secret" not in text(b, "#curl") and
          "$BAUTA_API_KEY" in text(b, "#curl"), text(b, "#curl"))
    check("secret" not in b.js("return JSON.stringify(localStorage)"), "stored")
    b.press("Escape")
    sound(b, "with a key")
    server.stop()
    run(b)
    b.until("!document.getElementById('notice').hidden")
    check("cannot be reached" in text(b, "#notice"), text(b, "#notice"))


def test(bauta):
    server = Server(bauta, *MODELS)
    b = Browser()
    try:
        b.size(1280, 800)
        b.scheme("light")
        everything(b, server, phone=False)
        b.size(360, 740, mobile=True)
        b.scheme("dark")
        everything(b, server, phone=True)
        server.stop()
        keys(b, bauta)
    finally:
        b.close()
        server.process.kill()
    print(f"{checks} checks")


# ---- pictures ------------------------------------------------------------

def picture(b, path):
    """After the last answer, and the drawing of it."""
    b.until(IDLE)
    time.sleep(1)
    b.js("document.activeElement.blur(); scrollTo(0, 0)")
    b.screenshot(path)


def pictures(url, folder):
    """Of a server with models for writing, translating and filling."""
    b = Browser()
    try:
        b.size(1280, 800)
        b.scheme("light")
        load(b, url)
        settings(b, max_tokens=48, temperature=1, seed=7)
        b.type("#prompt", "The mask hides the face. A stranger")
        run(b)
        b.js("scrollTo(0, 0)")
        b.hover("#written .token:nth-child(9)")
        b.until("!document.getElementById('popover').hidden")
        time.sleep(1)
        b.screenshot(folder + "/page-write.png")
        b.click("#tab-translate")
        b.type("#source", "The old painter hides the face behind the curtain.")
        run(b)
        b.hover("#theme")
        picture(b, folder + "/page-translate.png")
        b.click("#tab-fill")
        b.type("#blanks", "The mask [MASK] the [MASK].")
        run(b)
        b.hover("#theme")
        picture(b, folder + "/page-fill.png")
        b.size(390, 844, mobile=True)
        b.scheme("dark")
        load(b, url)
        b.type("#prompt", "The mask hides the face. A stranger")
        run(b)
        picture(b, folder + "/page-phone.png")
    finally:
        b.close()


if __name__ == "__main__":
    if sys.argv[1] == "--pictures":
        pictures(sys.argv[2], sys.argv[3])
    else:
        test(sys.argv[1])
