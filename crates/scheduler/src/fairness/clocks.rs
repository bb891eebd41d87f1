//! Which tenant is next when slots become free one by one. Pure.
//!
//! The push side calls it. Every tenant has a virtual clock. It advances by one task divided by the
//! tenant's weight for each task that the tenant gets. The tenant whose clock is furthest behind is
//! next. Invariant: a tenant that was not served for a while is at most one task ahead of the
//! others. So no tenant saves up, and a tenant that rarely asks is served first.

use std::collections::HashMap;

/// What a task costs a tenant of weight one.
const TASK: i64 = 1_000_000;

/// Below this number of clocks, outdated ones are not dropped.
const CLOCKS_KEPT: usize = 1_024;

/// The virtual clocks of the tenants (see the module).
#[derive(Debug, Default)]
pub struct TenantClocks {
    weights: HashMap<String, u32>,
    clocks: HashMap<String, i64>,
    now: i64,
    /// The number of clocks at which outdated ones are dropped.
    clean_at: usize,
}

impl TenantClocks {
    /// No tenant was served yet. Tenants that are not named have weight one.
    pub fn new(weights: HashMap<String, u32>) -> Self {
        Self { weights, ..Self::default() }
    }

    /// The weight of a tenant.
    pub fn weight(&self, tenant: &str) -> u32 {
        self.weights.get(tenant).copied().unwrap_or(1).max(1)
    }

    /// What the clock of a tenant would show after `tasks` more tasks.
    pub fn after(&self, tenant: &str, tasks: usize) -> i64 {
        let clock = self.clocks.get(tenant).copied().unwrap_or(i64::MIN).max(self.now - TASK);
        clock.saturating_add(self.cost(tenant).saturating_mul(i64::try_from(tasks).unwrap_or(i64::MAX)))
    }

    /// Records how many tasks these tenants got at once.
    pub fn serve<'a>(&mut self, served: impl IntoIterator<Item = (&'a str, usize)>) {
        let mut latest = self.now;
        for (tenant, tasks) in served.into_iter().filter(|(_, tasks)| *tasks > 0) {
            let clock = self.after(tenant, tasks);
            // The clock when the last of these tasks began.
            latest = latest.max(clock.saturating_sub(self.cost(tenant)));
            self.clocks.insert(tenant.to_owned(), clock);
        }
        self.now = latest;
        if self.clocks.len() >= self.clean_at.max(CLOCKS_KEPT) {
            self.clocks.retain(|_, clock| *clock > latest - TASK);
            self.clean_at = self.clocks.len() * 2;
        }
    }

    fn cost(&self, tenant: &str) -> i64 {
        TASK / i64::from(self.weight(tenant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves one task after the other to the next of `tenants`; returns how many each got.
    fn serve(clocks: &mut TenantClocks, tenants: &[&str], tasks: usize) -> Vec<usize> {
        let mut got = vec![0; tenants.len()];
        for _ in 0..tasks {
            let next = (0..tenants.len()).min_by_key(|at| clocks.after(tenants[*at], 0)).unwrap();
            clocks.serve([(tenants[next], 1)]);
            got[next] += 1;
        }
        got
    }

    #[test]
    fn one_by_one_all_tenants_get_as_many() {
        assert_eq!(serve(&mut TenantClocks::default(), &["a", "b", "c"], 300), [100, 100, 100]);
    }

    #[test]
    fn one_by_one_each_tenant_gets_its_weight() {
        let mut clocks = TenantClocks::new(HashMap::from([("b".to_owned(), 10)]));
        assert_eq!(serve(&mut clocks, &["a", "b"], 1_100), [100, 1_000]);
    }

    #[test]
    fn a_late_tenant_is_first_and_has_saved_up_nothing() {
        let mut clocks = TenantClocks::default();
        serve(&mut clocks, &["a", "b"], 1_000);
        assert!(clocks.after("new", 0) < clocks.after("a", 0).min(clocks.after("b", 0)));
        let got = serve(&mut clocks, &["a", "b", "new"], 300);
        assert!(got[2] <= 102, "{got:?}");
        // A tenant that had much at once, while no other wanted anything, does not wait for it.
        clocks.serve([("a", 500)]);
        let got = serve(&mut clocks, &["a", "b"], 100);
        assert!((48..=52).contains(&got[0]), "{got:?}");
    }

    #[test]
    fn tenants_served_at_once_are_treated_alike() {
        let mut clocks = TenantClocks::default();
        for _ in 0..10 {
            clocks.serve([("a", 5), ("b", 5), ("c", 0)]);
            assert_eq!(clocks.after("a", 0), clocks.after("b", 0));
        }
    }

    #[test]
    fn outdated_clocks_are_forgotten() {
        let mut clocks = TenantClocks::default();
        for tenant in 0..10_000 {
            // Several at once, so that no number is met for certain.
            let names = [0, 1, 2].map(|number| format!("{tenant}.{number}"));
            clocks.serve(names.iter().map(|name| (name.as_str(), 1)));
            clocks.serve([("busy", 10)]);
        }
        assert!(clocks.clocks.len() <= CLOCKS_KEPT, "{}", clocks.clocks.len());
    }
}
