// SPDX-License-Identifier: Apache-2.0
// attention.js - the weights of one layer and head as a matrix, with the mask, as the text grows.
//
// A weight of exactly 0 is hidden by the mask; the server gives the visible keys of each query as ranges.

import { post } from "/page/api.js";
import { percent, visible } from "/page/tokens.js";

const $ = id => document.getElementById(id);
const canvas = $("matrix");
const PAUSE = 120; // milliseconds between two answers while a text grows
const KEYS_DRAWN = 512; // the last ones
const ROWS_DRAWN = 64; // fewer of all heads are worth less than all of one head
const ROWS_FAR = 8; // of a text that is longer than what is drawn

const state = { body: null, data: null, at: null, layer: null, head: 0, row: null, column: null, keys: 0,
  limit: Infinity, heads: 1, wanted: false, busy: false, epoch: 0 };
const layout = {};

/* ---- asking ---- */

/* Where the text comes from: a function that gives the body of a request, or null. */
export function setSource(source) {
  state.body = source;
}

/* Forget everything: another model, or an empty text. */
export function reset() {
  Object.assign(state, { data: null, at: null, layer: null, head: 0, row: null, column: null, keys: 0 });
  state.epoch++;
  canvas.removeAttribute("aria-label");
  showHint("Which tokens does each one read? Write something to see the weights of every layer and head.");
  for (const id of ["at", "layer", "head"]) $(id).replaceChildren();
}

/* The server gives the last rows if all are too many; of one head it gives more. */
async function ask() {
  const text = state.body && state.body();
  if (!text) return null;
  const body = { ...text };
  if (state.at) body.attention = state.at;
  if (state.layer !== null) body.layer = state.layer;
  if (state.heads * state.keys * Math.min(state.keys, ROWS_DRAWN) > state.limit) body.head = state.head;
  if (state.keys > KEYS_DRAWN) body.rows = ROWS_FAR;
  return post("/attention", body);
}

/* Only the last keys are drawn. */
function trim(data) {
  const skip = Math.max(0, data.keys.length - KEYS_DRAWN);
  Object.assign(state, { keys: data.keys.length, limit: data.max_weights,
    heads: data.available.find(a => a.attention === data.attention).heads });
  if (!skip) return data;
  const shift = position => Math.max(0, position - skip);
  return { ...data, first: data.first - skip, keys: data.keys.slice(skip),
    mask: data.mask.map(row => row.map(([lo, hi]) => [shift(lo), shift(hi)]).filter(([lo, hi]) => hi > lo)),
    weights: data.weights.map(head => head.map(row => row.slice(skip))) };
}

/* The text has changed. One request runs at a time, and the last change wins. */
export async function update() {
  state.wanted = true;
  if (state.busy || $("attention").hidden) return;
  state.busy = true;
  while (state.wanted) {
    state.wanted = false;
    const epoch = state.epoch;
    try {
      const data = await ask();
      if (epoch === state.epoch && data) show(trim(data));
    } catch (error) {
      if (epoch === state.epoch) showHint(error.message);
    }
    await new Promise(done => setTimeout(done, PAUSE));
  }
  state.busy = false;
}

function showHint(text) {
  $("attention-view").hidden = $("choices").hidden = true;
  $("attention-empty").hidden = false;
  $("attention-hint").textContent = text;
}

/* ---- choosing ---- */

const NAMES = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };

function fill(select, values, chosen, text) {
  const wanted = values.map(v => `${v}`).join(), have = [...select.options].map(o => o.value).join();
  if (wanted !== have) select.replaceChildren(...values.map(v => new Option(text ? text(v) : v, v)));
  select.value = chosen;
}

const numbers = count => Array.from({ length: count }, (_, i) => i);

function menus() {
  const d = state.data, kind = d.available.find(a => a.attention === d.attention);
  fill($("at"), d.available.map(a => a.attention), d.attention, v => NAMES[v]);
  $("at-label").hidden = d.available.length < 2;
  fill($("layer"), numbers(kind.layers), d.layer);
  fill($("head"), numbers(kind.heads), state.head);
}

/* An answer to an older choice is dropped. */
function chosen() {
  state.epoch++;
  update();
}

$("at").addEventListener("change", () => {
  Object.assign(state, { at: $("at").value, layer: null, head: 0, row: null, column: null });
  chosen();
});
$("layer").addEventListener("change", () => {
  state.layer = Number($("layer").value);
  chosen();
});
$("head").addEventListener("change", () => chooseHead(Number($("head").value)));
for (const input of document.getElementsByName("show")) input.addEventListener("change", () => draw());

function chooseHead(head) {
  state.head = head;
  if (state.data && state.data.heads.includes(head)) {
    menus();
    draw();
  } else chosen();
}

const onlyMask = () => document.querySelector("input[name=show]:checked").value === "mask";

/* ---- data ---- */

