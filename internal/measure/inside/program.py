#!/usr/bin/env python3
"""Sends packets, listens, and says what came, as it is asked over HTTPS.

"hcloud-sim measure" puts this into throw-away servers. It takes root, "ip", and nothing beside
Python's own library (3.9 or later). It answers only who knows the key below. What it adds to
interfaces it takes away when it ends: when asked, by SIGTERM or Ctrl-C, or when its time is over.
"""
import argparse
import array
import base64
import collections
import errno
import hmac
import http.server
import ipaddress
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

SETTINGS = {}

MOST_REQUESTS = 128  # at the same time, of everybody who finds the port
MOST_CONNECTIONS = 256  # at the same time, to all ports that are listened to
MOST_NOTED = 20000  # connections, or packets, of a port
SECOND = 10**9

# What Python's socket module has no names for.
IP_PKTINFO, IP_FREEBIND, IP_MTU_DISCOVER, IP_TRANSPARENT = 8, 15, 10, 19
IPV6_MTU_DISCOVER, IPV6_TRANSPARENT, IPV6_FREEBIND = 23, 75, 78
SO_ATTACH_FILTER, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 26, 33, 35
MAY_FRAGMENT, DONT_FRAGMENT = 0, 3  # "dont" and "probe": don't fragment, whatever was learnt
ETH_P_ARP = 0x0806

FAMILIES = (socket.AF_INET, socket.AF_INET6)


class Refusal(Exception):
    """What isn't done, and why."""

    def __init__(self, text, code=""):
        super().__init__(text)
        self.code = code


# Questions. Only our own client has the key, so what it asks is not checked any further than what
# the server itself could suffer from.


def split(value):
    """Splits "192.0.2.1:80" or "[2001:db8::1]:80"."""
    host, _, port = value.rpartition(":")
    return ipaddress.ip_address(host.strip("[]")), int(port)


def device_of(question):
    name = question["device"]
    if name not in (known for _, known in socket.if_nameindex()):
        raise Refusal("there is no interface %r" % name)
    return name


# Answers.

BEGAN = time.time_ns() - time.monotonic_ns()


def now():
    """The time by a clock that nobody sets while the program runs, as happens after a boot."""
    return BEGAN + time.monotonic_ns()


def stamp(nanoseconds):
    seconds, rest = divmod(nanoseconds, SECOND)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + ".%09dZ" % rest


def written(name):
    """Writes what a socket calls an address as Go reads it."""
    host, port = name[0].split("%")[0], name[1]
    return ("[%s]:%d" if ":" in host else "%s:%d") % (host, port)


# Interfaces. What is changed there is kept with the command that takes it back.

changing = threading.Lock()
changed = collections.OrderedDict()


def ip(*arguments):
    done = subprocess.run(
        ("ip",) + arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=8
    )
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or "it says nothing"
        raise Refusal("ip %s: %s" % (" ".join(arguments), said))
    return done.stdout


def there(key):
    """Tells whether what was changed still is so."""
    kind, what = key[:2]
    if kind == "route":
        return ip("-%d" % what.version, "route", "show", "exact", str(what)).strip() != ""
    device = key[-1]
    if device not in (name for _, name in socket.if_nameindex()):
        return False
    return kind == "mtu" or what in about(device)["addresses"]


def undo(key):
    if key in changed:
        try:
            ip(*changed[key])
        except Refusal:
            if there(key):
                raise
        del changed[key]


def undo_all():
    with changing:
        for key in reversed(list(changed)):
            try:
                undo(key)
            except Exception as failed:
                print("taking back %s: %s" % (key, failed), file=sys.stderr, flush=True)


def described(interface):
    known = [a for a in interface.get("addr_info", []) if "local" in a]
    addresses = ["%s/%d" % (a["local"], a["prefixlen"]) for a in known]
    return {"name": interface["ifname"], "mtu": interface["mtu"], "addresses": addresses}


def interfaces(question):
    known = json.loads(ip("-json", "address", "show"))
    return [described(i) for i in known if i.get("ifname", "lo") != "lo"]


def about(device):
    """Describes one. What /sys has may be of another namespace."""
    return described(json.loads(ip("-json", "address", "show", "dev", device))[0])


def address_key(question):
    return ("address", str(ipaddress.ip_interface(question["address"])), device_of(question))


def add_address(question):
    key = address_key(question)
    _, address, device = key
    with changing:
        if key not in changed and address in about(device)["addresses"]:
            return
        nodad = ("nodad",) if ":" in address else ()
        ip("address", "replace", address, "dev", device, *nodad)
        changed[key] = ("address", "del", address, "dev", device)


