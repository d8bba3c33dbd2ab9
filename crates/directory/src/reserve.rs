//! Puts: versions and placements, and what becomes of those that their writers give up.

use crate::directory::Directory;
use crate::effect::Counter;
use crate::event::RequestId;
use crate::jobs::{REQUEST_SLICE, Work};
use crate::lookup::Places;
use crate::object::{Ix, LifeIx, Owes};
use snowskin_types::call::{Cancelled, Keys, PutMode, Reply, Reserve, Reserved};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::limits::{OBJECT_BYTES_MAX, REPLICAS_MAX};
use snowskin_types::version::Version;

/// Puts of one key that may be unfinished at a time.
const UNFINISHED_MAX: usize = 8;

fn check(item: &Reserve) -> Result<(), Failure> {
    let bad = |message: String| Err(Failure::new(Code::InvalidParams, Stage::Reserve, message));
    if item.size == 0 || item.size > OBJECT_BYTES_MAX {
        return bad(format!(
            "an object of {} bytes; allowed are 1 to {OBJECT_BYTES_MAX}",
            item.size
        ));
    }
    if item.replicas == 0 || item.replicas as usize > REPLICAS_MAX {
        return bad(format!(
            "{} replicas; allowed are 1 to {REPLICAS_MAX}",
            item.replicas
        ));
    }
    Ok(())
}

fn named(failure: Failure, keys: &Keys, at: usize) -> Failure {
    match keys.get(at).and_then(|key| Key::new(key).ok()) {
        Some(key) => failure.with_key(&key),
        None => failure,
    }
}

impl Directory {
    pub(crate) fn step_reserve(&mut self, id: RequestId, work: Work) -> Option<Work> {
        let Work::Reserve {
            tenant,
            keys,
            items,
            mut places,
            mut done,
        } = work
        else {
            return None;
        };
        let (found, hashes) = self.probe(&tenant, &keys, done.len());
        self.begin_places(&places);
        let (mut placed, mut taken, mut failed) = (0, 0, 0);
        for ix in &found {
            let at = done.len();
            let Some(item) = items.get(at) else {
                break;
            };
            let reserved = self.reserve_one(*ix, &tenant, &keys, at, item, &mut places);
            match &reserved {
                Reserved::Placed { .. } => placed += 1,
                Reserved::Exists { .. } => taken += 1,
                Reserved::Failed(_) => failed += 1,
            }
            done.push(reserved);
        }
        self.give_back(found, hashes);
        self.count(Counter::Reserved, placed);
        self.count(Counter::ReserveExists, taken);
        self.count(Counter::ReserveFailed, failed);
        if done.len() < keys.len() {
            return Some(Work::Reserve {
                tenant,
                keys,
                items,
                places,
                done,
            });
        }
        let places = places.list;
        self.reply(
            id,
            Reply::Reserved {
                places,
                items: done,
            },
        );
        None
    }

    fn reserve_one(
        &mut self,
        probed: Option<Ix>,
        tenant: &Tenant,
        keys: &Keys,
        at: usize,
        item: &Reserve,
        places: &mut Places,
    ) -> Reserved {
        let name = keys.get(at).and_then(|key| Key::new(key).ok());
        let Some(name) = name.map(|key| ObjectName::new(tenant.clone(), key)) else {
            let failure = Failure::new(Code::InvalidKey, Stage::Reserve, "the key is not allowed");
            return Reserved::Failed(failure);
        };
        if let Err(failure) = check(item) {
            return Reserved::Failed(failure.with_key(&name.key));
        }
        // An earlier item of this batch may have brought the key in.
        let known = probed.or_else(|| self.table.find_name(&name));
        if let Some(taken) = known.and_then(|ix| self.taken(ix, item.mode)) {
            return taken;
        }
        let lives = match self.choose(item) {
            Ok(lives) => lives,
            Err(failure) => return Reserved::Failed(failure.with_key(&name.key)),
        };
        let entry = match known {
            Some(ix) => Some(ix),
            None => self.entry_of(&name),
        };
        let (Some(ix), Some(version)) = (entry, self.next_version()) else {
            let failure = Failure::new(
                Code::UnavailableInStatus,
                Stage::Reserve,
                "the directory is full or has given out all versions of its term",
            );
            return Reserved::Failed(failure.with_key(&name.key));
        };
        let mut indices = Vec::with_capacity(lives.len());
        for life in lives {
            if let Some(place) = self.place(places, life) {
                self.oblige(ix, life, version, item.size, Owes::Placed);
                if item.mode == PutMode::Replace {
                    self.note_replace(ix, life, version);
                }
                indices.push(place);
            }
        }
        Reserved::Placed {
            version,
            places: indices,
        }
    }

