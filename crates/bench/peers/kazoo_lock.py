"""The lock of kazoo, driven as contender/outside.rs says."""

import sys

import drive
from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1], timeout=30)
client.start(timeout=20)


def task(name):
    lock = client.Lock("/kazoo/" + name.replace("/", "_"))

    def pair():
        lock.acquire()
        lock.release()

    return pair


drive.drive(task)
