# SPDX-License-Identifier: Apache-2.0
"""serve_invariance.py - what a client gets does not depend on the others.

    serve_invariance.py BAUTA MODEL [REQUESTS STREAMS]

Recorded requests (200 by default, of all kinds) are answered alone, one after
another; then under other streams (256 by default) that come and go; after a
restart; and on 2 threads, alone and under streams. All bodies must be equal
byte for byte: ids, text, log-probabilities; only "id" and "created" are of the
moment."""
import http.client
import json
import random
import re
import sys
import threading

from server_process import Server

MOMENT = re.compile(rb'"id":"[^"]*",|"created":[0-9]+,')
WORDS = "the mask hides face and is behind a of who".split()


def record(count):
    """Requests, the same in every run."""
    source = random.Random(7)
    requests = []
    for i in range(count):
        text = " ".join(source.choices(WORDS, k=1 + source.randrange(6)))
        body = {"max_tokens": 1 + source.randrange(24)}
        path = "/v1/completions"
        kind = i % 8
        if kind == 7:
            path = "/v1/embeddings"
            body = {"input": [text, text[:3]]}
        elif kind == 6:
            path = "/v1/chat/completions"
            body["messages"] = [{"role": "user", "content": text}]
            body.update(logprobs=True, top_logprobs=source.randrange(4))
        else:
            body["prompt"] = [text, "mask"] if kind == 5 else text
            body["logprobs"] = source.randrange(4)
            body["echo"] = kind == 4
            body["n"] = 2 if kind == 5 else 1
        if kind < 7 and i % 3:
            body.update(seed=i, temperature=0.5 + source.random(),
                        top_p=0.9, presence_penalty=0.5 * (i % 2),
                        frequency_penalty=0.25 * (i % 5),
                        logit_bias={"101": source.random()})
        elif kind < 7:
            body["temperature"] = 0
        if kind in (1, 3, 6):
            body.update(stream=True, stream_options={"include_usage": True})
        requests.append((path, json.dumps(body).encode()))
    return requests


def answers(server, requests):
    """All bodies, in order; one connection asks for all of them."""
    bodies = []
    connection = server.connect()
    for path, body in requests:
        status, _, text = server.ask(path, body, connection=connection)
        if status != 200:
            raise SystemExit("%s %s: status %d, %s" % (path, body, status, text))
        bodies.append(MOMENT.sub(b"", text))
    connection.close()
    return bodies


class Streams:
    """Other clients: each one asks again and again; some leave early."""

    def __init__(self, server, count):
        self.server, self.ended, self.made = server, threading.Event(), 0
        self.running = threading.Semaphore(0)
        self.threads = [threading.Thread(target=self.run, args=(i,))
                        for i in range(count)]
        for thread in self.threads:
            thread.start()
        for _ in self.threads:  # each has got something
            self.running.acquire()

    def run(self, number):
        source = random.Random(number)
        first = True
        while first or not self.ended.is_set():
            body = {"prompt": " ".join(source.choices(WORDS, k=4)),
                    "max_tokens": 8 + source.randrange(40), "stream": True,
                    "seed": number, "n": 1 + source.randrange(2)}
            connection = self.server.connect()
            try:
                connection.request("POST", "/v1/completions", json.dumps(body))
                answer = connection.getresponse()
                part = answer.read(64)
                if first:
                    self.running.release()
                    first = False
                if source.randrange(4):
                    while part:
                        part = answer.read(4096)
                self.made += 1
            except (OSError, http.client.HTTPException):
                if first:
                    self.running.release()
                raise
            finally:
                connection.close()

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


def compare(what, requests, want, have):
    for (path, body), a, b in zip(requests, want, have):
        if a != b:
            raise SystemExit("%s: %s %s\nalone: %s\nnow:   %s" %
                             (what, path, body.decode(), a, b))
    print("%s: %d bodies are equal" % (what, len(want)), flush=True)


def main(bauta, model, count, streams):
    requests = record(count)
    want = None
    for threads in ("1", "2"):
        for what in ("first", "restart"):
            if what == "restart" and threads == "2":
                continue
            with Server(bauta, model, "--threads", threads, "--queue", "4096",
                        "--connections", "4096") as server:
                alone = answers(server, requests)
                if want is None:
                    want = alone
                else:
                    compare("alone, %s threads, %s" % (threads, what), requests,
                            want, alone)
                if what == "restart":
                    continue
                others = Streams(server, streams)
                try:
                    among = answers(server, requests)
                finally:
                    others.stop()
                compare("under %d streams, %s threads (%d requests of others)"
                        % (streams, threads, others.made), requests, want,
                        among)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2],
         int(sys.argv[3]) if len(sys.argv) > 3 else 200,
         int(sys.argv[4]) if len(sys.argv) > 4 else 256)