def remove_address(question):
    key = address_key(question)
    _, address, device = key
    with changing:
        if key not in changed and address in about(device)["addresses"]:
            raise Refusal("%s has had %s before, and keeps it" % (device, address))
        undo(key)


def set_mtu(question):
    device = device_of(question)
    with changing:
        before = ("link", "set", "dev", device, "mtu", str(about(device)["mtu"]))
        ip("link", "set", "dev", device, "mtu", "%d" % question["bytes"])
        changed.setdefault(("mtu", device), before)


def route_of(question):
    destination = ipaddress.ip_network(question["destination"])
    way = (str(destination), "dev", device_of(question))
    if "via" in question:
        way += ("via", str(ipaddress.ip_address(question["via"])), "onlink")
    return ("route", destination), ("-%d" % destination.version, "route"), way


def add_route(question):
    key, command, way = route_of(question)
    with changing:
        if key not in changed and ip(*command, "show", "exact", way[0]).strip():
            raise Refusal("there is a route to %s already, and it stays" % way[0])
        ip(*command, "replace" if key in changed else "add", *way)
        changed[key] = command + ("del",) + way


def remove_route(question):
    key, _, _ = route_of(question)
    with changing:
        undo(key)


# ARP.

answered_for = {}


class Neighbor:
    """Answers who asks by ARP for an address of the network."""

    def __init__(self, device, network):
        self.network, self.ended = network, False
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ARP))
        self.socket.bind((device, ETH_P_ARP))
        self.socket.settimeout(0.2)
        self.own = self.socket.getsockname()[4]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ended:
            try:
                frame = self.socket.recv(2048)
                reply = self.reply(frame)
                if reply:
                    self.socket.send(reply)
            except OSError:
                pass  # nothing in time, or the interface is down for a moment
        self.socket.close()

    def reply(self, frame):
        if len(frame) < 42 or frame[12:22] != bytes.fromhex("08060001080006040001"):
            return None
        hardware, sender, target = frame[22:28], frame[28:32], frame[38:42]
        if sender == target or ipaddress.IPv4Address(target) not in self.network:
            return None
        head = hardware + self.own + bytes.fromhex("08060001080006040002")
        return head + self.own + target + hardware + sender

    def end(self):
        self.ended = True
        self.thread.join(2)


def neighbor_of(question):
    return device_of(question), ipaddress.IPv4Network(question["for"])


def answer_arp(question):
    device, network = neighbor_of(question)
    with changing:
        if (device, network) not in answered_for:
            answered_for[device, network] = Neighbor(device, network)


def stop_arp(question):
    with changing:
        neighbor = answered_for.pop(neighbor_of(question), None)
    if neighbor:
        neighbor.end()


# Connections.


def drop_all(sock):
    """Attaches a filter that lets nothing in."""
    code = array.array("B", struct.pack("HBBI", 0x06, 0, 0, 0))  # return 0 bytes
    program = struct.pack("HL", 1, code.buffer_info()[0])
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def both(kind, port, prepare):
    """Opens sockets at a port in all families that there are."""
    sockets = []
    try:
        for family in FAMILIES:
            try:
                sock = socket.socket(family, kind)
            except OSError:
                continue  # a kernel without IPv6
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            prepare(sock, family)
            sock.bind(("", port))
    except OSError as failed:
        for sock in sockets:
            sock.close()
        raise Refusal("port %d: %s" % (port, failed.strerror)) from None
    return sockets


def proxied(data):
    """Returns the version of the PROXY protocol that data begins with and how long its header is;
    -1: it isn't complete."""
    signature = b"\r\n\r\n\0\r\nQUIT\n"
    if data[:12] == signature:
        if len(data) < 16:
            return 2, -1
        length = 16 + struct.unpack(">H", data[14:16])[0]
        return 2, length if len(data) >= length else -1
    if data[:6] == b"PROXY ":
        end = data.find(b"\r\n", 0, 108)
        return 1, end + 2 if end >= 0 else -1
    if data and (signature.startswith(data) or b"PROXY ".startswith(data)):
        return 0, -1
    return 0, 0


connection_slots = threading.BoundedSemaphore(MOST_CONNECTIONS)


