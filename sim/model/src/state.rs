//! What the model's world consists of: one master, two nodes, a reader, a set of messages, and
//! ghost variables that only the properties look at.

use crate::set::SmallSet;

/// A key; at most two are modelled.
pub type Key = u8;
/// A version: `term * 8 + counter`, so it orders as (term, counter) does. Zero is 'none'.
pub type Version = u8;
/// A node's index.
pub type NodeIx = u8;

/// How many keys the arrays hold; `Config::keys` says how many are used.
pub const KEYS: usize = 2;
/// How many nodes there are.
pub const NODES: usize = 2;
/// The indices of all nodes.
pub const ALL_NODES: [NodeIx; NODES] = [0, 1];
/// Versions per term.
pub const TERM_SPAN: u8 = 8;

/// Gives the array index of a key or node.
pub fn ix(small: u8) -> usize {
    usize::from(small)
}

/// What the directory believes: this life of this node holds this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    pub node: NodeIx,
    pub epoch: u8,
    pub key: Key,
    pub version: Version,
}

/// A (node, key, version) that the master counts as an owner without a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owed {
    pub node: NodeIx,
    pub key: Key,
    pub version: Version,
}

/// A reader's lease as the master remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    pub key: Key,
    pub version: Version,
    pub nonce: u8,
}

/// Identity and order of one numbered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    pub node: NodeIx,
    pub term: u8,
    pub session: u8,
    pub seq: u8,
}

/// One line of an inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Item {
    pub key: Key,
    pub version: Version,
    pub acked: bool,
}

/// Everything that can be under way. A message stays until it is delivered or dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Msg {
    /// Writer to node: store these bytes.
    Write {
        node: NodeIx,
        epoch: u8,
        key: Key,
        version: Version,
    },
    /// Node to master: I can serve this (also an inventory item).
    Publish { at: Stamp, epoch: u8, item: Item },
    /// The answer to a publish.
    PublishAck {
        at: Stamp,
        key: Key,
        version: Version,
        ok: bool,
    },
    /// Node to master: may I give this back?
    Retract {
        at: Stamp,
        key: Key,
        version: Version,
    },
    /// The answer to a retract.
    RetractAck {
        at: Stamp,
        key: Key,
        version: Version,
        granted: bool,
    },
    /// Node to master: the retract that you granted is carried out.
    Freed {
        node: NodeIx,
        term: u8,
        session: u8,
        key: Key,
        version: Version,
    },
    /// Node to master: this is all I hold.
    InventoryEnd {
        at: Stamp,
        epoch: u8,
        items: Vec<Item>,
    },
    /// Master to node: stop serving this version, for good.
    Retire {
        node: NodeIx,
        term: u8,
        key: Key,
        version: Version,
    },
    /// Node to master: no new read gets that version from me.
    Retired {
        at: Stamp,
        key: Key,
        version: Version,
    },
    /// Master to reader: a location and a lease.
    Location { nonce: u8, claim: Claim },
    /// Reader to node. `late` is a ghost: the read began after the version was answered as
    /// replaced or removed.
    Read { nonce: u8, claim: Claim, late: bool },
    /// Reader to master: that location is gone or bad.
    Report { claim: Claim },
}

/// Where a replica stands at its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Bytes announced before they are there; only with 'commit before publish' dropped.
    Filling,
    /// Readable, the directory was not told yet in this session.
    Committed,
    /// Publish sent, no answer yet.
    Publishing,
    /// Publish answered.
    Published,
    /// Retract sent, no answer yet.
    Retracting,
    /// No new reads; reclaimed once no read pins it.
    Retracted,
}

/// A replica in a node's index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    pub key: Key,
    pub version: Version,
    pub dram: bool,
    pub ssd: bool,
    pub stage: Stage,
    pub seq: u8,
    /// The writer was answered (kept with the bytes).
    pub acked: bool,
    /// May be served: new in this serving period, or confirmed by the master in it.
    pub confirmed: bool,
    /// The retirement is durable on the disk.
    pub tombstone: bool,
}

/// A read in progress at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pin {
    pub key: Key,
    pub version: Version,
    pub dram: bool,
    pub wanted: Version,
}

