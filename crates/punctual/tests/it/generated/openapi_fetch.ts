// Uses openapi-fetch with the types that openapi-typescript has generated.
import createClient from "openapi-fetch";
import type { components, paths } from "./api";

declare const process: { argv: string[] };
type Task = components["schemas"]["Task"];

const queue = "generated-fetch";
const { GET, POST } = createClient<paths>({ baseUrl: process.argv[2] });

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

async function main(): Promise<void> {
  const submitted = await POST("/v1/tasks", {
    body: { type: "invoice.send", queue, payload: { invoice: 17 }, priority: "high", metadata: { team: "billing" } },
  });
  check(submitted.data !== undefined, submitted.error);
  const task: Task = submitted.data;
  check(task.status === "PENDING" && task.metadata["team"] === "billing", task);

  const leased = await POST("/v1/leases", { body: { worker_id: "w", queues: [queue], wait_seconds: 20 } });
  check(leased.data !== undefined, leased.error);
  const lease = leased.data.leases[0];
  check(lease?.task.task_id === task.task_id, leased.data);

  const completed = await POST("/v1/tasks/{id}/complete", {
    params: { path: { id: lease.task.task_id } },
    body: { token: lease.token, result: { sent: 1 } },
  });
  check(completed.data?.status === "COMPLETED", completed.error);

  const page = await GET("/v1/tasks", {
    params: { query: { queue, status: ["COMPLETED"], limit: 10, metadata: { team: "billing" } } },
  });
  check(page.data?.items.length === 1 && page.data.next_cursor === null, page);

  const schedule = await POST("/v1/schedules", {
    body: { name: "nightly-fetch", cron: "0 3 * * *", task: { type: "report.make" } },
  });
  check(schedule.data !== undefined && schedule.data.next_run_at !== null, schedule.error);

  const paused = await POST("/v1/queues/{name}/pause", { params: { path: { name: queue } } });
  check(paused.data?.paused === true, paused.error);
  const resumed = await POST("/v1/queues/{name}/resume", { params: { path: { name: queue } } });
  check(resumed.data?.paused === false, resumed.error);

  const id = "task_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f";
  const missing = await GET("/v1/tasks/{id}", { params: { path: { id } } });
  check(missing.error?.code === "not_found", missing.data);
  const refused = await POST("/v1/tasks", { body: { type: "no blanks" } });
  check(refused.error?.errors?.[0]?.pointer === "/type", refused.data);
  console.log("used");
}

void main();