class Listener:
    """Serves a TCP port."""

    def __init__(self, port, does, status):
        self.does, self.status, self.closed = does, status, False
        self.noted, self.lock = collections.deque(maxlen=MOST_NOTED), threading.Lock()
        self.open = set()

        def prepare(sock, family):
            if does == "drops":
                drop_all(sock)

        self.sockets = both(socket.SOCK_STREAM, port, prepare) if does != "closed" else []
        for sock in self.sockets:
            sock.listen(128)
            if does != "drops":
                threading.Thread(target=self.accept, args=(sock,), daemon=True).start()

    def accept(self, sock):
        while not self.closed:
            try:
                connection, peer = sock.accept()
            except OSError:
                time.sleep(0.01)
                continue
            note = {"at": stamp(now()), "from": written(peer), "first": b"", "proxy": 0}
            try:
                note["to"] = written(connection.getsockname())
            except OSError:
                note["to"] = ""
            with self.lock:
                if self.closed:
                    connection.close()
                    return
                self.noted.append(note)
                room = connection_slots.acquire(blocking=False)
                if room:
                    self.open.add(connection)
            if room:
                threading.Thread(target=self.serve, args=(connection, note), daemon=True).start()
            else:
                connection.close()

    def serve(self, connection, note):
        try:
            if self.does == "hangs":
                self.hang(connection, note)
            else:
                self.answer(connection, note)
        except OSError:
            pass  # the other side's end of it
        finally:
            with self.lock:
                self.open.discard(connection)
            connection.close()
            connection_slots.release()

    def note_bytes(self, note, data):
        with self.lock:
            note["first"], note["proxy"] = data[:512], proxied(data)[0]

    def hang(self, connection, note):
        connection.settimeout(600)
        data = b""
        while True:
            more = connection.recv(4096)
            if not more:
                return
            data = (data + more)[:512]
            self.note_bytes(note, data)

    def answer(self, connection, note):
        connection.settimeout(10)
        data = b""
        while True:
            more = connection.recv(4096)
            if not more or len(data) > 16384:
                return
            data += more
            self.note_bytes(note, data)
            header = proxied(data)[1]
            if header >= 0 and b"\r\n\r\n" in data[header:]:
                break
        body = (SETTINGS["server"] + "\n").encode()
        head = "HTTP/1.1 %d Said\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        connection.sendall((head % (self.status, len(body))).encode() + body)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(2)
        while connection.recv(4096):
            pass

    def close(self):
        with self.lock:
            self.closed = True
            still = list(self.open)
        for sock in self.sockets + still:
            try:
                sock.shutdown(socket.SHUT_RDWR)  # wakes who waits for it
            except OSError:
                pass
        for sock in self.sockets:
            sock.close()

    def connections(self):
        with self.lock:
            return [dict(n, first=base64.b64encode(n["first"]).decode()) for n in self.noted]


listeners, listening = {}, threading.Lock()


def listen(question):
    port = question["port"]
    with listening:
        if port in listeners:
            listeners.pop(port).close()
        listeners[port] = Listener(port, question["does"], question.get("status", 0))


def connections(question):
    with listening:
        return listeners[question["port"]].connections()


def dial(question):
    to, port = split(question["to"])
    until = time.monotonic() + question["within"] / SECOND

    def left():
        return max(until - time.monotonic(), 0.001)

    kind = socket.AF_INET if to.version == 4 else socket.AF_INET6
    with socket.socket(kind, socket.SOCK_STREAM) as connection:
        connection.settimeout(left())
        try:
            connection.connect((str(to), port))
            connection.settimeout(left())
            connection.sendall(b"GET / HTTP/1.1\r\nHost: underlay\r\nConnection: close\r\n\r\n")
            connection.settimeout(left())
            return {"outcome": "answered" if connection.recv(1) else "ended"}
        except socket.timeout:
            return {"outcome": "unanswered"}
        except OSError as failed:
            outcomes = {
                errno.ECONNREFUSED: "refused",
                errno.ECONNRESET: "reset",
                errno.EPIPE: "reset",
                errno.ETIMEDOUT: "unanswered",
                errno.EHOSTUNREACH: "unreachable",
                errno.ENETUNREACH: "unreachable",
            }
            if failed.errno not in outcomes:
                raise
            return {"outcome": outcomes[failed.errno]}


# Packets. Each has 16 bytes that tell what it is, its number and when it was sent.

PACKET = struct.Struct(">4sIQ")
MAGIC = b"Ulay"
HEADERS = {4: 28, 6: 48}  # IP and UDP


