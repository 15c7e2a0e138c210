#!/usr/bin/env python3
"""An OpenAI chat server whose model answers from files: scripted_server.py FOLDER PORT_FILE

The answer to a prompt with N earlier attempts is FOLDER/N.md; the last file answers all later turns. The prompts are kept
as FOLDER/prompt-I.txt, in the order in which they came. PORT_FILE gets the port.
"""

import http.server
import json
import os
import re
import sys
import threading

FOLDER, PORT_FILE = sys.argv[1:]
ATTEMPT = re.compile(r"^### Turn (\d+)", re.MULTILINE)  # the latest one is always shown
lock, count = threading.Lock(), 0


def answer_to(prompt):
    attempt = max((int(number) for number in ATTEMPT.findall(prompt)), default=0)
    while not os.path.exists(os.path.join(FOLDER, f"{attempt}.md")):
        attempt -= 1
    with open(os.path.join(FOLDER, f"{attempt}.md"), encoding="utf-8") as file:
        return file.read()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, content, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        self.send(json.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]}).encode())

    def do_POST(self):
        global count
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = "\n\n".join(f"===== {m['role']} =====\n{m['content']}" for m in body["messages"])
        with lock:
            count += 1
            name = os.path.join(FOLDER, f"prompt-{count}.txt")
        with open(name, "w", encoding="utf-8") as file:
            file.write(prompt)
        answer = answer_to(prompt)
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(answer) // 4,
                 "total_tokens": (len(prompt) + len(answer)) // 4}
        common = {"id": "c1", "model": "scripted", "created": 1}
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
            self.send(json.dumps({**common, "object": "chat.completion", "choices": [choice], "usage": usage}).encode())
            return
        events = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": answer}, "finish_reason": None}]},
                  {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}]
        text = "".join(f"data: {json.dumps({**common, 'object': 'chat.completion.chunk', **event})}\n\n" for event in events)
        self.send((text + "data: [DONE]\n\n").encode(), "text/event-stream")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(PORT_FILE + ".part", "w", encoding="utf-8") as file:
    file.write(str(server.server_address[1]))
os.rename(PORT_FILE + ".part", PORT_FILE)
server.serve_forever()
