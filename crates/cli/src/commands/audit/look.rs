//! Reads every replica that the directory names, at the node that it is named for.

use crate::exit::Ending;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use snowskin_client::{CallOptions, Client, Condition, NamedReplica};
use snowskin_types::call::{Fault, Filter, Keys, ObjectStat};
use snowskin_types::error::Failure;
use snowskin_types::limits::LIST_PAGE_MAX;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that ask and read.
const THREADS: usize = 8;
/// Keys that a thread takes at a time: their replicas are read together.
const KEYS_PER_TURN: usize = 128;

/// A replica that is not as the directory says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Faulty {
    pub(super) replica: NamedReplica,
    pub(super) fault: Fault,
}

/// What was found at all nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Look {
    /// Objects that the directory names.
    pub(super) objects: u64,
    /// Replicas that were read or could not be reached.
    pub(super) replicas: u64,
    /// Those that are not as named, twice in a row.
    pub(super) faulty: Vec<Faulty>,
    /// Those that could not be read.
    pub(super) unreachable: u64,
    /// Why, for the first of them.
    pub(super) why: String,
}

impl Look {
    pub(super) fn count(&self, fault: Fault) -> u64 {
        self.faulty.iter().filter(|f| f.fault == fault).count() as u64
    }

    fn add(&mut self, other: Look) {
        self.objects += other.objects;
        self.replicas += other.replicas;
        self.faulty.extend(other.faulty);
        self.unreachable += other.unreachable;
        if self.why.is_empty() {
            self.why = other.why;
        }
    }
}

/// Looks at all objects of the client's tenant; about `objects` are expected.
pub(super) fn look(client: &Client, objects: u64, progress: bool) -> Result<Look, Ending> {
    let bar = bar(progress, objects);
    let mut look = Look::default();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let options = CallOptions::default();
        let page = client.list(&Filter::All, after.as_deref(), LIST_PAGE_MAX, &options)?;
        look.add(look_at_page(client, &page.keys, &bar)?);
        after = page.keys.iter().last().map(<[u8]>::to_vec);
        if !page.more || after.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    look.faulty.sort_by(|a, b| {
        (&a.replica.key, a.replica.place.node).cmp(&(&b.replica.key, b.replica.place.node))
    });
    Ok(look)
}

fn bar(wanted: bool, len: u64) -> ProgressBar {
    if !wanted || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} objects, {per_sec}, {eta} left");
    ProgressBar::new(len).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn look_at_page(client: &Client, keys: &Keys, bar: &ProgressBar) -> Result<Look, Ending> {
    let next = AtomicUsize::new(0);
    let turns = keys.len().div_ceil(KEYS_PER_TURN);
    let work = || -> Result<Look, Failure> {
        let mut look = Look::default();
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= turns {
                return Ok(look);
            }
            let from = turn * KEYS_PER_TURN;
            let to = keys.len().min(from + KEYS_PER_TURN);
            let slice = (from..to).filter_map(|at| keys.get(at));
            look.add(look_at(client, slice)?);
            bar.inc((to - from) as u64);
        }
    };
    let parts: Vec<Result<Look, Ending>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS.min(turns)).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(part) => part.map_err(Ending::from),
            Err(_) => Err(Ending::Runtime("an audit thread panicked".into())),
        });
        ended.collect()
    });
    let mut look = Look::default();
    for part in parts {
        look.add(part?);
    }
    Ok(look)
}

/// Reads the replicas of some objects. What looks wrong is asked for and read once more: an object may
/// have been removed, replaced or evicted meanwhile.
fn look_at<'k>(client: &Client, keys: impl Iterator<Item = &'k [u8]>) -> Result<Look, Failure> {
    let options = CallOptions::default();
    let mut look = Look::default();
    let mut named = Vec::new();
    for key in keys {
        if let Some(stat) = client.stat_object(key, &options)? {
            let before = named.len();
            named_replicas(key, &stat, &mut named)?;
            look.objects += u64::from(named.len() > before);
        }
    }
    look.replicas = named.len() as u64;
    let conditions = client.inspect_replicas(&named, &options);
    for (replica, condition) in named.into_iter().zip(conditions) {
        if condition == Condition::Sound {
            continue;
        }
        let stat = client.stat_object(replica.key.as_bytes(), &options)?;
        let mut again = Vec::new();
        if let Some(stat) = stat {
            named_replicas(replica.key.as_bytes(), &stat, &mut again)?;
        }
        if !again.contains(&replica) {
            continue;
        }
        let conditions = client.inspect_replicas(std::slice::from_ref(&replica), &options);
        let fault = match conditions.into_iter().next() {
            Some(Condition::Sound) | None => continue,
            Some(Condition::Gone) => Fault::Gone,
            Some(Condition::Bad) => Fault::Bad,
            Some(Condition::Unknown(failure)) => {
                look.unreachable += 1;
                if look.why.is_empty() {
                    look.why = failure.to_string();
                }
                continue;
            }
        };
        look.faulty.push(Faulty { replica, fault });
    }
    Ok(look)
}

/// The replicas that a look-up may name now. Hidden ones were reported, or their node is gone.
fn named_replicas(
    key: &[u8],
    stat: &ObjectStat,
    named: &mut Vec<NamedReplica>,
) -> Result<(), Failure> {
    let published = stat.replicas.iter().filter(|r| r.state == "published");
    for replica in published {
        named.push(NamedReplica::new(
            key,
            stat.version,
            stat.shape,
            replica.place.clone(),
        )?);
    }
    Ok(())
}
