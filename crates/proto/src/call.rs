//! Calls of clients and their answers.

use crate::count::{self, Bound, messages, varints};
use crate::error::DecodeError;
use crate::frame::Kind;
use crate::message::{Message, envelope};
use crate::shared::{
    ADDRESS_BYTES_MAX, TEXT_BYTES_MAX, append, attributes, attributes_wire, cut, failure,
    failure_wire, figures, figures_wire, key, key_bytes, keys, packed, parse, place, place_wire,
    require, same_count, tenant, text, tier, tier_number, unknown,
};
use crate::wire::{self, reply::Answer, request::Call};
use bytes::{Bytes, BytesMut};
use snowskin_types::call::{
    Cancelled, ClusterStat, Existing, Fault, Filter, Keys, Located, NodeStat, NodeState,
    ObjectStat, PutMode, Replica, ReplicaStat, Reply, Request, Reserve, Reserved,
};
use snowskin_types::error::Failure;
use snowskin_types::id::{ClientId, Epoch, NodeId, Term};
use snowskin_types::limits::BATCH_ITEMS_MAX;
use snowskin_types::object::{Place, Shape};
use snowskin_types::time::Millis;
use snowskin_types::version::Version;

const REQUEST_BOUNDS: &[Bound] = &[
    varints(1, 4, BATCH_ITEMS_MAX, "keys"),
    messages(1, 5, BATCH_ITEMS_MAX, "items"),
    varints(2, 3, BATCH_ITEMS_MAX, "keys"),
    varints(3, 3, BATCH_ITEMS_MAX, "keys"),
    varints(4, 3, BATCH_ITEMS_MAX, "keys"),
    varints(5, 3, BATCH_ITEMS_MAX, "keys"),
];

const REPLY_BOUNDS: &[Bound] = &[
    messages(1, 1, BATCH_ITEMS_MAX, "places"),
    messages(1, 2, BATCH_ITEMS_MAX, "items"),
    messages(2, 1, BATCH_ITEMS_MAX, "items"),
    messages(3, 1, BATCH_ITEMS_MAX, "places"),
    messages(3, 2, BATCH_ITEMS_MAX, "items"),
    messages(4, 1, BATCH_ITEMS_MAX, "items"),
    messages(5, 1, BATCH_ITEMS_MAX, "items"),
    varints(8, 2, BATCH_ITEMS_MAX, "keys"),
    messages(9, 8, BATCH_ITEMS_MAX, "replicas"),
    messages(10, 7, BATCH_ITEMS_MAX, "nodes"),
];

envelope!(Request, call, REQUEST_BOUNDS, request_wire, request);

envelope!(Reply, answer, REPLY_BOUNDS, reply_wire, reply);

fn request_wire(request: &Request) -> Call {
    match request {
        Request::Reserve {
            client,
            tenant,
            keys,
            items,
        } => {
            let (keys, key_lens) = packed(keys);
            Call::Reserve(wire::Reserve {
                client: client.0,
                tenant: tenant.as_str().to_owned(),
                keys,
                key_lens,
                items: items.iter().map(reserve_wire).collect(),
            })
        }
        Request::Cancel {
            tenant,
            keys,
            versions,
        } => {
            let (keys, key_lens) = packed(keys);
            Call::Cancel(wire::Cancel {
                tenant: tenant.as_str().to_owned(),
                keys,
                key_lens,
                versions: versions.iter().map(|v| v.raw()).collect(),
            })
        }
        Request::Locate {
            tenant,
            keys,
            lease,
        } => {
            let (keys, key_lens) = packed(keys);
            let lease_ms = lease.map(|lease| lease.0);
            Call::Locate(wire::Locate {
                tenant: tenant.as_str().to_owned(),
                keys,
                key_lens,
                lease_ms,
            })
        }
        Request::Exists {
            tenant,
            keys,
            lease,
        } => {
            let (keys, key_lens) = packed(keys);
            let lease_ms = lease.map(|lease| lease.0);
            Call::Exists(wire::Exists {
                tenant: tenant.as_str().to_owned(),
                keys,
                key_lens,
                lease_ms,
            })
        }
        Request::Remove {
            tenant,
            keys,
            force,
        } => {
            let (keys, key_lens) = packed(keys);
            Call::Remove(wire::Remove {
                tenant: tenant.as_str().to_owned(),
                keys,
                key_lens,
                force: *force,
            })
        }
        Request::RemoveMany {
            tenant,
            filter,
            force,
        } => Call::RemoveMany(wire::RemoveMany {
            tenant: tenant.as_ref().map(|t| t.as_str().to_owned()),
            filter: Some(filter_wire(filter)),
            force: *force,
        }),
        Request::Report {
            tenant,
            key,
            version,
            node,
            epoch,
            fault,
        } => Call::Report(wire::Report {
            tenant: tenant.as_str().to_owned(),
            key: key_bytes(key),
            version: version.raw(),
            node: node.0,
            epoch: epoch.0,
            fault: fault_number(*fault),
        }),
        Request::List {
            tenant,
            filter,
            after,
            limit,
        } => Call::List(wire::List {
            tenant: tenant.as_str().to_owned(),
            filter: Some(filter_wire(filter)),
            after: after.as_ref().map(|after| Bytes::copy_from_slice(after)),
            limit: *limit,
        }),
        Request::StatObject { tenant, key } => Call::StatObject(wire::StatObject {
            tenant: tenant.as_str().to_owned(),
            key: key_bytes(key),
        }),
        Request::Stat => Call::Stat(wire::Stat {}),
    }
}

