// SPDX-License-Identifier: Apache-2.0
// tokens.js - a text as tokens, tinted by probability, with their alternatives in a popover.

const popover = document.getElementById("popover");
const TOKENS_MAX = 2000;
let owner = null; // the view and the token that the popover belongs to

export const percent = p => p < 0.001 ? "< 0.1 %" : `${(100 * p).toFixed(p < 0.0995 ? 1 : 0)} %`;

/* White space, made visible. */
export const visible = text => text.replaceAll(" ", "\u00b7").replaceAll("\n", "\u21b5").replaceAll("\t", "\u21e5") ||
  "\u2205";

/* The steps of the legend. */
const LIMITS = [0.8, 0.5, 0.25, 0.1, 0.03];
const step = p => LIMITS.filter(limit => p < limit).length;

export function alternativeRow(tag, text, probability, chosen) {
  const row = document.createElement(tag);
  row.className = chosen ? "alternative chosen" : "alternative";
  const word = Object.assign(document.createElement("span"), { className: "word", textContent: visible(text) });
  const track = Object.assign(document.createElement("span"), { className: "track" });
  const bar = document.createElement("i");
  bar.style.width = `${100 * Math.min(1, probability)}%`;
  track.append(bar);
  const share = Object.assign(document.createElement("span"), { className: "share", textContent: percent(probability) });
  row.append(word, track, share);
  if (tag === "button") row.type = "button";
  return row;
}

/* ---- the popover ---- */

function place(token) {
  const at = token.getClientRects()[0] || token.getBoundingClientRect();
  popover.hidden = false;
  const size = popover.getBoundingClientRect(), edge = 12;
  const below = at.bottom + 8 + size.height < innerHeight || at.top < size.height + 8;
  popover.style.left = `${Math.max(edge, Math.min(at.left, innerWidth - size.width - edge))}px`;
  popover.style.top = `${Math.max(edge, below ? Math.min(at.bottom + 8, innerHeight - size.height - edge)
    : at.top - size.height - 8)}px`;
}

export function hidePopover(focus) {
  if (!owner) return;
  const { token } = owner;
  owner = null;
  popover.hidden = true;
  token.setAttribute("aria-expanded", "false");
  token.removeAttribute("aria-describedby");
  if (focus) token.focus();
}

function showPopover(view, token, pinned) {
  if (owner && owner.pinned && !pinned) return;
  if (owner && owner.token !== token) hidePopover(false);
  const entry = view.entries[view.nodes.indexOf(token)], branch = pinned && view.onBranch;
  const top = document.createElement("p");
  top.className = "top";
  top.append(Object.assign(document.createElement("span"), { textContent: `“${visible(entry.text)}”` }),
    Object.assign(document.createElement("span"), { textContent: percent(Math.exp(entry.logprob)) }));
  const rows = entry.top.map(({ text, logprob }) => {
    const chosen = text === entry.token, row = alternativeRow(branch ? "button" : "div", text, Math.exp(logprob), chosen);
    if (branch) row.addEventListener("click", () => {
      const index = view.nodes.indexOf(token);
      hidePopover(false);
      view.onBranch(index, { text, logprob });
    });
    return row;
  });
  popover.replaceChildren(top, ...rows);
  if (view.onBranch && rows.length)
    popover.append(Object.assign(document.createElement("p"), { className: "hint", textContent: branch
      ? "Choose a token to go on from there." : "Press the token to choose another one." }));
  owner = { view, token, pinned };
  popover.setAttribute("role", branch ? "group" : "tooltip");
  popover.setAttribute("aria-label", branch ? "Alternatives" : "");
  token.setAttribute("aria-describedby", "popover");
  token.setAttribute("aria-expanded", "true");
  place(token);
  if (branch && rows.length) rows[0].focus();
}

