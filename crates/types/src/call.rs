//! What a client asks of the master, and the answers: one result per key, in the order of the keys.

use crate::error::Failure;
use crate::id::{ClientId, Epoch, NodeId, Term};
use crate::key::{Key, KeyError, Tenant};
use crate::link::NodeFigures;
use crate::object::{Attributes, Place, Shape, Tier};
use crate::time::Millis;
use crate::version::Version;

/// Keys of one request, packed back to back: parsed and sent without one allocation per key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Keys {
    /// No keys yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks a key and appends it.
    pub fn push(&mut self, key: &[u8]) -> Result<(), KeyError> {
        Key::check(key)?;
        self.bytes.extend_from_slice(key);
        // A request is bounded far below 4 GiB by the largest frame.
        self.ends.push(
            u32::try_from(self.bytes.len()).map_err(|_| KeyError::TooLong {
                len: self.bytes.len(),
            })?,
        );
        Ok(())
    }

    /// Takes keys apart that came packed; fails when lengths and bytes disagree or a key is not allowed.
    pub fn unpack(bytes: Vec<u8>, lens: &[u32]) -> Result<Self, KeyError> {
        let mut ends = Vec::with_capacity(lens.len());
        let mut end = 0u64;
        for &len in lens {
            match len as usize {
                0 => return Err(KeyError::Empty),
                len if len > crate::limits::KEY_BYTES_MAX => return Err(KeyError::TooLong { len }),
                _ => {}
            }
            end += u64::from(len);
            ends.push(u32::try_from(end).map_err(|_| KeyError::TooLong { len: end as usize })?);
        }
        if end != bytes.len() as u64 {
            return Err(KeyError::TooLong { len: bytes.len() });
        }
        Ok(Keys { bytes, ends })
    }

    /// All bytes, back to back.
    pub fn packed(&self) -> &[u8] {
        &self.bytes
    }

    /// Lengths in order.
    pub fn lens(&self) -> impl Iterator<Item = u32> + '_ {
        self.iter().map(|k| k.len() as u32)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key at `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        self.bytes.get(start..end)
    }

    /// The keys in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + '_ {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}

impl<'a> FromIterator<&'a Key> for Keys {
    fn from_iter<I: IntoIterator<Item = &'a Key>>(keys: I) -> Self {
        let mut out = Keys::new();
        for key in keys {
            out.bytes.extend_from_slice(key.as_bytes());
            out.ends.push(out.bytes.len() as u32);
        }
        out
    }
}

/// Whether a put may stand beside an older version and switch to its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PutMode {
    /// A taken key is answered with 'exists'.
    #[default]
    IfAbsent,
    /// The new version replaces the old one in one switch.
    Replace,
}

/// What one put asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reserve {
    /// Bytes.
    pub size: u64,
    /// What happens to a taken key.
    pub mode: PutMode,
    /// Copies wanted, on distinct nodes.
    pub replicas: u32,
    /// Kept with the object.
    pub attributes: Attributes,
    /// Wished nodes, in order.
    pub preferred: Vec<NodeId>,
    /// Nodes to leave out (they just failed this put).
    pub avoid: Vec<NodeId>,
}

/// Which keys a sweeping call means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// Every key.
    All,
    /// Keys that start with these bytes.
    Prefix(Vec<u8>),
    /// Keys that match (searched, not anchored); syntax of the `regex` crate.
    Regex(String),
}

/// What a reader found wrong with a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The owner said that it does not hold it.
    Gone,
    /// The bytes do not have their checksum.
    Bad,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Request {
    /// Asks for versions and placements for `keys`, item by item.
    Reserve {
        client: ClientId,
        tenant: Tenant,
        keys: Keys,
        items: Vec<Reserve>,
    },
    /// The writer gave these versions up; answered with what became of each.
    Cancel {
        tenant: Tenant,
        keys: Keys,
        versions: Vec<Version>,
    },
    /// Asks for replicas of the current versions and a lease on each (`lease` shortens the default).
    Locate {
        tenant: Tenant,
        keys: Keys,
        lease: Option<Millis>,
    },
    /// Asks which keys are readable and a lease on each.
    Exists {
        tenant: Tenant,
        keys: Keys,
        lease: Option<Millis>,
    },
    /// Removes keys; refused under a lease unless `force`.
    Remove {
        tenant: Tenant,
        keys: Keys,
        force: bool,
    },
    /// Removes all keys of a tenant (or of all) that a filter means.
    RemoveMany {
        tenant: Option<Tenant>,
        filter: Filter,
        force: bool,
    },
    /// Tells that a replica was not as the directory said.
    Report {
        tenant: Tenant,
        key: Key,
        version: Version,
        node: NodeId,
        epoch: Epoch,
        fault: Fault,
    },
    /// A page of keys in byte order, after `after`.
    List {
        tenant: Tenant,
        filter: Filter,
        after: Option<Vec<u8>>,
        limit: u32,
    },
    /// Everything known of one object; grants no lease.
    StatObject { tenant: Tenant, key: Key },
    /// Everything known of the cluster.
    Stat,
}

/// Outcome of one reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Reserved {
    /// Write `version` to `places` (indices into the reply's table).
    Placed { version: Version, places: Vec<u16> },
    /// The key is taken: by a readable `version`, or by a put that has not ended (`unfinished`).
    Exists { version: Version, unfinished: bool },
    /// Refused.
    Failed(Failure),
}

/// What became of a version its writer gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// It will never be readable.
    Ended,
    /// It is readable: the put had succeeded.
    Published,
    /// The cancel could not be carried out.
    Failed(Failure),
}

/// One replica of a located object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    /// Index into the reply's table of places.
    pub place: u16,
    /// Hint where the bytes are.
    pub tier: Tier,
}

/// Outcome of one look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Located {
    /// The current version and its replicas, best first; protected for `lease` from the sending of
    /// the request (zero: no lease was granted).
    Found {
        version: Version,
        shape: Shape,
        lease: Millis,
        replicas: Vec<Replica>,
    },
    /// No readable version.
    Missing,
    /// The look-up failed.
    Failed(Failure),
}

/// Outcome of one existence check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Existing {
    /// Readable; protected for `lease` (zero: the cap of existence checks is reached).
    Yes { lease: Millis, size: u64 },
    /// Not readable.
    No,
    /// The check failed.
    Failed(Failure),
}

/// State of a node as the master sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// Heard of lately.
    Alive,
    /// Silent for longer than `--suspect-after`, or its link broke.
    Suspect,
    /// Silent for longer than `--client-ttl`; still an owner until it returns or is forgotten.
    Gone,
}

/// One node in `stat`.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeStat {
    /// Who and where.
    pub place: Place,
    /// Seen as.
    pub state: NodeState,
    /// Host it says it runs on.
    pub host: String,
    /// Bytes in use.
    pub dram_used: u64,
    /// Bytes in all.
    pub dram_capacity: u64,
    /// Published replicas.
    pub replicas: u64,
    /// Policy in force and its source, as the node tells it.
    pub policy: String,
    /// Payload bytes of the published replicas.
    pub replica_bytes: u64,
    /// Versions that it was given, asked to retire or allowed to reclaim, and whose end (or publish) it
    /// has not told yet.
    pub owed: u64,
    /// What it told of itself last; none when it has not told yet.
    pub figures: Option<NodeFigures>,
    /// How long ago that was.
    pub figures_age: Millis,
}

/// The cluster in `stat`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterStat {
    /// Leadership.
    pub term: Term,
    /// Readable objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects under a live lease (bytes).
    pub leased: u64,
    /// Puts that have not ended.
    pub unfinished: u64,
    /// True once the inventories of the known nodes are in.
    pub ready: bool,
    /// All known nodes.
    pub nodes: Vec<NodeStat>,
}

/// One replica in `stat KEY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaStat {
    /// Where.
    pub place: Place,
    /// Hint.
    pub tier: Tier,
    /// `published`, `hidden`, `placed` or `retiring`.
    pub state: String,
    /// Which version it is of.
    pub version: Version,
}