class Receiver:
    """Takes packets at a UDP port."""

    def __init__(self, port):
        self.port, self.noted, self.lock = port, [], threading.Lock()

        def prepare(sock, family):
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
            if family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
            else:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)

        for sock in both(socket.SOCK_DGRAM, port, prepare):
            threading.Thread(target=self.run, args=(sock,), daemon=True).start()

    def run(self, sock):
        while True:
            try:
                data, about, _, peer = sock.recvmsg(65535, 256)
            except OSError:
                continue
            at, ahead = now(), time.time_ns() - now()
            if len(data) < PACKET.size or data[:4] != MAGIC:
                continue
            to, version = "", 4 if sock.family == socket.AF_INET else 6
            for level, kind, value in about:
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and len(value) == 16:
                    seconds, rest = struct.unpack("@qq", value)
                    at = seconds * SECOND + rest - ahead
                elif (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):
                    to = socket.inet_ntop(socket.AF_INET, value[8:12])
                elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
                    to = socket.inet_ntop(socket.AF_INET6, value[:16])
            _, number, sent = PACKET.unpack_from(data)
            with self.lock:
                if len(self.noted) < MOST_NOTED:
                    self.noted.append((number, sent, at, peer, to, len(data) + HEADERS[version]))

    def packets(self):
        with self.lock:
            noted = list(self.noted)
        return [
            {
                "number": number,
                "sent": stamp(sent),
                "at": stamp(at),
                "from": written(peer),
                "to": written((to, self.port)),
                "size": size,
            }
            for number, sent, at, peer, to, size in noted
        ]

    def forget(self):
        with self.lock:
            self.noted = []


receivers = {}


def receive(question):
    port = question["port"]
    with listening:
        if port in receivers:
            receivers[port].forget()
        else:
            receivers[port] = Receiver(port)


def packets(question):
    with listening:
        return receivers[question["port"]].packets()


