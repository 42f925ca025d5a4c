// Jobs of the server: checks, backups, restores, compactions.

import { ask, sleep } from "./api.js";
import { h } from "./dom.js";
import { ago, bytes, count, seconds } from "./format.js";
import { action, badge, progress } from "./ui.js";

const BUSY = 1000;
const IDLE = 10_000;

export function isOver(job) {
  return !["running", "cancelling"].includes(job.state);
}

// Tells `listener` the jobs, the newest first: each second while one is under way. Returns what
// looks again at once.
export function watchJobs(signal, listener) {
  let wake = new AbortController();
  const run = async () => {
    while (!signal.aborted) {
      let pause = IDLE;
      try {
        const { jobs } = await ask("/v1/jobs", { signal });
        if (jobs.some((job) => !isOver(job))) pause = BUSY;
        if (!signal.aborted) listener(jobs);
      } catch (error) {
        if (signal.aborted) return;
        listener(null, error);
      }
      await sleep(pause, AbortSignal.any([signal, wake.signal]));
    }
  };
  run();
  return () => {
    wake.abort();
    wake = new AbortController();
  };
}

const NAMES = {
  check: "Check", backup: "Backup", verify: "Verification", restore: "Restore", compact: "Compaction", convert: "Conversion",
};
const KINDS = { done: "good", failed: "bad", cancelled: "warn" };

export function nameOf(job) {
  return NAMES[job.kind] ?? job.kind;
}

function amount(job) {
  const { done, total, unit } = job.progress;
  if (!done) return "";
  const said = unit === "bytes" ? bytes : (number) => `${count(number)} ${unit}`;
  return total ? `${said(done)} of ${said(total)}` : said(done);
}

export function jobRow(job, onChange) {
  const { done, total } = job.progress;
  const running = !isOver(job);
  const what = job.name ?? job.keyspace ?? job.target ?? "";
  const began = new Date(job.began);
  const ended = new Date(job.ended ?? NaN);
  const cancel = running && action("Cancel", async () => {
    await ask(`/v1/jobs/${encodeURIComponent(job.id)}`, { method: "DELETE" });
    onChange?.();
  }, { kind: "quiet small" });
  return h("div", { class: "job", "data-job": job.id, "data-state": job.state },
    h("div", { class: "job-head" }, h("strong", {}, nameOf(job)), what && h("span", { class: "mono" }, what),
      badge(job.state, KINDS[job.state] ?? "busy"),
      h("span", { class: "muted" }, running ? ago(began) : `${ago(ended)}, took ${seconds((ended - began) / 1000)}`), cancel),
    running && progress(total ? done / total : NaN, nameOf(job)),
    h("div", { class: "job-foot muted" }, [amount(job), job.message].filter(Boolean).join(": ")));
}
