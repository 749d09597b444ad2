// SPDX-License-Identifier: Apache-2.0
// app.js - models, tasks and running them.

import { ApiError, curl, events, get, hasKey, post, setKey } from "/page/api.js";
import * as attention from "/page/attention.js";
import * as settings from "/page/settings.js";
import { TokenView, alternativeRow, hidePopover } from "/page/tokens.js";

const $ = id => document.getElementById(id);
const ALTERNATIVES = 8;
const FRAME = 30; // milliseconds

const state = { models: [], model: null, task: "write", running: null, messages: [], fill: null };

/* ---- saying ---- */

const say = text => { $("status").textContent = text; };

/* An error, with a way out of it. */
function complain(error, again) {
  const text = document.createElement("span"), line = document.createElement("p");
  const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet",
    textContent: again ? "Try again" : "Close" });
  text.textContent = error instanceof ApiError ? error.message : `Something went wrong: ${error.message}.`;
  button.addEventListener("click", () => {
    calm();
    if (again) again();
  });
  line.append(text, button);
  $("notice").replaceChildren(line);
  $("notice").hidden = false;
  if (error.status === 401) askKey(again);
}

function calm() {
  $("notice").hidden = true;
  $("notice").replaceChildren();
}

function showEmpty(id, empty) {
  for (const node of document.querySelectorAll(`[data-for="${id}"]`)) node.hidden = !empty;
}

/* ---- the key ---- */

function askKey(then) {
  const dialog = $("key-dialog");
  $("key-open").hidden = false;
  $("key").value = "";
  dialog.returnValue = "";
  if (!dialog.open) dialog.showModal();
  dialog.onclose = () => {
    if (dialog.returnValue !== "save") return;
    setKey($("key").value);
    $("key").value = "";
    calm();
    if (then) then();
  };
}

$("key-open").addEventListener("click", () => askKey(load));

/* ---- colours ---- */

const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";

function showTheme() {
  $("theme").setAttribute("aria-pressed", String(isDark()));
  attention.draw();
}

$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("bauta-theme", document.documentElement.dataset.theme);
  showTheme();
});
system.addEventListener("change", showTheme);
const stored = localStorage.getItem("bauta-theme");
if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;

/* ---- tabs ---- */

/* Arrow keys move between tabs, as in the ARIA practices. */
function tabs(list, choose) {
  const all = [...list.querySelectorAll("[role=tab]")];
  list.addEventListener("click", event => {
    const tab = event.target.closest("[role=tab]");
    if (tab && tab.getAttribute("aria-disabled") !== "true") choose(tab.getAttribute("aria-controls"));
  });
  list.addEventListener("keydown", event => {
    const open = all.filter(tab => tab.getAttribute("aria-disabled") !== "true");
    const at = open.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + open.length, Home: 0, End: open.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const tab = open[to % open.length];
    tab.focus();
    choose(tab.getAttribute("aria-controls"));
  });
}

function showTab(list, chosen) {
  for (const tab of list.querySelectorAll("[role=tab]")) {
    const on = tab.getAttribute("aria-controls") === chosen;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !on;
  }
}

tabs($("panels"), panel => {
  showTab($("panels"), panel);
  attention.draw();
  attention.update();
});

/* ---- models ---- */

/* The tasks that a model is for. */
function tasksOf(model) {
  if (model.kind === "encoder-only") return ["fill"];
  if (model.kind === "encoder-decoder") return ["translate"];
  return model.chat_template ? ["write", "chat"] : ["write"];
}

const WHY = { write: "No model here continues texts.", chat: "No model here has a chat template.",
  translate: "No model here translates.", fill: "No model here fills blanks." };

function short(number) {
  const units = [[1e9, "B"], [1e6, "M"], [1e3, "k"]], unit = units.find(([size]) => number >= size);
  return unit ? `${(number / unit[0]).toPrecision(3)} ${unit[1]}` : `${number}`;
}

