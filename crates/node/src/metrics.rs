//! What a node counts and measures.

use snowskin_store::effect::Counter;
use snowskin_types::id::Session;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the shell.
        #[derive(Debug, Default)]
        pub(crate) struct Tally { $($(#[$doc])* pub(crate) $name: AtomicU64,)* }

        impl Tally {
            /// Name and value of each.
            pub(crate) fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

tally! {
    /// Links ended because their queue was full.
    link_overflows,
    /// Attempts to reach the master that failed.
    link_attempts_failed,
    /// Links on which the master was silent for too long.
    link_silences,
    /// Frames of the master that are not the protocol.
    link_garbage,
    /// Registrations refused.
    registrations_refused,
    /// Stored bytes found damaged while they were read.
    damage_found,
    /// Checks of stored bytes that could not be carried out.
    scrubs_skipped,
    /// Bytes written by callers of this process.
    local_bytes_in,
    /// Bytes read by callers of this process.
    local_bytes_out,
    /// Calls of this process that ended at their deadline.
    local_deadline_missed,
    /// Checksums that callers of this process found wrong.
    local_checksum_failures,
}

impl Tally {
    pub(crate) fn one(counter: &AtomicU64) {
        Self::add(counter, 1);
    }

    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// A snapshot.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Bytes of the segment in use.
    pub used_bytes: u64,
    /// Bytes of the segment.
    pub capacity_bytes: u64,
    /// Largest length that is sure to be granted in one piece.
    pub largest_free_bytes: u64,
    /// Bytes held by leases that refused an eviction.
    pub leased_bytes: u64,
    /// Bytes held by hard pins and reads.
    pub pinned_bytes: u64,
    /// Bytes held by puts that have not ended.
    pub unfinished_bytes: u64,
    /// Replicas that are served.
    pub replicas: u64,
    /// Reads that have their bytes pinned.
    pub reads_under_way: u64,
    /// Writes that wait for space.
    pub writes_waiting: u64,
    /// Writes that have not been answered.
    pub writes_under_way: u64,
    /// The session with the master, if there is one.
    pub session: Option<Session>,
    /// The master knows the whole content in this session.
    pub is_inventoried: bool,
    /// The serving lease runs.
    pub is_serving: bool,
    /// The policy in force and the source of each value.
    pub policy: String,
    /// Memory of the process that is resident, populated pages of the segment included.
    pub resident_bytes: u64,
    /// Counters of the store.
    pub store: Vec<(Counter, u64)>,
    /// Counters of the shell.
    pub shell: Vec<(&'static str, u64)>,
    /// Counters of the data server; empty without one.
    pub transfer: Vec<(&'static str, u64)>,
}

impl Metrics {
    /// A counter of the store.
    pub fn store_counter(&self, counter: Counter) -> u64 {
        let found = self.store.iter().find(|(name, _)| *name == counter);
        found.map_or(0, |(_, value)| *value)
    }

    /// A counter of the shell or of the data server, by name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let mut all = self.shell.iter().chain(&self.transfer);
        all.find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }
}
