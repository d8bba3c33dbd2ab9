//! Whether the slot writes: faults, free space, operations that hang. It comes back by itself.

use super::append::Source;
use super::bucket::Phase;
use super::{HANG_AFTER, Log, Task, answer, count};
use crate::effect::{AppendError, Counter, Effect, Purpose, ReadError, State};
use crate::event::{Fault, OpId};
use snowskin_types::time::{Millis, Now};

const RETRY_MIN: Millis = Millis(1_000);
const RETRY_MAX: Millis = Millis(30_000);
/// Writing stops below this share of free space, one in so many.
const LOW_PART: u64 = 20;
/// And goes on when so many hundredths are free.
const WELL_HUNDREDTHS: u64 = 6;

/// Why the slot does not write.
#[derive(Debug, Default)]
pub(super) struct Health {
    failing: Option<Failing>,
    low: bool,
    hung: bool,
    pub(super) ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    /// Only what was asked of the disk after this shows that it is well.
    last_op: OpId,
    /// It cannot make buckets.
    creating: bool,
    retry_at: Now,
    pause: Millis,
    probing: bool,
}

impl Log {
    pub(super) fn writes_upkeep(&self) -> bool {
        self.health.failing.is_none() && !self.health.hung && !self.health.ended
    }

    pub(super) fn writes_appends(&self) -> bool {
        self.writes_upkeep() && !self.health.low
    }

    pub(super) fn note_result(
        &mut self,
        op: OpId,
        task: &Task,
        result: Result<(), Fault>,
        effects: &mut Vec<Effect>,
    ) {
        let creating = matches!(task, Task::Create);
        let before = self.health.failing;
        if result.is_ok() {
            let shown = |f: &mut Failing| op > f.last_op && (creating || !f.creating);
            self.health.failing.take_if(shown);
            return;
        }
        count(effects, Counter::DiskFaults, 1);
        let longer = |f: Failing| Millis(f.pause.0.saturating_mul(2).min(RETRY_MAX.0));
        let pause = before.map_or(RETRY_MIN, |f| if f.probing { longer(f) } else { f.pause });
        self.health.failing = Some(Failing {
            last_op: OpId(self.next_op),
            creating: creating || before.is_some_and(|f| f.creating),
            retry_at: self.now + pause,
            pause,
            probing: false,
        });
    }

    pub(super) fn space(&mut self, free: u64, total: u64) {
        let well = if self.health.low {
            u128::from(free) * 100 >= u128::from(total) * u128::from(WELL_HUNDREDTHS)
        } else {
            free >= total / LOW_PART
        };
        self.health.low = !well;
    }

    pub(super) fn tick(&mut self, effects: &mut Vec<Effect>) {
        self.find_hung(effects);
        let long_ago = Now(self.now.0.saturating_sub(HANG_AFTER.0));
        self.fail_waiting(long_ago, AppendError::Busy, effects);
        self.probe(effects);
    }

    fn find_hung(&mut self, effects: &mut Vec<Effect>) {
        let now = self.now;
        let mut given_up = Vec::new();
        for op in self.ops.values_mut() {
            if op.hung || now.since(op.since) < HANG_AFTER {
                continue;
            }
            op.hung = true;
            count(effects, Counter::Hung, 1);
            if let Task::Record {
                source: Source::Append(write),
                object,
                given_up: gone,
                ..
            } = &mut op.task
            {
                *gone = true;
                given_up.push(super::table::incarnation(object));
                answer(effects, *write, Err(AppendError::Hung));
            }
        }
        for id in given_up {
            if let Some(entry) = self.table.get_mut(&id) {
                entry.appending = false;
            }
        }
        for fetch in self.fetches.values_mut() {
            if fetch.hung || now.since(fetch.since) < HANG_AFTER {
                continue;
            }
            fetch.hung = true;
            count(effects, Counter::Hung, 1);
            if let Some(Purpose::Reader(read)) = fetch.purpose {
                fetch.purpose = None;
                let error = ReadError::Hung;
                effects.push(Effect::ReadRefused { read, error });
            }
        }
    }

    /// Asks the disk for something harmless when it is time.
    fn probe(&mut self, effects: &mut Vec<Effect>) {
        let now = self.now;
        let Some(failing) = self.health.failing.as_mut() else {
            return;
        };
        if failing.probing || now < failing.retry_at || self.health.ended {
            return;
        }
        failing.probing = true;
        let creating = failing.creating;
        let mut open = self.buckets.values().filter(|b| b.phase == Phase::Open);
        let open = open.next().map(|b| b.id);
        let may_create = self.disk_bytes <= self.config.sizing.limit_bytes;
        match open {
            Some(bucket) if !(creating && may_create) => {
                if let Some(failing) = self.health.failing.as_mut() {
                    failing.creating = false;
                }
                self.write_header(bucket, Task::Probe, effects);
            }
            _ if may_create => self.create(effects),
            // Nothing can be tried but what is wanted.
            _ => self.health.failing = None,
        }
    }

    pub(super) fn tell_state(&mut self, effects: &mut Vec<Effect>) {
        self.health.hung =
            self.ops.values().any(|o| o.hung) || self.fetches.values().any(|f| f.hung);
        let state = if self.health.ended {
            State::Off
        } else if self.health.hung {
            State::Quarantined
        } else if self.writes_appends() {
            State::Ok
        } else {
            State::Degraded
        };
        if state != State::Ok {
            self.fail_waiting(Now::NEVER, AppendError::NotWriting(state), effects);
        }
        if state != self.state {
            self.state = state;
            effects.push(Effect::StateIs(state));
        }
    }
}