fn request(call: Call) -> Result<Request, DecodeError> {
    Ok(match call {
        Call::Reserve(c) => {
            let keys = keys(c.keys, &c.key_lens)?;
            same_count("items", c.items.len(), keys.len())?;
            Request::Reserve {
                client: ClientId(c.client),
                tenant: tenant(&c.tenant)?,
                keys,
                items: c.items.into_iter().map(reserve).collect::<Result<_, _>>()?,
            }
        }
        Call::Cancel(c) => {
            let keys = keys(c.keys, &c.key_lens)?;
            same_count("versions", c.versions.len(), keys.len())?;
            Request::Cancel {
                tenant: tenant(&c.tenant)?,
                keys,
                versions: c.versions.into_iter().map(Version::from_raw).collect(),
            }
        }
        Call::Locate(c) => Request::Locate {
            tenant: tenant(&c.tenant)?,
            keys: keys(c.keys, &c.key_lens)?,
            lease: c.lease_ms.map(Millis),
        },
        Call::Exists(c) => Request::Exists {
            tenant: tenant(&c.tenant)?,
            keys: keys(c.keys, &c.key_lens)?,
            lease: c.lease_ms.map(Millis),
        },
        Call::Remove(c) => Request::Remove {
            tenant: tenant(&c.tenant)?,
            keys: keys(c.keys, &c.key_lens)?,
            force: c.force,
        },
        Call::RemoveMany(c) => Request::RemoveMany {
            tenant: c.tenant.as_deref().map(tenant).transpose()?,
            filter: filter(c.filter)?,
            force: c.force,
        },
        Call::Report(c) => Request::Report {
            tenant: tenant(&c.tenant)?,
            key: key(&c.key)?,
            version: Version::from_raw(c.version),
            node: NodeId(c.node),
            epoch: Epoch(c.epoch),
            fault: fault(c.fault)?,
        },
        Call::List(c) => Request::List {
            tenant: tenant(&c.tenant)?,
            filter: filter(c.filter)?,
            after: c.after.map(Vec::from),
            limit: c.limit,
        },
        Call::StatObject(c) => Request::StatObject {
            tenant: tenant(&c.tenant)?,
            key: key(&c.key)?,
        },
        Call::Stat(wire::Stat {}) => Request::Stat,
    })
}

fn reserve_wire(item: &Reserve) -> wire::ReserveItem {
    wire::ReserveItem {
        size: item.size,
        mode: match item.mode {
            PutMode::IfAbsent => 0,
            PutMode::Replace => 1,
        },
        replicas: item.replicas,
        attributes: attributes_wire(&item.attributes),
        preferred: item.preferred.iter().map(|node| node.0).collect(),
        avoid: item.avoid.iter().map(|node| node.0).collect(),
    }
}

fn reserve(item: wire::ReserveItem) -> Result<Reserve, DecodeError> {
    Ok(Reserve {
        size: item.size,
        mode: match item.mode {
            0 => PutMode::IfAbsent,
            1 => PutMode::Replace,
            other => return unknown("mode", other),
        },
        replicas: item.replicas,
        attributes: attributes(item.attributes)?,
        preferred: item.preferred.into_iter().map(NodeId).collect(),
        avoid: item.avoid.into_iter().map(NodeId).collect(),
    })
}

fn filter_wire(filter: &Filter) -> wire::Filter {
    use wire::filter::Kind;
    wire::Filter {
        kind: Some(match filter {
            Filter::All => Kind::All(true),
            Filter::Prefix(bytes) => Kind::Prefix(Bytes::copy_from_slice(bytes)),
            Filter::Regex(pattern) => Kind::Regex(pattern.clone()),
        }),
    }
}

