//! What each read may return, judged from outside: from what clients asked and were answered, and
//! from the moments at which requests reached the master.
//!
//! * A read returns the bytes of exactly one put, the one of the version it names.
//! * Never of a version older than the last put that was acked before the read began (but for the one
//!   exception of `is_first_put_beside_unlisted`).
//! * Never of a version that a remove or a cancel had ended before the read began: a remove that found
//!   the key ends all versions that were given out before it first reached the master; one that did
//!   not find it, or that removed all keys, all that had been acked or read by then.
//! * Within a lease, a read does not end with 'not found' (unless something ended the promise: see
//!   [`Oracle::void`]).

use crate::clock::Micros;
use crate::content::{self, PutId};
use crate::packet::ReadBytes;
use snowskin_client::plan::get::Got;
use snowskin_types::call::PutMode;
use snowskin_types::call::{Cancelled, Keys};
use snowskin_types::{Code, Failure, Key, Now, Version};
use std::collections::{BTreeMap, BTreeSet};

/// One put's attempt.
#[derive(Debug, Clone)]
pub struct PutRecord {
    /// Which key.
    pub key: usize,
    /// Bytes.
    pub size: u64,
    /// What it did about a taken key.
    pub mode: PutMode,
}

/// What is known of one key.
#[derive(Debug, Clone, Default)]
pub struct KeyHistory {
    /// Highest version of a put that was acked.
    pub acked: Version,
    /// Versions up to this one were ended by an acked remove.
    pub removed: Version,
    /// Highest version that the directory gave out for a put.
    pub given: Version,
    /// Versions whose publish reached the directory: somebody may have been told of them.
    pub told: BTreeSet<Version>,
    /// Versions that nobody was told of before their cancel was answered 'ended', and when.
    pub cancelled: BTreeMap<Version, Micros>,
    /// Versions that a granted retract may have ended, with whatever else ends one version only.
    pub evicted: BTreeSet<Version>,
    /// Highest version whose publish reached the directory.
    pub published: Version,
    /// When a newer version last reached the directory.
    pub replaced_at: Micros,
    /// Highest version that a read returned.
    pub read: Version,
    /// When each version was given out.
    pub born: BTreeMap<Version, Micros>,
    /// Last moment at which something ended all promises of this key.
    pub voided_at: Micros,
    /// Removes under way, whose effect may come at any time.
    pub removes_open: u32,
    /// Every client's promise: until when, on its clock, and since when.
    pub promises: BTreeMap<usize, (Now, Micros)>,
}

/// What was true when a read began.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    acked: Version,
    removed: Version,
    began: Micros,
    promised_since: Option<Micros>,
    /// End of that promise, on the client's clock.
    promised_until: Now,
    /// The read began with a location that its client remembered.
    remembered: bool,
}

