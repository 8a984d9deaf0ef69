# SPDX-License-Identifier: Apache-2.0
"""Clients that are not ours, against a daemon that runs: pynng and nng with the nng that they bring, nanomsg, and sockets
with Python's ssl and framing by hand. Prints TAP; a client that is not there is skipped with a sentence.

    wire_clients.py CERTIFICATES SOCKET TCP-PORT TLS-PORT TOKEN
"""

import ctypes
import ctypes.util
import os
import socket
import ssl
import struct
import sys

certificates, path, tcp_port, tls_port, token = sys.argv[1:]
ipc = f"ipc://{path}"
tcp = f"tcp://127.0.0.1:{tcp_port}"
tls = f"tls+tcp://127.0.0.1:{tls_port}"
number = 0


def tap(name, good, why=""):
    global number
    number += 1
    print(f"{'ok' if good else 'not ok'} {number} - {name}")
    for line in str(why).splitlines() if not good else []:
        print(f"# {line}")


def skip(name, why):
    global number
    number += 1
    print(f"ok {number} - {name} # SKIP {why}")


def integer(field, value):
    """A field of less than 16 with a number of less than 128."""
    return bytes([field << 3, value])


def message(field, data):
    return bytes([field << 3 | 2, len(data)]) + data


# A small case: world_size, comm, sharding, dtype, format, batch, heads, kv_heads, head_dim_qk,
# head_dim_v, seqlen_q, seqlen_kv, mask; then window_left (-1), training, inputs, verify.
CASE = b"".join(
    integer(field, value)
    for field, value in zip(range(2, 15), (2, 1, 1, 1, 1, 1, 1, 1, 16, 16, 32, 32, 2))
)
CASE += bytes.fromhex("7801 900101 980101 880201")
METHODS = {"run": message(10, message(1, CASE)), "describe": message(11, b""), "status": message(12, b"")}


def sample(name, with_token=False):
    """A request with an id of its own."""
    identity = os.urandom(16)
    data = integer(1, 1) + message(2, identity) + METHODS[name]
    return identity, data + (message(5, token.encode()) if with_token else b"")


def fields(data):
    """The outermost fields of a message: {number: value or bytes}."""
    at, found = 0, {}

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 2:
            size = varint()
            found[tag >> 3] = data[at : at + size]
            at += size
        elif tag & 7 == 0:
            found[tag >> 3] = varint()
        else:
            size = 8 if tag & 7 == 1 else 4
            found[tag >> 3] = data[at : at + size]
            at += size
    return found


RESULT, DESCRIPTION, STATUS, ERROR = 11, 12, 13, 10


def exchange(ask, name, answer, with_token):
    identity, data = sample(name, with_token)
    reply = fields(ask(data))
    assert reply[2] == identity, "the reply is to another request"
    assert answer in reply, f"answered with field {sorted(reply)}: {reply.get(ERROR)}"
    if answer == RESULT:
        assert fields(reply[RESULT])[1] == 1, "the case has not passed"


def converse(name, connect, with_token=False):
    """What each client does: requests of each kind one after the other, nonsense, the largest, more."""
    try:
        ask, close = connect()
        exchange(ask, "status", STATUS, with_token)
        exchange(ask, "describe", DESCRIPTION, with_token)
        exchange(ask, "run", RESULT, with_token)
        # Nonsense of the largest size. Over TCP it is already refused because it has no token.
        assert ERROR in fields(ask(b"\xff" * 65536))
        for _ in range(50):
            exchange(ask, "status", STATUS, with_token)
        close()
        for _ in range(20):  # clients that connect and leave
            connect()[1]()
        ask, close = connect()
        exchange(ask, "status", STATUS, with_token)
        close()
        tap(name, True)
    except Exception as error:  # any of them is a test that failed
        tap(name, False, f"{type(error).__name__}: {error}")


# ---- by hand -------------------------------------------------------------------------------------


def receive(stream, size):
    data = b""
    while len(data) < size:
        more = stream.recv(size - len(data))
        assert more, "the daemon has closed the connection"
        data += more
    return data


def by_hand(stream, lead):
    stream.settimeout(30)
    stream.sendall(b"\0SP\0\0\x30\0\0")
    assert receive(stream, 8) == b"\0SP\0\0\x31\0\0"
    count = 0

    def ask(data):
        nonlocal count
        count += 1
        head = struct.pack(">I", 0x80000000 | count)
        stream.sendall(lead + struct.pack(">Q", len(data) + 4) + head + data)
        assert receive(stream, len(lead)) == lead
        reply = receive(stream, struct.unpack(">Q", receive(stream, 8))[0])
        assert reply[:4] == head
        return reply[4:]

    return ask, stream.close


def unix_stream():
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    return by_hand(stream, b"\x01")


def tcp_stream():
    return by_hand(socket.create_connection(("127.0.0.1", int(tcp_port))), b"")