fn filter(filter: Option<wire::Filter>) -> Result<Filter, DecodeError> {
    use wire::filter::Kind;
    // A filter that says nothing must not mean 'all': a sweeping remove rests on it.
    Ok(
        match require(filter.and_then(|filter| filter.kind), "filter")? {
            Kind::All(true) => Filter::All,
            Kind::All(false) => return Err(DecodeError::Missing { field: "filter" }),
            Kind::Prefix(bytes) => Filter::Prefix(bytes.into()),
            Kind::Regex(pattern) => Filter::Regex(pattern),
        },
    )
}

pub(crate) fn fault_number(fault: Fault) -> u32 {
    match fault {
        Fault::Gone => 1,
        Fault::Bad => 2,
    }
}

pub(crate) fn fault(number: u32) -> Result<Fault, DecodeError> {
    match number {
        1 => Ok(Fault::Gone),
        2 => Ok(Fault::Bad),
        other => unknown("fault", other),
    }
}

fn reply_wire(reply: &Reply) -> Answer {
    match reply {
        Reply::Reserved { places, items } => Answer::Reserved(wire::ReservedReply {
            places: places.iter().map(place_wire).collect(),
            items: items.iter().map(reserved_wire).collect(),
        }),
        Reply::Cancelled(items) => Answer::Cancelled(wire::CancelledReply {
            items: items.iter().map(cancelled_wire).collect(),
        }),
        Reply::Located { places, items } => Answer::Located(wire::LocatedReply {
            places: places.iter().map(place_wire).collect(),
            items: items.iter().map(located_wire).collect(),
        }),
        Reply::Exists(items) => Answer::Exists(wire::ExistsReply {
            items: items.iter().map(existing_wire).collect(),
        }),
        Reply::Removed(items) => {
            let item = |result: &Result<(), Failure>| wire::Removed {
                failure: result.as_ref().err().map(failure_wire),
            };
            Answer::Removed(wire::RemovedReply {
                items: items.iter().map(item).collect(),
            })
        }
        Reply::RemovedMany { removed, leased } => Answer::RemovedMany(wire::RemovedManyReply {
            removed: *removed,
            leased: *leased,
        }),
        Reply::Noted => Answer::Noted(wire::NotedReply {}),
        Reply::Listed { keys, more } => {
            let (keys, key_lens) = packed(keys);
            Answer::Listed(wire::ListedReply {
                keys,
                key_lens,
                more: *more,
            })
        }
        Reply::Object(object) => Answer::Object(object_wire(object.as_ref())),
        Reply::Cluster(cluster) => Answer::Cluster(cluster_wire(cluster)),
        Reply::Failed(failure) => Answer::Failed(failure_wire(failure)),
    }
}

fn reply(answer: Answer) -> Result<Reply, DecodeError> {
    Ok(match answer {
        Answer::Reserved(a) => {
            let places = places(a.places)?;
            let item = |item| reserved(item, places.len());
            let items = a.items.into_iter().map(item).collect::<Result<_, _>>()?;
            Reply::Reserved { places, items }
        }
        Answer::Cancelled(a) => Reply::Cancelled(
            a.items
                .into_iter()
                .map(cancelled)
                .collect::<Result<_, _>>()?,
        ),
        Answer::Located(a) => {
            let places = places(a.places)?;
            let item = |item| located(item, places.len());
            let items = a.items.into_iter().map(item).collect::<Result<_, _>>()?;
            Reply::Located { places, items }
        }
        Answer::Exists(a) => Reply::Exists(
            a.items
                .into_iter()
                .map(existing)
                .collect::<Result<_, _>>()?,
        ),
        Answer::Removed(a) => {
            let item = |item: wire::Removed| {
                Ok(match item.failure {
                    None => Ok(()),
                    Some(f) => Err(failure(f)?),
                })
            };
            Reply::Removed(
                a.items
                    .into_iter()
                    .map(item)
                    .collect::<Result<_, DecodeError>>()?,
            )
        }
        Answer::RemovedMany(a) => Reply::RemovedMany {
            removed: a.removed,
            leased: a.leased,
        },
        Answer::Noted(wire::NotedReply {}) => Reply::Noted,
        Answer::Listed(a) => {
            let listed: Keys = keys(a.keys, &a.key_lens)?;
            Reply::Listed {
                keys: listed,
                more: a.more,
            }
        }
        Answer::Object(a) => Reply::Object(object(a)?),
        Answer::Cluster(a) => Reply::Cluster(cluster(a)?),
        Answer::Failed(f) => Reply::Failed(failure(f)?),
    })
}

