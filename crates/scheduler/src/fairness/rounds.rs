//! Who was served last, of tenants that share places which come free one by one.
//!
//! Every tenant has a clock that goes on by a task divided by its weight whenever it is served, and whoever's shows the
//! least is next. Whoever has not been there, or had no use for anything, is a task ahead of the others and no more:
//! nobody saves up, and who asks seldom is served first.

use std::collections::HashMap;

/// A task, on the clock of a tenant that weighs one.
const TASK: i64 = 1_000_000;

/// Clocks that are kept, at the least, before those are looked for that say nothing any more.
const MANY: usize = 1_024;

/// See the module.
#[derive(Debug, Default)]
pub struct Rounds {
    weights: HashMap<String, u32>,
    clocks: HashMap<String, i64>,
    now: i64,
    /// Those that say nothing any more are looked for when there are so many.
    look_at: usize,
}

impl Rounds {
    /// Nobody was served yet. Who is not named weighs one.
    pub fn new(weights: HashMap<String, u32>) -> Self {
        Self { weights, ..Self::default() }
    }

    /// What a tenant weighs.
    pub fn weight(&self, tenant: &str) -> u32 {
        self.weights.get(tenant).copied().unwrap_or(1).max(1)
    }

    /// What the clock of a tenant would show after so many further tasks.
    pub fn after(&self, tenant: &str, tasks: usize) -> i64 {
        let clock = self.clocks.get(tenant).copied().unwrap_or(i64::MIN).max(self.now - TASK);
        clock.saturating_add(self.cost(tenant).saturating_mul(i64::try_from(tasks).unwrap_or(i64::MAX)))
    }

    /// These tenants got so many tasks, at once.
    pub fn serve<'a>(&mut self, served: impl IntoIterator<Item = (&'a str, usize)>) {
        let mut latest = self.now;
        for (tenant, tasks) in served.into_iter().filter(|(_, tasks)| *tasks > 0) {
            let clock = self.after(tenant, tasks);
            // The last of them began then.
            latest = latest.max(clock.saturating_sub(self.cost(tenant)));
            self.clocks.insert(tenant.to_owned(), clock);
        }
        self.now = latest;
        if self.clocks.len() >= self.look_at.max(MANY) {
            self.clocks.retain(|_, clock| *clock > latest - TASK);
            self.look_at = self.clocks.len() * 2;
        }
    }

    fn cost(&self, tenant: &str) -> i64 {
        TASK / i64::from(self.weight(tenant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves one task after the other to whoever is next of `tenants`; how many each got.
    fn serve(rounds: &mut Rounds, tenants: &[&str], tasks: usize) -> Vec<usize> {
        let mut got = vec![0; tenants.len()];
        for _ in 0..tasks {
            let next = (0..tenants.len()).min_by_key(|at| rounds.after(tenants[*at], 0)).unwrap();
            rounds.serve([(tenants[next], 1)]);
            got[next] += 1;
        }
        got
    }

    #[test]
    fn one_by_one_everybody_gets_as_many() {
        assert_eq!(serve(&mut Rounds::default(), &["a", "b", "c"], 300), [100, 100, 100]);
    }

    #[test]
    fn one_by_one_everybody_gets_its_weight() {
        let mut rounds = Rounds::new(HashMap::from([("b".to_owned(), 10)]));
        assert_eq!(serve(&mut rounds, &["a", "b"], 1_100), [100, 1_000]);
    }

    #[test]
    fn who_comes_later_is_first_and_has_saved_up_nothing() {
        let mut rounds = Rounds::default();
        serve(&mut rounds, &["a", "b"], 1_000);
        assert!(rounds.after("new", 0) < rounds.after("a", 0).min(rounds.after("b", 0)));
        let got = serve(&mut rounds, &["a", "b", "new"], 300);
        assert!(got[2] <= 102, "{got:?}");
        // One that had much at once, while nobody else wanted anything, is not made to wait for it.
        rounds.serve([("a", 500)]);
        let got = serve(&mut rounds, &["a", "b"], 100);
        assert!((48..=52).contains(&got[0]), "{got:?}");
    }

    #[test]
    fn those_served_at_once_are_treated_alike() {
        let mut rounds = Rounds::default();
        for _ in 0..10 {
            rounds.serve([("a", 5), ("b", 5), ("c", 0)]);
            assert_eq!(rounds.after("a", 0), rounds.after("b", 0));
        }
    }

    #[test]
    fn clocks_that_say_nothing_are_forgotten() {
        let mut rounds = Rounds::default();
        for tenant in 0..10_000 {
            // Several at once, so that no number is met for certain.
            let names = [0, 1, 2].map(|number| format!("{tenant}.{number}"));
            rounds.serve(names.iter().map(|name| (name.as_str(), 1)));
            rounds.serve([("busy", 10)]);
        }
        assert!(rounds.clocks.len() <= MANY, "{}", rounds.clocks.len());
    }
}
