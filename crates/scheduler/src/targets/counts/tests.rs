use proptest::prelude::*;

use super::*;

/// The default settings.
fn limits() -> SlotLimits {
    SlotLimits { per_target: 64, in_all: 512, tenant_percent: 75, band_percent: 90, weights: HashMap::new() }
}

fn holder<'a>(tenant: &'a str, band: Band, target: &'a str) -> SlotHolder<'a> {
    SlotHolder { tenant, band, target }
}

fn start() -> (SlotLimits, SlotsInUse) {
    (limits(), SlotsInUse::new(&limits()))
}

/// Takes every slot that the holder may take; returns how many.
fn fill(counts: &mut SlotsInUse, limits: &SlotLimits, holder: SlotHolder<'_>) -> usize {
    let mut taken = 0;
    while counts.may_take(limits, holder) {
        counts.take(holder);
        taken += 1;
    }
    counts.assert_sums();
    taken
}

/// Takes every slot that these bands of a tenant may take at forty targets of its own.
fn hang_everywhere(counts: &mut SlotsInUse, limits: &SlotLimits, tenant: &str, bands: &[Band]) {
    for band in bands {
        for target in 0..40 {
            fill(counts, limits, holder(tenant, *band, &format!("{tenant}-{target}")));
        }
    }
}

#[test]
fn eight_hanging_tenants_leave_a_slot_for_the_ninth() {
    let (limits, mut counts) = start();
    for tenant in 0..8 {
        hang_everywhere(&mut counts, &limits, &tenant.to_string(), &Band::ALL);
    }
    for band in Band::ALL {
        assert!(fill(&mut counts, &limits, holder("ninth", band, "healthy")) > 0, "{band:?}");
    }
}

#[test]
fn five_tenants_at_a_target_leave_a_slot_for_the_sixth() {
    let (limits, mut counts) = start();
    for tenant in 0..5 {
        for band in Band::ALL {
            fill(&mut counts, &limits, holder(&tenant.to_string(), band, "shared"));
        }
    }
    assert!(counts.may_take(&limits, holder("sixth", Band::Normal, "shared")));
    assert!(fill(&mut counts, &limits, holder("sixth", Band::Normal, "other")) > 1);
}

#[test]
fn two_hanging_bands_leave_a_slot_for_the_third() {
    let (limits, mut counts) = start();
    for tenant in 0..7 {
        hang_everywhere(&mut counts, &limits, &tenant.to_string(), &Band::ALL);
    }
    hang_everywhere(&mut counts, &limits, "t", &[Band::Low, Band::Normal]);
    for target in ["t-0", "t-39", "healthy"] {
        assert!(fill(&mut counts, &limits, holder("t", Band::High, target)) > 0, "{target}");
    }
}

#[test]
fn four_hanging_targets_leave_a_slot_for_the_fifth() {
    let (limits, mut counts) = start();
    for tenant in 0..7 {
        hang_everywhere(&mut counts, &limits, &tenant.to_string(), &Band::ALL);
    }
    for target in ["a", "b", "c", "d"] {
        assert!(fill(&mut counts, &limits, holder("t", Band::Low, target)) > 0, "{target}");
    }
    assert!(counts.may_take(&limits, holder("t", Band::Low, "healthy")));
}

#[test]
fn a_lone_tenants_five_targets_leave_a_slot_for_the_sixth() {
    let (limits, mut counts) = start();
    for target in 0..5 {
        assert!(fill(&mut counts, &limits, holder("t", Band::Normal, &target.to_string())) > 0, "{target}");
    }
    assert!(counts.may_take(&limits, holder("t", Band::Normal, "healthy")));
}

#[test]
fn a_lone_holder_has_all_common_slots_and_a_first_one() {
    let limits = SlotLimits { tenant_percent: 100, band_percent: 100, ..limits() };
    let mut counts = SlotsInUse::new(&limits);
    assert_eq!(fill(&mut counts, &limits, holder("t", Band::Normal, "a")), 49);
    assert!(counts.give_back(holder("t", Band::Normal, "a")));
    assert_eq!(fill(&mut counts, &limits, holder("t", Band::Normal, "a")), 1);
}

#[test]
fn few_slots_have_no_reserve() {
    let limits = SlotLimits { per_target: 1, in_all: 2, ..limits() };
    let mut counts = SlotsInUse::new(&limits);
    assert_eq!(fill(&mut counts, &limits, holder("t", Band::Normal, "a")), 1);
    assert_eq!(counts.crowded(&limits, holder("u", Band::Normal, "a")), [SlotOwner::Target]);
    assert_eq!(fill(&mut counts, &limits, holder("u", Band::Normal, "b")), 1);
    let crowded = counts.crowded(&limits, holder("v", Band::Normal, "a"));
    assert_eq!(crowded, [SlotOwner::Target, SlotOwner::Tenant]);
}

