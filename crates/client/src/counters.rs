//! What a client counts.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Live counters of a client.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub(crate) $name: Counter),* }

        /// The counters at one moment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counts { $($(#[$doc])* pub $name: u64),* }

        impl Counters {
            /// Reads all of them.
            pub fn counts(&self) -> Counts {
                Counts { $($name: self.$name.get()),* }
            }
        }

        impl Counts {
            /// Names and values, for metrics.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Items of gets.
    get_items;
    /// Items of gets that brought their bytes.
    get_hits;
    /// Items of gets for which there was no object.
    get_misses;
    /// Items of gets that failed otherwise.
    get_failures;
    /// Items of puts.
    put_items;
    /// Items of puts that were stored.
    put_stored;
    /// Items of puts whose key was taken.
    put_exists;
    /// Items of puts that failed.
    put_failures;
    /// Bytes that gets brought.
    bytes_read;
    /// Bytes that puts stored.
    bytes_written;
    /// Gets that rested on a remembered location.
    locations_used;
    /// Reads that were followed by another replica or look-up.
    replicas_left;
    /// Reads whose bytes did not have their checksum.
    checksum_failures;
    /// Replicas reported to the master.
    reports;
    /// Reports that did not reach it.
    reports_lost;
    /// Items whose deadline passed.
    deadline_missed;
    /// Calls that returned later than their deadline and its slack.
    deadline_overrun;
    /// Connections to the master that were opened after one had been lost.
    reconnects;
    /// Connections to the master that were lost.
    session_lost;
    /// Requests that were sent again because their answer was lost.
    requests_repeated;
    /// Versions given up whose fate the master could not be asked about.
    puts_ambiguous;
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: u64) {
        // A counter orders nothing.
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
