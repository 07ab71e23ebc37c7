//! In which order the steps of a graph are submitted, and to which of its lanes.
//!
//! A *lane* is a stream: what is in one runs in order. The first lane is the stream that the graph is launched into.

/// Most lanes of a graph, and with it branches that run side by side.
pub(super) const LANES_MAX: usize = 8;

/// A step, placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    /// Which step.
    pub(super) step: usize,
    /// Where it runs.
    pub(super) lane: usize,
    /// The steps of other lanes that this lane has to wait for first.
    pub(super) waits: Vec<usize>,
    /// Whether another lane waits for it.
    pub(super) is_awaited: bool,
}

/// All steps in an order in which each comes after those it depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Placed>,
    /// How many lanes they use, one at least.
    pub(super) lanes: usize,
}

/// What each step depends on, by index, and whether it is a function of the host's.
pub(super) struct Shape<'a> {
    pub(super) before: &'a [Vec<usize>],
    pub(super) is_host: &'a [bool],
}

/// Plans a graph; `None` where it has a cycle.
pub(super) fn plan(shape: &Shape<'_>) -> Option<Plan> {
    let order = order(shape)?;
    let count = shape.before.len();
    let mut lanes = Lanes { last: vec![None], waited: vec![vec![None; LANES_MAX]], next: 0 };
    let mut lane_of = vec![0; count];
    let mut position_of = vec![0; count];
    let mut steps: Vec<Placed> = Vec::with_capacity(count);
    for (position, step) in order.into_iter().enumerate() {
        let before = shape.before.get(step)?;
        let is_host = *shape.is_host.get(step)?;
        let lane = if is_host { 0 } else { lanes.choose(before, &lane_of) };
        let mut waits = Vec::new();
        // The latest of each lane stands for those before it.
        for other in (0..lanes.last.len()).filter(|other| *other != lane) {
            let latest = before
                .iter()
                .copied()
                .filter(|step| lane_of.get(*step) == Some(&other))
                .max_by_key(|step| position_of.get(*step).copied());
            if let Some(latest) = latest
                && lanes.note_wait(lane, other, position_of.get(latest).copied()?)
            {
                waits.push(latest);
                let at = position_of.get(latest).copied()?;
                steps.get_mut(at)?.is_awaited = true;
            }
        }
        *lanes.last.get_mut(lane)? = Some((step, position));
        *lane_of.get_mut(step)? = lane;
        *position_of.get_mut(step)? = position;
        steps.push(Placed { step, lane, waits, is_awaited: false });
    }
    Some(Plan { steps, lanes: lanes.last.len() })
}

/// An order in which each step comes after those it depends on. What waits for functions of the host's comes as late as it
/// may: they all are in one lane, whose later steps wait for them as well.
fn order(shape: &Shape<'_>) -> Option<Vec<usize>> {
    let count = shape.before.len();
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut missing: Vec<usize> = shape.before.iter().map(Vec::len).collect();
    for (step, before) in shape.before.iter().enumerate() {
        for other in before {
            behind.get_mut(*other)?.push(step);
        }
    }
    // How many functions of the host's are one behind the other before each step.
    let mut rank = vec![0_usize; count];
    let mut order: Vec<usize> = (0..count).filter(|step| missing.get(*step) == Some(&0)).collect();
    let mut at = 0;
    while let Some(step) = order.get(at).copied() {
        at += 1;
        let next = rank.get(step)? + usize::from(*shape.is_host.get(step)?);
        for later in behind.get(step)? {
            let rank = rank.get_mut(*later)?;
            *rank = next.max(*rank);
            let missing = missing.get_mut(*later)?;
            *missing -= 1;
            if *missing == 0 {
                order.push(*later);
            }
        }
    }
    order.sort_by_key(|step| (rank.get(*step).copied(), shape.is_host.get(*step).copied()));
    (order.len() == count).then_some(order)
}

/// What the lanes have so far.
struct Lanes {
    /// Each lane's last step, and its position.
    last: Vec<Option<(usize, usize)>>,
    /// Up to which position each lane has waited for each other.
    waited: Vec<Vec<Option<usize>>>,
    /// Whose turn it is where all are in use.
    next: usize,
}

impl Lanes {
    /// The lane that ends in one of the steps before, or one without steps, or the next one.
    fn choose(&mut self, before: &[usize], lane_of: &[usize]) -> usize {
        let ends_in = |step: &usize| {
            let lane = lane_of.get(*step).copied()?;
            let last = self.last.get(lane).copied().flatten()?;
            (last.0 == *step).then_some(lane)
        };
        if let Some(lane) = before.iter().find_map(ends_in) {
            return lane;
        }
        if let Some(lane) = self.last.iter().position(Option::is_none) {
            return lane;
        }
        if self.last.len() < LANES_MAX {
            self.last.push(None);
            self.waited.push(vec![None; LANES_MAX]);
            return self.last.len() - 1;
        }
        self.next = (self.next + 1) % self.last.len();
        self.next
    }