fn places(places: Vec<wire::Place>) -> Result<Vec<Place>, DecodeError> {
    places.into_iter().map(place).collect()
}

/// An index into a table of `places` entries.
fn index(index: u32, places: usize) -> Result<u16, DecodeError> {
    u16::try_from(index)
        .ok()
        .filter(|index| usize::from(*index) < places)
        .ok_or_else(|| DecodeError::Range {
            field: "place",
            value: index.to_string(),
            allowed: "an index into the places of the reply",
        })
}

fn item_failure(f: Option<wire::Failure>) -> Result<Failure, DecodeError> {
    failure(require(f, "failure")?)
}

fn reserved_wire(item: &Reserved) -> wire::Reserved {
    match item {
        Reserved::Placed { version, places } => wire::Reserved {
            outcome: 1,
            version: version.raw(),
            places: places.iter().map(|place| u32::from(*place)).collect(),
            ..Default::default()
        },
        Reserved::Exists {
            version,
            unfinished,
        } => wire::Reserved {
            outcome: 2,
            version: version.raw(),
            unfinished: *unfinished,
            ..Default::default()
        },
        Reserved::Failed(f) => wire::Reserved {
            outcome: 3,
            failure: Some(failure_wire(f)),
            ..Default::default()
        },
    }
}

fn reserved(item: wire::Reserved, table: usize) -> Result<Reserved, DecodeError> {
    let version = Version::from_raw(item.version);
    Ok(match item.outcome {
        1 => Reserved::Placed {
            version,
            places: item
                .places
                .into_iter()
                .map(|i| index(i, table))
                .collect::<Result<_, _>>()?,
        },
        2 => Reserved::Exists {
            version,
            unfinished: item.unfinished,
        },
        3 => Reserved::Failed(item_failure(item.failure)?),
        other => return unknown("outcome of a reservation", other),
    })
}

fn cancelled_wire(item: &Cancelled) -> wire::Cancelled {
    match item {
        Cancelled::Ended => wire::Cancelled {
            outcome: 1,
            failure: None,
        },
        Cancelled::Published => wire::Cancelled {
            outcome: 2,
            failure: None,
        },
        Cancelled::Failed(f) => wire::Cancelled {
            outcome: 3,
            failure: Some(failure_wire(f)),
        },
    }
}

fn cancelled(item: wire::Cancelled) -> Result<Cancelled, DecodeError> {
    Ok(match item.outcome {
        1 => Cancelled::Ended,
        2 => Cancelled::Published,
        3 => Cancelled::Failed(item_failure(item.failure)?),
        other => return unknown("outcome of a cancel", other),
    })
}

fn located_wire(item: &Located) -> wire::Located {
    match item {
        Located::Found {
            version,
            shape,
            lease,
            replicas,
        } => wire::Located {
            outcome: 1,
            version: version.raw(),
            size: shape.size,
            checksum: shape.checksum,
            lease_ms: lease.0,
            places: replicas.iter().map(|r| u32::from(r.place)).collect(),
            tiers: replicas.iter().map(|r| tier_number(r.tier)).collect(),
            failure: None,
        },
        Located::Missing => wire::Located {
            outcome: 2,
            ..Default::default()
        },
        Located::Failed(f) => wire::Located {
            outcome: 3,
            failure: Some(failure_wire(f)),
            ..Default::default()
        },
    }
}

fn located(item: wire::Located, table: usize) -> Result<Located, DecodeError> {
    Ok(match item.outcome {
        1 => {
            same_count("tiers", item.tiers.len(), item.places.len())?;
            let replica = |(place, t): (u32, u32)| {
                Ok(Replica {
                    place: index(place, table)?,
                    tier: tier(t)?,
                })
            };
            Located::Found {
                version: Version::from_raw(item.version),
                shape: Shape {
                    size: item.size,
                    checksum: item.checksum,
                },
                lease: Millis(item.lease_ms),
                replicas: item
                    .places
                    .into_iter()
                    .zip(item.tiers)
                    .map(replica)
                    .collect::<Result<_, DecodeError>>()?,
            }
        }
        2 => Located::Missing,
        3 => Located::Failed(item_failure(item.failure)?),
        other => return unknown("outcome of a look-up", other),
    })
}

fn existing_wire(item: &Existing) -> wire::Existing {
    match item {
        Existing::Yes { lease, size } => wire::Existing {
            outcome: 1,
            lease_ms: lease.0,
            size: *size,
            failure: None,
        },
        Existing::No => wire::Existing {
            outcome: 2,
            ..Default::default()
        },
        Existing::Failed(f) => wire::Existing {
            outcome: 3,
            failure: Some(failure_wire(f)),
            ..Default::default()
        },
    }
}