/// One object in `stat KEY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectStat {
    /// Current incarnation.
    pub version: Version,
    /// Size and checksum.
    pub shape: Shape,
    /// Time its lease still runs.
    pub lease_left: Millis,
    /// Time until existence checks no longer prolong it.
    pub exists_cap_left: Millis,
    /// Kept with it.
    pub attributes: Attributes,
    /// Its replicas and obligations.
    pub replicas: Vec<ReplicaStat>,
}

/// Outcome of one remove.
pub type Removed = Result<(), Failure>;

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Reply {
    /// To `Reserve`.
    Reserved {
        places: Vec<Place>,
        items: Vec<Reserved>,
    },
    /// To `Cancel`.
    Cancelled(Vec<Cancelled>),
    /// To `Locate`.
    Located {
        places: Vec<Place>,
        items: Vec<Located>,
    },
    /// To `Exists`.
    Exists(Vec<Existing>),
    /// To `Remove`.
    Removed(Vec<Removed>),
    /// To `RemoveMany`: how many went, and how many stayed under a lease.
    RemovedMany { removed: u64, leased: u64 },
    /// To `Report`.
    Noted,
    /// To `List`: keys and whether more follow.
    Listed { keys: Keys, more: bool },
    /// To `StatObject`.
    Object(Option<ObjectStat>),
    /// To `Stat`.
    Cluster(ClusterStat),
    /// The whole call failed.
    Failed(Failure),
}
