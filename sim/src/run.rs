//! One seed from start to end, and many of them.

use crate::setup::Setup;
use crate::trace::Mode;
use crate::world::{Stats, Violation, World};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

/// How a run ended.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The first property that did not hold.
    pub violation: Option<Violation>,
    /// Figures.
    pub stats: Stats,
    /// Lines of the log that were kept.
    pub lines: Vec<String>,
}

/// Lines shown of a failed run.
pub const TAIL: usize = 80;

/// Runs one seed.
pub fn run(setup: Setup, mode: Mode) -> Report {
    let seed = setup.seed;
    let mut world = World::new(setup, mode);
    let violation = phases(&mut world).err();
    Report {
        seed,
        violation,
        stats: world.stats,
        lines: world.trace.into_lines(),
    }
}

fn phases(world: &mut World) -> Result<(), Violation> {
    world.begin_workload();
    world.begin_faults();
    world.run_until(world.setup.safety)?;
    world.check_liveness()?;
    world.run_until(world.setup.end)
}

/// Runs one seed, and once more with the log on if it fails.
pub fn run_and_explain(setup: &Setup) -> Report {
    let report = run(setup.clone(), Mode::Off);
    if report.violation.is_none() {
        return report;
    }
    run(setup.clone(), Mode::Tail(TAIL))
}

/// Runs seeds on so many threads until one fails, all are done, or `go_on` says no. Reports come in
/// the order of their ends.
pub fn run_many(
    seeds: std::ops::Range<u64>,
    jobs: usize,
    setup_of: impl Fn(u64) -> Setup + Sync,
    go_on: impl Fn() -> bool + Sync,
    mut each: impl FnMut(Report),
) {
    let next = AtomicU64::new(seeds.start);
    let (sender, receiver) = sync_channel(64);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let sender = sender.clone();
            let (next, setup_of, go_on, end) = (&next, &setup_of, &go_on, seeds.end);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || !go_on() {
                        return;
                    }
                    if sender.send(run_and_explain(&setup_of(seed))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for report in receiver {
            each(report);
        }
    });
}
