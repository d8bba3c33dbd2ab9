//! Threads with a name that are joined by a deadline.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thread of its owner, who joins it.
#[derive(Debug)]
pub struct Thread {
    name: &'static str,
    handle: JoinHandle<()>,
    end: Receiver<()>,
}

/// Why a thread did not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadError {
    /// It did not end in time and was left behind.
    #[error("the thread {name} did not end within {} ms", waited.as_millis())]
    Late {
        /// The thread.
        name: &'static str,
        /// How long it was waited for.
        waited: Duration,
    },
    /// It or one of its tasks panicked.
    #[error("the thread {name} failed; its message is in the log")]
    Panicked {
        /// The thread.
        name: &'static str,
    },
}

impl Thread {
    /// Starts one.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start(name: &'static str, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (alive, end) = sync_channel(0);
        let handle = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                // Dropped at the end, also when the body unwinds.
                let _alive: SyncSender<()> = alive;
                body();
            })?;
        Ok(Thread { name, handle, end })
    }

    /// Waits for its end, until the deadline.
    ///
    /// # Errors
    /// When it is late or has panicked.
    pub fn join(self, deadline: Instant) -> Result<(), ThreadError> {
        let (start, name) = (Instant::now(), self.name);
        let left = deadline.saturating_duration_since(start);
        if let Err(RecvTimeoutError::Timeout) = self.end.recv_timeout(left) {
            let waited = start.elapsed();
            return Err(ThreadError::Late { name, waited });
        }
        self.handle
            .join()
            .map_err(|_| ThreadError::Panicked { name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_joined_and_a_panic_is_told() {
        let far = Instant::now() + Duration::from_secs(60);
        let ended = Thread::start("ends", || {}).unwrap();
        assert_eq!(ended.join(far), Ok(()));
        let failed = Thread::start("fails", || std::panic::resume_unwind(Box::new(()))).unwrap();
        let error = ThreadError::Panicked { name: "fails" };
        assert_eq!(failed.join(far), Err(error));
    }

    #[test]
    fn a_thread_that_goes_on_is_left_at_the_deadline() {
        let (stop, stopped) = sync_channel::<()>(0);
        let (tell, told) = sync_channel(1);
        let thread = Thread::start("goes on", move || {
            stopped.recv().ok();
            tell.send(()).ok();
        })
        .unwrap();
        let late = thread.join(Instant::now());
        assert!(matches!(
            late,
            Err(ThreadError::Late {
                name: "goes on",
                ..
            })
        ));
        drop(stop);
        assert_eq!(told.recv(), Ok(()));
    }
}
