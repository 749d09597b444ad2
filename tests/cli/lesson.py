#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `bauta lab all` in a browser: every toy is played with, by mouse,
touch and keys; nothing is cut off or wider than the window; the browser logs no
error; and each term is explained where it first appears.

    lesson.py PAGE             test it
    lesson.py PAGE FOLDER      instead: write its pictures for the documentation
"""
import os
import sys

sys.dont_write_bytecode = True
from webdriver import Browser  # noqa: E402

TERMS = ["masked attention", "teacher forcing", "autoregressive", "inference",
         "padding", "encoder", "decoder", "cross-attention", "BERT", "GPT"]
TOYS = ["attention", "future", "training", "inference", "same", "padding",
        "translation", "blanks", "leak", "layers", "rnn", "numbers"]
RIGHT, DOWN, SPACE = "\ue014", "\ue015", " "
checks = 0


def must(fine, what):
    global checks
    checks += 1
    assert fine, what


# ---- the page as a whole ----

# Elements that stick out of the window, or whose text is cut off. Tables and
# curves of the experiments scroll within themselves.
CUT_OFF = """
const name = e => e.tagName + "." + (e.getAttribute("class") || "") + " " +
    e.textContent.slice(0, 30);
return [...document.querySelectorAll("body *")].filter(e => {
    const r = e.getBoundingClientRect();
    if (!r.width || e.closest(".wide, .sr")) return false;
    if (r.right > innerWidth + 0.5 || r.left < -0.5) return true;
    return e.matches("button, .word, td, th, p, h1, h2, h3, h4, li, figcaption") &&
        e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline";
}).map(name)"""

# Texts of an SVG that leave it, or a matrix that is drawn too small to read.
DRAWN_OUTSIDE = """
return [...document.querySelectorAll(".toy svg text")].filter(t => {
    const r = t.getBoundingClientRect(), s = t.ownerSVGElement.getBoundingClientRect();
    return r.left < s.left - 2 || r.right > s.right + 2 || r.top < s.top - 2 ||
        r.bottom > s.bottom + 2;
}).map(t => t.textContent)"""

NAMELESS = """
return [...document.querySelectorAll("button, select, input, [tabindex], figure")]
    .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim()))
    .map(e => e.outerHTML.slice(0, 80))"""

# The first place of a term outside of headings, contents and details.
FIRST_PLACE = """
const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
const term = arguments[0].toLowerCase();
for (let n; n = walk.nextNode();) {
    if (n.parentElement.closest("h2, h3, details, .toy, [hidden]")) continue;
    if (new RegExp("\\\\b" + term + "\\\\b").test(n.data.toLowerCase().replace(/\\s+/g, " ")))
        return n.parentElement.tagName;
}
return "nowhere";"""


def page_fits(b, size):
    for script, what in ((CUT_OFF, "cut off"), (DRAWN_OUTSIDE, "outside")):
        found = b.js(script)
        must(not found, "%s at %s: %s" % (what, size, found[:6]))
    wide = b.js("return document.documentElement.scrollWidth - innerWidth")
    must(wide <= 0, "the page is %d wider than the window %s" % (wide, size))


def page_is_whole(b):
    must(b.js("return document.querySelectorAll('[data-toy]').length") ==
         len(TOYS), "not all toys are there")
    must(not b.all(".toy .absent"), "a toy has no numbers")
    must(not b.all(".fails"), "a claim does not hold")
    must(not b.js(NAMELESS), "without a name: %s" % b.js(NAMELESS))
    for term in TERMS:
        place = b.js(FIRST_PLACE, term)
        must(place == "DFN", "%s is first in %s" % (term, place))
    b.js("for (const d of document.querySelectorAll('details')) d.open = true")


# ---- toys ----

class Toy:
    """A toy, with what it says."""

    def __init__(self, b, name):
        self.b, self.name = b, name
        self.root = "[data-toy=%s] " % name
        b.js("document.querySelector(arguments[0]).scrollIntoView("
              "{block: 'center', behavior: 'instant'})", self.root)

    def says(self):
        return self.b.text(self.root + ".say")

    def shows(self):
        return self.b.js("return document.querySelector(arguments[0])"
                          ".innerHTML", self.root)

    def changes(self, act, what, part=None):
        before = self.says() if part is None else self.shows()
        act()
        after = self.says() if part is None else self.shows()
        must(before != after, "%s: %s changes nothing" % (self.name, what))
        return self.says() if self.b.all(self.root + ".say") else ""

    def click(self, text):
        """The button with this text."""
        self.b.js("""