const weights = () => state.data.weights[Math.max(0, state.data.heads.indexOf(state.head))];
const sees = (row, column) => state.data.mask[row].some(([lo, hi]) => column >= lo && column < hi);

function show(data) {
  const d = state.data, followed = !d || state.row === null || state.row >= d.queries.length - 1;
  state.data = data;
  state.at = data.attention;
  state.layer = data.layer;
  if (followed || state.row >= data.queries.length) state.row = data.queries.length - 1;
  if (state.column !== null && state.column >= data.keys.length) state.column = null;
  $("attention-empty").hidden = true;
  $("attention-view").hidden = $("choices").hidden = false;
  menus();
  draw();
}

/* What kind of mask it is, in words. */
function maskText() {
  const { mask, first, queries, keys } = state.data;
  const pairs = mask.reduce((sum, row) => sum + row.reduce((n, [lo, hi]) => n + hi - lo, 0), 0);
  const one = row => mask[row].length === 1 ? mask[row][0] : [-1, -1];
  const all = numbers(queries.length);
  const full = all.every(i => one(i)[0] === 0 && one(i)[1] === keys.length);
  const causal = all.every(i => one(i)[1] === first + i + 1);
  const from0 = all.every(i => one(i)[0] === 0);
  const name = full ? "No pair is hidden" : causal && from0 ? "Causal: a token sees itself and those before it"
    : causal ? "Causal, within a sliding window" : "A mask of ranges";
  return `${name}. ${pairs} of ${queries.length * keys.length} pairs are visible.`;
}

function readingText() {
  const d = state.data, row = state.row, query = `“${visible(d.queries[row])}”`;
  if (onlyMask() && state.column === null) return maskText();
  if (state.column !== null) {
    const key = `“${visible(d.keys[state.column])}”`;
    if (!sees(row, state.column)) return `The mask hides ${key} from ${query}.`;
    return onlyMask() ? `${query} sees ${key}.` : `${query} reads ${key} with a weight of ${percent(
      weights()[row][state.column])}.`;
  }
  const best = weights()[row].map((w, i) => [w, i]).filter(([w]) => w > 0).sort((a, b) => b[0] - a[0]).slice(0, 3);
  if (!best.length) return `${query} sees nothing.`;
  return `${query} reads most: ${best.map(([w, i]) => `“${visible(d.keys[i])}” ${percent(w)}`).join(", ")}.`;
}

/* ---- drawing ---- */

function colours() {
  const css = getComputedStyle(document.documentElement), read = name => css.getPropertyValue(name).trim();
  const tile = document.createElement("canvas"), ctx = tile.getContext("2d");
  tile.width = tile.height = 6;
  ctx.fillStyle = read("--hide");
  ctx.fillRect(0, 0, 6, 6);
  ctx.strokeStyle = read("--hatch");
  ctx.beginPath();
  for (const x of [-6, 0, 6]) {
    ctx.moveTo(x - 1, 7);
    ctx.lineTo(x + 7, -1);
  }
  ctx.stroke();
  return { tile, weight: read("--weight"), back: read("--sheet"), ink: read("--ink"), muted: read("--muted"),
    accent: read("--accent"), mono: read("--mono") };
}

function measure(ctx, colour) {
  const { queries, keys } = state.data;
  const wide = Math.max(200, canvas.parentElement.clientWidth);
  ctx.font = `11px ${colour.mono}`;
  const widest = list => Math.min(80, Math.max(...list.map(text => ctx.measureText(visible(text)).width))) + 8;
  let left = Math.ceil(widest(queries)), top = Math.ceil(widest(keys));
  let cell = Math.min(28, Math.floor((wide - left) / keys.length));
  if (cell < 11) {
    left = top = 0;
    cell = Math.max(2, Math.min(11, Math.floor(wide / keys.length)));
  }
  Object.assign(layout, { left, top, cell });
}

/* Cells of a matrix: hidden ones are hatched, others as dark as their weight. */
function cells(ctx, colour, matrix, x0, y0, cell, mask) {
  const { queries, keys } = state.data;
  ctx.fillStyle = ctx.createPattern(colour.tile, "repeat");
  ctx.fillRect(x0, y0, keys.length * cell, queries.length * cell);
  queries.forEach((_, i) => {
    for (const [lo, hi] of state.data.mask[i]) {
      ctx.fillStyle = colour.back;
      ctx.fillRect(x0 + lo * cell, y0 + i * cell, (hi - lo) * cell, cell);
      for (let j = lo; j < hi; j++) {
        const gap = cell > 6 ? 1 : 0;
        ctx.fillStyle = `rgba(${colour.weight}, ${mask ? 0.75 : 0.04 + 0.96 * Math.sqrt(matrix[i][j])})`;
        ctx.fillRect(x0 + j * cell, y0 + i * cell, cell - gap, cell - gap);
      }
    }
  });
}