function showModel() {
  const m = state.model;
  $("model").value = m.model;
  $("facts").textContent = `${m.kind} · ${short(m.parameters)} parameters · context ${m.max_model_len}`;
  settings.setDefaults(m.default_generation_settings);
  for (const tab of $("tasks").querySelectorAll("[role=tab]")) {
    const task = tab.getAttribute("aria-controls");
    const able = state.models.some(model => tasksOf(model).includes(task));
    tab.setAttribute("aria-disabled", String(!able));
    tab.title = able ? "" : WHY[task];
  }
}

function chooseModel(model) {
  stop();
  if (state.model !== model) for (const task of Object.values(TASKS)) task.clear();
  state.model = model;
  showModel();
  if (!tasksOf(model).includes(state.task)) showTask(tasksOf(model)[0]);
  else showTask(state.task);
}

async function load() {
  try {
    const { data } = await get("/v1/models");
    state.models = await Promise.all(data.map(({ id }) => get(`/props?model=${encodeURIComponent(id)}`)));
    $("model").replaceChildren(...state.models.map(m => new Option(m.model, m.model)));
    $("model").disabled = false;
    $("run").disabled = false;
    $("key-open").hidden = !hasKey();
    calm();
    chooseModel(state.models.find(m => state.model && m.model === state.model.model) || state.models[0]);
  } catch (error) {
    $("model").replaceChildren(new Option("no model"));
    complain(error, load);
  }
}

$("model").addEventListener("change", () => {
  chooseModel(state.models.find(m => m.model === $("model").value));
  say(`Model ${state.model.model}`);
});

/* ---- speed ---- */

const clock = { begun: 0, first: 0, last: 0, tokens: 0 };
const ENDS = { length: "length", stop: "end of text", end: "end of text", cancelled: "you", context: "context",
  stopped: "you", error: "an error" };

function showStats(end, seed) {
  const seconds = (clock.last - clock.first) / 1000;
  const first = clock.first - clock.begun;
  $("stat-first").textContent = !clock.first ? "–" : first < 1000 ? `${first.toFixed(0)} ms`
    : `${(first / 1000).toFixed(2)} s`;
  $("stat-speed").textContent = clock.tokens > 1 && seconds > 0 ? short(Math.round((clock.tokens - 1) / seconds)) : "–";
  $("stat-tokens").textContent = clock.tokens || "–";
  $("stat-end").textContent = end ? ENDS[end] || end : "–";
  if (seed !== undefined) $("stat-seed").textContent = seed;
}

function clockBegin(body) {
  Object.assign(clock, { begun: performance.now(), first: 0, last: 0, tokens: 0 });
  showStats(null, body.seed ?? "–");
}

function clockTick(tokens) {
  const now = performance.now();
  if (!tokens) return;
  if (!clock.first) clock.first = now;
  clock.last = now;
  clock.tokens += tokens;
}

/* ---- running ---- */

/* A random text can be repeated: the page chooses the seed. */
function sampled(body) {
  Object.assign(body, settings.sampling());
  if (body.temperature > 0 && body.seed === undefined)
    body.seed = crypto.getRandomValues(new Uint32Array(1))[0];
  const stops = settings.stops();
  if (stops.length) body.stop = stops;
  return body;
}

/* The focus of a button that disappears goes to the one in its place. */
function showRunning(on) {
  const here = document.activeElement, lost = here === document.body || here === $("run") || here === $("stop") ||
    here === $("more");
  $("run").hidden = on;
  $("stop").hidden = !on;
  $("more").hidden = true;
  if (lost) $(on ? "stop" : "run").focus({ preventScroll: true });
}

/* Run `work(signal)`, which gives the text for the screen reader. */
async function run(view, body, work) {
  if (state.running) return;
  const abort = new AbortController();
  let end = "stopped", spoken = "";
  calm();
  state.running = abort;
  state.seed = body.seed;
  clockBegin(body);
  showRunning(true);
  say(state.task === "translate" ? "Translating" : state.task === "fill" ? "Filling" : "Writing");
  if (view) view.container.classList.add("writing");
  try {
    ({ end, spoken } = await work(abort.signal));
  } catch (error) {
    if (error.name !== "AbortError") {
      end = "error";
      complain(error, error.status === 401 ? () => $("run").click() : null);
    }
  }
  if (view) view.container.classList.remove("writing");
  state.running = null;
  showRunning(false);
  showStats(end);
  $("more").hidden = !(state.task === "write" && end === "length");
  if (end !== "error") say(end === "stopped" ? "Stopped" : spoken || (view ? view.text : ""));
  if (end !== "error") attention.update(); // it would fail for the same reason
  return end;
}

