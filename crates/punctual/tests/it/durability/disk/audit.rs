//! Audits the files that a server left, without any code of ours in between.

use std::path::Path;

use rusqlite::Connection;

/// Queries that must count 0 in every database, whatever happened to it.
const FAULTS: [(&str, &str); 6] = [
    (
        "tasks that are not where their body is, or in two places",
        "SELECT count(*) FROM bodies AS b WHERE 1 <> (SELECT count(*) FROM tasks AS t WHERE t.seq = b.seq)
             + (SELECT count(*) FROM history AS h WHERE h.seq = b.seq) + (SELECT count(*) FROM quarantine AS q WHERE q.seq = b.seq)",
    ),
    (
        "ids without a body, or bodies without an id",
        "SELECT (SELECT count(*) FROM ids WHERE seq NOT IN (SELECT seq FROM bodies))
             + (SELECT count(*) FROM bodies WHERE seq NOT IN (SELECT seq FROM ids))",
    ),
    (
        "idempotency keys without a task",
        "SELECT count(*) FROM idempotency AS k WHERE NOT EXISTS (SELECT 1 FROM ids WHERE ids.id = k.task_id)",
    ),
    (
        "wrong counts",
        "SELECT count(*) FROM (SELECT lane, state, count(*) FROM tasks GROUP BY lane, state
             EXCEPT SELECT lane, state, tasks FROM counts)",
    ),
    (
        "counts of nothing",
        "SELECT count(*) FROM counts AS c WHERE tasks <> 0
             AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.lane = c.lane AND t.state = c.state)",
    ),
    ("tasks in quarantine", "SELECT count(*) FROM quarantine"),
];

/// Requires an intact database with an exact account of its tasks. No server may be running on it.
#[track_caller]
pub fn expect_whole(data: &Path) {
    let database = Connection::open(data.join("punctual.db")).expect("the database opens");
    let check: Vec<String> = database
        .prepare("PRAGMA integrity_check")
        .and_then(|mut query| query.query_map([], |row| row.get(0))?.collect())
        .expect("integrity_check answers");
    assert_eq!(check, ["ok"], "in {}", data.display());
    for (what, sql) in FAULTS {
        let found: i64 = database.query_row(sql, [], |row| row.get(0)).expect("the query runs");
        assert_eq!(found, 0, "{what} in {}", data.display());
    }
}