const b = [...document.querySelectorAll(arguments[0] + "button")].find(
    b => b.textContent.startsWith(arguments[1]));
if (!b) throw new Error("there is no button " + arguments[1]);
b.scrollIntoView({ block: "center", behavior: "instant" });
b.dataset.pressed = "1";""", self.root, text)
        self.b.click(self.root + "[data-pressed]")
        self.b.js("document.querySelector(arguments[0]).removeAttribute("
                   "'data-pressed')", self.root + "[data-pressed]")

    def slide(self, keys):
        self.b.send(self.root + "input", keys)


def play_attention(b):
    t = Toy(b, "attention")
    said = t.changes(lambda: b.click(t.root + ".col.l .word", 4), "a click")
    must("To write" in said and "%" in said, said)
    t.changes(lambda: b.send(t.root + ".col.l .word.here", DOWN), "a key")
    t.changes(lambda: t.click("I love you"), "another sentence")
    must(len(b.all(t.root + ".lines line")) == 4, "not a line for each word")
    t.changes(lambda: b.hover(t.root + ".col.l .word"), "hovering")


def play_future(b):
    t = Toy(b, "future")
    must("the rest is hidden" in t.says(), t.says())
    said = t.changes(lambda: t.click("Mask is on"), "the mask")
    must("the answer stands in column" in said, said)
    t.changes(lambda: b.send(t.root + "svg", DOWN), "a key")
    t.changes(lambda: b.hover(t.root + "svg", 0, -30), "hovering")
    t.click("Mask is off")


def play_training(b):
    t = Toy(b, "training")
    t.changes(lambda: t.slide(RIGHT + RIGHT), "the slider")
    must("8 of 8 right" in t.says(), t.says())
    t.click("One pass for each row")
    b.until("document.querySelector(arguments[0])"
            ".textContent.includes('8 passes')", t.root)
    t.click("All rows at once")
    must("1 pass for all rows" in t.shows(), "it does not count one pass")
    must(not b.all(t.root + "tr.wait"), "rows are waiting")


def play_inference(b):
    t = Toy(b, "inference")
    for word in ("Ich", "liebe", "dich", "(end)"):
        said = t.changes(lambda: t.click("Next token"), "the next token")
        must("\u201c%s\u201d" % word in said, said)
    must("chosen (end) itself" in t.shows(), "it does not end")
    t.changes(lambda: t.click("Start again"), "starting again")


def play_same(b):
    t = Toy(b, "same")
    for i in range(4):
        b.click(t.root + ".word", i)
        must("all 32 bits are equal" in t.says(), t.says())
    must(not b.all(t.root + ".off"), "bits differ with the mask")
    b.click(t.root + ".word", 1)
    said = t.changes(lambda: t.click("Mask is on"), "the mask")
    must("bits differ" in said and b.all(t.root + ".off"), said)
    t.click("Mask is off")


def play_padding(b):
    t = Toy(b, "padding")
    must("not one bit" in t.says(), t.says())
    said = t.changes(lambda: t.click("Padding is hidden"), "the mask")
    must("is read like words" in said, said)
    t.changes(lambda: t.slide(RIGHT), "the slider")
    t.click("Padding is visible")


def play_translation(b):
    t = Toy(b, "translation")
    for _ in range(4):
        t.changes(lambda: t.click("Next token"), "the next token")
    must("Ich liebe dich" in t.says(), t.says())
    t.changes(lambda: t.click("Back"), "going back")
    t.changes(lambda: b.send(t.root + "select", DOWN), "a head", "shows")
    t.changes(lambda: t.click("I do not want"), "another sentence")


def play_blanks(b):
    t = Toy(b, "blanks")
    must(len(b.all(t.root + ".panel")) == 2, "not two models")
    b.click(t.root + ".word", 3)
    t.changes(lambda: b.click(t.root + ".word", 0), "another blank", "shows")
    must(not b.js("return [...document.querySelectorAll(arguments[0])].pop()"
                   ".textContent.startsWith('the ')", t.root + ".see"),
         "the first word can be seen")
    t.changes(lambda: b.send(t.root + ".word.blank", RIGHT), "a key", "shows")
    t.changes(lambda: t.click("Sentence 2"), "another sentence", "shows")


def play_leak(b):
    t = Toy(b, "leak")
    bars = "return [...document.querySelectorAll(arguments[0])].map(" \
           "e => parseFloat(e.style.height)).reduce((a, b) => a + b) / 20"
    t.changes(lambda: t.click("Trained without"), "the other model")
    must(b.js(bars, t.root + ".t i") > 80, "it does not copy in training")
    t.changes(lambda: t.click("In use"), "its use")
    must(b.js(bars, t.root + ".t i") < 50, "it predicts in use")
    t.changes(lambda: t.click("Trained with the mask"), "the first model")
    t.click("In training")


def play_layers(b):
    t = Toy(b, "layers")
    must("No output sees its future" in t.says(), t.says())
    said = t.changes(lambda: t.click("Layer 3"), "a layer without its mask")
    must("28 leak" in said, said)
    t.changes(lambda: b.send(t.root + "svg", RIGHT), "a key")
    t.changes(lambda: b.hover(t.root + "svg", -40, 0), "hovering")
    t.changes(lambda: t.click("Layer 3"), "the mask again")


def play_rnn(b):
    t = Toy(b, "rnn")
    t.changes(lambda: t.slide(RIGHT), "the slider")
    t.click("Run both")
    b.until("document.querySelector(arguments[0])"
            ".textContent.includes('step 13 of 13')", t.root)


def play_numbers(b):
    t = Toy(b, "numbers")
    must("earlier days" in t.says(), t.says())
    said = t.changes(lambda: t.click("Mask is on"), "the mask")
    must("This is no forecast" in said, said)
    t.changes(lambda: b.send(t.root + "svg", RIGHT), "a key")
    t.changes(lambda: b.hover(t.root + "svg"), "hovering")
    t.click("Mask is off")


# ---- all of it ----

def url_of(page):
    return "file://" + os.path.abspath(page)


def test(page, width, height, dark, still):
    size = "%d x %d" % (width, height)
    b = Browser()
    try:
        b.size(width, height, mobile=width < 600)
        b.scheme("dark" if dark else "light", still)
        b.open(url_of(page))
        page_fits(b, size)
        for toy in TOYS:
            globals()["play_" + toy](b)
        page_is_whole(b)
        page_fits(b, size + ", played with")
        must(not b.log(), "the browser complains")
    finally:
        b.close()


def pictures(page, to):
    shots = [("lesson.png", 1280, 800, False, "attention"),
             ("lesson-phone.png", 390, 844, False, "translation"),
             ("lesson-dark.png", 1280, 800, True, "leak"),
             ("lesson-phone-dark.png", 390, 844, True, "attention")]
    for name, width, height, dark, at in shots:
        b = Browser()
        try:
            b.size(width, height, mobile=width < 600)
            b.scheme("dark" if dark else "light", True)
            b.open(url_of(page))
            if at in TOYS:
                t = Toy(b, at)
                if at == "leak":
                    t.click("Trained without")
                if at == "translation":
                    t.click("Next token")
                    t.click("Next token")
                b.js("document.querySelector(arguments[0]).closest("
                      "'section').scrollIntoView({behavior: 'instant'})",
                      t.root)
            b.screenshot(os.path.join(to, name))
        finally:
            b.close()


if len(sys.argv) > 2:
    pictures(sys.argv[1], sys.argv[2])
else:
    test(sys.argv[1], 1280, 800, False, False)
    test(sys.argv[1], 390, 844, True, False)
    test(sys.argv[1], 360, 640, False, True)
    print("%d checks of %d toys in three sizes" % (checks, len(TOYS)))
