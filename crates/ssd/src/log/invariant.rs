//! What must be true of a log after every event.

use super::Log;
use super::bucket::Phase;
use super::table::Tomb;

/// Above this many versions the check is not run after each event of a debug build: it is linear.
const CHECKED_VERSIONS_MAX: usize = 128;

/// An invariant that does not hold, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

macro_rules! hold {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(Violation(format!($($text)*)));
        }
    };
}

impl Log {
    /// Checks everything that must be true between events. Linear in what is held.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        let bytes: u64 = self.buckets.values().map(|b| b.bytes).sum();
        hold!(bytes == self.disk_bytes, "{bytes} bytes of buckets");
        for (name, entry) in self.table.iter() {
            let v = entry.version;
            for copy in &entry.copies {
                let there = self.buckets.contains_key(copy);
                hold!(
                    there,
                    "{name} {v}: a copy in bucket {} that is gone",
                    copy.0
                );
            }
            if let Tomb::Durable(host) = entry.tomb {
                let needed = !entry.copies.is_empty();
                let there = self.buckets.contains_key(&host);
                hold!(
                    there || !needed,
                    "{name} {v}: its tombstone is gone before its copies"
                );
            }
            let Some(live) = entry.live.as_ref() else {
                continue;
            };
            hold!(entry.tomb == Tomb::None, "{name} {v}: served and retired");
            let Some(bucket) = self.buckets.get(&live.at.bucket) else {
                return Err(Violation(format!("{name} {v}: served from nowhere")));
            };
            let going = matches!(bucket.phase, Phase::Deleting | Phase::Creating);
            hold!(!going, "{name} {v}: served from a bucket that goes");
            let item = bucket.items.iter().find(|i| i.offset == live.at.offset);
            let written = item.is_some_and(|i| i.written && i.object.version == v);
            hold!(written, "{name} {v}: served before its write ended");
            let counted = entry.copies.contains(&bucket.id);
            hold!(
                counted,
                "{name} {v}: served from a copy that is not counted"
            );
        }
        for bucket in self.buckets.values() {
            let reading = self.fetches.values().filter(|f| f.at.bucket == bucket.id);
            let pins = reading.count() as u64;
            hold!(
                u64::from(bucket.pins) == pins,
                "bucket {}: {pins} pins",
                bucket.id.0
            );
            let deleted = bucket.phase == Phase::Deleting && pins > 0;
            hold!(!deleted, "bucket {}: deleted while read", bucket.id.0);
        }
        Ok(())
    }

    pub(super) fn check_in_debug(&self) {
        if cfg!(debug_assertions)
            && self.table.len() <= CHECKED_VERSIONS_MAX
            && let Err(violation) = self.check()
        {
            debug_assert!(false, "{violation}");
        }
    }
}