function stop() {
  if (state.running) state.running.abort();
}

const completionTokens = choice => (choice.logprobs ? choice.logprobs.tokens : []).map((token, i) => ({ token,
  logprob: choice.logprobs.token_logprobs[i] ?? 0, top: Object.entries(choice.logprobs.top_logprobs[i] || {})
    .map(([text, logprob]) => ({ text, logprob })).sort((a, b) => b.logprob - a.logprob) }));
const chatTokens = choice => (choice.logprobs ? choice.logprobs.content : []).map(entry => ({ token: entry.token,
  logprob: entry.logprob, top: entry.top_logprobs.map(({ token, logprob }) => ({ text: token, logprob })) }));

/* Tokens of a stream into a view, some of them at a time: they may come faster than a browser draws. */
async function follow(path, body, view, signal, read) {
  const waiting = [];
  let end = "stop", timer = 0;
  const flush = () => {
    timer = 0;
    for (const part of waiting.splice(0)) view.add(part.tokens, part.text);
    showStats(null);
    attention.update();
  };
  try {
    for await (const event of events(path, body, signal)) {
      const part = read(event);
      if (!part) continue;
      clockTick(part.tokens.length);
      waiting.push(part);
      if (part.end) end = part.end;
      timer = timer || setTimeout(flush, FRAME);
    }
  } finally {
    clearTimeout(timer);
    if (waiting.length) flush();
  }
  return { end };
}

const readCompletion = event => event.choices.length ? { tokens: completionTokens(event.choices[0]),
  text: event.choices[0].text, end: event.choices[0].finish_reason } : null;
const readChat = event => event.choices.length ? { tokens: chatTokens(event.choices[0]),
  text: event.choices[0].delta.content || "", end: event.choices[0].finish_reason } : null;

/* ---- write ---- */

const written = new TokenView($("written"), (index, alternative) => {
  const { top } = written.entries[index];
  written.cut(index);
  written.push({ text: alternative.text, token: alternative.text, top, logprob: alternative.logprob, tokens: 1 });
  writeOn();
});

const writeBody = prompt => sampled({ model: state.model.model, prompt, max_tokens: settings.maxTokens(),
  logprobs: ALTERNATIVES, stream: true });

function writeOn() {
  const body = writeBody($("prompt").value + written.text);
  showEmpty("written", false);
  return run(written, body, signal => follow("/v1/completions", body, written, signal, readCompletion));
}

/* ---- chat ---- */

function bubble(role) {
  const item = document.createElement("li"), who = document.createElement("span"), text = document.createElement("p");
  item.className = role;
  who.className = "who";
  who.textContent = role === "user" ? "You" : state.model.model;
  text.className = "text tokens";
  if (role !== "user") text.setAttribute("role", "toolbar");
  if (role !== "user") text.setAttribute("aria-label", "Answer, token by token");
  item.append(who, text);
  $("talk").append(item);
  showEmpty("talk", false);
  return text;
}

function chatMessages(more) {
  const first = settings.system();
  return [...(first ? [{ role: "system", content: first }] : []), ...state.messages, ...more];
}

const chatBody = messages => sampled({ model: state.model.model, messages, max_tokens: settings.maxTokens(),
  logprobs: true, top_logprobs: ALTERNATIVES, stream: true });

async function chatOn() {
  const text = $("message").value;
  if (text.trim() === "" || state.running) return;
  const mine = { role: "user", content: text };
  const question = bubble("user"), view = new TokenView(bubble("assistant"));
  question.textContent = text;
  $("message").value = "";
  grow($("message"));
  const body = chatBody(chatMessages([mine]));
  state.answer = { messages: body.messages, view };
  const end = await run(view, body, signal => follow("/v1/chat/completions", body, view, signal, readChat));
  if (end === "error" && view.text === "") {
    question.parentElement.remove();
    view.container.parentElement.remove();
    $("message").value = text;
    showEmpty("talk", !state.messages.length);
  } else state.messages.push(mine, { role: "assistant", content: view.text });
}

