// The console in a browser, against a server: what its users do, by mouse, keys and thumb. Every test
// ends with a look at what the browser has complained of: nothing is allowed that was not foreseen.

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";

import { Browser, sleep } from "./chromium.mjs";
import { Server } from "./server.mjs";

const { SERVER, CHROMIUM = "chromium", SCREENSHOTS } = process.env;
const PHONE = { width: 390, height: 844, phone: true };
const DESKTOP = { width: 1440, height: 900 };

let browser = null;
let server = null;
let page = null;
const others = [];

before(async () => {
  browser = await Browser.start(CHROMIUM);
  server = await Server.start(SERVER);
  await server.ask("POST", "/v1/keyspaces", { name: "orders", structure: "history" });
  await server.ask("POST", "/v1/keyspaces", { name: "events", structure: "lsm" });
  await server.fill("orders", 0, 1200);
  await server.fill("events", 0, 300);
  await server.put("default", "greeting", "hello");
});

after(async () => {
  await server?.end();
  await browser?.close();
});

beforeEach(async () => {
  page = await browser.page(DESKTOP);
});

afterEach(async () => {
  await server.stopLoad();
  const problems = page.unforeseen();
  await page.close();
  // They go after the page, which may still ask them for its icon.
  for (const other of others.splice(0)) await other.end();
  assert.deepEqual(problems, [], "the browser complains");
});

// One more server, until the end of the test.
async function another(options) {
  const other = await Server.start(SERVER, options);
  others.push(other);
  return other;
}

const open = (hash) => page.open(server.console + hash);
const entryIs = (text) => page.sees(text, ".entry .value");

// The figure of a series in a chart's legend, as it stands there.
function figure(title, name) {
  return page.run((chart, series) => {
    const found = [...document.querySelectorAll(".chart")].find((one) => one.querySelector("h2").textContent === chart);
    return [...found.querySelectorAll(".legend li")].find((one) => one.querySelector(".name").textContent === series).querySelector(".figure").textContent;
  }, title, name);
}

async function edit(text) {
  await page.click(".entry button", "Edit");
  await page.enter("dialog textarea", text);
}

describe("overview", () => {
  test("charts move under load", async () => {
    await open("#/");
    await page.sees("Writable", ".status");
    server.load("events");
    const drawn = () => page.run(() => [...document.querySelectorAll(".chart canvas")].map((canvas) => canvas.toDataURL()));
    await page.until(() => parseFloat(document.querySelector('[data-tile="rate"] .big').textContent) > 0);
    const before = await drawn();
    await sleep(3500);
    const now = await drawn();
    const writes = await figure("Throughput", "Writes");
    assert.match(writes, /^[1-9]/, "writes a second");
    assert.match(await figure("Latency", "Write p99"), /^[1-9][\d.]* (µs|ms|s)$/);
    assert.match(await figure("Memory", "Budget"), /^[1-9].*B$/);
    assert.match(await figure("Memory", "Memtables"), /^[1-9].*B$/);
    assert.match(await figure("Amplification", "Write"), /×$/);
    now.slice(0, 3).forEach((image, index) => assert.ok(image !== before[index], `chart ${index} stands still`));
  });

  test("a chart is read by keys, and says in words what it shows", async () => {
    await open("#/");
    await page.until(() => parseFloat(document.querySelector('[data-tile="memory"] .big').textContent) > 0);
    await sleep(2200);
    await page.run(() => document.querySelector(".chart canvas").focus());
    await page.press("ArrowLeft");
    await page.sees(":", ".chart-when");
    const said = await page.run(() => document.querySelector(".chart canvas").getAttribute("aria-label"));
    assert.match(said, /^Throughput at \d\d:\d\d:\d\d: Reads /);
    await page.press("Escape");
    await page.until(() => document.querySelector(".chart-when").textContent === "");
  });
});

