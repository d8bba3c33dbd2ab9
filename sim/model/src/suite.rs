//! The standard runs: the design in bounded worlds, and each rule dropped in a world that needs it.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use crate::explore::{Bounds, Outcome, breadth_first};
use crate::rules::{ALL_RULES, Config, Rule};

/// Seed of random walks, so that a walk can be repeated.
pub const WALK_SEED: u64 = 7;

/// A world in which the design is explored.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// What differs from `Config::quiet`, as on the command line.
    pub settings: &'static str,
    /// States to generate before the run is cut.
    pub states_max: usize,
}

/// What dropping a rule is expected to show.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// This promise breaks.
    Breaks(&'static str),
    /// Nothing breaks, and why the rule stays.
    Nothing(&'static str),
}

/// The design without one rule.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    pub rule: Rule,
    pub settings: &'static str,
    pub expected: Expected,
}

impl Dropped {
    /// The rule's name on the command line.
    pub fn rule_name(&self) -> &'static str {
        ALL_RULES
            .iter()
            .find(|(rule, _)| *rule == self.rule)
            .map_or("?", |(_, name)| name)
    }
}

const fn full(settings: &'static str) -> Run {
    Run {
        settings,
        states_max: 50_000_000,
    }
}

/// Explored to the end, in less than three minutes on two cores.
pub const STANDARD: &[Run] = &[
    full("replicas=2 session=1 forced=1"),
    full("session=1 master_crash=1 forced=1"),
    full("master_crash=1 put=2 evict=1"),
    full("node_crash=1 session=1 put=2"),
    full("session=2 forced=1 drop=1"),
    full("master_crash=2 forced=1"),
    full("master_crash=1 put=2"),
    full("node_crash=1 master_crash=1 ssd=1 forced=1"),
    full("session=1 put=2 evict=1"),
    full("session=1 master_crash=1 evict=1"),
    full("node_crash=1 put=2 ssd=1"),
    full("dup=1 retry=1 session=1 forced=1"),
    full("session=1 report=1 forced=1 drop=1"),
    full("master_crash=1 report=1 remove=1"),
    full("master_crash=1 drop=1 evict=1"),
    full("put=2 evict=1 drop=1 dup=1 retry=1"),
    full("keys=2 put=2 drop=1"),
    full("session=1 evict=1 remove=1 drop=1"),
    full("long_grace=1 master_crash=1 evict=1 remove=1"),
];

/// Longer runs; the last ones are cut.
pub const WIDE: &[Run] = &[
    full("session=1 master_crash=1 put=2"),
    full("replicas=2 master_crash=1 forced=1"),
];

/// Each rule, dropped where it is needed.
pub const DROPPED: &[Dropped] = &[];

/// Reads settings as the command line does.
///
/// # Errors
/// Names the setting that is not understood.
pub fn config_of(settings: &str) -> Result<Config, String> {
    let mut config = Config::quiet();
    for setting in settings.split_whitespace() {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| format!("{setting}: a setting is name=value"))?;
        config.set(name, value)?;
    }
    Ok(config)
}

/// Explores the design in one world.
///
/// # Errors
/// Names the setting that is not understood.
pub fn run(run: &Run) -> Result<Outcome, String> {
    let bounds = Bounds {
        states: run.states_max,
        depth: None,
    };
    Ok(breadth_first(&config_of(run.settings)?, bounds))
}

/// Explores the design without one rule.
///
/// # Errors
/// Names the setting that is not understood.
pub fn run_dropped(dropped: &Dropped) -> Result<Outcome, String> {
    let mut config = config_of(dropped.settings)?;
    config.rules = config.rules.without(dropped.rule);
    Ok(breadth_first(
        &config,
        Bounds {
            states: 20_000_000,
            depth: None,
        },
    ))
}

/// Runs a job over all items on as many threads as there are cores, and hands each result over as
/// soon as it is there.
pub fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    job: impl Fn(&T) -> R + Sync,
    mut done: impl FnMut(&T, R),
) {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    let (sender, results) = sync_channel(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            let sender = sender.clone();
            let (next, job) = (&next, &job);
            scope.spawn(move || {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send((item, job(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (item, result) in results {
            done(item, result);
        }
    });
}
