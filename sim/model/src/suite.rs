//! The standard runs: the design in bounded worlds, and each rule dropped in a world that needs it.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use crate::explore::{Bounds, Outcome, breadth_first};
use crate::properties::{P1, P2, P3, P4, P5, P8};
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

const fn breaks(rule: Rule, settings: &'static str, property: &'static str) -> Dropped {
    Dropped {
        rule,
        settings,
        expected: Expected::Breaks(property),
    }
}

const fn idle(rule: Rule, settings: &'static str, why: &'static str) -> Dropped {
    Dropped {
        rule,
        settings,
        expected: Expected::Nothing(why),
    }
}

/// Explored to the end, in less than three minutes on two cores.
pub const STANDARD: &[Run] = &[
    full("node_crash=1 master_crash=1 ssd=1 forced=1 locate=2"),
    full("replicas=2 session=1 forced=1"),
    full("session=1 master_crash=1 forced=1"),
    full("session=1 forced=1 drop=1 locate=2 read=2"),
    full("master_crash=1 forced=1 locate=2 read=2"),
    full("master_crash=1 put=2 evict=1"),
    full("node_crash=1 session=1 put=2"),
    full("session=2 forced=1 drop=1"),
    full("master_crash=2 forced=1"),
    full("master_crash=1 put=2"),
    full("session=1 put=2 evict=1"),
    full("session=1 master_crash=1 evict=1"),
    full("node_crash=1 put=2 ssd=1"),
    full("node_crash=1 ssd=1 forced=1 locate=2 read=2"),
    full("dup=1 retry=1 session=1 forced=1"),
    full("session=1 report=1 forced=1 drop=1"),
    full("master_crash=1 report=1 remove=1"),
    full("master_crash=1 drop=1 evict=1"),
    full("put=2 evict=1 drop=1 dup=1 retry=1"),
    full("keys=2 put=2 drop=1"),
    full("session=1 evict=1 remove=1 drop=1"),
    full("long_grace=1 master_crash=1 evict=1 remove=1"),
    full("confirm=1 lease_withheld=0 session=1 master_crash=1 forced=1"),
];

/// Longer runs, up to an hour; the last two are cut.
pub const WIDE: &[Run] = &[
    full("session=1 master_crash=1 put=2"),
    full("replicas=2 master_crash=1 forced=1"),
    full("master_crash=1 put=2 forced=1"),
    full("node_crash=1 master_crash=1 ssd=1 forced=1 drop=1"),
    full("master_crash=2 session=1 forced=1"),
    full("master_crash=2 node_crash=1 ssd=1 forced=1"),
    full("replicas=2 session=1 forced=1 drop=1"),
    full("keys=2 put=2 session=1 forced=1"),
    full("session=1 node_crash=1 ssd=1 put=2 forced=1"),
    full("node_crash=1 master_crash=1 put=2 ssd=1"),
    full("session=1 master_crash=1 forced=1 evict=1 drop=1 locate=2 read=2"),
];

const PROMISED_FOR_A_TERM: &str =
    "leases are promised within a term only; see the same rule under long_grace";

