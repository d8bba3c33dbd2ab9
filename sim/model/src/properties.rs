//! What must hold in every reachable state.

use stateright::{Model, Property};

use crate::actions::Action;
use crate::rules::Config;
use crate::state::{
    ALL_NODES, Budget, LEASE_BROKEN, NodeIx, OLDER_LOCATED, REMOVED_BACK, RIGHT_BYTES, STALE_READ,
    Stage, State, ix,
};

/// A read returns the bytes of the version it asked for.
pub const P1: &str = "P1 right bytes";
/// What `locate` may name, its owner holds: at every moment.
pub const P2: &str = "P2 no ghost";
/// A removed version is never located again.
pub const P3: &str = "P3 removed stays removed";
/// A leased location does not become an error while its owner is alive and undisturbed.
pub const P4: &str = "P4 lease holds";
/// A version older than an acked one is never located.
pub const P5: &str = "P5 replaced is never located";
/// From every quiet state, a run without faults empties the nodes and answers every remove.
pub const P6: &str = "P6 eviction and removal end";
/// The same while a node that is away stays away.
pub const P7: &str = "P7 an absent node blocks nobody";
/// A read that begins after a replace or remove was answered never gets the old version.
pub const P8: &str = "P8 no stale read";
/// Not a promise: shows that the run reaches the interesting states.
pub const REACHED: &str = "reach: a replica is published and was read";

/// Steps a fault-free schedule may take before it counts as stuck.
const DRAIN_STEPS: usize = 120;

impl Model for Config {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial()]
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        self.enabled(state, out);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.apply(&mut next, action);
        self.reduce(&mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(P1, |_, s: &State| s.broken & RIGHT_BYTES == 0),
            Property::always(P2, |_, s: &State| no_ghost(s)),
            Property::always(P3, |_, s: &State| s.broken & REMOVED_BACK == 0),
            Property::always(P4, |_, s: &State| s.broken & LEASE_BROKEN == 0),
            Property::always(P5, |_, s: &State| s.broken & OLDER_LOCATED == 0),
            Property::always(P8, |_, s: &State| s.broken & STALE_READ == 0),
            Property::always(P6, |c: &Config, s: &State| c.drains(s, None)),
            Property::always(P7, |c: &Config, s: &State| {
                ALL_NODES
                    .into_iter()
                    .filter(|n| !c.registered(s, *n))
                    .all(|n| c.drains(s, Some(n)))
            }),
            Property::sometimes(REACHED, |c: &Config, s: &State| {
                s.budget.read < c.budget.read
                    && s.nodes
                        .iter()
                        .any(|n| n.entries.iter().any(|e| e.stage == Stage::Published))
            }),
        ]
    }
}

/// Every claim that may be located and belongs to the node's present life is held there.
fn no_ghost(s: &State) -> bool {
    s.master.claims.iter().all(|c| {
        let own = &s.nodes[ix(c.node)];
        own.epoch != c.epoch
            || own
                .find(c.key, c.version)
                .map(|i| own.entries[i].stage)
                .is_some_and(|stage| !matches!(stage, Stage::Filling | Stage::Retracted))
    })
}

impl Config {
    /// From a state with nothing deliverable, one fair schedule without faults empties the nodes
    /// and answers the remove. `away` is a node that does not come back meanwhile.
    fn drains(&self, state: &State, away: Option<NodeIx>) -> bool {
        if state.broken != 0 || state.net.any(|m| self.deliverable(state, m)) {
            return true;
        }
        let drained = |s: &State| {
            s.master.removing.is_none()
                && ALL_NODES
                    .into_iter()
                    .all(|n| away == Some(n) || s.nodes[ix(n)].entries.is_empty())
        };
        let mut s = state.clone();
        let mut actions = Vec::new();
        for _ in 0..DRAIN_STEPS {
            if drained(&s) {
                return true;
            }
            s.budget = Budget {
                evict: u8::MAX,
                ..Budget::default()
            };
            actions.clear();
            self.enabled(&s, &mut actions);
            let next = actions
                .iter()
                .filter_map(|a| drain_rank(a, away).map(|rank| (rank, a)))
                .min_by_key(|(rank, _)| *rank);
            let Some((_, action)) = next else {
                return false;
            };
            self.apply(&mut s, action.clone());
            self.reduce(&mut s);
            if s.broken != 0 {
                return true;
            }
        }
        false
    }
}

/// In which order the fault-free schedule prefers steps; `None` is a step it does not take.
fn drain_rank(action: &Action, away: Option<NodeIx>) -> Option<u8> {
    let rank = match action {
        Action::ReadDone(_) | Action::ReaderTimeout => 0,
        Action::Deliver(_) => 1,
        Action::ReaderLeaseEnd => 2,
        Action::LeaseEnd(_) | Action::GraceEnd => 3,
        Action::Register(n) if away != Some(*n) => 4,
        Action::EndSession(n) | Action::NodeLapse(n) | Action::MasterLapse(n)
            if away == Some(*n) =>
        {
            5
        }
        Action::Reclaim(..) => 6,
        Action::SendRetire(_) => 7,
        Action::SendInventoryEnd(_) => 8,
        Action::Send(..) => 9,
        Action::RemoveDone | Action::Commit(_) | Action::CleanMark(_) | Action::Release(_) => 10,
        Action::Evict(n, _) if away != Some(*n) => 11,
        _ => return None,
    };
    Some(rank)
}
