"""Reads what is to be done, does it in threads, and prints the times."""

import sys
import threading
import time


def drive(make):
    """`make(name)` gives a function that acquires and releases the lock once."""
    print("ready", flush=True)
    known = {}
    for line in sys.stdin:
        count, shared, millis = (int(word) for word in line.split())
        key = (count, shared)
        if key not in known:
            known[key] = [make("bench" if shared else f"bench-{at}") for at in range(count)]
        used, end = time.process_time(), time.monotonic() + millis / 1000
        times = [[] for _ in range(count)]

        def work(pair, own):
            before = time.monotonic()
            while before < end:
                pair()
                after = time.monotonic()
                own.append((after - before) * 1e6)
                before = after

        threads = [threading.Thread(target=work, args=arguments) for arguments in zip(known[key], times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        shares = " ".join(str(len(own)) for own in times)
        latencies = " ".join(f"{latency:.1f}" for own in times for latency in own)
        print(f"{int((time.process_time() - used) * 1e6)};{shares};{latencies}", flush=True)
