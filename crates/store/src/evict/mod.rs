//! Order of eviction: which object gives its bytes back first.
//!
//! A policy knows ids and sizes, no bytes and no time, so the same code runs in a node and in a
//! replay of a trace without a cluster ([`Shadow`]). Every step is O(1) (amortised for S3-FIFO).
//!
//! Recency is what the owner sees: commits ([`Policy::insert`]) and reads ([`Policy::touch`]).
//! In a replay a request first looks up *all* its blocks and stores the missing ones after it, in
//! their order; blocks that hit are touched by the look-up and not stored again.

mod list;
mod lru;
mod s3fifo;
mod shadow;

pub use lru::Lru;
pub use s3fifo::S3Fifo;
pub use shadow::Shadow;

use snowskin_types::policy::EvictionPolicy;

/// What a policy is told of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Names it as long as it is held; opaque.
    pub id: u64,
    /// Recognises it when it comes back under another id (a hash of its name).
    pub print: u64,
    /// Bytes.
    pub size: u64,
}

/// An order of eviction.
pub trait Policy: std::fmt::Debug + Send {
    /// Takes an object in; an id that is known already counts as touched.
    fn insert(&mut self, entry: Entry);
    /// The object was read. Unknown ids are ignored.
    fn touch(&mut self, id: u64);
    /// Forgets an object that went for another reason.
    fn remove(&mut self, id: u64);
    /// Takes out the object to evict next.
    fn victim(&mut self) -> Option<u64>;
    /// Takes a victim back that could not be evicted. Unless touched, it is offered before all that
    /// never were victims, and after those that came back before it.
    fn restore(&mut self, entry: Entry);
    /// Makes an object the next victim.
    fn demote(&mut self, id: u64);
    /// Number of objects.
    fn len(&self) -> usize;
    /// Their bytes.
    fn bytes(&self) -> u64;
    /// True without objects.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Makes a policy for a cache of `capacity` bytes.
pub fn policy(kind: EvictionPolicy, capacity: u64) -> Box<dyn Policy> {
    match kind {
        EvictionPolicy::Lru => Box::new(Lru::default()),
        EvictionPolicy::S3Fifo => Box::new(S3Fifo::new(capacity)),
    }
}
