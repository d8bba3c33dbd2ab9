//! Pages of keys, and all that is known of one object or of the cluster.

use crate::directory::Directory;
use crate::event::RequestId;
use crate::jobs::Work;
use crate::object::Owes;
use snowskin_types::call::{ClusterStat, Filter, Keys, NodeStat, ObjectStat, ReplicaStat, Reply};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::limits::SLICE_ITEMS;
use snowskin_types::object::{Place, Shape};
use std::collections::BinaryHeap;

/// Key bytes that a filter is tried on within one event.
pub(crate) const SCAN_BYTES: usize = 128 << 10;
/// Longest pattern.
const PATTERN_BYTES_MAX: usize = 4096;
/// Largest compiled pattern.
const PATTERN_SIZE_MAX: usize = 1 << 20;
/// Key bytes of one page; the page ends early when its keys are long.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// A filter made ready.
#[derive(Debug, Clone)]
pub(crate) enum Matcher {
    All,
    Prefix(Vec<u8>),
    Regex(Box<regex::bytes::Regex>),
}

impl Matcher {
    pub(crate) fn compile(filter: Filter) -> Result<Matcher, Failure> {
        let pattern = match filter {
            Filter::All => return Ok(Matcher::All),
            Filter::Prefix(bytes) => return Ok(Matcher::Prefix(bytes)),
            Filter::Regex(pattern) => pattern,
        };
        let bad = |why: String| Failure::new(Code::InvalidParams, Stage::Locate, why);
        if pattern.len() > PATTERN_BYTES_MAX {
            let len = pattern.len();
            return Err(bad(format!(
                "the pattern has {len} bytes; allowed are {PATTERN_BYTES_MAX}"
            )));
        }
        let built = regex::bytes::RegexBuilder::new(&pattern)
            .size_limit(PATTERN_SIZE_MAX)
            .dfa_size_limit(PATTERN_SIZE_MAX)
            .build();
        match built {
            Ok(regex) => Ok(Matcher::Regex(Box::new(regex))),
            Err(error) => Err(bad(format!(
                "the pattern {pattern:?} is not allowed: {error}"
            ))),
        }
    }