/* ---- translate ---- */

const target = new TokenView($("target"));

function translateBody() {
  const beams = settings.beams(), body = { model: state.model.model, text: $("source").value,
    max_tokens: settings.maxTokens() };
  if (beams > 1) return { ...body, num_beams: beams, num_return_sequences: Math.min(beams, 4) };
  return { ...body, num_beams: 1, top_logprobs: ALTERNATIVES, stream: true };
}

const readTokens = tokens => tokens.map(({ token, logprob, top_logprobs: top }) => ({ token, logprob,
  top: (top || []).map(other => ({ text: other.token, logprob: other.logprob })) }));
const readTranslation = event => ({ tokens: readTokens(event.tokens), text: event.text, end: event.finish_reason });

function showOthers(list) {
  $("others").replaceChildren(...list.map(({ text, score }) => {
    const item = document.createElement("li");
    item.append(text || "(empty)", Object.assign(document.createElement("span"), { className: "share",
      textContent: score.toFixed(2), title: "score" }));
    return item;
  }));
}

async function translateBeams(body, signal) {
  const { translations } = (await post("/translate", body, signal)).results[0];
  const [best, ...others] = translations;
  readTokens(best.tokens).forEach((token, i) => target.add([token], i ? token.token : token.token.trimStart()));
  clockTick(best.tokens.length);
  showOthers(others);
  return { end: best.finish_reason, spoken: best.text };
}

function translateOn() {
  const body = translateBody();
  target.clear();
  showOthers([]);
  showEmpty("target", false);
  return run(target, body, signal => body.stream ? follow("/translate", body, target, signal, readTranslation)
    : translateBeams(body, signal));
}

/* ---- fill ---- */

const BLANK = "[MASK]";
const fillBody = () => ({ model: state.model.model, text: $("blanks").value, top_k: ALTERNATIVES });

function showFilled() {
  const { gaps, chosen, pieces } = state.fill;
  $("filled").replaceChildren(...pieces.flatMap((piece, i) => i === 0 ? [piece] : [Object.assign(
    document.createElement("mark"), { textContent: gaps[i - 1][chosen[i - 1]].text.trim() }), piece]));
  [...$("gaps").children].forEach((group, i) => group.querySelectorAll("button").forEach((row, j) =>
    row.setAttribute("aria-pressed", String(j === chosen[i]))));
}

function showGaps() {
  $("gaps").replaceChildren(...state.fill.gaps.map((candidates, i) => {
    const group = document.createElement("div"), name = document.createElement("p");
    name.className = "caption";
    name.textContent = state.fill.gaps.length > 1 ? `Blank ${i + 1}` : "The blank";
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", name.textContent);
    group.append(name, ...candidates.map(({ text, probability }, j) => {
      const row = alternativeRow("button", text, probability, false);
      row.addEventListener("click", () => {
        state.fill.chosen[i] = j;
        showFilled();
      });
      return row;
    }));
    return group;
  }));
  showFilled();
}

function fillOn() {
  const body = fillBody();
  return run(null, body, async signal => {
    const { gaps } = await post("/fill", body, signal);
    state.fill = { gaps, chosen: gaps.map(() => 0), pieces: body.text.split(/\[MASK\]|<mask>/) };
    showEmpty("gaps", false);
    showGaps();
    return { end: "stop", spoken: $("filled").textContent };
  });
}

$("blank").addEventListener("click", () => {
  const box = $("blanks");
  box.setRangeText(BLANK, box.selectionStart, box.selectionEnd, "end");
  grow(box);
  box.focus();
});

/* ---- tasks ---- */