    /// Whether a put of this key is answered with 'exists'.
    fn taken(&self, ix: Ix, mode: PutMode) -> Option<Reserved> {
        let entry = self.table.entry(ix);
        if mode == PutMode::IfAbsent && self.readable(ix) {
            return Some(Reserved::Exists {
                version: entry.version,
                unfinished: self.publish_waits(ix, entry.version),
            });
        }
        // Puts older than the discard timeout have been cancelled by their alarms.
        let placed = entry.obligations().iter();
        let mut puts: Vec<Version> = placed
            .filter(|o| o.owes == Owes::Placed && !self.nodes.is_dead(o.life))
            .filter(|o| self.now < o.since + self.config.put_start_discard_timeout)
            .map(|o| o.version)
            .collect();
        puts.sort_unstable();
        puts.dedup();
        let most = match mode {
            PutMode::IfAbsent => 1,
            PutMode::Replace => UNFINISHED_MAX,
        };
        let version = *puts.last().filter(|_| puts.len() >= most)?;
        Some(Reserved::Exists {
            version,
            unfinished: true,
        })
    }

    pub(crate) fn step_cancel(&mut self, id: RequestId, work: Work) -> Option<Work> {
        let Work::Cancel {
            tenant,
            keys,
            versions,
            mut done,
        } = work
        else {
            return None;
        };
        let end = keys.len().min(done.len() + REQUEST_SLICE);
        for at in done.len()..end {
            let (Some(key), Some(version)) = (keys.get(at), versions.get(at)) else {
                break;
            };
            let cancelled = self.cancel_one(&tenant, key, *version);
            done.push(match cancelled {
                Cancelled::Failed(failure) => Cancelled::Failed(named(failure, &keys, at)),
                other => other,
            });
        }
        if done.len() < keys.len() {
            return Some(Work::Cancel {
                tenant,
                keys,
                versions,
                done,
            });
        }
        self.reply(id, Reply::Cancelled(done));
        None
    }

    fn cancel_one(&mut self, tenant: &Tenant, key: &[u8], version: Version) -> Cancelled {
        let tenant = self.table.tenant_ix(tenant);
        let found = tenant.and_then(|t| self.table.find(self.table.hash(t, key), t, key));
        if let Some(ix) = found
            && self.table.entry(ix).version == version
            && !version.is_none()
        {
            if self.publish_settled(ix, version) {
                return Cancelled::Published;
            }
            // Success means that nobody serves an older version any more.
            return Cancelled::Failed(Failure::new(
                Code::UnavailableInStatus,
                Stage::Publish,
                "the object is visible, but not all owners of older versions have retired them",
            ));
        }
        if version.term() != self.term && self.incomplete > 0 {
            // A node that has not told all may still hold it.
            return Cancelled::Failed(Failure::new(
                Code::UnavailableInStatus,
                Stage::Reserve,
                "the put began under a former leadership and not all nodes have told what they hold",
            ));
        }
        if let Some(ix) = found {
            let owners = self.table.entry(ix).obligations().iter();
            let owners: Vec<(LifeIx, u64)> = owners
                .filter(|o| o.version == version && o.owes == Owes::Placed)
                .map(|o| (o.life, o.size))
                .collect();
            for (life, size) in owners {
                self.must_retire(ix, life, version, size, self.now);
            }
            self.tidy(ix);
        }
        Cancelled::Ended
    }
}
