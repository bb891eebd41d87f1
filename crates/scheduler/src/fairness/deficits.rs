//! Deficit round robin between tenants. Pure.
//!
//! The pull side calls it. Every pass splits what can be claimed between the tenants that contend
//! for it, by their weights. The rest of a tenant's part is its deficit. It counts in the next pass
//! while the tenant contends, so parts of less than a task add up. What a tenant cannot use goes to
//! the others at once. A tenant that begins to contend gets at least a task: so a tenant that
//! rarely asks is served in its first pass, however many others there are.

use std::collections::HashMap;

/// A tenant that contends for tasks.
#[derive(Clone, Copy, Debug)]
pub struct Contender<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// How many tasks it could use.
    pub demand: usize,
}

impl Contender<'_> {
    fn wants(&self) -> i64 {
        i64::try_from(self.demand).unwrap_or(i64::MAX)
    }
}

/// The unit in which deficits are counted: parts of a task.
const TASK: i64 = 1_000_000;

/// The tenants that contend, and what they are owed.
#[derive(Debug, Default)]
pub struct TenantDeficits {
    weights: HashMap<String, u32>,
    deficits: HashMap<String, i64>,
}

impl TenantDeficits {
    /// No tenant contends yet. Tenants that are not named have weight one.
    pub fn new(weights: HashMap<String, u32>) -> Self {
        Self { weights, deficits: HashMap::new() }
    }

