// Uses the client that @hey-api/openapi-ts has generated.
import { completeRun, createSchedule, getTask, leaseTasks, listTasks, pauseQueue, resumeQueue, submitTask } from "./client";
import { client } from "./client/client.gen";
import type { Task } from "./client";

declare const process: { argv: string[] };

const queue = "generated-hey";
client.setConfig({ baseUrl: process.argv[2] as "/" });

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

async function main(): Promise<void> {
  const submitted = await submitTask({
    body: { type: "invoice.send", queue, payload: { invoice: 17 }, priority: 7, metadata: { team: "billing" } },
  });
  check(submitted.data !== undefined, submitted.error);
  const task: Task = submitted.data;
  check(task.status === "PENDING" && task.metadata["team"] === "billing", task);

  const leased = await leaseTasks({ body: { worker_id: "w", queues: [queue], wait_seconds: 20 } });
  check(leased.data !== undefined, leased.error);
  const lease = leased.data.leases[0];
  check(lease?.task.task_id === task.task_id, leased.data);

  const completed = await completeRun({
    path: { id: lease.task.task_id },
    body: { token: lease.token, result: { sent: 1 } },
  });
  check(completed.data?.status === "COMPLETED", completed.error);

  const page = await listTasks({ query: { queue, status: ["COMPLETED"], limit: 10, metadata: { team: "billing" } } });
  check(page.data?.items.length === 1 && page.data.next_cursor === null, page.error);

  const schedule = await createSchedule({
    body: { name: "nightly-hey", cron: "0 3 * * *", task: { type: "report.make" } },
  });
  check(schedule.data !== undefined && schedule.data.next_run_at !== null, schedule.error);

  const paused = await pauseQueue({ path: { name: queue } });
  check(paused.data?.paused === true, paused.error);
  const resumed = await resumeQueue({ path: { name: queue } });
  check(resumed.data?.paused === false, resumed.error);

  const missing = await getTask({ path: { id: "task_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f" } });
  check(missing.error?.code === "not_found", missing.data);
  const refused = await submitTask({ body: { type: "no blanks" } });
  check(refused.error?.errors?.[0]?.pointer === "/type", refused.data);
  console.log("used");
}

void main();
