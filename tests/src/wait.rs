//! Waiting for something another process does, with a deadline.

use std::time::{Duration, Instant};

/// Asks `done` again and again until it says yes; panics with `what` at the deadline. Returns the time it took.
pub fn until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    loop {
        if done() {
            return start.elapsed();
        }
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Like [`until`], for something that yields a value.
pub fn until_some<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let mut got = None;
    until(what, limit, || {
        got = ask();
        got.is_some()
    });
    got.unwrap()
}

/// Lets time pass that a test case is about (a frozen process, a lease).
pub fn pass(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end
        .checked_duration_since(Instant::now())
        .filter(|l| !l.is_zero())
    {
        std::thread::park_timeout(left);
    }
}
