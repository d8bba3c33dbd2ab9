//! The signals that end a process.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Why the process was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Ctrl-C.
    Interrupt,
    /// Termination.
    Terminate,
}

impl Ending {
    /// The exit code of a process that ends because of it.
    pub const fn exit_code(self) -> u8 {
        match self {
            Ending::Interrupt => 130,
            Ending::Terminate => 143,
        }
    }
}

/// Watches for the signals from its creation on, so that none is missed before the first wait.
#[derive(Debug)]
pub struct Endings {
    interrupt: Signal,
    terminate: Signal,
}

impl Endings {
    /// Takes the signals over from their default action. Needs a runtime.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn watch() -> io::Result<Self> {
        Ok(Endings {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one.
    ///
    /// # Cancellation
    /// Safe: a signal that came is told by the next call.
    pub async fn next(&mut self) -> Ending {
        tokio::select! {
            _ = self.interrupt.recv() => Ending::Interrupt,
            _ = self.terminate.recv() => Ending::Terminate,
        }
    }
}
