//! Checks of stored bytes, on a thread of their own: they take as long as the bytes are many.

use crate::engine::Engine;
use snowskin_memory::segment::Segment;
use snowskin_store::event::{Event, ScrubId};
use snowskin_types::access::Extent;
use snowskin_types::checksum::{PieceHasher, PieceSums};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};

/// Checks that may wait; the store runs fewer at a time.
const QUEUE: usize = 64;
/// Between so many bytes the thread looks whether it is to stop.
const STEP_BYTES: u64 = 64 << 20;

/// Bytes to check.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) scrub: ScrubId,
    pub(crate) extents: Arc<[Extent]>,
    pub(crate) sums: Arc<PieceSums>,
}

/// The way to the thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Scrubber {
    queue: SyncSender<Job>,
    stop: Arc<AtomicBool>,
}

impl Drop for Scrubber {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Scrubber {
    /// The two ends of the queue.
    pub(crate) fn new() -> (Self, Checks) {
        let (queue, jobs) = sync_channel(QUEUE);
        let stop = Arc::new(AtomicBool::new(false));
        let checks = Checks {
            jobs,
            stop: Arc::clone(&stop),
        };
        (Scrubber { queue, stop }, checks)
    }

    /// Hands a job over; false when the queue is full or the thread has gone.
    pub(crate) fn check(&self, job: Job) -> bool {
        self.queue.try_send(job).is_ok()
    }
}

/// What the thread works on.
#[derive(Debug)]
pub(crate) struct Checks {
    jobs: Receiver<Job>,
    stop: Arc<AtomicBool>,
}

impl Checks {
    /// Works until the other end is dropped.
    pub(crate) fn run(self, engine: Weak<Engine>, segment: Segment) {
        while let Ok(job) = self.jobs.recv() {
            let Some(sound) = self.is_sound(&segment, &job) else {
                return;
            };
            let Some(engine) = engine.upgrade() else {
                return;
            };
            let scrub = job.scrub;
            engine.feed(Event::Scrubbed { scrub, sound });
        }
    }

    /// `None` when asked to stop.
    fn is_sound(&self, segment: &Segment, job: &Job) -> Option<bool> {
        let mut hasher = PieceHasher::default();
        for extent in job.extents.iter() {
            let mut done = 0;
            while done < extent.len {
                if self.stop.load(Ordering::Relaxed) {
                    return None;
                }
                let len = STEP_BYTES.min(extent.len - done);
                match segment.source([(extent.offset + done, len)]) {
                    Ok(source) => source.visit(|run| hasher.update(run)),
                    // Extents of the store lie inside the segment.
                    Err(_) => return Some(false),
                }
                done += len;
            }
        }
        Some(hasher.finish() == *job.sums)
    }
}
