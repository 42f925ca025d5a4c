// A headless Chromium, driven through its pipe by the protocol of its developer tools: nothing but
// node and the browser is needed.

import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const SETTLE_MAX = 20_000;
const LOOK_EVERY = 50;
const KEYS = {
  Enter: { code: "Enter", keyCode: 13, text: "\r" }, Escape: { code: "Escape", keyCode: 27 }, Tab: { code: "Tab", keyCode: 9 },
  ArrowDown: { code: "ArrowDown", keyCode: 40 }, ArrowUp: { code: "ArrowUp", keyCode: 38 },
  ArrowLeft: { code: "ArrowLeft", keyCode: 37 }, ArrowRight: { code: "ArrowRight", keyCode: 39 },
};

export const sleep = (time) => new Promise((resolve) => setTimeout(resolve, time));

export class Browser {
  static async start(executable) {
    const profile = await mkdtemp(join(tmpdir(), "console-browser-"));
    const child = spawn(executable, [
      "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
      "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--force-color-profile=srgb",
      `--user-data-dir=${profile}`, "about:blank",
    ], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    return new Browser(child, profile);
  }

  constructor(child, profile) {
    Object.assign(this, { child, profile, waiting: new Map(), listeners: new Map(), last: 0 });
    let rest = Buffer.alloc(0);
    child.stdio[4].on("data", (data) => {
      rest = Buffer.concat([rest, data]);
      for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
        this.take(JSON.parse(rest.subarray(0, end).toString()));
        rest = rest.subarray(end + 1);
      }
    });
    child.stdio[3].on("error", () => {});
    child.on("exit", () => {
      for (const { reject } of this.waiting.values()) reject(new Error("the browser has ended"));
    });
  }

  take({ id, result, error, method, params, sessionId }) {
    if (id === undefined) {
      this.listeners.get(sessionId)?.(method, params);
      return;
    }
    const { resolve, reject, what } = this.waiting.get(id);
    this.waiting.delete(id);
    if (error) reject(new Error(`${what}: ${error.message}`));
    else resolve(result);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = (this.last += 1);
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, what: method });
      this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  // A page of its own, with storage of its own.
  async page({ width = 1440, height = 900, phone = false, dark = false } = {}) {
    const { browserContextId } = await this.send("Target.createBrowserContext");
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank", browserContextId, width, height });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, sessionId, browserContextId);
    this.listeners.set(sessionId, (method, params) => page.heard(method, params));
    for (const domain of ["Page", "Runtime", "Log", "Network", "Audits"]) await page.send(`${domain}.enable`);
    await page.resize({ width, height, phone });
    await page.dark(dark);
    return page;
  }

  async close() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill();
    await ended;
    await rm(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

class Page {
  constructor(browser, sessionId, contextId) {
    Object.assign(this, { browser, sessionId, contextId, problems: [], statuses: [], expected: [] });
  }

  send(method, params) {
    return this.browser.send(method, params, this.sessionId);
  }

  // Whatever a browser complains of is a problem, unless a test has said that it is to come.
  heard(method, params) {
    if (method === "Runtime.exceptionThrown") {
      const { text, exception } = params.exceptionDetails;
      this.problems.push(`exception: ${exception?.description ?? text}`);
    } else if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) {
      this.problems.push(`console.${params.type}: ${params.args.map(({ value, description }) => value ?? description).join(" ")}`);
    } else if (method === "Log.entryAdded" && ["error", "warning"].includes(params.entry.level)) {
      this.problems.push(`${params.entry.source}: ${params.entry.text} ${params.entry.url ?? ""}`);
    } else if (method === "Audits.issueAdded" && params.issue.code === "ContentSecurityPolicyIssue") {
      this.problems.push(`issue: ${params.issue.code} ${JSON.stringify(params.issue.details)}`);
    } else if (method === "Network.responseReceived") {
      this.statuses.push({ status: params.response.status, url: params.response.url, headers: params.response.headers });
    }
  }

  // Problems that nobody has foreseen.
  unforeseen() {
    return this.problems.filter((problem) => !this.expected.some((pattern) => pattern.test(problem)));
  }

  async resize({ width, height, phone = false }) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: phone ? 2 : 1, mobile: phone });
    await this.send("Emulation.setTouchEmulationEnabled", { enabled: phone });
  }

  async dark(dark) {
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }, { name: "prefers-reduced-motion", value: "reduce" }] });
  }

  async open(url) {
    await this.send("Page.navigate", { url });
    await this.until(() => document.querySelector("main h1") !== null);
  }

  // What a function of the page returns; it may be asynchronous, and knows nothing of here.
  async run(work, ...values) {
    const expression = `(${work})(...${JSON.stringify(values)})`;
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  // Waits until a function of the page returns something that is true, and returns it.
  async until(work, ...values) {
    const end = Date.now() + SETTLE_MAX;
    for (;;) {
      const found = await this.run(work, ...values).catch(() => null);
      if (found) return found;
      if (Date.now() > end) {
        const seen = await this.run(() => document.body.innerText.slice(0, 1500)).catch(() => "");
        throw new Error(`did not come to be: ${work} ${JSON.stringify(values)}\n${seen}`);
      }
      await sleep(LOOK_EVERY);
    }
  }

  // Waits until this text is to be seen, in what a selector finds.
  async sees(text, selector = "body") {
    await this.until((wanted, where) => [...document.querySelectorAll(where)].some((found) => found.innerText.includes(wanted)), text, selector);
  }

  // Clicks, as a mouse does, in the middle of what is found by selector and, if given, its text.
  async click(selector, text = null) {
    const at = await this.until((where, wanted) => {
      const all = [...document.querySelectorAll(where)].filter((found) => found.offsetParent !== null || found.getClientRects().length);
      const found = wanted === null ? all[0] : all.find((one) => one.textContent.trim() === wanted) ?? all.find((one) => one.textContent.includes(wanted));
      if (!found || found.disabled) return null;
      found.scrollIntoView({ block: "center" });
      const box = found.getBoundingClientRect();
      return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    }, selector, text);
    for (const type of ["mousePressed", "mouseReleased"]) {
      await this.send("Input.dispatchMouseEvent", { type, ...at, button: "left", clickCount: 1 });
    }
  }

  async press(key, { ctrl = false } = {}) {
    const known = KEYS[key] ?? { code: "", keyCode: key.toUpperCase().charCodeAt(0), text: key };
    const event = { key, code: known.code, windowsVirtualKeyCode: known.keyCode, modifiers: ctrl ? 2 : 0 };
    await this.send("Input.dispatchKeyEvent", { type: known.text && !ctrl ? "keyDown" : "rawKeyDown", ...event, text: ctrl ? undefined : known.text });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  }

  async type(text) {
    await this.send("Input.insertText", { text });
  }

  // Puts text into a field, in the place of what is there.
  async enter(selector, text) {
    await this.until((where) => {
      const field = document.querySelector(where);
      if (!field) return false;
      field.focus();
      field.select();
      return document.activeElement === field;
    }, selector);
    await this.type(text);
  }

  async move(x, y) {
    await this.send("Input.dispatchMouseEvent", { type: "mouseMoved", x, y });
  }

  async screenshot(path) {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    await writeFile(path, Buffer.from(data, "base64"));
  }

  async close() {
    this.browser.listeners.delete(this.sessionId);
    await this.browser.send("Target.disposeBrowserContext", { browserContextId: this.contextId });
  }
}