def checksum(data):
    total = sum(struct.unpack(">%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF or 0xFFFF


class Stream:
    """Sends packets from any source. The kernel makes the IP header of a raw socket, so that no
    port is taken, and fragments; the header of UDP is made here."""

    def __init__(self, question):
        self.to, self.to_port = split(question["to"])
        self.source, self.port = None, 40000
        if question.get("from"):
            self.source, self.port = split(question["from"])
        self.every, self.count = question["every"] / SECOND, question["count"]
        self.size, self.spread = question.get("size") or 64, question.get("spread") or 1
        self.length = self.size - HEADERS[self.to.version] + 8  # of UDP, with its header
        self.done, self.error = threading.Event(), None
        self.socket = self.open(question.get("dont_fragment") is True)
        threading.Thread(target=self.run, daemon=True).start()

    def open(self, whole):
        old = self.to.version == 4
        level = socket.IPPROTO_IP if old else socket.IPPROTO_IPV6
        sock = socket.socket(FAMILIES[not old], socket.SOCK_RAW, socket.IPPROTO_UDP)
        try:
            drop_all(sock)
            sock.setsockopt(level, IP_FREEBIND if old else IPV6_FREEBIND, 1)
            sock.setsockopt(level, IP_TRANSPARENT if old else IPV6_TRANSPARENT, 1)
            discover = DONT_FRAGMENT if whole else MAY_FRAGMENT
            sock.setsockopt(level, IP_MTU_DISCOVER if old else IPV6_MTU_DISCOVER, discover)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            if self.source and not self.source.is_unspecified:
                sock.bind((str(self.source), 0))
            sock.connect((str(self.to), 0))
            self.source = ipaddress.ip_address(sock.getsockname()[0].split("%")[0])
        except OSError as failed:
            sock.close()
            raise Refusal("%s to %s: %s" % (self.source, self.to, failed.strerror)) from None
        return sock

    def send(self, number):
        to = self.to + number % self.spread
        self.socket.sendto(self.packet(number, to), (str(to), 0))

    def packet(self, number, to):
        data = PACKET.pack(MAGIC, number, now())
        head = (self.port, self.to_port, self.length)
        ends = self.source.packed + to.packed
        ends += struct.pack(">HH", socket.IPPROTO_UDP, self.length)
        # What follows the 16 bytes is zeros, which change no checksum.
        check = checksum(ends + struct.pack(">HHHH", *head, 0) + data)
        rest = bytes(self.length - 8 - len(data))
        return struct.pack(">HHHH", *head, check) + data + rest

    def run(self):
        sent, error, due = 0, None, time.monotonic()
        for number in range(self.count):
            try:
                self.send(number)
                sent += 1
            except OSError as failed:
                error = failed  # the way may come back, room for a larger packet doesn't
                if failed.errno == errno.EMSGSIZE:
                    break
            due += self.every
            time.sleep(max(due - time.monotonic(), 0))
        if error and error.errno == errno.EMSGSIZE:
            words = "%d bytes are more than the interface's MTU" % self.size
            self.error = Refusal(words, "too_large")
        elif not sent:
            self.error = Refusal("nothing could be sent to %s: %s" % (self.to, error.strerror))
        self.socket.close()
        self.done.set()


streams, streaming = {}, threading.Lock()


def start(question):
    with streaming:
        if question["id"] not in streams:  # else it is the same question once more
            streams[question["id"]] = Stream(question)


def wait(question):
    with streaming:
        stream = streams[question["id"]]
    done = stream.done.wait(question["within"] / SECOND)
    if stream.error:
        raise stream.error
    return {"done": done}


# The program itself.

ended = threading.Event()


def clock(question):
    return {"now": stamp(now())}


def stop(question):
    with changing:
        neighbors = list(answered_for.values())
        answered_for.clear()
    for neighbor in neighbors:
        neighbor.end()
    undo_all()


CALLS = [add_address, add_route, answer_arp, clock, connections, dial, interfaces, listen, packets]
CALLS += [receive, remove_address, remove_route, set_mtu, start, stop, stop_arp, wait]
CALLS = {call.__name__: call for call in CALLS}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "program", ""
    timeout = 10  # for strangers
    wbufsize = -1
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.connection.do_handshake()

    def do_POST(self):
        known = self.headers.get("Authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(known, b"Bearer " + SETTINGS["key"].encode()):
            self.close_connection = True  # what else there is of it was never read
            self.say(401, {"error": "the key is missing or wrong"})
            return
        name, status = self.path[1:], 200
        try:
            self.connection.settimeout(60)
            question = self.rfile.read(int(self.headers["Content-Length"]))
            answer = CALLS[name](json.loads(question))
        except (OSError, Refusal) as failed:
            text = getattr(failed, "strerror", None) or str(failed)
            status, answer = 409, {"error": text, "code": getattr(failed, "code", "")}
        except Exception as failed:
            status, answer = 409, {"error": "%s: %s" % (type(failed).__name__, failed)}
        try:
            self.say(status, answer)
        finally:
            if name == "stop" and status == 200:
                ended.set()

    def say(self, status, answer):
        body = json.dumps(answer).encode()
        self.send_response(status)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_request(self, code="-", size="-"):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, block_on_close, request_queue_size = True, False, 64

    def __init__(self, sock):
        super().__init__(sock.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = sock
        self.slots = threading.BoundedSemaphore(MOST_REQUESTS)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        file = os.memfd_create("certificate")  # there is no other way to load it than from a file
        try:
            os.write(file, (SETTINGS["private"] + SETTINGS["certificate"]).encode())
            self.context.load_cert_chain("/proc/self/fd/%d" % file)
        finally:
            os.close(file)

    def get_request(self):
        connection, peer = self.socket.accept()
        try:
            wrapped = self.context.wrap_socket(connection, True, do_handshake_on_connect=False)
        except Exception:
            connection.close()
            raise OSError("no TLS") from None
        return wrapped, peer

    def process_request(self, request, peer):
        if not self.slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, peer)
        except BaseException:
            self.slots.release()
            raise

    def process_request_thread(self, request, peer):
        try:
            super().process_request_thread(request, peer)
        finally:
            self.slots.release()

    def handle_error(self, request, peer):
        pass  # strangers who find the port


def detach():
    """Lets cloud-init, which waits for scripts, go on."""
    if not os.path.abspath(__file__).startswith("/var/lib/cloud/"):
        return
    if os.fork():
        os._exit(0)
    os.setsid()
    log = os.open("/run/underlay-measure.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for output in (1, 2):
        os.dup2(log, output)


def main():
    if "key" not in SETTINGS:
        sys.exit("the program has no settings: take it from hcloud-sim measure")
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    port = SETTINGS["port"]
    arguments.add_argument("--port", type=int, default=port, help="where it is asked (%d)" % port)
    SETTINGS["port"] = arguments.parse_args().port
    if os.geteuid() != 0:
        sys.exit("the program takes root: run it with sudo")
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin") + ":/usr/sbin:/sbin"
    if not shutil.which("ip"):
        sys.exit("there is no program \"ip\": install the package iproute2")
    try:
        first = both(socket.SOCK_STREAM, SETTINGS["port"], lambda sock, family: None)
    except Refusal as refusal:
        sys.exit(str(refusal) + ": choose another one by --port")
    for sock in first:
        sock.listen(64)
    servers = [Server(sock) for sock in first]
    detach()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    words = "asked at port %d, for %d minutes; Ctrl-C ends it"
    print(words % (SETTINGS["port"], SETTINGS["lifetime"] / 60), flush=True)
    ended.wait(SETTINGS["lifetime"])
    time.sleep(0.1)  # for the answer to "stop"
    stop({})
    print("ended", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
