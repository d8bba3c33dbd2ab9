//! The event log of a run: one line per event, stamped with simulated time and an ordinal.
//!
//! Runs are silent unless asked; a failed run is simply run again with the log on, since the same
//! seed gives the same events.

use crate::clock::Micros;
use std::collections::VecDeque;
use std::fmt::Write as _;

/// What happens to the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// None are made.
    Off,
    /// The last so many are kept.
    Tail(usize),
    /// All are kept.
    All,
    /// All go to stdout at once.
    Print,
}

/// The log.
#[derive(Debug)]
pub struct Trace {
    mode: Mode,
    ordinal: u64,
    lines: VecDeque<String>,
}

impl Trace {
    /// An empty log.
    pub fn new(mode: Mode) -> Self {
        Trace {
            mode,
            ordinal: 0,
            lines: VecDeque::new(),
        }
    }

    /// True when lines are wanted.
    pub fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }

    /// Adds a line.
    pub fn line(&mut self, time: Micros, what: &dyn std::fmt::Display) {
        self.ordinal += 1;
        let mut line = format!(
            "{:>4}.{:06} #{} ",
            time / 1_000_000,
            time % 1_000_000,
            self.ordinal
        );
        // Writing into a string cannot fail.
        let _unfailing = write!(line, "{what}");
        match self.mode {
            Mode::Off => {}
            Mode::Print => println!("{line}"),
            Mode::All => self.lines.push_back(line),
            Mode::Tail(kept) => {
                if self.lines.len() >= kept {
                    self.lines.pop_front();
                }
                self.lines.push_back(line);
            }
        }
    }

    /// The lines kept.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}
