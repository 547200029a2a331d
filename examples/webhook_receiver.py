"""A program that E3 tells of what happens: it verifies each message, acts on it once, and answers 204.

    pip install standardwebhooks
    WEBHOOK_SECRET=whsec_... python webhook_receiver.py 9000 seen.db

Messages come at least once, so each is written down under its id in the transaction in which it is acted on.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

LARGEST = 1_000_000


class Receiver(HTTPServer):
    def __init__(self, port: int, file: str, secret: str) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.verifier = Webhook(secret)
        self.seen = sqlite3.connect(file)
        self.seen.execute("CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, type TEXT)")


class Answer(BaseHTTPRequestHandler):
    server: Receiver
    timeout = 10

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= LARGEST:
            return self.answer(413)
        body = self.rfile.read(length)
        try:
            message = self.server.verifier.verify(body, dict(self.headers))
        except WebhookVerificationError:
            return self.answer(401)
        row = (self.headers["webhook-id"], message["type"])
        with self.server.seen as database:  # one transaction: if it fails, E3 sends the message again
            if database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", row).rowcount:
                act(message["type"], message["data"])
        return self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


def act(kind: str, data: dict[str, object]) -> None:
    """What your program does with a message. It is called once for each."""
    print(kind, data.get("external_id") or data.get("config_name") or data.get("batch_id") or "", data.get("url") or "")
    sys.stdout.flush()


if __name__ == "__main__":
    receiver = Receiver(int(sys.argv[1]), sys.argv[2], os.environ["WEBHOOK_SECRET"])
    print(f"listening at http://127.0.0.1:{receiver.server_port}/", flush=True)
    receiver.serve_forever()
