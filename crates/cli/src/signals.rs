//! Signals that end the program, and the end of standard input.

use crate::exit::Ending;
use snowskin_runtime::spawn::Cancel;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Delivers SIGINT, SIGTERM and, when asked for, the end of standard input.
pub struct Signals {
    numbers: Receiver<u8>,
    sender: SyncSender<u8>,
    any: Cancel,
    // Keeps the listening runtime alive.
    _runtime: tokio::runtime::Runtime,
}

/// Stands for the end of standard input.
pub const END_OF_INPUT: u8 = 0;

impl Signals {
    /// Begins to listen; from now on the signals no longer end the process by themselves.
    pub fn listen() -> Result<Signals, Ending> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_io()
            .build()?;
        let (sender, numbers) = sync_channel(4);
        let any = Cancel::new();
        for (kind, number) in [
            (SignalKind::interrupt(), 2u8),
            (SignalKind::terminate(), 15),
        ] {
            let mut stream = {
                let _inside = runtime.enter();
                signal(kind)?
            };
            let (sender, any) = (sender.clone(), any.clone());
            // Owned by the runtime, which ends with this value.
            runtime.spawn(async move {
                while stream.recv().await.is_some() {
                    // A full queue already holds a reason to end.
                    sender.try_send(number).ok();
                    any.cancel();
                }
            });
        }
        Ok(Signals {
            numbers,
            sender,
            any,
            _runtime: runtime,
        })
    }

    /// Also delivers [`END_OF_INPUT`] when standard input ends.
    pub fn watch_input(&self) {
        let (sender, any) = (self.sender.clone(), self.any.clone());
        // Blocks in a read until the process ends; it owns nothing.
        std::thread::spawn(move || {
            let mut sink = std::io::sink();
            std::io::copy(&mut std::io::stdin().lock(), &mut sink).ok();
            sender.try_send(END_OF_INPUT).ok();
            any.cancel();
        });
    }

    /// Cancelled by the first of them, after [`Signals::wait`] can deliver it.
    pub fn any(&self) -> &Cancel {
        &self.any
    }

    /// Waits for the next one, at most `limit`.
    pub fn wait(&self, limit: Duration) -> Option<u8> {
        self.numbers.recv_timeout(limit).ok()
    }
}
