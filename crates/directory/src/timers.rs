//! What has to be looked at again at a moment.

use crate::object::{Ix, LifeIx};
use snowskin_types::time::Now;
use snowskin_types::version::Version;
use std::collections::BTreeMap;

/// A set alarm; to be cleared when its reason ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm {
    due: Now,
    ticket: u64,
}

/// Why the alarm was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// An obligation: a placement is too old, or an order to retire is due (again).
    Obligation {
        ix: Ix,
        life: LifeIx,
        version: Version,
    },
    /// An owner has not spoken since a report.
    Verify { ix: Ix, life: LifeIx },
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeMap<Alarm, Reason>,
    tickets: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, due: Now, reason: Reason) -> Alarm {
        self.tickets += 1;
        let alarm = Alarm {
            due,
            ticket: self.tickets,
        };
        self.queue.insert(alarm, reason);
        alarm
    }

    pub(crate) fn clear(&mut self, alarm: Option<Alarm>) {
        if let Some(alarm) = alarm {
            self.queue.remove(&alarm);
        }
    }

    pub(crate) fn pop_due(&mut self, now: Now) -> Option<Reason> {
        let first = self.queue.first_entry()?;
        (first.key().due <= now).then(|| first.remove())
    }

    pub(crate) fn next_due(&self) -> Option<Now> {
        self.queue.first_key_value().map(|(alarm, _)| alarm.due)
    }
}
