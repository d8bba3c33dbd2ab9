//! Whether a thread turns without an end while nobody asks for anything.

use crate::process::Process;
use std::collections::HashMap;
use std::time::Duration;

/// One look at all threads lasts this long.
const WINDOW: Duration = Duration::from_millis(400);
/// A thread that has something to finish may be busy in all looks but the last of these.
const WINDOWS: u32 = 8;

/// Clock ticks of each thread of a process so far, by its id, with its name; nothing for a process
/// that has ended.
fn ticks(pid: u32) -> HashMap<String, (String, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let of = |task: std::fs::DirEntry| {
        let id = task.file_name().into_string().ok()?;
        // A thread may end between the two looks.
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (head, rest) = stat.rsplit_once(") ")?;
        let name = head.split_once('(')?.1.to_owned();
        let mut fields = rest.split(' ');
        // User and system time are fields 14 and 15 of the line; the state is field 3.
        let user: u64 = fields.nth(11)?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        Some((id, (name, user + system)))
    };
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(of)
        .collect()
}

/// Threads of these processes that used more than half of every window of a bounded number; an idle
/// process uses next to nothing, and one that turns gets half a core even on a busy machine.
fn busy(pids: &[u32]) -> Vec<String> {
    let look = || -> Vec<_> { pids.iter().map(|pid| ticks(*pid)).collect() };
    // One core for the whole window, in ticks; half of it is too much.
    let most = rustix::param::clock_ticks_per_second() * WINDOW.as_millis() as u64 / 1_000 / 2;
    let mut found = Vec::new();
    for _ in 0..WINDOWS {
        let before = look();
        crate::wait::pass(WINDOW);
        found.clear();
        for (before, after) in before.iter().zip(look()) {
            for (id, (name, now)) in after {
                let used = before
                    .get(&id)
                    .map_or(0, |(_, then)| now.saturating_sub(*then));
                if used > most {
                    found.push(format!("{name} ({id}): {used} ticks"));
                }
            }
        }
        if found.is_empty() {
            break;
        }
    }
    found
}

/// Fails when a thread of one of these processes goes on working although nobody uses the pool.
/// Processes that have ended are passed over.
#[track_caller]
pub fn assert_rests<'a>(processes: impl IntoIterator<Item = &'a Process>) {
    let pids: Vec<u32> = processes.into_iter().map(Process::pid).collect();
    let busy = busy(&pids);
    assert!(busy.is_empty(), "busy although the pool is idle: {busy:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_thread_that_turns_is_found_and_one_that_waits_is_not() {
        let stop = AtomicBool::new(false);
        let own = std::process::id();
        assert_eq!(busy(&[own, u32::MAX]), Vec::<String>::new());
        std::thread::scope(|scope| {
            let turns = || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            let thread = std::thread::Builder::new().name("turns".into());
            thread.spawn_scoped(scope, turns).unwrap();
            let found = busy(&[own]);
            stop.store(true, Ordering::Relaxed);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("turns"), "{found:?}");
        });
    }
}
