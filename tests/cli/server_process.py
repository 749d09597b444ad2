# SPDX-License-Identifier: Apache-2.0
"""server_process.py - a bauta serve for tests: start, ask, stop."""
import http.client
import json
import os
import signal
import subprocess


class Server:
    """bauta serve on a free port, until stop() or the end of `with`."""

    def __init__(self, bauta, *args):
        self.process = subprocess.Popen(
            [bauta, "serve", *args, "--port", "0", "--quiet"],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on http://"):
            raise SystemExit("the server does not start: %r" % line)
        self.url = line.split()[-1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        else:
            self.process.kill()
            self.process.wait()

    def stop(self):
        """End the server, which must end well: a sanitizer reports leaks."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait()
        if status != 0:
            raise SystemExit("the server ended with status %d" % status)

    def memory(self):
        """Resident bytes."""
        with open("/proc/%d/statm" % self.process.pid) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def ask(self, path, body, method="POST", connection=None, headers=None):
        """Status, headers and body of the answer; `body` is bytes or JSON."""
        own = connection or self.connect()
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        own.request(method, path, body, headers or {})
        answer = own.getresponse()
        result = answer.status, answer.headers, answer.read()
        if not connection:
            own.close()
        return result
