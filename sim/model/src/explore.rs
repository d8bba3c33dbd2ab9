//! Runs the checker on one configuration and says what it found.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, UniformChooser};

use crate::actions::Action;
use crate::properties::REACHED;
use crate::rules::Config;

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// States to generate before the run is cut.
    pub states: usize,
    /// Steps from the beginning; `None` is no bound.
    pub depth: Option<NonZeroUsize>,
}

/// A way into a state where a promise is broken.
#[derive(Clone, Debug)]
pub struct Counterexample {
    pub property: &'static str,
    pub steps: Vec<Action>,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub generated: usize,
    pub unique: usize,
    pub depth: usize,
    pub elapsed: Duration,
    /// Every reachable state within the budget was seen.
    pub exhausted: bool,
    /// The states that the run is about were reached.
    pub reached: bool,
    pub broken: Vec<Counterexample>,
}

impl Outcome {
    /// No promise was broken.
    pub fn clean(&self) -> bool {
        self.broken.is_empty()
    }

    /// The shortest way found to a broken promise.
    pub fn shortest(&self) -> Option<&Counterexample> {
        self.broken.iter().min_by_key(|c| c.steps.len())
    }
}

/// Explores breadth-first until the budget is exhausted, a promise breaks, or the bounds are met.
pub fn breadth_first(config: &Config, bounds: Bounds) -> Outcome {
    let started = Instant::now();
    let mut builder = config
        .clone()
        .checker()
        .threads(1)
        .target_state_count(bounds.states)
        .finish_when(HasDiscoveries::AnyFailures);
    if let Some(depth) = bounds.depth {
        builder = builder.target_max_depth(depth.get());
    }
    let done = builder.spawn_bfs().join();
    let whole = done.state_count() < bounds.states && bounds.depth.is_none();
    outcome(&done, started, whole)
}

/// Walks at random for a while; finds, but never proves.
pub fn random_walks(config: &Config, seed: u64, time: Duration) -> Outcome {
    let started = Instant::now();
    let done = config
        .clone()
        .checker()
        .threads(1)
        .timeout(time)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_simulation(seed, UniformChooser)
        .join();
    outcome(&done, started, false)
}

fn outcome(done: &impl Checker<Config>, started: Instant, whole: bool) -> Outcome {
    let mut broken = Vec::new();
    let mut reached = false;
    for (property, path) in done.discoveries() {
        if property == REACHED {
            reached = true;
        } else {
            broken.push(Counterexample {
                property,
                steps: path.into_actions(),
            });
        }
    }
    broken.sort_by_key(|c| c.property);
    Outcome {
        generated: done.state_count(),
        unique: done.unique_state_count(),
        depth: done.max_depth(),
        elapsed: started.elapsed(),
        exhausted: whole && broken.is_empty(),
        reached,
        broken,
    }
}
