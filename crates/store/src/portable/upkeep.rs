//! Pruning by a single statement.

use punctual_core::forecast::Minute;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::{Prunable, Pruned};

use super::{Connection, Parameter, PortableSql};
use crate::columns::count_column;

/// Removes old rows. It removes nothing from the history, the keys, the ledger and the lanes: the
/// stores prune those themselves.
pub(crate) async fn prune<C: Connection>(
    connection: &mut C,
    what: Prunable,
    before: Timestamp,
    limit: usize,
) -> Result<Pruned, C::Fault> {
    let (sql, before, is_limited) = match what {
        Prunable::Forecast => (PortableSql::ForecastPrune, Minute::of(before).number(), true),
        Prunable::Occurrences => (PortableSql::OccurrencePrune, before.as_millis(), true),
        Prunable::Nonces => (PortableSql::NoncePrune, before.as_millis(), true),
        Prunable::BreakerCounts => (PortableSql::BreakerCountsPrune, before.as_millis(), false),
        Prunable::Workers => (PortableSql::WorkerForget, before.as_millis(), false),
        Prunable::History | Prunable::Keys | Prunable::Ledger | Prunable::Lanes => return Ok(Pruned::default()),
    };
    let most = count_column(limit);
    let limited: [&dyn Parameter; 2] = [&before, &most];
    let parameters = if is_limited { &limited[..] } else { &limited[..1] };
    let removed = connection.execute(sql, parameters).await?;
    Ok(Pruned { removed, more: is_limited && removed >= limit as u64 })
}