fn existing(item: wire::Existing) -> Result<Existing, DecodeError> {
    Ok(match item.outcome {
        1 => Existing::Yes {
            lease: Millis(item.lease_ms),
            size: item.size,
        },
        2 => Existing::No,
        3 => Existing::Failed(item_failure(item.failure)?),
        other => return unknown("outcome of a check", other),
    })
}

fn object_wire(object: Option<&ObjectStat>) -> wire::ObjectReply {
    let Some(object) = object else {
        return wire::ObjectReply::default();
    };
    let replica = |replica: &ReplicaStat| wire::ReplicaStat {
        place: Some(place_wire(&replica.place)),
        tier: tier_number(replica.tier),
        state: cut(&replica.state),
        version: replica.version.raw(),
    };
    wire::ObjectReply {
        found: true,
        version: object.version.raw(),
        size: object.shape.size,
        checksum: object.shape.checksum,
        lease_left_ms: object.lease_left.0,
        exists_cap_left_ms: object.exists_cap_left.0,
        attributes: attributes_wire(&object.attributes),
        replicas: object.replicas.iter().map(replica).collect(),
    }
}

fn object(object: wire::ObjectReply) -> Result<Option<ObjectStat>, DecodeError> {
    if !object.found {
        return Ok(None);
    }
    let replica = |replica: wire::ReplicaStat| {
        Ok(ReplicaStat {
            place: place(require(replica.place, "place")?)?,
            tier: tier(replica.tier)?,
            state: text("state", &replica.state, TEXT_BYTES_MAX)?
                .as_ref()
                .to_owned(),
            version: Version::from_raw(replica.version),
        })
    };
    Ok(Some(ObjectStat {
        version: Version::from_raw(object.version),
        shape: Shape {
            size: object.size,
            checksum: object.checksum,
        },
        lease_left: Millis(object.lease_left_ms),
        exists_cap_left: Millis(object.exists_cap_left_ms),
        attributes: attributes(object.attributes)?,
        replicas: object
            .replicas
            .into_iter()
            .map(replica)
            .collect::<Result<_, DecodeError>>()?,
    }))
}

fn cluster_wire(cluster: &ClusterStat) -> wire::ClusterReply {
    let node = |node: &NodeStat| wire::NodeStat {
        place: Some(place_wire(&node.place)),
        state: match node.state {
            NodeState::Alive => 1,
            NodeState::Suspect => 2,
            NodeState::Gone => 3,
        },
        host: node.host.clone(),
        dram_used: node.dram_used,
        dram_capacity: node.dram_capacity,
        replicas: node.replicas,
        policy: cut(&node.policy),
        replica_bytes: node.replica_bytes,
        owed: node.owed,
        figures: figures_wire(node.figures),
        figures_age_ms: node.figures_age.0,
    };
    wire::ClusterReply {
        term: cluster.term.0,
        objects: cluster.objects,
        bytes: cluster.bytes,
        leased: cluster.leased,
        unfinished: cluster.unfinished,
        ready: cluster.ready,
        nodes: cluster.nodes.iter().map(node).collect(),
    }
}

fn cluster(cluster: wire::ClusterReply) -> Result<ClusterStat, DecodeError> {
    let node = |node: wire::NodeStat| {
        Ok(NodeStat {
            place: place(require(node.place, "place")?)?,
            state: match node.state {
                1 => NodeState::Alive,
                2 => NodeState::Suspect,
                3 => NodeState::Gone,
                other => return unknown("state of a node", other),
            },
            host: text("host", &node.host, ADDRESS_BYTES_MAX)?
                .as_ref()
                .to_owned(),
            dram_used: node.dram_used,
            dram_capacity: node.dram_capacity,
            replicas: node.replicas,
            policy: text("policy", &node.policy, TEXT_BYTES_MAX)?
                .as_ref()
                .to_owned(),
            replica_bytes: node.replica_bytes,
            owed: node.owed,
            figures: figures(node.figures),
            figures_age: Millis(node.figures_age_ms),
        })
    };
    Ok(ClusterStat {
        term: Term(cluster.term),
        objects: cluster.objects,
        bytes: cluster.bytes,
        leased: cluster.leased,
        unfinished: cluster.unfinished,
        ready: cluster.ready,
        nodes: cluster
            .nodes
            .into_iter()
            .map(node)
            .collect::<Result<_, DecodeError>>()?,
    })
}