const TASKS = {
  write: { name: "Write", path: "/v1/completions", input: "prompt",
    body: () => writeBody($("prompt").value),
    run() {
      written.clear();
      return writeOn();
    },
    read: () => ({ prompt: $("prompt").value + written.text }),
    clear() {
      written.clear();
      showEmpty("written", true);
    } },
  chat: { name: "Send", path: "/v1/chat/completions", input: "message",
    body: () => chatBody(chatMessages([{ role: "user", content: $("message").value }])),
    run: chatOn,
    read: () => state.answer ? { messages: state.answer.messages, text: state.answer.view.text } : null,
    clear() {
      Object.assign(state, { messages: [], answer: null });
      $("talk").replaceChildren();
      showEmpty("talk", true);
    } },
  translate: { name: "Translate", path: "/translate", input: "source",
    body: translateBody,
    run: translateOn,
    read: () => ({ prompt: $("source").value, text: target.text }),
    clear() {
      target.clear();
      showOthers([]);
      showEmpty("target", true);
    } },
  fill: { name: "Fill", path: "/fill", input: "blanks",
    body: fillBody,
    run: fillOn,
    read: () => ({ prompt: $("blanks").value }),
    clear() {
      state.fill = null;
      $("filled").replaceChildren();
      $("gaps").replaceChildren();
      showEmpty("gaps", true);
    } },
};

attention.setSource(() => {
  const body = state.model && TASKS[state.task].read();
  if (!body || (body.prompt !== undefined && body.prompt === "")) return null;
  return { model: state.model.model, ...body };
});

function showTask(task) {
  stop();
  hidePopover(false);
  state.task = task;
  showTab($("tasks"), task);
  $("run").textContent = TASKS[task].name;
  $("more").hidden = true;
  $("legend").hidden = task === "fill";
  $("stats").hidden = task === "fill";
  settings.setTask(task);
  grow($(TASKS[task].input));
  attention.reset();
  attention.update();
}

tabs($("tasks"), task => {
  if (!state.model) return;
  if (!tasksOf(state.model).includes(task)) {
    state.model = state.models.find(model => tasksOf(model).includes(task));
    showModel();
  }
  showTask(task);
});

/* ---- buttons and keys ---- */

function begin() {
  if (!state.model || state.running) return;
  const input = $(TASKS[state.task].input);
  if (input.value.trim() === "" && state.task !== "write") {
    input.focus();
    complain(new ApiError("There is no text yet.", 0, "empty"));
    return;
  }
  TASKS[state.task].run();
}

$("run").addEventListener("click", begin);
$("stop").addEventListener("click", stop);
$("more").addEventListener("click", () => writeOn());
$("clear").addEventListener("click", () => {
  stop();
  TASKS[state.task].clear();
  const input = $(TASKS[state.task].input);
  input.value = "";
  grow(input);
  $("more").hidden = true;
  calm();
  attention.reset();
  Object.assign(clock, { begun: 0, first: 0, last: 0, tokens: 0 });
  showStats(null, "–");
  input.focus();
});

for (const button of document.querySelectorAll(".examples button"))
  button.addEventListener("click", () => {
    const input = $(TASKS[state.task].input);
    input.value = button.textContent;
    grow(input);
    begin();
  });

$("curl-open").addEventListener("click", () => {
  if (!state.model) return;
  const body = TASKS[state.task].body();
  if (body.seed !== undefined && settings.sampling().seed === undefined && state.seed) body.seed = state.seed;
  $("curl").textContent = curl(TASKS[state.task].path, body);
  $("curl-copy").textContent = "Copy";
  $("curl-dialog").showModal();
});
$("curl-copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText($("curl").textContent);
    $("curl-copy").textContent = "Copied";
    say("Copied");
  } catch { // not allowed: select it instead
    getSelection().selectAllChildren($("curl"));
    $("curl-copy").textContent = "Selected; press Ctrl+C";
    say("Selected. Press Control C.");
  }
});

addEventListener("keydown", event => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    begin();
  } else if (event.key === "Escape") stop();
});
$("message").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    begin();
  }
});

/* A text field is as high as its text. */
function grow(box) {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}
for (const box of document.querySelectorAll("textarea.grow")) {
  box.addEventListener("input", () => grow(box));
}
addEventListener("resize", () => grow($(TASKS[state.task].input)));

showTheme();
load();
