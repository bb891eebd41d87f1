//! Decides which lanes are removed: those that are empty and that nothing names. Pure; the pruning
//! of both stores calls it.
//!
//! The leader visits all lanes in rounds. A lane without tasks is *marked*: its counts are removed,
//! and the lane keeps when that was. Every later task in the lane writes counts again, in its own
//! transaction. So a marked lane without counts was not used since, and nothing else has to be
//! written when tasks come and go. The next round removes such a lane, if no finished task names
//! it.
//!
//! Finished tasks have no index by lane. But all those of a lane that is empty are as old as its
//! mark. So it is enough to know the lanes of the oldest ones ([`NamedLanes`]).

use std::collections::HashSet;

/// A lane as a visit finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VisitedLane {
    pub id: i64,
    /// Its mark, if it has one. The store chooses what orders its marks.
    pub empty_since: Option<i64>,
    /// Whether it has counts, even of zero tasks.
    pub is_counted: bool,
    /// Whether it has live tasks.
    pub has_tasks: bool,
}

/// The lanes that old finished tasks name.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedLanes {
    pub lanes: HashSet<i64>,
    /// The finished tasks of a lane with this mark, or an earlier one, are all among them. None: of
    /// no lane.
    pub until: Option<i64>,
}

/// Where a round is: it knows the named lanes from its beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneRound {
    pub named: NamedLanes,
    /// The last lane that was visited.
    pub after: i64,
}

/// What becomes of the lanes of a step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LanePlan {
    /// To be marked.
    pub empty: Vec<i64>,
    /// To be removed, each with its mark.
    pub unnamed: Vec<(i64, i64)>,
    /// The last of the lanes that the plan covers, if there may be more.
    pub next: Option<i64>,
}

impl LanePlan {
    /// Plans for a page of lanes, in their order. It removes at most `limit` of them, and leaves
    /// the lanes behind those to the next step. A page with fewer than `page_size` lanes is the
    /// last.
    pub(crate) fn new(page: &[VisitedLane], page_size: usize, named: &NamedLanes, limit: usize) -> Self {
        let mut plan = Self::default();
        let mut last = None;
        for lane in page {
            if plan.unnamed.len() >= limit {
                plan.next = last;
                return plan;
            }
            last = Some(lane.id);
            match lane.empty_since {
                _ if lane.has_tasks => {}
                Some(mark) if !lane.is_counted => {
                    if named.until.is_some_and(|until| mark <= until) && !named.lanes.contains(&lane.id) {
                        plan.unnamed.push((lane.id, mark));
                    }
                }
                _ => plan.empty.push(lane.id),
            }
        }
        plan.next = last.filter(|_| page.len() >= page_size);
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(id: i64, empty_since: Option<i64>, is_counted: bool, has_tasks: bool) -> VisitedLane {
        VisitedLane { id, empty_since, is_counted, has_tasks }
    }

    fn named(lanes: &[i64], until: Option<i64>) -> NamedLanes {
        NamedLanes { lanes: lanes.iter().copied().collect(), until }
    }

    #[test]
    fn only_a_marked_lane_that_was_not_used_is_removed() {
        let page = [
            lane(1, None, true, true),
            lane(2, Some(5), true, true),
            lane(3, None, true, false),
            lane(4, None, false, false),
            lane(5, Some(5), true, false),
            lane(6, Some(5), false, false),
        ];
        let plan = LanePlan::new(&page, 10, &named(&[], Some(9)), 10);
        assert_eq!(plan, LanePlan { empty: vec![3, 4, 5], unnamed: vec![(6, 5)], next: None });
    }

    #[test]
    fn a_lane_that_finished_tasks_may_name_stays() {
        let page = [lane(1, Some(4), false, false), lane(2, Some(5), false, false), lane(3, Some(6), false, false)];
        let removed = |named: &NamedLanes| LanePlan::new(&page, 10, named, 10).unnamed;
        assert_eq!(removed(&named(&[1], Some(5))), [(2, 5)]);
        assert_eq!(removed(&named(&[], None)), []);
    }

    #[test]
    fn a_step_goes_on_behind_the_last_lane_of_its_plan() {
        let page: Vec<VisitedLane> = (1..=4).map(|id| lane(id, Some(0), false, false)).collect();
        let next = |page_size, limit| LanePlan::new(&page, page_size, &named(&[], Some(0)), limit).next;
        assert_eq!((next(4, 10), next(5, 10)), (Some(4), None));
        assert_eq!((next(5, 2), next(5, 4)), (Some(2), None));
    }
}