    /// Splits `budget` tasks; returns what each contender may take, in order. Tenants `under_way`
    /// are being served from an earlier pass: their part is kept for them.
    pub fn split(&mut self, budget: usize, contenders: &[Contender<'_>], under_way: &[&str]) -> Vec<usize> {
        self.forget_all_but(contenders, under_way);
        let budget = i64::try_from(budget).unwrap_or(i64::MAX).saturating_mul(TASK);
        let theirs: i64 = contenders.iter().map(|contender| self.weight(contender.tenant)).sum();
        let all: i64 = theirs + under_way.iter().map(|tenant| self.weight(tenant)).sum::<i64>();
        let mut left = budget;
        let mut grants = Vec::with_capacity(contenders.len());
        for contender in contenders {
            let Contender { tenant, .. } = contender;
            let part = budget / all.max(1) * self.weight(tenant);
            // A tenant that begins to contend gets at least a task.
            let owed = self.deficits.get(*tenant).copied().unwrap_or((TASK - part).max(0));
            let deficit = owed.saturating_add(part).min(budget);
            let grant = (deficit.min(left) / TASK).clamp(0, contender.wants());
            left -= grant * TASK;
            self.deficits.insert((*tenant).to_owned(), deficit - grant * TASK);
            grants.push(grant);
        }
        let kept = budget / all.max(1) * (all - theirs);
        self.share_out(left - kept, contenders, &mut grants);
        debug_assert!(grants.iter().sum::<i64>().saturating_mul(TASK) <= budget, "no more than the budget is granted");
        for (contender, grant) in contenders.iter().zip(&grants) {
            debug_assert!((0..=contender.wants()).contains(grant), "{contender:?} was granted {grant}");
            if *grant >= contender.wants() {
                self.deficits.remove(contender.tenant);
            }
        }
        grants.into_iter().map(|grant| usize::try_from(grant).unwrap_or(usize::MAX)).collect()
    }

    /// Gives the unused tasks to tenants that can use them, by their weights, without charging
    /// them. If that is less than a task for each, the tenants that are owed most get it, and are
    /// charged.
    fn share_out(&mut self, mut left: i64, contenders: &[Contender<'_>], grants: &mut [i64]) {
        loop {
            let room = |at: usize, grants: &[i64]| contenders[at].wants() - grants[at];
            let mut hungry: Vec<usize> = (0..contenders.len()).filter(|at| room(*at, grants) > 0).collect();
            let weights: i64 = hungry.iter().map(|at| self.weight(contenders[*at].tenant)).sum();
            if hungry.is_empty() || left < TASK {
                return;
            }
            let pot = left;
            if pot / weights >= TASK {
                for at in hungry {
                    let part = pot / weights * self.weight(contenders[at].tenant) / TASK;
                    let grant = part.min(room(at, grants));
                    grants[at] += grant;
                    left -= grant * TASK;
                }
                continue;
            }
            let owed = |at: &usize| self.deficits.get(contenders[*at].tenant).copied().unwrap_or(0);
            hungry.sort_by_key(|at| std::cmp::Reverse(owed(at)));
            for at in hungry.into_iter().take(usize::try_from(left / TASK).unwrap_or(usize::MAX)) {
                grants[at] += 1;
                left -= TASK;
                if let Some(deficit) = self.deficits.get_mut(contenders[at].tenant) {
                    *deficit -= TASK;
                }
            }
        }
    }

    /// Forgets the deficits of tenants that do not contend any more.
    fn forget_all_but(&mut self, contenders: &[Contender<'_>], under_way: &[&str]) {
        if self.deficits.is_empty() {
            return;
        }
        let mut kept = HashMap::with_capacity(contenders.len() + under_way.len());
        for tenant in contenders.iter().map(|contender| contender.tenant).chain(under_way.iter().copied()) {
            if let Some((tenant, deficit)) = self.deficits.remove_entry(tenant) {
                kept.insert(tenant, deficit);
            }
        }
        self.deficits = kept;
    }

    fn weight(&self, tenant: &str) -> i64 {
        i64::from(self.weights.get(tenant).copied().unwrap_or(1).max(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contenders<'a>(of: &[(&'a str, usize)]) -> Vec<Contender<'a>> {
        of.iter().map(|(tenant, demand)| Contender { tenant, demand: *demand }).collect()
    }

    fn weighing(weights: &[(&str, u32)]) -> TenantDeficits {
        TenantDeficits::new(weights.iter().map(|(tenant, weight)| ((*tenant).to_owned(), *weight)).collect())
    }

    #[test]
    fn tenants_share_by_their_weights() {
        let mut tenants = weighing(&[("a", 3)]);
        let both = contenders(&[("a", 1_000), ("b", 1_000)]);
        let mut got = [0, 0];
        for _ in 0..100 {
            let grants = tenants.split(100, &both, &[]);
            assert_eq!(grants.iter().sum::<usize>(), 100);
            got[0] += grants[0];
            got[1] += grants[1];
        }
        assert!((7_490..=7_510).contains(&got[0]), "{got:?}");
    }

    #[test]
    fn a_part_that_a_tenant_cannot_use_goes_to_the_others() {
        let mut tenants = weighing(&[]);
        assert_eq!(tenants.split(100, &contenders(&[("a", 1_000), ("b", 5), ("c", 1_000)]), &[]), [48, 5, 47]);
        assert_eq!(tenants.split(100, &contenders(&[("a", 1_000)]), &[]), [100]);
        assert_eq!(tenants.split(100, &contenders(&[("a", 10)]), &[]), [10]);
        assert_eq!(tenants.split(100, &[], &["a"]), Vec::<usize>::new());
    }

    #[test]
    fn a_tenant_under_way_keeps_its_part() {
        let mut tenants = weighing(&[("a", 3)]);
        assert_eq!(tenants.split(100, &contenders(&[("b", 1_000)]), &["a"]), [25]);
        assert_eq!(tenants.split(100, &contenders(&[("b", 1_000)]), &["a"]), [25]);
        assert_eq!(tenants.split(100, &contenders(&[("a", 1_000)]), &["b"]), [75]);
    }

    #[test]
    fn a_small_demand_is_served_in_the_first_pass() {
        let names: Vec<String> = (0..500).map(|number| format!("busy_{number}")).collect();
        let mut busy: Vec<Contender<'_>> = names.iter().map(|tenant| Contender { tenant, demand: 1_000 }).collect();
        let mut tenants = weighing(&[]);
        for _ in 0..20 {
            tenants.split(100, &busy, &[]);
        }
        busy.insert(0, Contender { tenant: "quiet", demand: 1 });
        assert_eq!(tenants.split(100, &busy, &[])[0], 1);
    }

    proptest! {
        #[test]
        fn all_that_tenants_can_use_is_given_and_nothing_else(
            budget in 1_usize..2_000,
            passes in proptest::collection::vec(proptest::collection::vec(0_usize..300, 1..12), 1..30),
        ) {
            let names: Vec<String> = (0..12).map(|number| number.to_string()).collect();
            let mut tenants = weighing(&[("3", 5), ("7", 2)]);
            for demands in passes {
                let of: Vec<Contender<'_>> =
                    names.iter().zip(&demands).map(|(tenant, demand)| Contender { tenant, demand: *demand }).collect();
                let grants = tenants.split(budget, &of, &[]);
                prop_assert!(grants.iter().zip(&demands).all(|(grant, demand)| grant <= demand));
                prop_assert_eq!(grants.iter().sum::<usize>(), budget.min(demands.iter().sum()));
            }
        }

        #[test]
        fn with_less_than_a_task_each_all_get_as_many(budget in 1_usize..20, tenants_in_all in 20_usize..60) {
            let names: Vec<String> = (0..tenants_in_all).map(|number| number.to_string()).collect();
            let of: Vec<Contender<'_>> = names.iter().map(|tenant| Contender { tenant, demand: 100 }).collect();
            let (mut tenants, mut got) = (weighing(&[]), vec![0; tenants_in_all]);
            for _ in 0..tenants_in_all * 10 {
                let grants = tenants.split(budget, &of, &[]);
                prop_assert_eq!(grants.iter().sum::<usize>(), budget);
                got.iter_mut().zip(grants).for_each(|(got, grant)| *got += grant);
            }
            let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
            prop_assert!(most - least <= 3, "{least} to {most}");
        }
    }
}
