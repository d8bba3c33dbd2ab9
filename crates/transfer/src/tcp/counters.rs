//! What the data plane counts. All counters only rise, except the two marked as gauges.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one transport or server.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }

        impl Counters {
            /// Name and value of each.
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Gauge: connections open now.
    connections,
    /// Connections opened or accepted.
    connections_opened,
    /// Connections refused because there were too many.
    connections_over_limit,
    /// Connections refused at their hello (version, cluster, token), or silent in it.
    hellos_refused,
    /// Connections closed because of bytes that are not the protocol.
    garbage,
    /// Connections closed because the peer was silent for too long.
    silent_peers,
    /// Gauge: requests under way.
    requests_under_way,
    /// Writes that came or were submitted.
    writes,
    /// Reads that came or were submitted.
    reads,
    /// Of the writes, those to ranges of regions.
    range_writes,
    /// Of the reads, those from ranges of regions.
    range_reads,
    /// Writes refused by the peer or the node.
    writes_refused,
    /// Reads refused by the peer or the node.
    reads_refused,
    /// Payload bytes received.
    bytes_in,
    /// Payload bytes sent.
    bytes_out,
    /// Payload bytes of refused writes thrown away.
    bytes_dropped,
    /// Pieces whose bytes did not have their checksum.
    checksum_failures,
    /// Transfers that broke off in the middle.
    broken,
    /// Transfers cut by the node.
    cut,
    /// Operations that ended at their deadline.
    deadline_missed,
    /// Operations left because the peer made no progress.
    stalled,
    /// Operations sent again on a fresh connection, because an idle one had died.
    resent,
}

pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

pub(crate) fn lower(counter: &AtomicU64) {
    counter.fetch_sub(1, Ordering::Relaxed);
}
