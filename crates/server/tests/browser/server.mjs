// The server under test, on a fresh database, and what writes to it while a page looks on.

import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const START_MAX = 20_000;

export class Server {
  // With `tokens` only who has one is answered; it has one that may do everything.
  static async start(program, { tokens = false } = {}) {
    const directory = await mkdtemp(join(tmpdir(), "console-server-"));
    const server = new Server(program, directory);
    if (tokens) {
      const [id, secret] = [randomBytes(8), randomBytes(32)];
      const digest = createHash("sha256").update(secret).digest("hex");
      const lines = `lithe tokens 1\n${id.toString("hex")} ${digest} tester *:all\n`;
      await mkdir(directory, { recursive: true });
      await writeFile(join(directory, "tokens"), lines, { mode: 0o600 });
      server.token = `lithe_${id.toString("hex")}_${secret.toString("hex")}`;
    }
    await server.run();
    return server;
  }

  constructor(program, directory) {
    Object.assign(this, { program, directory, token: null, child: null, console: null, underLoad: null });
  }

  // Starts it; again, at the address that it had.
  async run() {
    const address = this.console ? new URL(this.console).host : "127.0.0.1:0";
    const child = spawn(this.program, [this.directory, address], { stdio: ["pipe", "pipe", "inherit"] });
    this.child = child;
    this.console = await new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("the server does not say where it is")), START_MAX);
      let said = "";
      child.stdout.on("data", (data) => {
        said += data;
        const line = said.match(/^(http:\S+)\n/);
        if (line) {
          clearTimeout(late);
          resolve(line[1]);
        }
      });
      child.once("exit", (code) => reject(new Error(`the server has ended with ${code}`)));
    });
    this.origin = new URL(this.console).origin;
  }

  async ask(method, path, body, headers = {}) {
    const isJson = body !== undefined && typeof body === "object" && !(body instanceof Uint8Array);
    const response = await fetch(this.origin + path, {
      method,
      body: isJson ? JSON.stringify(body) : body,
      headers: {
        ...(isJson ? { "Content-Type": "application/json" } : {}),
        ...(this.token ? { Authorization: `Bearer ${this.token}` } : {}),
        ...headers,
      },
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }

  put(keyspace, key, value) {
    return this.ask("PUT", `/v1/keyspaces/${keyspace}/keys/${encodeURIComponent(key)}?durability=buffered`, value);
  }

  // Writes so many orders at once, each an entry of JSON.
  async fill(keyspace, from, count) {
    const operations = Array.from({ length: count }, (_, index) => ({
      op: "put", keyspace, key: `order/${String(from + index).padStart(6, "0")}`, value: JSON.stringify(order(from + index)),
    }));
    await this.ask("POST", "/v1/batch", { operations });
  }

  // Reads and writes until `stopLoad`.
  load(keyspace) {
    const load = { goesOn: true };
    const run = async () => {
      for (let turn = 0; load.goesOn; turn += 1) {
        await this.put(keyspace, `load/${turn % 500}`, JSON.stringify({ turn, at: new Date().toISOString() }));
        await this.ask("GET", `/v1/keyspaces/${keyspace}/keys/${encodeURIComponent(`load/${turn % 500}`)}`);
        if (turn % 16 === 0) await this.ask("GET", `/v1/keyspaces/${keyspace}/keys?prefix=load/&limit=20`);
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    };
    load.done = run();
    this.underLoad = load;
  }

  async stopLoad() {
    if (!this.underLoad) return;
    this.underLoad.goesOn = false;
    await this.underLoad.done;
    this.underLoad = null;
  }

  // Whatever a test has left it in: ended, or held by a signal.
  async stop() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill("SIGCONT");
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.stdin.end();
    await ended;
  }

  async end() {
    await this.stop();
    await rm(this.directory, { recursive: true, force: true, maxRetries: 5 });
  }
}

const TOWNS = ["Lisbon", "Oslo", "Graz", "Turin", "Leeds", "Gdańsk", "Rennes"];

export function order(number) {
  return {
    id: number, customer: `c-${(number * 7919) % 997}`, town: TOWNS[number % TOWNS.length], total: ((number * 7919) % 20000) / 100,
    lines: Array.from({ length: 1 + (number % 3) }, (_, line) => ({ sku: `A-${(number * 31 + line) % 500}`, count: 1 + ((number + line) % 4) })),
    paid: number % 3 !== 0,
  };
}
