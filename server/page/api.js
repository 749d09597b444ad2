// SPDX-License-Identifier: Apache-2.0
// api.js - requests to the server, with its API key and its errors as sentences.

const STORE = "bauta-key";
let key = sessionStorage.getItem(STORE) || "";

export const hasKey = () => key !== "";

export function setKey(value) {
  key = value.trim();
  if (key) sessionStorage.setItem(STORE, key);
  else sessionStorage.removeItem(STORE);
}

export class ApiError extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function sentence(text) {
  const trimmed = String(text).trim();
  return trimmed.charAt(0).toUpperCase() + trimmed.slice(1) + (/[.!?]$/.test(trimmed) ? "" : ".");
}

function failure(error, status) {
  const message = error && error.message ? error.message : `the server answered with status ${status}`;
  return new ApiError(sentence(message), status, error && error.code);
}

function headers(more) {
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached. It may have been stopped.", 0, "unreachable");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw failure(body && body.error, response.status);
}

export async function get(path) {
  return (await send(path, { headers: headers({}) })).json();
}

function request(body, signal) {
  return { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body), signal };
}

export async function post(path, body, signal) {
  return (await send(path, request(body, signal))).json();
}

/* The data of Server-Sent Events, as objects, up to [DONE]. */
export async function* events(path, body, signal) {
  const response = await send(path, request(body, signal));
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new ApiError("The connection ended before the text did.", 0, "cut");
    rest += decoder.decode(value, { stream: true });
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ")) continue;
      if (part === "data: [DONE]") return;
      const event = JSON.parse(part.slice(6));
      if (event.error) throw failure(event.error, 500);
      yield event;
    }
  }
}

/* The same request on a command line. The key is not written. */
export function curl(path, body) {
  const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
  const lines = [`curl${body.stream ? " -N" : ""} ${location.origin}${path}`, "-H 'Content-Type: application/json'"];
  if (key) lines.push('-H "Authorization: Bearer $BAUTA_API_KEY"');
  lines.push(`-d ${quoted(JSON.stringify(body, null, 2))}`);
  return lines.join(" \\\n  ");
}
