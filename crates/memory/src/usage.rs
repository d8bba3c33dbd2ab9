//! A ledger of the ranges in use, in builds with debug assertions only.
//!
//! Extents make ranges exclusive; this finds the caller that got it wrong, at the moment it does.

/// How a range is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

#[cfg(debug_assertions)]
mod ledger {
    use super::Use;
    use std::sync::{Arc, Mutex, PoisonError};

    #[derive(Debug)]
    struct Entry {
        number: u64,
        start: u64,
        end: u64,
        how: Use,
    }

    #[derive(Debug, Default)]
    struct State {
        next: u64,
        entries: Vec<Entry>,
    }

    /// The ranges of one memory that are in use now.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Ledger(Arc<Mutex<State>>);

    impl Ledger {
        /// Enters ranges until the claim is dropped.
        ///
        /// Panics when one of them is in use and either use is a write.
        pub(crate) fn claim(&self, how: Use, ranges: &[(u64, u64)]) -> Claim {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let number = state.next;
            state.next += 1;
            for &(start, len) in ranges.iter().filter(|(_, len)| *len > 0) {
                let end = start + len;
                let clash = state.entries.iter().find(|entry| {
                    entry.start < end
                        && start < entry.end
                        && (how == Use::Write || entry.how == Use::Write)
                        && entry.number != number
                });
                if let Some(entry) = clash {
                    let text = format!(
                        "bytes {start}..{end} are claimed for {how:?} while {}..{} are in use for {:?}",
                        entry.start, entry.end, entry.how
                    );
                    state.entries.retain(|entry| entry.number != number);
                    drop(state);
                    debug_assert!(false, "{text}");
                    return Claim {
                        ledger: self.clone(),
                        number,
                    };
                }
                state.entries.push(Entry {
                    number,
                    start,
                    end,
                    how,
                });
            }
            Claim {
                ledger: self.clone(),
                number,
            }
        }
    }

    /// Ranges that stay in use until this is dropped.
    #[derive(Debug)]
    pub(crate) struct Claim {
        ledger: Ledger,
        number: u64,
    }

    impl Drop for Claim {
        fn drop(&mut self) {
            let mut state = self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.entries.retain(|entry| entry.number != self.number);
        }
    }
}

#[cfg(not(debug_assertions))]
mod ledger {
    use super::Use;

    /// Keeps nothing in optimised builds.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Ledger;

    /// Claims nothing in optimised builds.
    #[derive(Debug)]
    pub(crate) struct Claim;

    impl Ledger {
        pub(crate) fn claim(&self, _how: Use, _ranges: &[(u64, u64)]) -> Claim {
            Claim
        }
    }
}

pub(crate) use ledger::{Claim, Ledger};
