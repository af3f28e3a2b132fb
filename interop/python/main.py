"""kazoo, told what to do line by line: `main.py kazoo HOSTS SESSION_SECONDS`.

One command per line on stdin, one answer per line on stdout; a wait blocks. Names are paths. The lock classes have
Curator's node names: with its own, kazoo neither sees Curator's nodes nor is seen by Curator.
"""

import os
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError
from kazoo.recipe.lock import Lock, ReadLock, WriteLock


class CuratorLock(Lock):
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-"]


class CuratorReadLock(ReadLock):
    _NODE_NAME = "-__READ__"
    _EXCLUDE_NAMES = ["__WRIT__"]


class CuratorWriteLock(WriteLock):
    _NODE_NAME = "-__WRIT__"
    _EXCLUDE_NAMES = ["__READ__", "__WRIT__"]


CLASSES = {"": CuratorLock, "read": CuratorReadLock, "write": CuratorWriteLock, "plain": Lock}
TRY_SECONDS = 0.3


class Kazoo:
    def __init__(self, hosts, session):
        self.hosts, self.session = hosts, float(session)
        self.client = self.connect()
        self.locks = {}

    def connect(self):
        client = KazooClient(hosts=self.hosts, timeout=self.session)
        client.start()
        return client

    def lock(self, kind, name):
        if (kind, name) not in self.locks:
            self.locks[kind, name] = CLASSES[kind](self.client, name)
        return self.locks[kind, name]

    def take(self, kind, name, wait):
        timeout = None if wait else TRY_SECONDS
        try:
            try:
                held = self.lock(kind, name).acquire(timeout=timeout)
            except NoNodeError:
                # A lock of kazoo makes its parent once. This one was a container, idle, and removed by the server.
                del self.locks[kind, name]
                held = self.lock(kind, name).acquire(timeout=timeout)
        except Exception as error:
            if type(error).__name__ != "LockTimeout":
                raise
            held = False
        return "held" if held else "busy"

    def obey(self, words):
        verb, name = words[0], words[1]
        if verb == "count":
            return self.count(name, words[2], int(words[3]))
        if verb == "cycles":
            return self.cycles(name, int(words[2]), int(words[3]))
        if verb == "delete":
            try:
                self.client.delete(name, recursive=True)
            except NotEmptyError:
                pass  # another client has come back already
            return "deleted"
        if verb == "put":
            self.client.create(name, bytes.fromhex("".join(words[2:])), makepath=True)
            return "put"
        verb, _, kind = verb.partition("-")
        if verb in ("read", "write"):
            verb, kind = "lock", verb
        if verb == "release":
            self.lock(kind, name).release()
            return "released"
        return self.take(kind, name, wait=verb == "lock")

    def count(self, name, path, rounds):
        lock = self.lock("", name)
        for _ in range(rounds):
            with lock:
                with open(path) as file:
                    number = int(file.read())
                with open(path + ".next", "w") as file:
                    file.write(str(number + 1))
                os.replace(path + ".next", path)
        return "counted"

    def cycles(self, name, threads, millis):
        end, counts = time.monotonic() + millis / 1000, []

        def run():
            lock, count = CuratorLock(self.client, name), 0
            while time.monotonic() < end:
                lock.acquire()
                lock.release()
                count += 1
            counts.append(count)

        running = [threading.Thread(target=run) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return f"cycles {sum(counts)}"


def main():
    library, *rest = sys.argv[1:]
    peer = {"kazoo": Kazoo}[library](*rest)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            answer = peer.obey(line.split())
        except Exception as error:
            answer = f"error {error!r}"
        print(answer, flush=True)
    peer.client.stop()


main()