    /// Notes that a lane waits for another up to a position; whether it had not already.
    fn note_wait(&mut self, lane: usize, other: usize, position: usize) -> bool {
        let Some(waited) = self.waited.get_mut(lane).and_then(|waited| waited.get_mut(other)) else {
            return true;
        };
        if waited.is_some_and(|waited| waited >= position) {
            return false;
        }
        *waited = Some(position);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(before: &[&[usize]], hosts: &[usize]) -> Option<Plan> {
        let is_host: Vec<bool> = (0..before.len()).map(|step| hosts.contains(&step)).collect();
        let before: Vec<Vec<usize>> = before.iter().map(|before| before.to_vec()).collect();
        plan(&Shape { before: &before, is_host: &is_host })
    }

    /// That every dependency is kept: by an order in one lane, or by a wait, perhaps of an earlier step.
    fn check(before: &[&[usize]], plan: &Plan) {
        let place = |step| plan.steps.iter().position(|placed| placed.step == step).unwrap();
        assert_eq!(plan.steps.len(), before.len());
        assert!(plan.lanes <= LANES_MAX);
        for (step, before) in before.iter().enumerate() {
            for other in *before {
                let (at, from) = (place(step), place(*other));
                assert!(from < at, "{other} before {step}");
                let lane = plan.steps[at].lane;
                let kept = lane == plan.steps[from].lane
                    || plan.steps[..=at].iter().filter(|placed| placed.lane == lane).any(|placed| {
                        placed.waits.iter().any(|wait| {
                            let waited = &plan.steps[place(*wait)];
                            assert!(waited.is_awaited);
                            waited.lane == plan.steps[from].lane && place(*wait) >= from
                        })
                    });
                assert!(kept, "{step} after {other}: {plan:?}");
            }
        }
    }

    #[test]
    fn a_line_of_steps_stays_in_the_first_lane() {
        let plan = planned(&[&[], &[0], &[1]], &[]).unwrap();
        assert_eq!(plan.lanes, 1);
        assert!(plan.steps.iter().all(|step| step.lane == 0 && step.waits.is_empty() && !step.is_awaited));
    }

    #[test]
    fn branches_have_lanes_of_their_own_and_meet_again() {
        let diamond: &[&[usize]] = &[&[], &[0], &[0], &[1, 2]];
        let plan = planned(diamond, &[]).unwrap();
        check(diamond, &plan);
        assert_eq!(plan.lanes, 2);
        assert_ne!(plan.steps[1].lane, plan.steps[2].lane);
        assert_eq!(plan.steps[3].waits.len(), 1);
    }

    #[test]
    fn a_cycle_has_no_order() {
        assert_eq!(planned(&[&[1], &[0]], &[]), None);
        assert_eq!(planned(&[&[0]], &[]), None);
    }

    #[test]
    fn host_functions_are_in_the_first_lane_and_what_waits_for_them_comes_late() {
        // 0 is a host function, 1 waits for it, 2 and 3 do not.
        let plan = planned(&[&[], &[0], &[], &[2]], &[0]).unwrap();
        let order: Vec<usize> = plan.steps.iter().map(|step| step.step).collect();
        assert_eq!(order, [2, 3, 0, 1]);
        assert_eq!(plan.steps[2].lane, 0);
    }

    #[test]
    fn every_dependency_is_kept_however_many_branches_there_are() {
        // Numbers of a linear congruential generator: each step depends on up to three before it.
        let mut word = 12345_u32;
        let mut draw = |below: usize| {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (word >> 8) as usize % below
        };
        for count in [1, 2, 5, 40, 300] {
            let mut before: Vec<Vec<usize>> = Vec::new();
            for step in 0..count {
                let mut list: Vec<usize> =
                    (0..draw(4)).filter(|_| step > 0).map(|_| draw(step.max(1))).collect();
                list.sort_unstable();
                list.dedup();
                before.push(list);
            }
            let hosts: Vec<usize> = (0..count).filter(|_| draw(10) == 0).collect();
            let before: Vec<&[usize]> = before.iter().map(Vec::as_slice).collect();
            let plan = planned(&before, &hosts).unwrap();
            check(&before, &plan);
            assert!(plan.steps.iter().all(|placed| !hosts.contains(&placed.step) || placed.lane == 0));
        }
    }
}
