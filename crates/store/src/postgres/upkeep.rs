//! What has to be done to the tables now and then, by one node at a time: the leader calls it.

use punctual_core::time::Timestamp;
use tracing::info;

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;

/// Months of history that there are partitions for, this one among them.
const MONTHS_AHEAD: i32 = 3;

/// Makes the partitions of the months to come and gathers the counts of writers that are gone; gives how many partitions
/// were made.
pub(crate) async fn upkeep(session: &Session, now: Timestamp) -> Result<u32, Fault> {
    let rows = session.query(Sql::HistoryAhead, &[&now.as_millis(), &MONTHS_AHEAD]).await?;
    session.execute(Sql::CountsFold, &[]).await?;
    let made = rows.first().map_or(0, |row| row.get::<_, i32>(0));
    Ok(u32::try_from(made).unwrap_or_default())
}

/// Removes the partitions in which everything came to rest before `before`; gives their names. Each is detached and
/// dropped in one transaction, which waits for the lock no longer than any statement does. (PostgreSQL does not detach
/// concurrently where there is a partition for the rest.)
pub(crate) async fn remove_history(session: &Session, before: Timestamp) -> Result<Vec<String>, Fault> {
    let mut removed = Vec::new();
    for row in session.query(Sql::HistoryPartitions, &[]).await? {
        let (name, bound): (String, String) = (row.get(0), row.get(1));
        if end(&bound).is_some_and(|end| end <= before.as_millis()) {
            session.run(&format!("ALTER TABLE history DETACH PARTITION {name}; DROP TABLE {name}")).await?;
            info!(partition = name, "a month of history was removed");
            removed.push(name);
        }
    }
    Ok(removed)
}

/// Where a partition ends, read from `FOR VALUES FROM ('1793491200000') TO ('1796083200000')`.
fn end(bound: &str) -> Option<i64> {
    let (_, end) = bound.split_once(" TO ('")?;
    end.strip_suffix("')")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::end;

    #[test]
    fn the_end_of_a_partition_is_read() {
        assert_eq!(end("FOR VALUES FROM ('1793491200000') TO ('1796083200000')"), Some(1_796_083_200_000));
        assert_eq!(end("DEFAULT"), None);
    }
}