/// Each rule, dropped where it is needed.
pub const DROPPED: &[Dropped] = &[
    breaks(Rule::CommitFirst, "session=1 forced=1", P2),
    breaks(Rule::NoRollback, "session=1 forced=1", P2),
    breaks(Rule::RetractFirst, "master_crash=1 evict=1 drop=1", P2),
    breaks(Rule::Numbered, "master_crash=1 forced=1", P2),
    breaks(Rule::FreshNumber, "session=1 put=2", P5),
    breaks(Rule::SessionChecked, "node_crash=1 put=2 ssd=1", P2),
    breaks(Rule::AnswersChecked, "session=1 evict=2", P2),
    breaks(Rule::VersionInRead, "node_crash=1 put=2 ssd=1", P1),
    breaks(Rule::Pins, "node_crash=1 ssd=1 forced=1", P1),
    breaks(Rule::LeaseFromSend, "session=1 forced=1", P4),
    breaks(Rule::PlainRemoveRefused, "evict=1 remove=1", P4),
    breaks(Rule::RemoveAsksOwners, "session=1 forced=1", P8),
    breaks(Rule::ReplaceAsksOwners, "session=1 put=2", P8),
    breaks(Rule::Floor, "master_crash=1 forced=1", P3),
    breaks(Rule::RemoveTakesVersion, "master_crash=1 forced=1", P3),
    breaks(Rule::LastRemembered, "node_crash=1 put=2 ssd=1", P2),
    breaks(
        Rule::MarkAbsent,
        "node_crash=1 master_crash=1 ssd=1 forced=1",
        P8,
    ),
    breaks(Rule::GrantedIsOwed, "master_crash=1 evict=1 remove=1", P3),
    breaks(Rule::PlacedIsOwner, "master_crash=1 forced=1", P8),
    breaks(Rule::OneShotFreed, "session=1 evict=1 dup=1 forced=1", P8),
    breaks(Rule::OneShotRetired, "master_crash=1 put=2", P5),
    breaks(Rule::SessionNotEpoch, "session=1 forced=1", P4),
    breaks(Rule::LeasesOutliveSession, "session=1 evict=1", P4),
    breaks(Rule::SessionEndFreesNothing, "session=1 evict=1", P4),
    breaks(Rule::OldMasterSilent, "master_crash=1 forced=1", P3),
    breaks(
        Rule::ReportHides,
        "session=1 report=1 forced=1 locate=2",
        P8,
    ),
    breaks(
        Rule::ReportHides,
        "master_crash=1 report=1 remove=1 locate=2",
        P3,
    ),
    breaks(Rule::WriteOfTerm, "master_crash=1 put=2 forced=1", P3),
    breaks(
        Rule::EpochInWrite,
        "node_crash=1 evict=1 dup=1 forced=1 master_crash=1",
        P3,
    ),
    breaks(Rule::RetiredNumbered, "master_crash=1 forced=1", P2),
    breaks(Rule::RefusalIsOwed, "master_crash=1 forced=1 drop=1", P3),
    breaks(Rule::ServingLease, "session=1 forced=1", P8),
    breaks(Rule::ServingFromSend, "session=1 forced=1", P8),
    breaks(Rule::WaitServingLease, "session=1 forced=1", P8),
    breaks(Rule::RestartAssumesServing, "master_crash=1 forced=1", P8),
    breaks(Rule::LeaseWithheld, "session=1 forced=1", P8),
    breaks(
        Rule::UnconfirmAtRegister,
        "confirm=1 lease_withheld=0 session=1 forced=1",
        P8,
    ),
    breaks(
        Rule::UnconfirmedWaits,
        "confirm=1 lease_withheld=0 session=1 forced=1",
        P4,
    ),
    breaks(Rule::RemoveWaitsUnlisted, "master_crash=1 forced=1", P8),
    breaks(Rule::PutWaitsUnlisted, "master_crash=1 put=2", P8),
    idle(
        Rule::PutWaitsUnlisted,
        "puts_replace=0 master_crash=1 put=2",
        "a first put may skip it where only removes are promised to be seen at once",
    ),
    breaks(Rule::InventoryIsWhole, "session=1 forced=1", P8),
    breaks(Rule::EndMakesNoClaim, "session=1 evict=1", P2),
    breaks(Rule::PendingIsOwner, "master_crash=1 forced=1", P3),
    breaks(
        Rule::TombstoneFirst,
        "node_crash=1 master_crash=1 ssd=1 forced=1 locate=2",
        P3,
    ),
    breaks(
        Rule::GraceHoldsRetract,
        "long_grace=1 master_crash=1 evict=1",
        P4,
    ),
    idle(
        Rule::GraceHoldsRetract,
        "master_crash=1 evict=1 drop=1",
        PROMISED_FOR_A_TERM,
    ),
    breaks(
        Rule::GraceHoldsRetire,
        "long_grace=1 session=1 master_crash=1 put=2",
        P4,
    ),
    breaks(
        Rule::NothingDiscarded,
        "long_grace=1 session=1 master_crash=1 put=2",
        P4,
    ),
    idle(
        Rule::GraceHoldsRetire,
        "session=1 master_crash=1 forced=1",
        PROMISED_FOR_A_TERM,
    ),
    idle(
        Rule::NothingDiscarded,
        "session=1 master_crash=1 forced=1",
        PROMISED_FOR_A_TERM,
    ),
    idle(
        Rule::GraceHoldsUnacked,
        "master_crash=1 put=2",
        PROMISED_FOR_A_TERM,
    ),
    idle(
        Rule::EpochInRead,
        "node_crash=1 put=2 ssd=1",
        "the version protects copied reads alone",
    ),
    idle(
        Rule::PublishNeedsPlace,
        "session=1 put=2 evict=1",
        "second line",
    ),
    idle(
        Rule::AckedDurable,
        "node_crash=1 master_crash=1 ssd=1 forced=1",
        "only delays",
    ),
    idle(
        Rule::ForgetWhenSettled,
        "session=1 put=2 evict=1",
        "memory, not safety",
    ),
    idle(
        Rule::EpochDropsOwed,
        "node_crash=1 put=2 ssd=1",
        "memory, not safety",
    ),
    idle(
        Rule::ClaimsSurvive,
        "session=1 master_crash=1 forced=1",
        "refinement, not safety",
    ),
    idle(
        Rule::RetireIgnoresPins,
        "session=1 forced=1",
        "speed, not safety",
    ),
];

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