#[test]
fn each_tenant_leaves_common_slots_to_the_next() {
    let limits = SlotLimits { per_target: 512, band_percent: 100, ..limits() };
    let mut counts = SlotsInUse::new(&limits);
    // 384 common slots: three quarters of what is left for each tenant, and a first one.
    let got = ["first", "second", "third", "fourth", "fifth"]
        .map(|tenant| fill(&mut counts, &limits, holder(tenant, Band::Normal, tenant)));
    assert_eq!(got, [289, 73, 19, 5, 2]);
}

#[test]
fn a_tenant_of_weight_n_counts_as_n_tenants() {
    let weights = HashMap::from([("heavy".to_owned(), 4)]);
    let limits = SlotLimits { per_target: 512, band_percent: 100, weights, ..limits() };
    let mut counts = SlotsInUse::new(&limits);
    // At 75 %, a weight of 1 leaves a third of its own slots to others: four of 4 1/3 parts.
    assert_eq!(fill(&mut counts, &limits, holder("heavy", Band::Normal, "a")), 384 * 12 / 13 + 1);
}

#[test]
fn a_band_leaves_common_slots_to_the_tenants_other_bands() {
    let limits = SlotLimits { per_target: 512, ..limits() };
    let mut counts = SlotsInUse::new(&limits);
    assert_eq!(fill(&mut counts, &limits, holder("t", Band::Low, "a")), 288 * 9 / 10 + 1);
    assert_eq!(counts.crowded(&limits, holder("t", Band::Low, "a")), [SlotOwner::Band(Band::Low)]);
    assert_eq!(fill(&mut counts, &limits, holder("t", Band::High, "a")), 27);
}

#[test]
fn a_tenants_slots_are_known_by_target_and_in_all() {
    let (_, mut counts) = start();
    for target in ["a", "a", "b"] {
        counts.take(holder("t", Band::Normal, target));
    }
    assert_eq!(counts.slots_of("t", "a"), TenantSlots { at_target: 2, in_all: 3 });
    assert!(counts.give_back(holder("t", Band::Normal, "a")));
    assert!(!counts.give_back(holder("t", Band::High, "a")), "it has none in that band");
    assert!(!counts.give_back(holder("other", Band::Normal, "a")), "another's slot");
    assert_eq!(counts.slots_of("t", "a"), TenantSlots { at_target: 1, in_all: 2 });
}

#[test]
fn a_planned_slot_counts_once_in_all_and_for_each_band() {
    let limits = SlotLimits { per_target: 4, in_all: 8, tenant_percent: 100, band_percent: 100, ..limits() };
    let mut counts = SlotsInUse::new(&limits);
    for _ in 0..3 {
        assert!(counts.may_take_common(&limits, holder("t", Band::Low, "a")));
        counts.plan_for_bands("t", "a", &[Band::High, Band::Low]);
    }
    assert_eq!(counts.slots_of("t", "a").in_all, 3);
    assert!(!counts.may_take(&limits, holder("t", Band::High, "a")), "no longer new, and no common slot is left");
    assert!(counts.may_take(&limits, holder("t", Band::Normal, "a")), "a first slot");
}

proptest! {
    #[test]
    fn there_are_never_more_slots_than_the_limits_say(
        (per_target, in_all) in (1_usize..12).prop_flat_map(|per_target| (Just(per_target), per_target..60)),
        steps in prop::collection::vec((0_u8..6, 0_u8..10, 0_u8..8, any::<bool>()), 1..400),
    ) {
        let limits = SlotLimits { per_target, in_all, ..limits() };
        let mut counts = SlotsInUse::new(&limits);
        for (tenant, priority, target, takes) in steps {
            let (tenant, target) = (tenant.to_string(), target.to_string());
            let holder = holder(&tenant, Band::of(priority), &target);
            if !takes {
                counts.give_back(holder);
            } else if counts.may_take(&limits, holder) {
                prop_assert!(counts.crowded(&limits, holder).is_empty());
                counts.take(holder);
            } else {
                prop_assert!(!counts.crowded(&limits, holder).is_empty());
            }
            counts.assert_sums();
            prop_assert!(counts.in_all <= in_all);
            prop_assert!(counts.targets.values().all(|target| target.slots <= per_target));
        }
    }
}

#[test]
fn what_is_claimed_ahead_is_common_at_its_target_only() {
    let limits =
        SlotLimits { per_target: 8, in_all: 40, tenant_percent: 100, band_percent: 100, weights: HashMap::new() };
    let mut counts = SlotsInUse::new(&limits);
    let holder = |target| SlotHolder { tenant: "t", band: Band::Normal, target };
    (0..7).for_each(|_| counts.take(holder("a")));
    assert!(!counts.may_take(&limits, holder("a")));
    let mut ahead = counts.with_ahead(HashMap::from([("a".to_owned(), 3)]));
    (0..3).for_each(|_| {
        assert!(ahead.may_take_common(&limits, holder("a")));
        ahead.take(holder("a"));
    });
    assert!(!ahead.may_take(&limits, holder("a")));
    (0..7).for_each(|_| ahead.take(holder("b")));
    assert!(!ahead.may_take(&limits, holder("b")), "nothing is claimed ahead for it");
}