function labels(ctx, colour) {
  const { queries, keys } = state.data, { left, top, cell } = layout;
  const fit = text => {
    const shown = visible(text);
    return shown.length > 12 ? `${shown.slice(0, 11)}…` : shown;
  };
  ctx.font = `11px ${colour.mono}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  queries.forEach((text, i) => {
    ctx.fillStyle = i === state.row ? colour.ink : colour.muted;
    ctx.fillText(fit(text), left - 5, top + (i + 0.5) * cell);
  });
  ctx.textAlign = "left";
  keys.forEach((text, j) => {
    ctx.save();
    ctx.translate(left + (j + 0.5) * cell, top - 5);
    ctx.rotate(-Math.PI / 2);
    ctx.fillStyle = j === state.column ? colour.ink : colour.muted;
    ctx.fillText(fit(text), 0, 0);
    ctx.restore();
  });
}

function selection(ctx, colour) {
  const { left, top, cell } = layout, columns = state.data.keys.length;
  ctx.strokeStyle = colour.ink;
  ctx.lineWidth = 1.5;
  ctx.strokeRect(left + 0.5, top + state.row * cell + 0.5, columns * cell - 1, cell - 1);
  if (state.column !== null) ctx.strokeRect(left + state.column * cell, top + state.row * cell, cell, cell);
}

/* A canvas of this size in CSS pixels, sharp on every screen. */
function sized(target, width, height) {
  const ratio = devicePixelRatio || 1, ctx = target.getContext("2d");
  target.width = Math.ceil(width * ratio);
  target.height = Math.ceil(height * ratio);
  target.style.width = `${width}px`;
  target.style.height = `${height}px`;
  ctx.scale(ratio, ratio);
  return ctx;
}

function drawHeads(colour) {
  const { heads, queries, keys } = state.data, box = $("heads");
  box.hidden = heads.length < 2;
  if (box.hidden) return;
  if (box.children.length !== heads.length)
    box.replaceChildren(...heads.map(head => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(document.createElement("canvas"), `${head}`);
      button.setAttribute("aria-label", `Head ${head}`);
      button.addEventListener("click", () => chooseHead(head));
      return button;
    }));
  const size = 52, cell = size / Math.max(queries.length, keys.length);
  heads.forEach((head, i) => {
    const button = box.children[i];
    button.setAttribute("aria-pressed", String(head === state.head));
    const ctx = sized(button.firstChild, Math.ceil(keys.length * cell), Math.ceil(queries.length * cell));
    cells(ctx, colour, state.data.weights[i], 0, 0, cell, onlyMask());
  });
}

function drawKeys(colour) {
  const d = state.data, row = weights()[state.row];
  $("keys-read").replaceChildren(...d.keys.map((text, j) => {
    const span = document.createElement("span");
    span.textContent = text;
    if (!sees(state.row, j)) span.className = "unread";
    else if (!onlyMask()) span.style.backgroundColor = `rgba(${colour.weight}, ${0.6 * Math.sqrt(row[j])})`;
    if (d.attention !== "cross" && j === d.first + state.row) span.classList.add("query");
    return span;
  }));
}

function drawMatrix(colour) {
  const { queries, keys } = state.data;
  measure(canvas.getContext("2d"), colour);
  const { left, top, cell } = layout;
  const ctx = sized(canvas, left + keys.length * cell, top + queries.length * cell);
  cells(ctx, colour, weights(), left, top, cell, onlyMask());
  if (left) labels(ctx, colour);
  selection(ctx, colour);
  canvas.setAttribute("aria-label", `Attention of ${queries.length} queries over ${state.keys} keys, layer ${
    state.data.layer}, head ${state.head}. Arrow keys move.`);
}

export function draw() {
  if (!state.data || $("attention").hidden) return;
  const colour = colours();
  drawMatrix(colour);
  drawHeads(colour);
  drawKeys(colour);
  $("reading").textContent = readingText();
}

/* ---- moving ---- */

function select(row, column) {
  const d = state.data;
  state.row = Math.max(0, Math.min(d.queries.length - 1, row));
  state.column = column === null ? null : Math.max(0, Math.min(d.keys.length - 1, column));
  draw();
}

canvas.addEventListener("pointermove", event => {
  const { left, top, cell } = layout;
  const row = Math.floor((event.offsetY - top) / cell), column = Math.floor((event.offsetX - left) / cell);
  if (state.data && row >= 0 && column >= 0 && (row !== state.row || column !== state.column)) select(row, column);
});
canvas.addEventListener("pointerleave", () => {
  if (state.data && state.column !== null) select(state.data.queries.length - 1, null);
});
canvas.addEventListener("keydown", event => {
  if (!state.data) return;
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (step) {
    event.preventDefault();
    // Without a column, up and down choose queries; left and right begin at the query's own position.
    const column = state.column ?? (step[1] ? state.data.first + state.row : null);
    select(state.row + step[0], column === null ? null : column + step[1]);
  } else if (event.key === "Escape" && state.column !== null) {
    event.stopPropagation();
    select(state.row, null);
  }
});
addEventListener("resize", () => draw());
