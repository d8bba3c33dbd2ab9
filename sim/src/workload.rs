//! What the clients do: a few keys, all kinds of calls, on and on.

use crate::clock::Micros;
use crate::host::ask::Ask;
use crate::rng::Rng;
use crate::setup::{Setup, UNIT};
use snowskin_types::Millis;
use snowskin_types::call::{Fault, PutMode};

/// Draws the next call of a client.
#[derive(Debug)]
pub struct Workload {
    rng: Rng,
    keys: u64,
    units_max: u64,
    replicas_max: u64,
    think: Micros,
    reports: u64,
    on: bool,
}

impl Workload {
    /// A workload that begins with [`World::begin_workload`](crate::world::World::begin_workload).
    pub fn new(setup: &Setup) -> Self {
        Workload {
            rng: Rng::new(setup.seed, 4),
            keys: setup.keys as u64,
            units_max: setup.units_max,
            replicas_max: setup.replicas_max,
            think: setup.think,
            reports: if setup.pace.false_report > 0 { 15 } else { 0 },
            on: false,
        }
    }

    /// True while clients go on by themselves.
    pub fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn turn(&mut self, on: bool) {
        self.on = on;
    }

    /// Time until a client's next call.
    pub fn think(&mut self) -> Micros {
        if self.rng.chance(600) {
            // Calls often follow each other at once; races need them close together.
            self.rng.below(500)
        } else {
            self.rng.below(2 * self.think + 1)
        }
    }

    /// A client's next call.
    pub fn next_ask(&mut self) -> Ask {
        // Some keys are hot.
        let key = self.rng.below(self.keys).min(self.rng.below(self.keys)) as usize;
        match self.rng.below(1000) {
            0..320 => {
                let units = self.rng.within(1, self.units_max) * UNIT;
                let odd = if self.rng.chance(250) {
                    8 * self.rng.within(1, 200)
                } else {
                    0
                };
                let replace = self.rng.chance(400);
                Ask::Put {
                    key,
                    size: units - odd,
                    mode: if replace {
                        PutMode::Replace
                    } else {
                        PutMode::IfAbsent
                    },
                    replicas: self.rng.within(1, self.replicas_max) as u32,
                    prefer: None,
                    timeout: Millis(self.rng.within(1000, 9000)),
                }
            }
            320..720 => Ask::Get {
                key,
                timeout: Millis(self.rng.within(500, 5000)),
            },
            720..780 => Ask::Exists { key },
            780..880 => Ask::ExistsThenGet {
                key,
                share: self.rng.below(970),
            },
            880..930 => Ask::Remove { key, force: false },
            930..980 => Ask::Remove { key, force: true },
            980..982 => Ask::RemoveAll,
            _ if self.rng.chance(self.reports * 20) => Ask::Report {
                key,
                fault: if self.rng.chance(500) {
                    Fault::Gone
                } else {
                    Fault::Bad
                },
            },
            _ => Ask::Exists { key },
        }
    }
}