addEventListener("keydown", event => {
  if (!owner) return;
  if (event.key === "Escape") {
    event.stopPropagation();
    hidePopover(owner.pinned);
  } else if (owner.pinned && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    const rows = [...popover.querySelectorAll("button")], at = rows.indexOf(document.activeElement);
    if (!rows.length) return;
    event.preventDefault();
    rows[(at + (event.key === "ArrowDown" ? 1 : rows.length - 1)) % rows.length].focus();
  }
}, true);
addEventListener("pointerdown", event => {
  if (owner && !popover.contains(event.target) && !event.target.closest(".token")) hidePopover(false);
});
addEventListener("scroll", () => { if (owner) hidePopover(false); }, { passive: true });
addEventListener("resize", () => hidePopover(false));

/* ---- the text ---- */

export class TokenView {
  /* `onBranch(index, alternative)`, if there is one, goes on with another token. */
  constructor(container, onBranch) {
    this.container = container;
    this.onBranch = onBranch;
    this.clear();
    container.addEventListener("keydown", event => this.move(event));
    container.addEventListener("pointerover", event => this.over(event.target, event.pointerType));
    container.addEventListener("pointerout", event => {
      if (event.target.classList.contains("token") && owner && !owner.pinned &&
          document.activeElement !== owner.token) hidePopover(false);
    });
    container.addEventListener("focusin", event => this.focus(event.target));
    container.addEventListener("focusout", () => { if (owner && !owner.pinned) hidePopover(false); });
    container.addEventListener("click", event => this.press(event.target));
  }

  clear() {
    if (owner && owner.view === this) hidePopover(false);
    this.entries = [];
    this.nodes = [];
    this.pending = [];
    this.begin = document.createTextNode(""); // of a long text, without its tokens
    this.container.replaceChildren(this.begin);
  }

  get text() {
    return this.begin.data + this.entries.map(entry => entry.text).join("");
  }

  /* A browser lays out some thousands of tokens at a time. */
  shorten() {
    if (this.nodes.length < TOKENS_MAX) return;
    for (const node of this.nodes.splice(0, TOKENS_MAX / 2)) node.remove();
    this.begin.data += this.entries.splice(0, TOKENS_MAX / 2).map(entry => entry.text).join("");
    this.nodes[0].tabIndex = 0;
  }

  /* Keep the tokens before `index`. */
  cut(index) {
    for (const node of this.nodes.splice(index)) node.remove();
    this.entries.length = this.nodes.length;
    this.pending = [];
  }

  /* Tokens { token, logprob, top } and the text that became final with them. A token whose text is held back, half a
   * character for example, joins the next one. */
  add(tokens, text) {
    this.pending.push(...tokens);
    if (text === "") return;
    const first = this.pending[0];
    this.push({ text, token: first ? first.token : text, top: first ? first.top : [],
      logprob: this.pending.reduce((sum, token) => sum + token.logprob, 0), tokens: this.pending.length });
    this.pending = [];
  }

  push(entry) {
    const node = document.createElement("span"), p = Math.exp(entry.logprob);
    node.className = entry.tokens ? `token p${step(p)}` : "token";
    node.textContent = entry.text;
    node.tabIndex = this.nodes.length ? -1 : 0;
    node.setAttribute("role", "button");
    node.setAttribute("aria-expanded", "false");
    node.setAttribute("aria-label", `${entry.text.trim() || "white space"}, ${percent(p)}`);
    this.entries.push(entry);
    this.nodes.push(node);
    this.container.append(node);
    this.shorten();
  }

  over(target, pointer) {
    if (pointer !== "touch" && this.nodes.includes(target)) showPopover(this, target, false);
  }

  focus(target) {
    if (!this.nodes.includes(target)) return;
    for (const node of this.nodes) if (node.tabIndex === 0) node.tabIndex = -1;
    target.tabIndex = 0;
    if (!owner || owner.token !== target) showPopover(this, target, false);
  }

  press(target) {
    if (this.nodes.includes(target)) showPopover(this, target, Boolean(this.onBranch));
  }

  move(event) {
    const at = this.nodes.indexOf(document.activeElement);
    if (at < 0) return;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + 1, ArrowUp: at - 1, Home: 0,
      End: this.nodes.length - 1 }[event.key];
    if (to !== undefined && this.nodes[to]) {
      event.preventDefault();
      this.nodes[to].focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.press(this.nodes[at]);
    }
  }
}
