# SPDX-License-Identifier: Apache-2.0
"""serve_load.py - many clients of a server with the OpenAI API at once.

    bench/serve_load.py URL [--streams N] [--requests N] [--max-tokens N]
        [--idle N] [--half-open N] [--slow N] [--slow-tokens N] [--wait SECONDS]
        [--soak MINUTES --pid PID]

N streams ask for --requests texts in total, each one again as soon as its text
has ended. Printed are the median and the 99th percentile of the time to the
first token, and tokens per second, as the server counts them in "usage".
Meanwhile --idle connections ask nothing, --half-open ones send half a request,
and --slow clients read texts of --slow-tokens at one byte per second; --wait
lets the server write these texts first. With --soak the streams go on for
MINUTES and disconnect at random, and the resident memory of process PID is
printed every minute.

Python's standard library only. URL may be any server, for a comparison."""
import argparse
import asyncio
import json
import os
import random
import re
import resource
import socket
import time
import urllib.parse

EVENT = b"data: {"
USAGE = re.compile(rb'"completion_tokens": ?([0-9]+)')


class Stream(asyncio.Protocol):
    """One request; `done` gets (seconds to the first token, tokens)."""

    def __init__(self, request, stop_after=None):
        self.request, self.stop_after = request, stop_after
        self.done = asyncio.get_running_loop().create_future()
        self.events, self.first, self.tail, self.head = 0, None, b"", b""
        self.end = b""

    def connection_made(self, transport):
        self.transport, self.begun = transport, time.monotonic()
        transport.write(self.request)

    def data_received(self, data):
        if len(self.head) < 12:
            self.head += data[:12]
        found = (self.tail + data).count(EVENT)
        self.tail = (self.tail + data)[-(len(EVENT) - 1):]
        self.end = (self.end + data)[-4096:]
        if found and self.first is None:
            self.first = time.monotonic() - self.begun
        self.events += found
        if b"data: [DONE]" in data or (self.stop_after is not None and
                                       self.events >= self.stop_after):
            self.transport.close()

    def connection_lost(self, error):
        good = self.head.startswith(b"HTTP/1.1 200") and self.events
        usage = USAGE.findall(self.end)
        tokens = int(usage[-1]) if usage else self.events
        self.done.set_result((self.first, tokens) if good else None)


def request_of(args, number, **more):
    body = {"prompt": "Once upon a time number %d" % number,
            "max_tokens": args.max_tokens, "stream": True, "temperature": 0,
            "stream_options": {"include_usage": True}}
    body = json.dumps({**body, **more}).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)) + body


async def worker(args, numbers, results):
    loop = asyncio.get_running_loop()
    for number in numbers:
        leave = random.randrange(1, args.max_tokens + 1) \
            if args.soak and random.randrange(2) else None
        try:
            _, stream = await loop.create_connection(
                lambda: Stream(request_of(args, number), leave),
                args.host, args.port)
            results.append(await stream.done)
        except OSError:
            results.append(None)
        if args.ends and time.monotonic() > args.ends:
            break


async def hold(args, count, begin):
    """Connections that send `begin` and no more."""
    held = []
    for i in range(count):
        reader, writer = await asyncio.open_connection(args.host, args.port)
        if begin:
            writer.write(begin)
        held.append((reader, writer))
        if i % 100 == 99:
            await asyncio.sleep(0.01)
    return held


async def slow_start(args):
    """Clients with a small receive buffer, so that the server has to wait for
    them. Their answers are longer than the buffers of a connection."""
    request = request_of(args, 0, max_tokens=args.slow_tokens, logprobs=5)
    held = []
    for _ in range(args.slow):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(
            sock, (args.host, args.port))
        await asyncio.get_running_loop().sock_sendall(sock, request)
        held.append(sock)
    return held


async def read_slowly(held):
    while True:
        await asyncio.sleep(1)
        for sock in held:
            try:
                sock.recv(1)
            except (BlockingIOError, ConnectionResetError):
                pass


async def watch(args, results):
    while True:
        with open("/proc/%d/statm" % args.pid) as file:
            pages = int(file.read().split()[1])
        print("%5.0f s  %7d requests  %6.1f MiB" % (
            time.monotonic() - args.begun, len(results),
            pages * os.sysconf("SC_PAGE_SIZE") / 2 ** 20), flush=True)
        await asyncio.sleep(60)


def percentile(values, share):
    return values[min(len(values) - 1, int(share * len(values)))]


async def main(args):
    results = []
    held = await hold(args, args.idle, b"")
    held += await hold(args, args.half_open, request_of(args, 0)[:60])
    others = [asyncio.create_task(read_slowly(await slow_start(args)))]
    await asyncio.sleep(args.wait)
    args.begun = time.monotonic()
    args.ends = args.begun + 60 * args.soak if args.soak else 0
    if args.pid:
        others.append(asyncio.create_task(watch(args, results)))
    total = 10 ** 9 if args.soak else args.requests
    await asyncio.gather(*(worker(args, range(i, total, args.streams), results)
                           for i in range(args.streams)))
    seconds = time.monotonic() - args.begun
    for task in others:
        task.cancel()
    good = [r for r in results if r]
    first = sorted(r[0] for r in good)
    alive = sum(not reader.at_eof() for reader, _ in held)
    print("%d streams, %d idle, %d half-open, %d slow readers: %d texts, %d "
          "failed" % (args.streams, args.idle, args.half_open, args.slow,
                      len(good), len(results) - len(good)))
    if good:
        tokens = sum(r[1] for r in good)
        print("first token: p50 %.1f ms, p99 %.1f ms; %d tokens in %.1f s, "
              "%.0f tokens/s; %d of %d held connections are open" % (
                  1e3 * percentile(first, 0.5), 1e3 * percentile(first, 0.99),
                  tokens, seconds, tokens / seconds, alive, len(held)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    for name, value in [("streams", 32), ("requests", 256), ("max-tokens", 64),
                        ("idle", 0), ("half-open", 0), ("slow", 0),
                        ("slow-tokens", 400), ("wait", 0), ("pid", 0)]:
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--soak", type=float, default=0, metavar="MINUTES")
    parsed = parser.parse_args()
    where = urllib.parse.urlparse(parsed.url)
    parsed.host, parsed.port = where.hostname, where.port or 80
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main(parsed))
