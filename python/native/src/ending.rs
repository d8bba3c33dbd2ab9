//! The end of the interpreter while threads are inside of calls.
//!
//! An interpreter that ends kills each thread that wants it back, by unwinding its stack from within; the
//! frames of a call would then drop Python objects that are no more. So a thread that comes out of the
//! blocking part of a call after the end has begun stays where it is for ever, and the end waits, for a
//! bounded time, until the threads that came out before have gone on.
//!
//! Before the end no lock is taken here, so that none is held across a fork.

use parking_lot::{Condvar, Mutex};
use pyo3::marker::Ungil;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

/// How long the end waits for calls under way, which were cut before.
const PATIENCE: Duration = Duration::from_secs(2);

/// Calls that are, or are about to be, without the interpreter; of the process that loaded this.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static OWNER: AtomicU32 = AtomicU32::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);
/// Which thread ends the interpreter, once it does.
static ENDER: Mutex<Option<ThreadId>> = Mutex::new(None);
static LEFT: Condvar = Condvar::new();

/// A call that has let go of the interpreter, until it has it back.
struct Inside;

impl Inside {
    fn enter() -> Self {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        leave();
    }
}

fn leave() {
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    if ENDING.load(Ordering::SeqCst) {
        // With the lock, so that the thread that looks and then waits does not miss it.
        let _ender = ENDER.lock();
        LEFT.notify_all();
    }
}

/// Notes which process this is; a forked child has other threads.
pub(crate) fn begin_life() {
    OWNER.store(std::process::id(), Ordering::SeqCst);
}

/// Runs the blocking part of a call without the interpreter.
pub(crate) fn released<T, F>(py: Python<'_>, body: F) -> T
where
    T: Ungil + Send,
    F: FnOnce() -> T + Ungil + Send,
{
    let _inside = Inside::enter();
    py.detach(|| {
        let result = body();
        if has_begun_elsewhere() {
            leave();
            loop {
                std::thread::park();
            }
        }
        result
    })
}

/// True once another thread is about to end the interpreter: it must not be asked for any more.
pub(crate) fn has_begun_elsewhere() -> bool {
    ENDING.load(Ordering::SeqCst) && *ENDER.lock() != Some(std::thread::current().id())
}

/// Begins the end: `cut` makes calls under way return, then they are waited for. Called by the thread
/// that ends the interpreter.
pub(crate) fn begin<F: FnOnce() + Ungil + Send>(py: Python<'_>, cut: F) {
    py.detach(|| {
        *ENDER.lock() = Some(std::thread::current().id());
        ENDING.store(true, Ordering::SeqCst);
        cut();
        if OWNER.load(Ordering::SeqCst) != std::process::id() {
            // The threads that were counted live in the parent.
            return;
        }
        let mut ender = ENDER.lock();
        let busy = |_: &mut Option<ThreadId>| INSIDE.load(Ordering::SeqCst) > 0;
        if LEFT.wait_while_for(&mut ender, busy, PATIENCE).timed_out() {
            // They stay where they are when they come out.
            tracing::debug!("calls outlast the interpreter");
        }
    });
}