describe("keys", () => {
  test("are found by what they begin with, page after page", async () => {
    await open("#/keys/orders");
    await page.sees("order/000000", ".list");
    await page.sees("1,200 in all", ".pane-foot");
    const elements = await page.run(() => document.querySelectorAll(".list .row").length);
    assert.ok(elements < 80, `${elements} rows are elements`);
    await page.press("/");
    await page.type("order/0011");
    await page.sees("order/001100", ".list");
    await page.sees("100 in all", ".pane-foot");
    await page.press("ArrowDown");
    await page.press("ArrowDown");
    await page.press("Enter");
    await page.sees("order/001101", ".entry h2");
    await page.press("Escape");
    await page.until(() => document.querySelector(".entry") === null);
    await open("#/keys/orders");
    await page.sees("200 loaded", ".pane-foot");
    await page.run(() => { document.querySelector(".list").scrollTop = 1e9; });
    await page.sees("400 loaded", ".pane-foot");
  });

  test("are any bytes, and values are shown as what they are", async () => {
    await server.ask("POST", "/v1/keyspaces", { name: "any bytes", structure: "flex" });
    const put = (path, value) => server.ask("PUT", `/v1/keyspaces/any%20bytes/keys/${path}`, value);
    await put("%00%ff%2Fa", Uint8Array.from([0, 1, 254, 255]));
    await put("markup", "<img src=x onerror=alert(1)><script>alert(1)</script>");
    await put("%3Cb%3Ekey%3C%2Fb%3E", "{\"big\":12345678901234567890,\"big\":1}");
    await put("large", "x".repeat(200_000));
    await open("#/keys/any%20bytes");
    await page.click(".row", "\\x00\\xff/a");
    await entryIs("00 01 fe ff");
    await page.click(".row", "<b>key</b>");
    await entryIs("12345678901234567890");
    await page.click(".row", "markup");
    await entryIs("<img src=x");
    assert.equal(await page.run(() => document.querySelectorAll("main img, main script, main b").length), 0);
    await page.click(".row", "large");
    await page.sees("The value has 195 KiB", ".entry");
    await page.click(".entry button", "Fetch");
    await entryIs("xxxxxxxx");
  });

  test("named like steps of a path are keys all the same", async () => {
    await open("#/keys/default");
    for (const key of ["..", "."]) {
      await page.click("button", "New key");
      await page.enter("dialog input", key);
      await page.enter("dialog textarea", `value of ${key}`);
      await page.click("dialog button", "Save");
      await page.until((wanted) => document.querySelector(".entry .value")?.textContent === wanted, `value of ${key}`);
    }
    await page.click(".entry button", "Delete");
    await page.sees("There is no such key now", ".entry");
  });

  test("are edited where nobody else was meanwhile", async () => {
    await server.put("orders", "edited", "first");
    await open("#/keys/orders?key=edited");
    await entryIs("first");
    await edit("second");
    await page.press("Enter", { ctrl: true });
    await entryIs("second");
    assert.equal(await server.ask("GET", "/v1/keyspaces/orders/keys/edited"), "second");
    await page.until(() => document.querySelectorAll(".version").length === 2);
  });

  test("expire when they did, or never, after they were edited", async () => {
    await server.ask("POST", "/v1/keyspaces", { name: "passing", ttl_seconds: 5000 });
    const at = "2099-01-02T03:04:05.678Z";
    await server.ask("PUT", "/v1/keyspaces/passing/keys/never?expires=never", "first");
    await server.ask("PUT", `/v1/keyspaces/passing/keys/then?expires=${at}`, "first");
    for (const [key, expires] of [["never", null], ["then", at]]) {
      await open(`#/keys/passing?key=${key}`);
      await entryIs("first");
      await edit("second");
      await page.press("Enter", { ctrl: true });
      await entryIs("second");
      const { entries } = await server.ask("GET", `/v1/keyspaces/passing/keys?prefix=${key}`);
      assert.equal(entries[0].expires, expires);
    }
    await server.ask("DELETE", "/v1/keyspaces/passing?confirm=yes");
  });

  test("that somebody else has changed are not overwritten unseen", async () => {
    page.expected.push(/412/);
    await server.put("orders", "contended", "base");
    await open("#/keys/orders?key=contended");
    await entryIs("base");
    await edit("mine");
    await server.put("orders", "contended", "theirs");
    await page.click("dialog button", "Save");
    await page.sees("Somebody else has changed it", "dialog");
    await page.sees("Nothing was saved", "dialog");
    assert.equal(await server.ask("GET", "/v1/keyspaces/orders/keys/contended"), "theirs");
    await page.sees("theirs", "dialog .removed");
    await page.sees("mine", "dialog .added");
    await page.click("dialog button", "Edit on");
    await page.click("dialog button", "Save");
    await entryIs("mine");
    await server.put("orders", "contended", "theirs again");
    await edit("mine again");
    await page.click("dialog button", "Save");
    await page.click("dialog button", "Take theirs");
    await entryIs("theirs again");
    assert.equal(page.statuses.filter(({ status }) => status === 412).length, 2);
  });

  test("that were deleted by mistake come back", async () => {
    await server.put("orders", "mistake", "kept");
    await server.put("default", "mistake", "kept too");
    for (const [keyspace, value] of [["orders", "kept"], ["default", "kept too"]]) {
      await open(`#/keys/${keyspace}?key=mistake`);
      await entryIs(value);
      await page.until(() => document.querySelector(".entry").innerText.match(/History|keeps no older versions/));
      await page.click(".entry button", "Delete");
      await page.sees("There is no such key now", ".entry");
      await page.click(".toast button", "Undo");
      await entryIs(value);
      assert.equal(await server.ask("GET", `/v1/keyspaces/${keyspace}/keys/mistake`), value);
    }
    await open("#/keys/orders?key=mistake");
    await page.sees("deleted", ".timeline");
  });
});

