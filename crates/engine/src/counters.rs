//! What an engine counts.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What an engine counted so far. All only rise.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Counts {
            /// Name and value of each.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Transfers that succeeded, blocking ones and batches.
    transfers,
    /// Transfers that failed.
    transfers_failed,
    /// Of those, the ones whose time was over.
    transfers_timed_out,
    /// Bytes read from peers.
    bytes_read,
    /// Bytes written to peers.
    bytes_written,
    /// Descriptions of peers asked for.
    descriptions,
    /// Of those, the ones asked for because what was known proved wrong.
    descriptions_again,
    /// Ranges that were tried again because another operation was in the way.
    ranges_in_the_way,
    /// A fabric was asked for that is not there; TCP is used.
    fabric_fallbacks,
    /// Notifications that found the inbox full.
    notifications_dropped,
    /// Ended batches forgotten because nobody asked for them.
    batches_forgotten,
    /// Connections at the session port that were refused or left.
    sessions_refused,
    /// Threads and tasks that did not end in time when the engine was closed.
    ended_late,
}

pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