def tls_stream(version):
    context = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
    context.load_cert_chain(f"{certificates}/alice.pem", f"{certificates}/alice.key")
    context.minimum_version = context.maximum_version = version

    def connect():
        plain = socket.create_connection(("127.0.0.1", int(tls_port)))
        return by_hand(context.wrap_socket(plain, server_hostname="127.0.0.1"), b"")

    return connect


# ---- pynng ---------------------------------------------------------------------------------------


def pynng_clients():
    try:
        import pynng
    except ImportError:
        for what in ("unix", "tcp", "tls"):
            skip(f"pynng, {what}", "python3 has no pynng")
        return
    version = pynng.ffi.string(pynng.lib.nng_version()).decode()

    def connect(url, config=None):
        client = pynng.Req0(
            resend_time=-1, recv_timeout=30000, send_timeout=30000, tls_config=config
        )
        client.dial(url, block=True)

        def ask(data):
            client.send(data)
            return client.recv()

        return ask, client.close

    def secret():
        return pynng.TLSConfig(
            pynng.TLSConfig.MODE_CLIENT,
            server_name="127.0.0.1",
            ca_files=[f"{certificates}/ca.pem"],
            cert_key_file=f"{certificates}/alice.both",
        )

    converse(f"pynng with nng {version}, unix", lambda: connect(ipc))
    converse(f"pynng with nng {version}, tcp", lambda: connect(tcp), True)
    converse(f"pynng with nng {version}, tls", lambda: connect(tls, secret()))


# ---- nng 2 ---------------------------------------------------------------------------------------


def nng2_clients():
    try:
        import nng
    except ImportError:
        for what in ("unix", "tcp", "tls"):
            skip(f"nng 2, {what}", "python3 has no nng")
        return

    def connect(url, config=None):
        client = nng.ReqSocket()
        client.resend_time = -1
        client.recv_timeout = client.send_timeout = 30000
        client.add_dialer(url, tls=config).start()

        def ask(data):
            client.send(data)
            return bytes(client.recv())

        return ask, client.close

    def secret(version):
        return nng.TlsConfig.for_client(
            server_name="127.0.0.1",
            ca_file=f"{certificates}/ca.pem",
            cert_file=f"{certificates}/alice.both",
            min_version=version,
            max_version=version,
        )

    name = f"nng {nng.version()}"
    converse(f"{name}, unix", lambda: connect(ipc))
    converse(f"{name}, tcp", lambda: connect(tcp), True)
    if nng.tls_engine_name() in (None, "", "none"):
        skip(f"{name}, tls", "this nng was built without TLS")
        return
    for what, version in (("1.3", nng.TLS_VERSION_1_3), ("1.2", nng.TLS_VERSION_1_2)):
        converse(f"{name}, TLS {what}", lambda: connect(tls, secret(version)))


# ---- nanomsg -------------------------------------------------------------------------------------

AF_SP, NN_REQ, NN_MSG = 1, 48, ctypes.c_size_t(-1)
NN_SOL_SOCKET, NN_SNDTIMEO, NN_RCVTIMEO, NN_REQ_RESEND_IVL, NN_TCP_NODELAY = 0, 6, 7, 1, 1


def nanomsg_clients():
    name = ctypes.util.find_library("nanomsg")
    if not name:
        for what in ("unix", "tcp"):
            skip(f"nanomsg, {what}", "there is no libnanomsg")
        return
    library = ctypes.CDLL(name, use_errno=True)

    def check(result):
        if result < 0:
            raise OSError(ctypes.get_errno(), "nanomsg")
        return result

    def option(client, level, which, value):
        number = ctypes.c_int(value)
        check(library.nn_setsockopt(client, level, which, ctypes.byref(number), 4))

    def connect(url):
        client = check(library.nn_socket(AF_SP, NN_REQ))
        option(client, NN_SOL_SOCKET, NN_SNDTIMEO, 30000)
        option(client, NN_SOL_SOCKET, NN_RCVTIMEO, 30000)
        option(client, NN_REQ, NN_REQ_RESEND_IVL, 2**31 - 1)
        check(library.nn_connect(client, url.encode()))

        def ask(data):
            check(library.nn_send(client, data, ctypes.c_size_t(len(data)), 0))
            reply = ctypes.c_void_p()
            size = check(library.nn_recv(client, ctypes.byref(reply), NN_MSG, 0))
            data = ctypes.string_at(reply, size)
            library.nn_freemsg(reply)
            return data

        return ask, lambda: check(library.nn_close(client))

    converse("nanomsg, unix", lambda: connect(ipc))
    converse("nanomsg, tcp", lambda: connect(tcp), True)


converse("by hand, unix", unix_stream)
converse("by hand, tcp", tcp_stream, True)
converse("Python's ssl, TLS 1.3", tls_stream(ssl.TLSVersion.TLSv1_3))
converse("Python's ssl, TLS 1.2", tls_stream(ssl.TLSVersion.TLSv1_2))
pynng_clients()
nng2_clients()
nanomsg_clients()
print(f"# tests: {number}")