/// A node: one DRAM slot, one SSD slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub epoch: u8,
    pub session: u8,
    /// Term of the master it registered with last; zero after a restart.
    pub term: u8,
    pub seq: u8,
    /// Its serving lease runs, by its own clock.
    pub serving: bool,
    pub entries: Vec<Entry>,
    /// What is really in the DRAM slot.
    pub dram: (Key, Version),
    /// What is really in the SSD slot.
    pub disk: (Key, Version),
    pub pin: Option<Pin>,
    /// Versions freed or retired in this life.
    pub retired: SmallSet<(Key, Version)>,
}

impl Node {
    /// Finds the index entry of a version.
    pub fn find(&self, key: Key, version: Version) -> Option<usize> {
        self.entries
            .iter()
            .position(|e| e.key == key && e.version == version)
    }
}

/// What the master knows of one node in its own term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The live session; zero when there is none.
    pub session: u8,
    /// Last number applied in that session.
    pub seq: u8,
    /// Epoch at its last registration; durable.
    pub epoch: u8,
    /// The inventory of this session is complete.
    pub inventoried: bool,
    /// An inventory of this epoch was complete once in this term, and nothing was forgotten since.
    pub listed: bool,
    /// Its serving lease may still run.
    pub may_serve: bool,
    /// Its serving lease is not renewed before it has carried out its orders.
    pub withheld: bool,
}

/// The master: all of it is lost in a restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Master {
    pub term: u8,
    pub counter: u8,
    pub grace: bool,
    /// Locates numbered at or below this were answered before this master started.
    pub grace_nonce: u8,
    pub current: [Version; KEYS],
    /// Everything at or below is refused.
    pub floor: [Version; KEYS],
    /// The part of the floor that comes from removes.
    pub removed_at: [Version; KEYS],
    pub peers: [Peer; NODES],
    /// Claims that `locate` may name.
    pub claims: SmallSet<Claim>,
    /// Claims that it may not, of nodes that still count as owners.
    pub hidden: SmallSet<Claim>,
    pub placed: SmallSet<Owed>,
    pub retire: SmallSet<Owed>,
    pub leases: SmallSet<Lease>,
    /// The remove being worked on, and (ghost) the newest acked version when it began.
    pub removing: Option<(Key, Version)>,
}

/// A deposed master that still answers; only with 'old master is silent' dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OldMaster {
    pub term: u8,
    pub current: [Version; KEYS],
    pub claims: SmallSet<Claim>,
}

/// The reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    Idle,
    Waiting,
    Holding(Claim),
    Reading(Claim),
}

/// How many faults and client calls a run may still contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub drop: u8,
    pub dup: u8,
    pub retry: u8,
    pub node_crash: u8,
    pub master_crash: u8,
    /// Sessions ended, or serving leases lapsed, without a crash.
    pub session: u8,
    pub put: u8,
    pub remove: u8,
    pub forced: u8,
    pub locate: u8,
    pub read: u8,
    pub evict: u8,
    pub report: u8,
}

/// One violated promise, as a bit of `State::broken`.
pub const RIGHT_BYTES: u8 = 1;
/// A removed version was located.
pub const REMOVED_BACK: u8 = 2;
/// A leased location turned into an error.
pub const LEASE_BROKEN: u8 = 4;
/// A version older than an acked one was located.
pub const OLDER_LOCATED: u8 = 8;
/// A read that began after the answer got the old version.
pub const STALE_READ: u8 = 16;

/// The whole world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub master: Master,
    pub old: Option<OldMaster>,
    /// Durable: 'changed while away, term T'; zero is no mark.
    pub marks: [u8; NODES],
    pub nodes: [Node; NODES],
    pub net: SmallSet<Msg>,
    pub reader: Reader,
    pub nonce: u8,
    /// The reader's lease runs, by the reader's clock.
    pub lease_runs: bool,
    /// Ghost: the located replica whose readability is promised while the lease runs.
    pub promise: Option<Claim>,
    /// Ghost: newest version whose put was answered.
    pub acked: [Version; KEYS],
    /// Ghost: newest version covered by an answered remove.
    pub removed: [Version; KEYS],
    /// Ghost: newest acked version that the reader was shown.
    pub seen: [Version; KEYS],
    /// Promises broken on the way here.
    pub broken: u8,
    pub budget: Budget,
}
