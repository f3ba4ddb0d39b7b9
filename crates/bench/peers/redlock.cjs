// The lock of the npm package redlock, on ioredis, driven as contender/outside.rs says.

const Redis = require("ioredis");
const Redlock = require("redlock");
const readline = require("node:readline");

const clients = process.argv[2].split(",").map((address) => {
  const [host, port] = address.split(":");
  return new Redis({ host, port: Number(port) });
});
// It waits as long as that takes, as the others do.
const redlock = new Redlock(clients, { retryCount: -1 });

async function work(name, end, times) {
  let before = performance.now();
  while (before < end) {
    const lock = await redlock.lock(name, 30000);
    await lock.unlock();
    const after = performance.now();
    times.push((after - before) * 1000);
    before = after;
  }
}

async function main() {
  await Promise.all(clients.map((client) => client.ping()));
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [count, shared, millis] = line.split(" ").map(Number);
    const used = process.cpuUsage();
    const end = performance.now() + millis;
    const times = Array.from({ length: count }, () => []);
    await Promise.all(times.map((own, at) => work(shared ? "redlock:bench" : `redlock:bench-${at}`, end, own)));
    const { user, system } = process.cpuUsage(used);
    const shares = times.map((own) => own.length).join(" ");
    console.log(`${user + system};${shares};${times.flat().map((us) => us.toFixed(1)).join(" ")}`);
  }
  process.exit(0);
}

main().catch((error) => {
  console.log(`failed: ${error}`);
  process.exit(1);
});
