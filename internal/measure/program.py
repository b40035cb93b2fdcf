#!/usr/bin/env python3
"""Sends and receives packets in a throw-away server for "hcloud-sim measure".

Each request is signed with KEY, which user data brings. The program runs as root and ends with the
server. It takes "ip", and nothing beside Python's own library (3.9 or later).
"""
import hashlib
import hmac
import http.server
import json
import os
import socket
import subprocess
import threading
import time

KEY = b""
PORT = 8080

# Options of sockets that Python's module has no names for.
IP_MTU_DISCOVER, IP_TRANSPARENT = 10, 19
IPV6_MTU_DISCOVER, IPV6_TRANSPARENT = 23, 75
PROBE = 3  # never fragment, whatever was learnt of the path
HEADERS = {4: 28, 6: 48}  # of IP and UDP


def clock(request):
    return time.monotonic_ns()


def ip(request):
    command = ["ip"] + request["arguments"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise OSError("%s: %s" % (" ".join(command), done.stderr.strip()))
    return done.stdout


def send(request):
    source, six = request["from"], ":" in request["from"]
    sock = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
    level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP
    sock.setsockopt(level, IPV6_TRANSPARENT if six else IP_TRANSPARENT, 1)
    sock.setsockopt(level, IPV6_MTU_DISCOVER if six else IP_MTU_DISCOVER, PROBE)
    sock.bind((source, 0))
    size = request["size"] - HEADERS[6 if six else 4]

    def run():
        for _ in range(request["count"]):
            try:
                data = time.monotonic_ns().to_bytes(8, "big")
                sock.sendto(data.ljust(size, b"\0"), (request["to"], request["port"]))
            except OSError:
                pass  # it does not arrive
            time.sleep(request["every"])
        sock.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    if request["wait"]:
        thread.join()


received = {}  # packets by port


def receive(request):
    port = request["port"]
    exists = port in received
    received[port] = []
    if exists:
        return
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("", port))

    def run():
        while True:
            data, peer = sock.recvfrom(65535)
            size = len(data) + HEADERS[4 if peer[0].startswith("::ffff:") else 6]
            sent = int.from_bytes(data[:8], "big")
            if len(data) >= 8 and sent < 1 << 63:
                received[port].append({"from": peer[0], "sent": sent, "size": size})

    threading.Thread(target=run, daemon=True).start()


def packets(request):
    return received[request["port"]][:1000]


listeners = {}  # what is done, and the connections, by port


def listen(request):
    port = request["port"]
    exists = port in listeners
    listeners[port] = {"replies": request["replies"], "connections": []}
    if exists:
        return
    sock = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)

    def run():
        while True:
            connection, peer = sock.accept()
            arguments = (connection, peer, listeners[port])
            threading.Thread(target=serve, args=arguments, daemon=True).start()

    threading.Thread(target=run, daemon=True).start()


def serve(connection, peer, listener):
    note, data = {"from": peer[0], "first": ""}, b""
    listener["connections"].append(note)
    with connection:
        connection.settimeout(300)
        try:
            while len(data) < 16384:
                more = connection.recv(4096)
                if not more:
                    return
                data += more
                note["first"] = data[:512].decode("latin-1")
                # A PROXY header may come first.
                begin = data.find(b"GET ")
                if begin >= 0 and b"\r\n\r\n" in data[begin:] and listener["replies"]:
                    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    connection.sendall(reply)
                    return
        except OSError:
            pass


def connections(request):
    return listeners[request["port"]]["connections"]


CALLS = [clock, connections, ip, listen, packets, receive, send]
CALLS = {"/" + call.__name__: call for call in CALLS}
seen, seeing = set(), threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 10

    def do_POST(self):
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 65536))
        signed = self.path.encode() + b"\n" + body
        signature = hmac.new(KEY, signed, hashlib.sha256).hexdigest().encode()
        given = self.headers.get("Authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(signature, given):
            self.send_error(401)
            return
        request = json.loads(body)
        with seeing:
            replayed = request["id"] in seen
            seen.add(request["id"])
        if replayed:
            self.send_error(409)
            return
        try:
            reply = {"result": CALLS[self.path](request)}
        except Exception as failed:
            reply = {"error": "%s: %s" % (type(failed).__name__, failed)}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request, address):
        pass  # scanners


if __name__ == "__main__":
    server = Server(("", PORT), Handler)
    if os.fork():
        os._exit(0)  # cloud-init waits for scripts
    os.setsid()
    log = os.open("/run/underlay-measure.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    server.serve_forever()
