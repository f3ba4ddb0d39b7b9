"""The lock of redis-py, driven as contender/outside.rs says."""

import sys

import drive
import redis

host, port = sys.argv[1].split(",")[0].split(":")
client = redis.Redis(host=host, port=int(port), max_connections=100)
client.ping()


def task(name):
    lock = client.lock("redis-py:" + name, timeout=30, thread_local=False)

    def pair():
        lock.acquire()
        lock.release()

    return pair


drive.drive(task)
