// Submit a job and wait for it, with nothing but fetch. The types are those of the API:
//   npx openapi-typescript http://127.0.0.1:8190/openapi.json --output e3.d.ts
import type { components } from "./e3";

type JobRow = components["schemas"]["JobRow"];
type JobShown = components["schemas"]["JobShown"];
type Problem = components["schemas"]["ProblemShown"];

const address = "http://127.0.0.1:8190";
const token = "";

async function ask<T>(method: string, path: string, body?: unknown, key?: string): Promise<T> {
  const headers: Record<string, string> = {};
  if (token) headers["Authorization"] = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const answer = await fetch(address + path, { method, headers, body: JSON.stringify(body) });
  if (!answer.ok) {
    const problem: Problem = await answer.json();
    throw new Error(`${problem.detail}. ${problem.remedy}`);
  }
  return answer.json();
}

export async function render(prompt: string, order: string): Promise<string[]> {
  const said = { job_type: "T2I", workflow_id: "wf_realistic_portrait", inputs: { prompt, seed: "random" } };
  // The same order again is the same job, however often this is called.
  const made = await ask<JobRow>("POST", "/api/v1/jobs", { ...said, external_id: order }, order);
  for (;;) {
    const job = await ask<JobShown & { is_ended: boolean }>("GET", `/api/v1/jobs/${made.id}/wait?seconds=25`);
    if (!job.is_ended) continue;
    if (job.status !== "done") throw new Error(job.error_trace ?? "it failed");
    return job.results.map((result) => address + result.url);
  }
}