    /// Whether both come from the same filter.
    pub(crate) fn same(&self, other: &Matcher) -> bool {
        match (self, other) {
            (Matcher::All, Matcher::All) => true,
            (Matcher::Prefix(a), Matcher::Prefix(b)) => a == b,
            (Matcher::Regex(a), Matcher::Regex(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }

    pub(crate) fn matches(&self, key: &[u8]) -> bool {
        match self {
            Matcher::All => true,
            Matcher::Prefix(prefix) => key.starts_with(prefix),
            Matcher::Regex(regex) => regex.is_match(key),
        }
    }
}

/// A listing in the middle of its slices: the smallest matching keys so far.
#[derive(Debug)]
pub(crate) struct Listing {
    tenant: Tenant,
    matcher: Matcher,
    after: Option<Vec<u8>>,
    limit: usize,
    at: u32,
    found: BinaryHeap<Box<[u8]>>,
    bytes: usize,
    more: bool,
}

impl Listing {
    pub(crate) fn new(
        tenant: Tenant,
        matcher: Matcher,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Self {
        Listing {
            tenant,
            matcher,
            after,
            limit,
            at: 0,
            found: BinaryHeap::new(),
            bytes: 0,
            more: false,
        }
    }

    fn offer(&mut self, key: &[u8]) {
        if self.after.as_deref().is_some_and(|after| key <= after) || !self.matcher.matches(key) {
            return;
        }
        let full = self.found.len() >= self.limit || (self.more && self.bytes > PAGE_BYTES_MAX / 2);
        if full && self.found.peek().is_some_and(|last| key > last) {
            self.more = true;
            return;
        }
        self.bytes += key.len();
        self.found.push(key.into());
        while self.found.len() > self.limit || (self.bytes > PAGE_BYTES_MAX && self.found.len() > 1)
        {
            if let Some(last) = self.found.pop() {
                self.bytes -= last.len();
                self.more = true;
            }
        }
    }
}

impl Directory {
    pub(crate) fn step_list(&mut self, id: RequestId, mut listing: Box<Listing>) -> Option<Work> {
        let (mut items, mut bytes) = (0, 0);
        while items < SLICE_ITEMS
            && bytes < SCAN_BYTES
            && (listing.at as usize) < self.table.slots()
        {
            let ix = listing.at;
            if self.table.is_live(ix)
                && self.table.tenant(ix) == &listing.tenant
                && self.readable(ix)
            {
                let key = self.table.key(ix);
                bytes += key.len();
                listing.offer(key);
            }
            items += 1;
            listing.at += 1;
        }
        if (listing.at as usize) < self.table.slots() {
            return Some(Work::List(listing));
        }
        let mut keys = Keys::new();
        let mut more = listing.more;
        for key in listing.found.into_sorted_vec() {
            // Stored keys have passed the check; a page is far smaller than the packed limit.
            more |= keys.push(&key).is_err();
        }
        self.reply(id, Reply::Listed { keys, more });
        None
    }

    pub(crate) fn stat_object(&self, tenant: Tenant, key: Key) -> Option<ObjectStat> {
        let ix = self.table.find_name(&ObjectName::new(tenant, key))?;
        let entry = self.table.entry(ix);
        let place = |life| {
            let (_, node) = self.nodes.of_life(life)?;
            Some(Place {
                node: node.id,
                epoch: node.epoch,
                address: node.address.clone(),
            })
        };
        let mut replicas = Vec::new();
        for claim in entry.claims() {
            let Some(place) = place(claim.life) else {
                continue;
            };
            let hidden = claim.hidden() || !self.visible(claim.life);
            replicas.push(ReplicaStat {
                place,
                tier: claim.tier(),
                state: if hidden { "hidden" } else { "published" }.into(),
                version: entry.version,
            });
        }
        for o in entry.obligations() {
            let Some(place) = place(o.life) else {
                continue;
            };
            replicas.push(ReplicaStat {
                place,
                tier: Default::default(),
                state: match o.owes {
                    Owes::Placed => "placed",
                    Owes::Retracted | Owes::Retiring => "retiring",
                }
                .into(),
                version: o.version,
            });
        }
        if replicas.is_empty() {
            return None;
        }
        Some(ObjectStat {
            version: entry.version,
            shape: Shape {
                size: entry.size,
                checksum: entry.checksum,
            },
            lease_left: self.now.until(self.leased_until(ix)),
            exists_cap_left: self.now.until(self.exists_cap(ix)),
            attributes: entry.attributes().cloned().unwrap_or_default(),
            replicas,
        })
    }

    /// Everything known of the cluster.
    pub fn stat(&self) -> ClusterStat {
        let (objects, bytes) = self.readable_totals();
        let nodes = self.nodes.iter().map(|(_, node)| NodeStat {
            place: Place {
                node: node.id,
                epoch: node.epoch,
                address: node.address.clone(),
            },
            state: node.state,
            host: (*node.host).to_owned(),
            dram_used: node.used,
            dram_capacity: node.capacity,
            replicas: self.nodes.life(node.life).map_or(0, |l| l.replicas),
            policy: node.policy.clone(),
            replica_bytes: self.nodes.life(node.life).map_or(0, |l| l.bytes),
            owed: self.nodes.life(node.life).map_or(0, |l| l.obligations),
            figures: node.figures(),
            figures_age: node.told_at.until(self.now),
        });
        ClusterStat {
            term: self.term,
            objects,
            bytes,
            leased: self.leases.bytes(),
            unfinished: self.totals.unfinished,
            ready: self.ready,
            nodes: nodes.collect(),
        }
    }
}
