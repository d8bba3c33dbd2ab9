//! One key's entry: its current version, who is named as holding it, who still owns what.

use crate::timers::Alarm;
use snowskin_types::object::{Attributes, Tier};
use snowskin_types::time::Now;
use snowskin_types::version::Version;

/// Position of an entry in the table.
pub(crate) type Ix = u32;
/// Position of one process life of a node among all lives.
pub(crate) type LifeIx = u16;
/// No life.
pub(crate) const NO_LIFE: LifeIx = LifeIx::MAX;
/// No group.
pub(crate) const NO_GROUP: u32 = u32::MAX;

const SSD: u8 = 1;
const HIDDEN: u8 = 2;

/// A node's published replica of an entry's current version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) life: LifeIx,
    /// Which session of the life confirmed it last.
    pub(crate) generation: u8,
    flags: u8,
}

impl Claim {
    const NONE: Claim = Claim {
        life: NO_LIFE,
        generation: 0,
        flags: 0,
    };

    pub(crate) fn new(life: LifeIx, generation: u8, tier: Tier) -> Self {
        let flags = if tier == Tier::Ssd { SSD } else { 0 };
        Claim {
            life,
            generation,
            flags,
        }
    }

    pub(crate) fn tier(self) -> Tier {
        if self.flags & SSD != 0 {
            Tier::Ssd
        } else {
            Tier::Dram
        }
    }

    pub(crate) fn set_tier(&mut self, tier: Tier) {
        self.flags = (self.flags & !SSD) | if tier == Tier::Ssd { SSD } else { 0 };
    }

    pub(crate) fn hidden(self) -> bool {
        self.flags & HIDDEN != 0
    }

    pub(crate) fn set_hidden(&mut self, hidden: bool) {
        self.flags = (self.flags & !HIDDEN) | if hidden { HIDDEN } else { 0 };
    }
}

/// Why a node is an owner of a version that no claim names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owes {
    /// It was chosen for a put that has not ended.
    Placed,
    /// Its retract was granted; it has not confirmed the absence yet.
    Retracted,
    /// It has to retire the version.
    Retiring,
}

/// A node that may still hold a version: an owner without a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Obligation {
    pub(crate) version: Version,
    pub(crate) size: u64,
    pub(crate) life: LifeIx,
    pub(crate) owes: Owes,
    /// The put may replace an older version, known here or not.
    pub(crate) replaces: bool,
    /// Session of the life in which it arose.
    pub(crate) generation: u8,
    /// When to look at it again.
    pub(crate) alarm: Option<Alarm>,
    /// Placed: when the put began. Retiring: not to be ordered before this time.
    pub(crate) since: Now,
}

/// What only few entries have.
#[derive(Debug)]
pub(crate) struct Rare {
    /// Versions up to this one are removed for ever.
    pub(crate) floor: Version,
    /// The put of the current version is answered only when also the nodes that have not told all they
    /// hold are through.
    pub(crate) strict: bool,
    pub(crate) claims: Vec<Claim>,
    pub(crate) obligations: Vec<Obligation>,
    /// Answers that wait for owners of this entry.
    pub(crate) waits: Vec<u64>,
    pub(crate) attributes: Option<Box<Attributes>>,
    pub(crate) group: u32,
}

impl Default for Rare {
    fn default() -> Self {
        Rare {
            floor: Version::NONE,
            strict: false,
            claims: Vec::new(),
            obligations: Vec::new(),
            waits: Vec::new(),
            attributes: None,
            group: NO_GROUP,
        }
    }
}

impl Rare {
    fn is_trivial(&self) -> bool {
        self.floor.is_none()
            && !self.strict
            && self.claims.is_empty()
            && self.obligations.is_empty()
            && self.waits.is_empty()
            && self.attributes.is_none()
            && self.group == NO_GROUP
    }
}

/// A moment in five bytes: 34 years of milliseconds since the clock's origin.
#[derive(Debug, Clone, Copy, Default)]
struct Moment([u8; 5]);

impl Moment {
    fn new(at: Now) -> Self {
        let b = at.0.min((1 << 40) - 1).to_le_bytes();
        Moment([b[0], b[1], b[2], b[3], b[4]])
    }

    fn get(self) -> Now {
        let [a, b, c, d, e] = self.0;
        Now(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
    }
}

/// One key. 64 bytes: a million of them with their keys must fit into 250 MB.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) hash: u64,
    /// Highest version that was ever visible and not removed; none after a remove.
    pub(crate) version: Version,
    pub(crate) size: u64,
    pub(crate) checksum: u64,
    rare: Option<Box<Rare>>,
    pub(crate) key_slot: u32,
    /// Zero: the slot is free and `key_slot` is the next free one.
    pub(crate) key_len: u16,
    pub(crate) tenant: u16,
    lease: Moment,
    touched: Moment,
    first: Claim,
}