describe("the past", () => {
  test("of a key is shown, compared and brought back", async () => {
    for (const total of [1, 2, 3]) await server.put("orders", "versions", JSON.stringify({ total, town: "Graz" }));
    await open("#/keys/orders?key=versions");
    await page.until(() => document.querySelectorAll(".version").length === 3);
    await page.click(".version:nth-child(2) .version-head button");
    await page.sees("\"total\": 2", ".version .added");
    await page.sees("\"total\": 1", ".version .removed");
    await page.click(".version button", "Restore");
    await page.until(() => document.querySelectorAll(".version").length === 4);
    await entryIs("\"total\": 2");
  });

  test("is browsed as of a moment", async () => {
    await server.put("orders", "moment/a", "then");
    const { entries: [{ stamp }] } = await server.ask("GET", "/v1/keyspaces/orders/keys?prefix=moment/a");
    await server.put("orders", "moment/a", "now");
    await server.put("orders", "moment/b", "new");
    await open("#/travel");
    await page.enter('input[inputmode="numeric"]', stamp);
    await page.press("Enter");
    await page.click("a", "Browse as of then");
    await page.sees("As of", ".banner");
    await page.enter("[data-search]", "moment/");
    await page.sees("1 in all", ".pane-foot");
    await page.click(".row", "moment/a");
    await entryIs("then");
    assert.equal(await page.run(() => document.querySelectorAll(".entry .actions button").length), 1, "the past is not edited");
    await page.click(".banner button", "Back to now");
    await page.sees("2 in all", ".pane-foot");
    await open("#/travel");
    await page.enter('input[inputmode="numeric"]', stamp);
    await page.press("Enter");
    await page.click("button", "Restore to then…");
    await page.enter("dialog .stack .field input", "moment/");
    await page.enter("dialog .dialog-body > .field input", "orders");
    await page.click("dialog button", "Restore");
    await page.sees("orders is as it was", ".toast");
    const { entries } = await server.ask("GET", "/v1/keyspaces/orders/keys?prefix=moment/");
    assert.deepEqual(entries.map(({ key, value }) => [key, value]), [["moment/a", "then"]]);
  });

  test("comes as a feed, which can be paused and filtered", async () => {
    await open("#/changes");
    await page.sees("Live", ".pane-foot");
    await server.put("orders", "feed/1", "one");
    await page.sees("feed/1", ".feed");
    await page.press("p");
    await server.put("events", "feed/2", "two");
    await page.sees("1 waiting", ".pane-foot");
    await page.press("p");
    await page.sees("feed/2", ".feed");
    await page.enter("[data-search]", "feed/1");
    await page.until(() => document.querySelectorAll(".feed .row").length === 1);
  });
});

