//! Where an object's replicas are, and for how long that may be believed.

use snowskin_types::call::Replica;
use snowskin_types::object::{Place, Shape, Tier};
use snowskin_types::{Key, Millis, Now, ObjectName, Version};
use std::collections::HashMap;
use std::sync::Arc;

/// What a look-up told of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The version that was current.
    pub version: Version,
    /// Its size and checksum.
    pub shape: Shape,
    /// Its replicas, best first.
    pub replicas: Arc<[(Place, Tier)]>,
    /// End of the lease, on the clock of the asking process.
    pub valid_until: Now,
}

impl Location {
    /// Reads one found item of a reply that answers a request sent at `sent`. `None` when a replica
    /// names a place that the reply does not hold.
    pub fn from_reply(
        sent: Now,
        places: &[Place],
        version: Version,
        shape: Shape,
        lease: Millis,
        replicas: &[Replica],
    ) -> Option<Self> {
        let replicas = replicas
            .iter()
            .map(|r| Some((places.get(usize::from(r.place))?.clone(), r.tier)))
            .collect::<Option<_>>()?;
        Some(Location {
            version,
            shape,
            replicas,
            // The master counts the lease from the arrival of the request, so counting from its
            // sending is early; the rest of the margin is for clocks that run at different rates.
            valid_until: sent + Millis(lease.0 - lease.0 / 64),
        })
    }

    /// Whether a new read may rest on it without asking again.
    pub fn is_valid(&self, now: Now) -> bool {
        now < self.valid_until
    }
}

/// Locations under a lease, at most so many. What was not used for the longest time goes first, in
/// two generations: cheap, and bounded without bookkeeping per entry.
#[derive(Debug)]
pub struct LocationCache {
    half: usize,
    young: HashMap<ObjectName, Location>,
    old: HashMap<ObjectName, Location>,
}

impl LocationCache {
    /// An empty cache of at most `capacity` locations; zero keeps none.
    pub fn new(capacity: usize) -> Self {
        LocationCache {
            half: capacity / 2,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    /// A location that may still be used.
    pub fn get(&mut self, now: Now, name: &ObjectName) -> Option<Location> {
        if let Some(found) = self.young.get(name) {
            if found.is_valid(now) {
                return Some(found.clone());
            }
            self.young.remove(name);
            return None;
        }
        let found = self.old.remove(name).filter(|l| l.is_valid(now))?;
        self.learn(now, name.clone(), found.clone());
        Some(found)
    }

    /// Remembers a location, unless its lease is over.
    pub fn learn(&mut self, now: Now, name: ObjectName, location: Location) {
        if self.half == 0 || !location.is_valid(now) {
            return;
        }
        if self.young.len() >= self.half && !self.young.contains_key(&name) {
            self.old = std::mem::take(&mut self.young);
        } else {
            self.old.remove(&name);
        }
        self.young.insert(name, location);
    }

    /// Drops what is known of one object.
    pub fn forget(&mut self, name: &ObjectName) {
        self.young.remove(name);
        self.old.remove(name);
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// Number of locations held.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// True when it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The full name of a key of a tenant.
pub(crate) fn name_of(tenant: &snowskin_types::Tenant, key: &Key) -> ObjectName {
    ObjectName::new(tenant.clone(), key.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowskin_types::{Epoch, NodeId, Tenant};

    fn name(i: u32) -> ObjectName {
        name_of(&Tenant::default(), &Key::new(&i.to_le_bytes()).unwrap())
    }

    fn location(until: u64) -> Location {
        Location {
            version: Version::from_raw(9),
            shape: Shape::default(),
            replicas: Arc::new([]),
            valid_until: Now(until),
        }
    }

    #[test]
    fn a_location_is_used_only_within_its_lease() {
        let mut cache = LocationCache::new(8);
        cache.learn(Now(0), name(1), location(100));
        assert!(cache.get(Now(99), &name(1)).is_some());
        assert!(cache.get(Now(100), &name(1)).is_none());
        assert!(cache.is_empty());
        cache.learn(Now(100), name(1), location(100));
        assert!(cache.is_empty());
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let mut cache = LocationCache::new(64);
        for i in 0..10_000 {
            cache.learn(Now(0), name(i), location(100));
            assert!(cache.get(Now(0), &name(0)).is_some(), "used all the time");
            assert!(cache.len() <= 65);
        }
        cache.clear();
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn the_lease_counts_from_the_sending_of_the_request() {
        let place = Place {
            node: NodeId(1),
            epoch: Epoch(1),
            address: "a:1".into(),
        };
        let replica = |place| Replica {
            place,
            tier: Tier::Dram,
        };
        let make = |replicas: &[Replica]| {
            Location::from_reply(
                Now(1000),
                std::slice::from_ref(&place),
                Version::from_raw(1),
                Shape::default(),
                Millis(640),
                replicas,
            )
        };
        assert_eq!(make(&[replica(0)]).unwrap().valid_until, Now(1630));
        assert_eq!(make(&[replica(1)]), None);
    }
}
