# SPDX-License-Identifier: Apache-2.0
"""serve_malformed.py - malformed requests to bauta serve, 1,000 by default.

    serve_malformed.py BAUTA MODEL [COUNT]

Each one ends in a status of the 4xx with an error in the form of the OpenAI
API. The server then still answers, and ends without leaks."""
import json
import os
import random
import sys
import time

from server_process import Server

VALID = {
    "/v1/completions": {
        "prompt": "the mask", "max_tokens": 3, "temperature": 0.5, "seed": 1,
        "n": 1, "top_p": 0.9, "logprobs": 1, "stop": ["x"], "stream": False,
        "logit_bias": {"5": 1}, "presence_penalty": 0.5},
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3,
        "logprobs": True, "top_logprobs": 1, "stream": True},
    "/v1/embeddings": {"input": ["a", "b"], "encoding_format": "float"},
    "/tokenize": {"content": "the mask", "with_pieces": True},
    "/detokenize": {"tokens": [1, 2, 3]},
}
# Values that a field does not take; null is as if it were missing.
WRONG = {
    "prompt": [5, {}, [], [{}], [-1], [1.5], [["a"]], [10 ** 9], True, "a" * 9000],
    "max_tokens": ["5", -1, 1.5, [], 10 ** 30, True],
    "temperature": ["hot", -1, [], 1e9, True],
    "seed": ["x", 1.5, [], {}, False],
    "n": [0, "2", 129, -1, 1.5],
    "top_p": [2, -0.1, "x", []],
    "logprobs": [21, -1, "yes", [], 1.5],
    "stop": [5, [5], "", [""], ["a"] * 17, {}, "\u0000"],
    "stream": [1, "true", [], {}],
    "logit_bias": [[], "x", {"a": 1}, {"5": "x"}, {"5": 1000}, {"-1": 1}, 5],
    "presence_penalty": ["x", 3, -3, []],
    "messages": ["hi", [], [1], [{}], [{"role": 5}], {},
                 [{"role": "user", "content": 5}]],
    "top_logprobs": [21, "x", -1, 1.5],
    "input": [5, [], {}, [{}], [-1], [1.5], "a" * 9000],
    "encoding_format": ["hex", 5, []],
    "content": [5, [], {}, True],
    "with_pieces": [1, "x", []],
    "tokens": ["x", {}, [-1], ["a"], [1.5], [10 ** 9], 5],
    "model": [5, [], {}, "no such model", True],
}


def truncated(random_source, path):
    text = json.dumps(VALID[path]).encode()
    return path, "POST", text[:random_source.randrange(len(text))]


def wrong_type(random_source, path):
    body = dict(VALID[path])
    name = random_source.choice([n for n in [*body, "model"] if n in WRONG])
    body[name] = random_source.choice(WRONG[name])
    if path == "/v1/chat/completions" and body["logprobs"] in (0, 1):
        body["logprobs"] = "yes"  # true and false are right there
    return path, "POST", json.dumps(body).encode()


def bad_bytes(random_source, path):
    text = bytearray(json.dumps(VALID[path]).encode())
    text[random_source.randrange(len(text))] = random_source.choice(
        [0x00, 0x01, 0x80, 0xc0, 0xff])
    return path, "POST", bytes(text)


def not_an_object(random_source, path):
    body = random_source.choice([b"", b"[]", b"5", b'"x"', b"null", b"[" * 5000,
                                 b'{"a":' * 500, b"{}{}", b"{'a': 1}", b"\xff"])
    return path, "POST", body


def missing(random_source, path):
    needed = ["prompt", "messages", "input", "content", "tokens"]
    body = {k: v for k, v in VALID[path].items() if k not in needed}
    return path, "POST", json.dumps(body).encode()


def wrong_path(random_source, path):
    letters = "abc/.%?&=-_~"
    name = "".join(random_source.choice(letters) for _ in range(20))
    return "/x" + name, random_source.choice(["GET", "POST"]), b"{}"


def wrong_method(random_source, path):
    return path, random_source.choice(["GET", "PUT", "DELETE", "PATCH"]), None


KINDS = [truncated, wrong_type, wrong_type, wrong_type, bad_bytes,
         not_an_object, missing, wrong_path, wrong_method]


def main(bauta, model, count):
    seed = int(os.environ.get("BAUTA_SEED", time.time()))
    print("seed %d" % seed)
    source = random.Random(seed)
    statuses = {}
    with Server(bauta, model, "--threads", "1") as server:
        for i in range(count):
            kind = source.choice(KINDS)
            path, method, body = kind(source, source.choice(list(VALID)))
            where = "request %d, %s: %s %s %r" % (i, kind.__name__, method,
                                                  path, (body or b"")[:200])
            status, _, text = server.ask(path, body, method)
            if not 400 <= status < 500:
                raise SystemExit("%s: status %d, %r" % (where, status,
                                                        text[:300]))
            error = json.loads(text)["error"]
            if set(error) != {"message", "type", "param", "code"} or \
                    not error["message"]:
                raise SystemExit("%s: %r" % (where, text))
            statuses[status] = statuses.get(status, 0) + 1
        for path, body in VALID.items():
            status, _, text = server.ask(path, body)
            if status != 200:
                raise SystemExit("%s: status %d: %r" % (path, status, text))
    print("%d malformed requests: %s" % (count, ", ".join(
        "%d of status %d" % (n, s) for s, n in sorted(statuses.items()))))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2],
         int(sys.argv[3]) if len(sys.argv) > 3 else 1000)
