//! A disk on threads that make plain system calls.

use super::{Disk, Job, Refused, Root, Then};
use crate::thread::{Thread, ThreadError};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

/// Most threads of one disk.
pub const THREADS_MAX: usize = 64;

/// How much a pool does at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// Threads, each with one system call at a time: 1 to [`THREADS_MAX`].
    pub threads: usize,
    /// Requests that may wait for a thread.
    pub queue: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            threads: 8,
            queue: 4096,
        }
    }
}

type Work = (Job, Then);

/// The pool. To be ended with [`Pool::close`].
#[derive(Debug)]
pub struct Pool {
    root: Arc<Root>,
    sender: SyncSender<Work>,
    threads: Mutex<Vec<Thread>>,
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start(root: Root, options: PoolOptions) -> io::Result<Self> {
        let root = Arc::new(root);
        let (sender, receiver) = sync_channel(options.queue.max(1));
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..options.threads.clamp(1, THREADS_MAX))
            .map(|_| {
                let (root, receiver) = (Arc::clone(&root), Arc::clone(&receiver));
                Thread::start("ssd-io", move || work(&root, &receiver))
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Pool {
            root,
            sender,
            threads: Mutex::new(threads),
        })
    }

    /// Carries out what was taken, then ends the threads. One that hangs in the disk is left behind at the
    /// deadline.
    ///
    /// # Errors
    /// When a thread is late or has failed.
    pub fn close(self, deadline: Instant) -> Result<(), ThreadError> {
        drop(self.sender);
        let ends = self
            .threads
            .into_inner()
            .into_iter()
            .map(|t| t.join(deadline));
        ends.fold(Ok(()), Result::and)
    }
}

fn work(root: &Root, receiver: &Mutex<Receiver<Work>>) {
    loop {
        // The lock is free again before the disk is touched.
        let next = receiver.lock().recv();
        let Ok((job, then)) = next else {
            return;
        };
        then(root.carry_out(job));
    }
}

impl Disk for Pool {
    fn submit(&self, job: Job, then: Then) -> Result<(), Refused> {
        self.sender.try_send((job, then)).map_err(|error| {
            let (TrySendError::Full((job, then)) | TrySendError::Disconnected((job, then))) = error;
            Refused { job, then }
        })
    }

    fn root(&self) -> &Root {
        &self.root
    }

    fn io(&self) -> &'static str {
        "threads"
    }
}
