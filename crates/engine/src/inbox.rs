//! Notifications that have come and were not asked for yet.

use crate::counters::{Counters, count};
use crate::request::Notify;
use parking_lot::Mutex;
use snowskin_types::error::{Code, Failure, Stage};
use std::sync::Arc;

/// Most notifications that wait.
const NOTIFIES_MAX: usize = 65_536;
/// Most bytes of them.
const BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
struct Waiting {
    notifies: Vec<Notify>,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    counters: Arc<Counters>,
}

impl Inbox {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Inbox {
            waiting: Mutex::default(),
            counters,
        }
    }

    /// Takes one in, unless there is no room.
    pub(crate) fn put(&self, notify: Notify) -> Result<(), Failure> {
        let bytes = notify.name.len() + notify.message.len();
        let mut waiting = self.waiting.lock();
        if waiting.notifies.len() >= NOTIFIES_MAX || waiting.bytes + bytes > BYTES_MAX {
            count(&self.counters.notifications_dropped);
            let text = format!(
                "{} notifications wait for the user of this engine already, which is the most",
                waiting.notifies.len()
            );
            return Err(Failure::new(
                Code::UnavailableInStatus,
                Stage::Session,
                text,
            ));
        }
        waiting.bytes += bytes;
        waiting.notifies.push(notify);
        Ok(())
    }

    /// All that wait, in the order of their coming.
    pub(crate) fn take(&self) -> Vec<Notify> {
        std::mem::take(&mut *self.waiting.lock()).notifies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_refused_and_counted() {
        let counters = Arc::<Counters>::default();
        let inbox = Inbox::new(Arc::clone(&counters));
        let word = |index: usize| Notify {
            name: index.to_string(),
            message: String::new(),
        };
        for index in 0..NOTIFIES_MAX {
            inbox.put(word(index)).unwrap();
        }
        assert!(inbox.put(word(0)).is_err());
        assert_eq!(counters.read().notifications_dropped, 1);
        let taken = inbox.take();
        assert_eq!((taken.len(), taken[7].name.as_str()), (NOTIFIES_MAX, "7"));
        inbox.put(word(1)).unwrap();
        assert_eq!(inbox.take(), [word(1)]);
    }
}
