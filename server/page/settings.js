// SPDX-License-Identifier: Apache-2.0
// settings.js - how tokens are chosen: a form, kept in this browser.

const STORE = "bauta-settings";

/* `range` fields have a slider beside the number. */
const FIELDS = [
  { name: "temperature", tasks: ["write", "chat"], label: "Temperature", kind: "range", min: 0, max: 2, step: 0.05,
    hint: "0 takes the most likely token each time." },
  { name: "top_p", tasks: ["write", "chat"], label: "Top p", kind: "range", min: 0, max: 1, step: 0.01,
    hint: "Sample from the smallest set with this probability; 1 is off." },
  { name: "top_k", tasks: ["write", "chat"], label: "Top k", kind: "number", min: 0, max: 100000, step: 1,
    hint: "Sample from so many tokens; 0 is off." },
  { name: "min_p", tasks: ["write", "chat"], label: "Min p", kind: "range", min: 0, max: 1, step: 0.01,
    hint: "Drop tokens below this share of the best one; 0 is off." },
  { name: "seed", tasks: ["write", "chat"], label: "Seed", kind: "number", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, empty: true,
    hint: "The same seed gives the same text. Empty: a new one each time." },
  { name: "max_tokens", tasks: ["write", "chat", "translate"], label: "Max tokens", kind: "number", min: 1, max: 1000000, step: 1,
    hint: "Length of the text that is written." },
  { name: "num_beams", tasks: ["translate"], label: "Beams", kind: "number", min: 1, max: 16, step: 1,
    hint: "1 writes token by token; more search for a better translation." },
  { name: "stop", tasks: ["write", "chat"], label: "Stop strings", kind: "lines", hint: "One on each line; the text ends before it." },
  { name: "system", tasks: ["chat"], label: "System prompt", kind: "lines", hint: "The first message of a chat." },
];

const FALLBACK = { temperature: 0, top_p: 1, top_k: 0, min_p: 0, seed: "", max_tokens: 64, num_beams: 1, stop: "",
  system: "" };

let defaults = { ...FALLBACK };
let changed = {};
try {
  changed = JSON.parse(localStorage.getItem(STORE)) || {};
} catch {
  changed = {};
}

const value = name => changed[name] ?? defaults[name];

/* The model's own options; greedy search is a temperature of 0. */
export function setDefaults(options) {
  const o = options || {};
  defaults = { ...FALLBACK };
  if (o.do_sample)
    Object.assign(defaults, { temperature: o.temperature ?? 1, top_p: o.top_p ?? 1, top_k: o.top_k ?? 0,
      min_p: o.min_p ?? 0 });
  if (o.max_new_tokens) defaults.max_tokens = o.max_new_tokens;
  if (o.num_beams) defaults.num_beams = o.num_beams;
  show();
}

/* Only the settings that the task has. */
export function setTask(task) {
  for (const field of FIELDS) inputs[field.name][0].closest(".setting").hidden = !field.tasks.includes(task);
  form.hidden = task === "fill";
  document.getElementById("settings-none").hidden = task !== "fill";
}

/* The fields of a request that samples. */
export function sampling() {
  const fields = { temperature: value("temperature") };
  if (fields.temperature > 0) {
    for (const name of ["top_p", "top_k", "min_p"])
      if (value(name) !== FALLBACK[name]) fields[name] = value(name);
    if (value("seed") !== "") fields.seed = value("seed");
  }
  return fields;
}

export const stops = () => value("stop").split("\n").filter(line => line !== "");
export const system = () => value("system").trim();
export const maxTokens = () => value("max_tokens");
export const beams = () => value("num_beams");

/* ---- the form ---- */

const form = document.getElementById("settings-form");
const inputs = {};

function element(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function read(field, text) {
  if (field.kind === "lines") return text;
  if (text.trim() === "") return field.empty ? "" : defaults[field.name];
  const number = Number(text);
  if (!Number.isFinite(number)) return defaults[field.name];
  const limited = Math.min(field.max, Math.max(field.min, number));
  return field.step === 1 ? Math.round(limited) : limited;
}

function change(field, text, source) {
  const now = read(field, text);
  if (now === defaults[field.name]) delete changed[field.name];
  else changed[field.name] = now;
  localStorage.setItem(STORE, JSON.stringify(changed));
  for (const input of inputs[field.name]) if (input !== source) input.value = value(field.name);
}

function build(field) {
  const id = `set-${field.name}`, hint = `${id}-hint`;
  const label = element("label", { htmlFor: id, textContent: field.label });
  const main = element(field.kind === "lines" ? "textarea" : "input", { id });
  const all = [main];
  main.setAttribute("aria-describedby", hint);
  let body = main;
  if (field.kind === "lines") main.rows = 2;
  else Object.assign(main, { type: "number", min: field.min, max: field.max, step: field.step, inputMode: "decimal" });
  if (field.empty) main.placeholder = "random";
  if (field.kind === "range") {
    const slider = element("input", { type: "range", min: field.min, max: field.max, step: field.step });
    slider.setAttribute("aria-label", `${field.label}, slider`);
    all.push(slider);
    body = element("div", { className: "two" }, slider, main);
  }
  inputs[field.name] = all;
  for (const input of all) {
    input.addEventListener("input", () => change(field, input.value, input));
    input.addEventListener("change", () => change(field, input.value, null));
  }
  return element("div", { className: "setting" }, label, body, element("span", { id: hint, className: "hint",
    textContent: field.hint }));
}

function show() {
  for (const field of FIELDS) for (const input of inputs[field.name]) input.value = value(field.name);
}

const reset = element("button", { type: "button", id: "reset", textContent: "Reset to the model’s own" });
reset.addEventListener("click", () => {
  changed = {};
  localStorage.removeItem(STORE);
  show();
});
form.append(...FIELDS.map(build), reset);
form.addEventListener("submit", event => event.preventDefault());
show();