/// A request that ends promises.
#[derive(Debug)]
pub enum Asked<'a> {
    /// A remove of these keys.
    Remove(&'a Keys),
    /// A remove of all keys.
    RemoveAll,
    /// A report on a replica of this key.
    Report(&'a Key),
}

/// What a remove ends when it is acked: per key, all versions that were certainly visible when it
/// first reached the master, and all that were given out.
type Ends = Vec<(usize, Version, Version)>;

/// The judge.
#[derive(Debug)]
pub struct Oracle {
    keys: Vec<Key>,
    /// What is known of each key.
    pub history: Vec<KeyHistory>,
    puts: Vec<PutRecord>,
    written: BTreeMap<Version, PutId>,
    removes: BTreeMap<(usize, u64), Ends>,
    void_all_at: Micros,
    void_leases_at: Micros,
}

impl Snapshot {
    /// A read that began under a promise and ended after it: its look-up may have reached the master
    /// too late to be covered.
    pub fn outlasted(&self, now: Now) -> bool {
        now >= self.promised_until
    }
}

impl Oracle {
    /// Knows so many keys.
    pub fn new(keys: usize) -> Self {
        let names = (0..keys).filter_map(|i| Key::new(format!("k{i}").as_bytes()).ok());
        Oracle {
            keys: names.collect(),
            history: vec![KeyHistory::default(); keys],
            puts: Vec::new(),
            written: BTreeMap::new(),
            removes: BTreeMap::new(),
            void_all_at: 0,
            void_leases_at: 0,
        }
    }

    /// A key by its index.
    pub fn key(&self, index: usize) -> Key {
        self.keys[index % self.keys.len()].clone()
    }

    /// The index of a key.
    pub fn index(&self, key: &Key) -> usize {
        self.index_of(key.as_bytes())
    }

    /// The index of a key's bytes.
    pub fn index_of(&self, key: &[u8]) -> usize {
        let digits = key.get(1..).and_then(|d| std::str::from_utf8(d).ok());
        digits.and_then(|d| d.parse().ok()).unwrap_or(0)
    }

    /// A put begins.
    pub fn begin_put(&mut self, key: usize, size: u64, mode: PutMode) -> PutId {
        self.puts.push(PutRecord { key, size, mode });
        PutId((self.puts.len() - 1) as u32)
    }

    /// A put is about to write its bytes under this version.
    pub fn bind(&mut self, put: PutId, version: Version) {
        self.written.insert(version, put);
    }

    /// Whose bytes a version has.
    pub fn put_of(&self, version: Version) -> Option<(PutId, &PutRecord)> {
        let put = *self.written.get(&version)?;
        Some((put, self.puts.get(put.0 as usize)?))
    }

    /// A put was answered with success.
    pub fn acked(&mut self, put: PutId, version: Version, _time: Micros) {
        if let Some(record) = self.puts.get(put.0 as usize) {
            let history = &mut self.history[record.key];
            history.acked = history.acked.max(version);
        }
    }

    /// The directory gave a version out.
    pub fn given(&mut self, key: usize, version: Version, time: Micros) {
        let history = &mut self.history[key];
        history.given = history.given.max(version);
        history.born.insert(version, time);
    }

    /// A cancel was answered.
    pub fn cancelled(&mut self, versions: &[Version], items: &[Cancelled], time: Micros) {
        for (version, item) in versions.iter().zip(items) {
            let key = self.put_of(*version).map(|(_, record)| record.key);
            if let (Cancelled::Ended, Some(key)) = (item, key)
                && !self.history[key].told.contains(version)
            {
                self.history[key].cancelled.insert(*version, time);
            }
        }
    }

    /// A request reaches the master that ends promises, maybe more than once.
    pub fn asked(&mut self, client: usize, call: u64, asked: Asked<'_>, time: Micros) {
        let keys: Vec<usize> = match asked {
            Asked::Report(key) => return self.void(self.index(key), time),
            Asked::Remove(keys) => keys.iter().map(|k| self.index_of(k)).collect(),
            Asked::RemoveAll => (0..self.history.len()).collect(),
        };
        let ends = keys.iter().map(|&key| {
            let history = &self.history[key];
            (key, history.acked.max(history.read), history.given)
        });
        let ends: Ends = ends.collect();
        for key in keys {
            self.void(key, time);
            self.history[key].removes_open += 1;
        }
        // A repeated request ends more, but its answer may be that of the first.
        self.removes.entry((client, call)).or_insert(ends);
    }

    /// The directory answered a remove, in whatever way: it has no effect any more.
    pub fn remove_answered(&mut self, keys: impl IntoIterator<Item = usize>, time: Micros) {
        for key in keys {
            self.void(key, time);
            let history = &mut self.history[key];
            history.removes_open = history.removes_open.saturating_sub(1);
        }
    }

    /// The master died: what it was about to do, it does not do any more.
    pub fn master_died(&mut self) {
        for history in &mut self.history {
            history.removes_open = 0;
        }
    }

    /// A remove of one key was answered; true if that is a promise. 'Not found' is one too, though
    /// a put that had not ended may come after it, as after a remove of all.
    pub fn removed(&mut self, client: usize, call: u64, result: &Result<(), Failure>) -> bool {
        let ends = self.removes.remove(&(client, call));
        let all_given = match result {
            Ok(()) => ends.as_ref().is_some_and(|e| e.len() == 1),
            Err(failure) if failure.code == Code::ObjectNotFound => false,
            Err(_) => return false,
        };
        for (key, visible, given) in ends.unwrap_or_default() {
            let history = &mut self.history[key];
            let version = if all_given { given } else { visible };
            history.removed = history.removed.max(version);
        }
        true
    }

    /// Something ended all promises of a key.
    pub fn void(&mut self, key: usize, time: Micros) {
        self.history[key].voided_at = time;
    }

    /// Something ended all promises.
    pub fn void_all(&mut self, time: Micros) {
        self.void_all_at = time;
    }

    /// Something ended all leases, though not what was acked.
    pub fn void_leases(&mut self, time: Micros) {
        self.void_leases_at = time;
    }

    /// Last moment at which something ended all leases on a key.
    pub fn leases_voided_at(&self, key: usize) -> Micros {
        self.voided_at(key).max(self.void_leases_at)
    }

    /// Last moment at which something ended all promises of a key.
    pub fn voided_at(&self, key: usize) -> Micros {
        let history = &self.history[key];
        history.voided_at.max(self.void_all_at)
    }

    /// Why a version that was acked may be unreadable, if there is a reason.
    pub fn excuse(&self, key: usize, version: Version) -> Option<&'static str> {
        let history = &self.history[key];
        let born = history.born.get(&version).copied().unwrap_or(Micros::MAX);
        if version <= history.removed || history.removes_open > 0 {
            Some("removed")
        } else if history.evicted.contains(&version) {
            Some("evicted")
        } else if history.published > version {
            Some("replaced")
        } else if history.cancelled.contains_key(&version) {
            Some("cancelled")
        } else if self.voided_at(key) >= born {
            Some("voided")
        } else {
            None
        }
    }

    /// A client holds a lease on a key until a moment of its clock.
    pub fn promised(&mut self, client: usize, key: usize, until: Now, time: Micros) {
        let promise = self.history[key]
            .promises
            .entry(client)
            .or_insert((until, time));
        if until >= promise.0 {
            *promise = (until, time);
        }
    }

    /// A read begins.
    pub fn snapshot(
        &self,
        time: Micros,
        client: usize,
        key: usize,
        now: Now,
        remembered: bool,
    ) -> Snapshot {
        let history = &self.history[key];
        let promise = history.promises.get(&client);
        Snapshot {
            acked: history.acked,
            removed: history.removed,
            began: time,
            promised_since: promise.filter(|(until, _)| now < *until).map(|(_, at)| *at),
            promised_until: promise.map_or(Now(0), |(until, _)| *until),
            remembered,
        }
    }

    /// A read ends.
    ///
    /// # Errors
    /// Names the property that it violates, and how.
    pub fn read(
        &mut self,
        key: usize,
        start: &Snapshot,
        outcome: &Result<Got, Failure>,
        bytes: Option<&ReadBytes>,
        _time: Micros,
    ) -> Result<(), (&'static str, String)> {
        let got = match outcome {
            Ok(got) => got,
            Err(failure) => return self.failed_read(key, start, failure),
        };
        let version = got.version;
        let wrong = |message: String| Err(("read_returns_a_put", message));
        let Some((put, record)) = self.put_of(version) else {
            return wrong(format!(
                "k{key} read as version {version}, which nobody wrote"
            ));
        };
        if record.key != key {
            return wrong(format!(
                "k{key} read as version {version} of k{}",
                record.key
            ));
        }
        let bytes = bytes.map_or(&[][..], |read| &read.bytes);
        if bytes.len() as u64 != record.size || got.len != record.size {
            return wrong(format!(
                "k{key} version {version}: {} bytes read, {} were put",
                bytes.len(),
                record.size
            ));
        }
        if let Some(at) = content::first_difference(put, 0, bytes) {
            return wrong(format!(
                "k{key} version {version} of put {}: wrong bytes from {at} on: {}",
                put.0,
                content::describe(bytes, at)
            ));
        }
        if version < start.acked && !self.is_first_put_beside_unlisted(version, start) {
            return Err((
                "read_is_not_stale",
                format!(
                    "k{key} read as version {version}, but version {} was acked before the read began",
                    start.acked
                ),
            ));
        }
        if version <= start.removed {
            return Err((
                "removed_stays_removed",
                format!(
                    "k{key} read as version {version}, but all up to {} were removed before the read began",
                    start.removed
                ),
            ));
        }
        let cancelled = self.history[key].cancelled.get(&version);
        if cancelled.is_some_and(|at| *at < start.began) {
            return Err((
                "removed_stays_removed",
                format!("k{key} read as version {version}, whose cancel was answered 'ended'"),
            ));
        }
        let history = &mut self.history[key];
        history.read = history.read.max(version);
        Ok(())
    }

    /// The exception that docs/adr/0002 decided on: after a restart of the master a plain first put
    /// does not wait for nodes that have told nothing yet, so that a location remembered from the
    /// former master may be read until its lease ends. A replace waits, and a fresh look-up never
    /// leads there.
    fn is_first_put_beside_unlisted(&self, version: Version, start: &Snapshot) -> bool {
        let plain = |put: &PutRecord| put.mode == PutMode::IfAbsent;
        start.remembered
            && version.term() < start.acked.term()
            && self.put_of(start.acked).is_some_and(|(_, put)| plain(put))
    }

    fn failed_read(
        &self,
        key: usize,
        start: &Snapshot,
        failure: &Failure,
    ) -> Result<(), (&'static str, String)> {
        let missing = failure.code == Code::ObjectNotFound;
        let Some(since) = start.promised_since.filter(|_| missing) else {
            return Ok(());
        };
        let voided = self.leases_voided_at(key);
        let voided = voided.max(self.history[key].replaced_at);
        if voided >= since || self.history[key].removes_open > 0 {
            return Ok(());
        }
        Err((
            "leased_read_succeeds",
            format!(
                "k{key}: a read within a lease given since {} us ended with {failure}",
                since
            ),
        ))
    }
}