describe("keyspaces", () => {
  test("are made, drawn, renamed and dropped", async () => {
    await open("#/keyspaces");
    await page.sees("orders", ".list");
    await page.click("button", "New keyspace");
    await page.enter("dialog input", "short lived");
    await page.click('dialog input[value="lsm"]');
    await page.click("dialog button", "Create");
    await page.sees("short lived", "h1");
    await page.sees("LSM", ".facts");
    await page.click("button", "Rename…");
    await page.enter("dialog input", "renamed");
    await page.click("dialog button", "Rename");
    await page.sees("renamed", "h1");
    await page.click("button", "Convert…");
    await page.click("dialog button", "Convert");
    await page.sees("Flex", ".facts");
    await page.click("button", "Drop…");
    await page.enter("dialog input", "wrong");
    await page.click("dialog button", "Drop");
    await page.sees("This is not renamed.", "dialog");
    await page.enter("dialog input", "renamed");
    await page.click("dialog button", "Drop");
    await page.sees("Keyspaces", "h1");
    const { keyspaces } = await server.ask("GET", "/v1/keyspaces");
    assert.deepEqual(keyspaces.map(({ name }) => name).filter((name) => /short|renamed/.test(name)), []);
    await open("#/keyspace/orders");
    await page.click("button", "Flush");
    await page.until(() => document.querySelector("svg.drawing")?.getAttribute("aria-label").includes("intervals"));
  });
});

describe("maintenance", () => {
  test("checks, and makes and verifies a backup, with progress", async () => {
    await open("#/maintenance");
    await page.sees("No backups yet");
    await page.click("button", "Check now");
    await page.until(() => document.querySelector('.job[data-state="done"]')?.innerText.includes("Check"));
    await page.click("button", "New backup");
    await page.enter("dialog input", "first");
    await page.click("dialog button", "Back up");
    await page.until(() => [...document.querySelectorAll('.job[data-state="done"]')].some((job) => job.innerText.includes("Backup")));
    const { jobs: [{ progress }] } = await server.ask("GET", "/v1/jobs");
    assert.ok(progress.done > 0 && progress.done === progress.total, JSON.stringify(progress));
    await page.until(() => [...document.querySelectorAll(".job-foot")].some((foot) => / of .*B/.test(foot.innerText)));
    await page.sees("first", "tr[data-backup]");
    await page.click("tr[data-backup] button", "Verify");
    await page.until(() => [...document.querySelectorAll('.job[data-state="done"]')].some((job) => job.innerText.includes("Verification")));
    const { backups } = await server.ask("GET", "/v1/backups");
    assert.deepEqual(backups.map(({ name }) => name), ["first"]);
  });
});