impl Entry {
    pub(crate) fn free(next: u32) -> Self {
        Entry {
            hash: 0,
            version: Version::NONE,
            size: 0,
            checksum: 0,
            rare: None,
            key_slot: next,
            key_len: 0,
            tenant: 0,
            lease: Moment::default(),
            touched: Moment::default(),
            first: Claim::NONE,
        }
    }

    pub(crate) fn lease(&self) -> Now {
        self.lease.get()
    }

    pub(crate) fn set_lease(&mut self, until: Now) {
        self.lease = Moment::new(until);
    }

    /// Last put or get.
    pub(crate) fn touched(&self) -> Now {
        self.touched.get()
    }

    pub(crate) fn touch(&mut self, at: Now) {
        self.touched = Moment::new(at);
    }

    pub(crate) fn rare(&self) -> Option<&Rare> {
        self.rare.as_deref()
    }

    pub(crate) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Gives the side structure back when nothing is in it.
    pub(crate) fn trim(&mut self) {
        if self.rare.as_ref().is_some_and(|r| r.is_trivial()) {
            self.rare = None;
        }
    }

    pub(crate) fn floor(&self) -> Version {
        self.rare().map_or(Version::NONE, |r| r.floor)
    }

    /// Whether the put of the current version waits for nodes that have not told all they hold.
    pub(crate) fn strict(&self) -> bool {
        self.rare().is_some_and(|r| r.strict)
    }

    pub(crate) fn set_strict(&mut self, strict: bool) {
        if strict != self.strict() {
            self.rare_mut().strict = strict;
        }
    }

    pub(crate) fn attributes(&self) -> Option<&Attributes> {
        self.rare().and_then(|r| r.attributes.as_deref())
    }

    pub(crate) fn group(&self) -> u32 {
        self.rare().map_or(NO_GROUP, |r| r.group)
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = Claim> + '_ {
        let first = (self.first.life != NO_LIFE).then_some(self.first);
        let more = self.rare().map_or(&[][..], |r| &r.claims);
        first.into_iter().chain(more.iter().copied())
    }

    pub(crate) fn claim(&self, life: LifeIx) -> Option<Claim> {
        self.claims().find(|c| c.life == life)
    }

    pub(crate) fn claim_mut(&mut self, life: LifeIx) -> Option<&mut Claim> {
        if self.first.life == life {
            return Some(&mut self.first);
        }
        let rare = self.rare.as_deref_mut()?;
        rare.claims.iter_mut().find(|c| c.life == life)
    }

    pub(crate) fn has_claims(&self) -> bool {
        self.first.life != NO_LIFE
    }

    pub(crate) fn add_claim(&mut self, claim: Claim) {
        if self.first.life == NO_LIFE {
            self.first = claim;
        } else {
            self.rare_mut().claims.push(claim);
        }
    }

    pub(crate) fn remove_claim(&mut self, life: LifeIx) -> Option<Claim> {
        if self.first.life == life {
            let gone = self.first;
            let next = self.rare.as_deref_mut().and_then(|r| r.claims.pop());
            self.first = next.unwrap_or(Claim::NONE);
            return Some(gone);
        }
        let rare = self.rare.as_deref_mut()?;
        let at = rare.claims.iter().position(|c| c.life == life)?;
        Some(rare.claims.swap_remove(at))
    }

    pub(crate) fn obligations(&self) -> &[Obligation] {
        self.rare().map_or(&[], |r| &r.obligations)
    }

    pub(crate) fn obligation(&self, life: LifeIx, version: Version) -> Option<&Obligation> {
        let all = self.obligations();
        all.iter().find(|o| o.life == life && o.version == version)
    }

    pub(crate) fn obligation_mut(
        &mut self,
        life: LifeIx,
        version: Version,
    ) -> Option<&mut Obligation> {
        let rare = self.rare.as_deref_mut()?;
        let all = &mut rare.obligations;
        all.iter_mut()
            .find(|o| o.life == life && o.version == version)
    }

    pub(crate) fn waits(&self) -> &[u64] {
        self.rare().map_or(&[], |r| &r.waits)
    }

    /// True when nothing but the number of an old version is left.
    pub(crate) fn is_bare(&self) -> bool {
        !self.has_claims() && self.obligations().is_empty() && self.waits().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_one_cache_line() {
        assert_eq!(size_of::<Entry>(), 64);
    }

    #[test]
    fn an_obligation_takes_little_more_than_half_a_cache_line() {
        assert_eq!(size_of::<Obligation>(), 56);
    }

    #[test]
    fn claims_move_up_when_the_first_goes() {
        let mut entry = Entry::free(0);
        for life in 0..3 {
            entry.add_claim(Claim::new(life, 0, Tier::Dram));
        }
        assert!(entry.remove_claim(0).is_some());
        assert_eq!(entry.claims().count(), 2);
        assert!(entry.remove_claim(1).is_some() && entry.remove_claim(2).is_some());
        assert!(!entry.has_claims() && entry.remove_claim(2).is_none());
        entry.trim();
        assert!(entry.rare().is_none());
    }
}
