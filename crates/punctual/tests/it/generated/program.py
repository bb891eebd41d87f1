"""Uses the client that openapi-python-client has generated, against the server at the given URL."""

import sys

from punctual_client import Client
from punctual_client.api.queues import pause_queue, resume_queue
from punctual_client.api.schedules import create_schedule
from punctual_client.api.tasks import get_task, list_tasks, submit_task
from punctual_client.api.workers import complete_run, lease_tasks
from punctual_client.models import (
    Complete, Labels, LeaseAnswer, LeaseRequest, NewSchedule, NewTask, Problem, Queue, Schedule, ScheduledTask, Status, Task,
    TaskPage,
)

QUEUE = "generated-python"
client = Client(base_url=sys.argv[1])

labels = Labels.from_dict({"team": "billing"})
submitted = submit_task.sync(
    client=client,
    body=NewTask(type_="invoice.send", queue=QUEUE, payload={"invoice": 17}, priority=7, metadata=labels),
)
assert isinstance(submitted, Task), submitted
assert submitted.status is Status.PENDING and submitted.metadata["team"] == "billing", submitted

leased = lease_tasks.sync(client=client, body=LeaseRequest(worker_id="w", queues=[QUEUE], wait_seconds=20))
assert isinstance(leased, LeaseAnswer), leased
[lease] = leased.leases
assert lease.task.task_id == submitted.task_id and lease.task.payload == {"invoice": 17}, lease

completed = complete_run.sync(lease.task.task_id, client=client, body=Complete(token=lease.token, result={"sent": 1}))
assert isinstance(completed, Task), completed
assert completed.status is Status.COMPLETED and completed.result == {"sent": 1}, completed

page = list_tasks.sync(client=client, queue=QUEUE, status=[Status.COMPLETED], limit=10)
assert isinstance(page, TaskPage), page
assert [task.task_id for task in page.items] == [submitted.task_id] and page.next_cursor is None, page

schedule = create_schedule.sync(
    client=client, body=NewSchedule(name="nightly-python", cron="0 3 * * *", task=ScheduledTask(type_="report.make"))
)
assert isinstance(schedule, Schedule), schedule
assert schedule.next_run_at is not None and schedule.interval_seconds is None, schedule

paused = pause_queue.sync(QUEUE, client=client)
assert isinstance(paused, Queue) and paused.paused, paused
resumed = resume_queue.sync(QUEUE, client=client)
assert isinstance(resumed, Queue) and not resumed.paused, resumed

missing = get_task.sync("task_01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f", client=client)
assert isinstance(missing, Problem) and missing.code == "not_found", missing
refused = submit_task.sync(client=client, body=NewTask(type_="no blanks"))
assert isinstance(refused, Problem) and isinstance(refused.errors, list), refused
assert refused.errors[0].pointer == "/type", refused
print("used")
