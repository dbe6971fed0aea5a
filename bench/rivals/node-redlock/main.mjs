// The contestant of Node: node-redlock, or lockproxy's verbs through ioredis. The protocol is that of bench/contest.
import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import Redis from "ioredis";
import redlock from "redlock";

const LEASE = 30000; // ms
const string = { type: "string" };
const { values: flags } = parseArgs({
  // parseArgs knows -x for one letter only.
  args: process.argv.slice(2).map((word) => word.replace(/^-(?=[a-z])/, "--")),
  options: { addr: string, lock: string, clients: string, warm: string, seconds: string, shared: { type: "boolean" } },
});
const clients = Number(flags.clients);
const [host, port] = flags.addr.split(":");
const key = (i) => `bench:lock:${process.pid}:${flags.shared ? 0 : i}`;
const connect = async () => {
  const connection = new Redis({ host, port: Number(port), lazyConnect: true });
  await connection.connect();
  return connection;
};

function fail(error) {
  console.error(error);
  process.exit(1);
}

// node-redlock with its own pauses, 200 ms and up to 100 more or less, but not its bound of 10 tries. All share one connection, as
// its clients do.
async function own() {
  const { default: Redlock } = redlock;
  const all = new (Redlock ?? redlock)([await connect()], { retryCount: -1 });
  return async (i) => {
    let held;
    return {
      take: async () => {
        held = await all.acquire([key(i)], LEASE);
      },
      release: () => held.release(),
    };
  };
}

// lockproxy's verbs, which wait: a connection each.
async function lockproxy() {
  return async (i) => {
    const connection = await connect();
    const owner = `client-${i}`;
    return {
      take: async () => {
        const got = await connection.call("LOCK", key(i), "BLOCK", "600000", "OWNER", owner, "EX", "30");
        if (got !== "OK") throw new Error(`LOCK: ${got}`);
      },
      release: async () => {
        const freed = await connection.call("UNLOCK", key(i), "OWNER", owner);
        if (freed !== 1) throw new Error("the lock was not held when it was released");
      },
    };
  };
}

const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const packages = { own: "redlock", lockproxy: "ioredis" };
let pairs = 0;
let changes = 0;
let holders = 0;
let last = null;
let sampling = false;
const took = [];

async function loop(lock) {
  for (;;) {
    const began = performance.now();
    await lock.take();
    if (++holders !== 1 && flags.shared) throw new Error(`${holders} clients hold the one lock`);
    const changed = flags.shared && last !== lock;
    last = lock;
    holders--;
    await lock.release();
    pairs++;
    if (changed) changes++;
    if (sampling && (changed || !flags.shared)) took.push(performance.now() - began);
  }
}

async function main() {
  const client = await { own, lockproxy }[flags.lock]();
  const locks = [];
  for (let i = 0; i < clients; i++) locks.push(await client(i));
  for (const lock of locks) loop(lock).catch(fail);
  await sleep(Number(flags.warm));
  console.log("begin");
  const before = [pairs, changes];
  const began = performance.now();
  sampling = true;
  await sleep(Number(flags.seconds));
  sampling = false;
  const counted = { pairs: pairs - before[0], changes: changes - before[1] };
  const seconds = (performance.now() - began) / 1000;
  took.sort((a, b) => a - b);
  const at = (part) => (took.length ? took[Math.floor(part * (took.length - 1))] * 1000 : 0);
  const name = packages[flags.lock];
  const { version } = createRequire(import.meta.url)(`./node_modules/${name}/package.json`);
  console.log(JSON.stringify({ version, ...counted, seconds, p50_us: at(0.5), p99_us: at(0.99) }));
  process.stdin.on("end", () => process.exit(0)).resume();
}

main().catch(fail);