describe("the page", () => {
  test("is gone through by keys alone", async () => {
    await open("#/");
    for (const [key, title] of [["s", "Keyspaces"], ["k", "Keys"], ["t", "Time travel"], ["c", "Changes"], ["m", "Maintenance"], ["e", "Settings"], ["o", "Overview"]]) {
      await page.press("g");
      await page.press(key);
      await page.until((wanted) => document.querySelector("h1").textContent === wanted, title);
    }
    await page.run(() => history.back());
    await page.sees("Settings", "h1");
    await page.press("?");
    await page.sees("Keyboard shortcuts", "dialog");
    await page.press("Escape");
    await page.until(() => document.querySelector("dialog") === null);
    await page.press("d");
    assert.equal(await page.run(() => document.documentElement.dataset.theme), "light");
    await page.press("d");
    await page.until(() => getComputedStyle(document.documentElement).colorScheme === "dark");
    await page.send("Page.reload");
    await page.until(() => performance.getEntriesByType("navigation")[0].type === "reload" && document.querySelector("main h1"));
    assert.equal(await page.run(() => document.documentElement.dataset.theme), "dark", "it is remembered");
    await page.press("Tab");
    assert.equal(await page.run(() => document.activeElement.textContent), "To the content");
  });

  test("has nothing to scroll sideways on a phone", async () => {
    await page.resize(PHONE);
    for (const hash of ["#/", "#/keyspaces", "#/keyspace/orders", "#/keyspace/events", "#/keys/orders", "#/keys/orders?key=order/000007", "#/travel", "#/changes", "#/maintenance", "#/settings"]) {
      await open(hash);
      await sleep(400);
      const [content, screen] = await page.run(() => [document.documentElement.scrollWidth, window.innerWidth]);
      assert.ok(content <= screen, `${hash} is ${content} wide`);
    }
    await open("#/");
    await page.click("nav a", "More");
    await page.click("dialog a", "Maintenance");
    await page.sees("Maintenance", "h1");
  });

  test("says when the server is gone, and goes on when it is back", async () => {
    page.expected.push(/ERR_|Failed to load resource/);
    const other = await another();
    await page.open(`${other.console}#/`);
    await page.sees("Writable", ".status");
    await other.stop();
    await page.sees("The server cannot be reached.", ".lost");
    await page.sees("Not connected", ".status");
    await other.run();
    await page.sees("Writable", ".status");
    await page.until(() => document.querySelector(".lost").hidden);
    // One that is there and answers nobody is as good as gone.
    other.child.kill("SIGSTOP");
    await page.sees("The server cannot be reached.", ".lost");
    other.child.kill("SIGCONT");
    await page.sees("Writable", ".status");
    await page.until(() => document.querySelector(".lost").hidden);
  });

  test("asks for a token once, keeps it for the tab alone, and shows whose it is", async () => {
    page.expected.push(/401/);
    const guarded = await another({ tokens: true });
    await page.open(guarded.console);
    await page.sees("Sign in", "dialog");
    await page.enter("dialog input", "lithe_0000000000000000_nothing");
    await page.click("dialog button", "Sign in");
    await page.sees("The server does not know this token.", "dialog");
    await page.enter("dialog input", guarded.token);
    await page.click("dialog button", "Sign in");
    await page.sees("Writable", ".status");
    assert.equal(await page.run(() => document.querySelectorAll("dialog").length), 0);
    await page.open(`${guarded.console}#/settings`);
    await page.send("Page.reload");
    await page.sees("tester", ".facts");
    const kept = await page.run(() => [Object.keys(localStorage), document.cookie, Object.keys(sessionStorage)]);
    assert.deepEqual(kept, [[], "", ["lithe-token"]]);
    assert.ok(!(await page.run(() => location.href)).includes(guarded.token));
  });

  test("comes with a policy that keeps to this server", async () => {
    await open("#/");
    const found = page.statuses.filter(({ url }) => url.includes("/console/"));
    assert.ok(found.length > 20);
    for (const { url, headers } of found) {
      const header = (name) => Object.entries(headers).find(([is]) => is.toLowerCase() === name)?.[1];
      assert.match(header("content-security-policy") ?? "", /^default-src 'none'; script-src 'self';/, url);
      assert.equal(header("x-content-type-options"), "nosniff");
      assert.equal(header("referrer-policy"), "no-referrer");
    }
    const elsewhere = page.statuses.filter(({ url }) => !url.startsWith(server.origin));
    assert.deepEqual(elsewhere, []);
    const ran = await page.run(() => {
      const script = document.createElement("script");
      script.textContent = "window.inlined = true";
      document.head.append(script);
      return window.inlined === true;
    });
    assert.equal(ran, false, "an inline script has run");
    page.expected.push(/Content Security Policy|ContentSecurityPolicyIssue/);
  });
});

test("looks as it should", { skip: SCREENSHOTS ? false : "no SCREENSHOTS" }, async () => {
  await mkdir(SCREENSHOTS, { recursive: true });
  const key = "order/000042";
  const value = { id: 42, customer: "c-591", town: "Graz", total: 81.98, lines: [{ sku: "A-302", count: 3 }], paid: false };
  await server.put("orders", key, JSON.stringify({ ...value, paid: true }));
  await server.put("orders", key, JSON.stringify({ ...value, paid: true, total: 79.9, shipped: "2026-11-27" }));
  await server.ask("POST", "/v1/check");
  await server.ask("POST", "/v1/backups", { name: "nightly" });
  server.load("events");
  const views = [["overview", "#/"], ["keys", "#/keys/orders?prefix=order/0000"], ["key", `#/keys/orders?prefix=order/0000&key=${key}`], ["maintenance", "#/maintenance"]];
  for (const [size, name] of [[DESKTOP, "desktop"], [PHONE, "phone"]]) {
    for (const dark of [false, true]) {
      const shot = await browser.page({ ...size, dark });
      await shot.open(`${server.console}#/`);
      // Charts need something to show.
      await sleep(25_000);
      for (const [view, hash] of views) {
        if (view !== "overview") await shot.open(server.console + hash);
        await sleep(1200);
        if (view === "key") {
          await shot.click(".version .version-head button");
          await shot.sees("shipped", ".version .added");
        }
        await shot.screenshot(`${SCREENSHOTS}/${view}-${name}-${dark ? "dark" : "light"}.png`);
      }
      assert.deepEqual(shot.unforeseen(), []);
      await shot.close();
    }
  }
});
