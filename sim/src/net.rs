//! The network: when, how often, and whether a message arrives.
//!
//! Fault model: every message may be lost, doubled, overtaken, or late by seconds; what was sent
//! before a connection broke may still arrive until its receiver has noticed the break, never after
//! (a connection's messages do not appear on another). Between partitioned processes a message is
//! lost or arrives after the partition has healed, as a retransmission would.

use crate::clock::{MS, Micros};
use crate::packet::{Packet, Proc};
use crate::rng::Rng;
use crate::setup::Weather;

type Filter = Box<dyn Fn(Proc, Proc, &Packet) -> bool>;

/// A message that a scenario keeps back.
#[derive(Debug)]
pub struct Held {
    /// Sender.
    pub from: Proc,
    /// Receiver.
    pub to: Proc,
    /// What it says.
    pub packet: Packet,
}

/// The network between all processes.
pub struct Net {
    rng: Rng,
    /// Faults of messages; all zero once healed.
    pub weather: Weather,
    partitions: Vec<(Proc, Proc, Micros)>,
    holds: Vec<(u32, Filter)>,
    holds_made: u32,
    /// Messages kept back by a scenario, with the hold that caught each.
    pub held: Vec<(u32, Held)>,
}

/// When a message arrives: never, once, or twice.
pub type Arrivals = [Option<Micros>; 2];

impl Net {
    /// A network with this weather.
    pub fn new(seed: u64, weather: Weather) -> Self {
        Net {
            rng: Rng::new(seed, 2),
            weather,
            partitions: Vec::new(),
            holds: Vec::new(),
            holds_made: 0,
            held: Vec::new(),
        }
    }

    /// Cuts two processes off from each other until a moment.
    pub fn partition(&mut self, a: Proc, b: Proc, until: Micros) {
        self.partitions.push((a, b, until));
    }

    /// Ends all partitions and bad weather.
    pub fn heal(&mut self) {
        self.weather = Weather::default();
        self.partitions.clear();
    }

    /// The moment at which two processes can reach each other again, if they cannot now.
    pub fn parted(&mut self, time: Micros, a: Proc, b: Proc) -> Option<Micros> {
        self.partitions.retain(|&(_, _, until)| until > time);
        self.partitions
            .iter()
            .filter(|&&(x, y, _)| (x, y) == (a, b) || (x, y) == (b, a))
            .map(|&(_, _, until)| until)
            .max()
    }

    /// Decides over one message.
    pub fn fate(&mut self, time: Micros, from: Proc, to: Proc) -> Arrivals {
        if let Some(until) = self.parted(time, from, to) {
            let again = until + self.rng.within(1, 200) * MS;
            return [self.rng.chance(500).then_some(again), None];
        }
        if self.rng.chance(self.weather.drop) {
            return [None, None];
        }
        let first = time + self.latency();
        let second = if self.rng.chance(self.weather.duplicate) {
            Some(first + self.latency() + self.rng.below(50 * MS))
        } else {
            None
        };
        [Some(first), second]
    }

    /// The time one message takes.
    pub fn latency(&mut self) -> Micros {
        let base = self.rng.within(40, 400);
        if self.rng.chance(self.weather.slow) {
            base + self.rng.below(self.weather.slow_max)
        } else if self.rng.chance(self.weather.late) {
            base + self.rng.below(self.weather.late_max)
        } else {
            base
        }
    }

    /// Keeps back all messages that a filter means, until released; for scenarios.
    pub fn hold(&mut self, filter: impl Fn(Proc, Proc, &Packet) -> bool + 'static) -> u32 {
        self.holds_made += 1;
        self.holds.push((self.holds_made, Box::new(filter)));
        self.holds_made
    }

    /// Ends a hold and gives out what it kept.
    pub fn release(&mut self, hold: u32) -> Vec<Held> {
        self.holds.retain(|(id, _)| *id != hold);
        let (out, kept) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|(id, _)| *id == hold);
        self.held = kept;
        let out: Vec<(u32, Held)> = out;
        out.into_iter().map(|(_, held)| held).collect()
    }

    /// The hold that wants this message, if any.
    pub fn holder(&self, from: Proc, to: Proc, packet: &Packet) -> Option<u32> {
        self.holds
            .iter()
            .find(|(_, filter)| filter(from, to, packet))
            .map(|(id, _)| *id)
    }
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net")
            .field("weather", &self.weather)
            .field("partitions", &self.partitions)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}
