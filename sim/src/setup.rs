//! What a seed decides before the run: sizes, times, and which faults it has (a run with all faults
//! at once hides the bugs that need a long quiet stretch, so each is switched by the seed).

use crate::clock::{MS, Micros, SECOND};
use crate::rng::Rng;
use snowskin_types::Millis;

/// Granularity of the arena; segments are a few of these, so that eviction is constant.
pub const UNIT: u64 = 4096;

/// Planted faults of the cores, by name.
pub const BUGS: [&str; 6] = [
    "publish_before_commit",
    "reclaim_before_grant",
    "rollback_on_missing_answer",
    "read_without_version",
    "write_not_one_shot",
    "no_sequence_numbers",
];

/// Shares of messages, in 1/1000, that meet a fault, and the longest delays.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// Lost.
    pub drop: u64,
    /// Arrive twice.
    pub duplicate: u64,
    /// Delayed by up to [`Weather::slow_max`].
    pub slow: u64,
    /// Delayed by up to [`Weather::late_max`], longer than sessions last.
    pub late: u64,
    /// See [`Weather::slow`].
    pub slow_max: Micros,
    /// See [`Weather::late`].
    pub late_max: Micros,
    /// Transfers whose bytes dawdle.
    pub slow_transfer: u64,
    /// Transfers that stop for longer than a pin lasts.
    pub stalled_transfer: u64,
    /// Durable writes that take up to half a second.
    pub slow_persist: u64,
    /// Durable writes that fail.
    pub failed_persist: u64,
}

/// Mean times between faults of processes and links; zero: never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    /// A node dies and is restarted on its address.
    pub node_crash: Micros,
    /// The master dies and is restarted.
    pub master_crash: Micros,
    /// A process is stopped for a while.
    pub freeze: Micros,
    /// A control link breaks.
    pub link_loss: Micros,
    /// Two processes cannot reach each other for a while.
    pub partition: Micros,
    /// A client dies in the middle of its call.
    pub client_crash: Micros,
    /// A reader reports a replica that is sound.
    pub false_report: Micros,
}

/// All that a seed decides.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The seed.
    pub seed: u64,
    /// Nodes.
    pub nodes: usize,
    /// Clients.
    pub clients: usize,
    /// Keys.
    pub keys: usize,
    /// Segment size of each node.
    pub capacity: u64,
    /// Largest object, in units.
    pub units_max: u64,
    /// Most copies of a put.
    pub replicas_max: u64,
    /// Read lease.
    pub lease_ttl: Millis,
    /// When an unfinished put may be preempted.
    pub discard: Millis,
    /// Mean time between the calls of a client.
    pub think: Micros,
    /// Faults of messages.
    pub weather: Weather,
    /// Faults of processes and links.
    pub pace: Pace,
    /// End of the phase with faults.
    pub safety: Micros,
    /// End of the run.
    pub end: Micros,
    /// A planted fault of a core; only in builds with `--cfg known_bugs`.
    pub bug: Option<String>,
}

impl Setup {
    /// What a seed decides for a run of so many simulated seconds, a fifth of it for healing.
    pub fn of_seed(seed: u64, seconds: u64) -> Self {
        let mut rng = Rng::new(seed, 1);
        let units_max = rng.within(1, 4);
        let mut on = |per_mille: u64, value: u64| if rng.chance(per_mille) { value } else { 0 };
        let weather = Weather {
            drop: on(600, 15),
            duplicate: on(600, 25),
            slow: on(800, 60),
            late: on(600, 8),
            slow_max: 60 * MS,
            late_max: 4 * SECOND,
            slow_transfer: on(800, 80),
            stalled_transfer: on(300, 2),
            slow_persist: on(500, 200),
            failed_persist: on(300, 30),
        };
        let pace = Pace {
            node_crash: on(650, 9 * SECOND),
            master_crash: on(650, 11 * SECOND),
            freeze: on(500, 8 * SECOND),
            link_loss: on(700, 3 * SECOND),
            partition: on(500, 8 * SECOND),
            client_crash: on(400, 3 * SECOND),
            false_report: on(600, 2 * SECOND),
        };
        let end = seconds.max(20) * SECOND;
        Setup {
            seed,
            nodes: rng.within(2, 3) as usize,
            clients: rng.within(3, 6) as usize,
            keys: rng.within(4, 10) as usize,
            capacity: rng.within(units_max * 3, units_max * 3 + 8) * UNIT,
            units_max,
            replicas_max: rng.within(1, 2),
            lease_ttl: Millis([300, 800, 2000, 5000][rng.index(4)]),
            discard: Millis([1500, 4000][rng.index(2)]),
            think: [3, 10, 30][rng.index(3)] * MS,
            weather,
            pace,
            safety: end - (end / 5).max(14 * SECOND),
            end,
            bug: None,
        }
    }

    /// Two nodes, no faults, nothing random: the ground of the fixed scenarios.
    pub fn calm() -> Self {
        Setup {
            seed: 0,
            nodes: 2,
            clients: 2,
            keys: 4,
            capacity: 16 * UNIT,
            units_max: 2,
            replicas_max: 1,
            lease_ttl: Millis(1000),
            discard: Millis(4000),
            think: 0,
            weather: Weather::default(),
            pace: Pace::default(),
            safety: Micros::MAX,
            end: Micros::MAX,
            bug: None,
        }
    }
}
