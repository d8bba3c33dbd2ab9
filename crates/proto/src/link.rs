//! Messages between a node and the master.

use crate::call::{fault, fault_number};
use crate::count::{self, Bound, messages};
use crate::error::DecodeError;
use crate::frame::Kind;
use crate::message::{Message, envelope};
use crate::shared::{
    ADDRESS_BYTES_MAX, TEXT_BYTES_MAX, append, attributes, attributes_wire, cut, failure,
    failure_wire, figures, figures_wire, key_bytes, name, parse, require, session, session_wire,
    text, tier, tier_number, unknown,
};
use crate::wire::{self, from_node, to_node};
use bytes::{Bytes, BytesMut};
use snowskin_types::id::{ClusterId, Epoch, NodeId, Seq};
use snowskin_types::key::ObjectName;
use snowskin_types::limits::{BATCH_ITEMS_MAX, NODE_BATCH_ITEMS_MAX};
use snowskin_types::link::{FromNode, ItemResult, NodeItem, Register, Stamp, ToNode};
use snowskin_types::object::Shape;
use snowskin_types::policy::{ClusterPolicy, EvictionPolicy};
use snowskin_types::time::Millis;
use snowskin_types::version::Version;

const FROM_NODE_BOUNDS: &[Bound] = &[messages(2, 3, NODE_BATCH_ITEMS_MAX, "items")];

const TO_NODE_BOUNDS: &[Bound] = &[
    messages(3, 3, NODE_BATCH_ITEMS_MAX, "results"),
    messages(4, 2, BATCH_ITEMS_MAX, "items"),
    messages(5, 2, BATCH_ITEMS_MAX, "items"),
    messages(7, 2, BATCH_ITEMS_MAX, "items"),
];

envelope!(
    FromNode,
    message,
    FROM_NODE_BOUNDS,
    from_node_wire,
    from_node
);

envelope!(ToNode, message, TO_NODE_BOUNDS, to_node_wire, to_node);

fn from_node_wire(message: &FromNode) -> from_node::Message {
    match message {
        FromNode::Register(r) => from_node::Message::Register(wire::Register {
            node: r.node.0,
            epoch: r.epoch.0,
            address: r.address.as_ref().to_owned(),
            host: r.host.as_ref().to_owned(),
            capacity: r.capacity,
            largest: r.largest,
            cluster: r.cluster.map(|cluster| cluster.0),
            last_session: session_wire(r.last_session),
            holds: r.holds,
            stamp: r.stamp.0,
        }),
        FromNode::Batch {
            session,
            seq,
            items,
        } => from_node::Message::Batch(wire::Batch {
            session: session_wire(*session),
            seq: seq.0,
            items: items.iter().map(item_wire).collect(),
        }),
        FromNode::Pong {
            session,
            nonce,
            stamp,
            used,
            largest_free,
            policy,
            figures,
        } => from_node::Message::Pong(wire::Pong {
            session: session_wire(*session),
            nonce: *nonce,
            stamp: stamp.0,
            used: *used,
            largest_free: *largest_free,
            policy: policy.as_deref().map(cut),
            figures: figures_wire(*figures),
        }),
        FromNode::Leave { session } => from_node::Message::Leave(wire::Leave {
            session: session_wire(*session),
        }),
    }
}

fn from_node(message: from_node::Message) -> Result<FromNode, DecodeError> {
    Ok(match message {
        from_node::Message::Register(r) => FromNode::Register(Register {
            node: NodeId(r.node),
            epoch: Epoch(r.epoch),
            address: text("address", &r.address, ADDRESS_BYTES_MAX)?,
            host: text("host", &r.host, ADDRESS_BYTES_MAX)?,
            capacity: r.capacity,
            largest: r.largest,
            cluster: r.cluster.map(ClusterId),
            last_session: session(r.last_session),
            holds: r.holds,
            stamp: Stamp(r.stamp),
        }),
        from_node::Message::Batch(b) => FromNode::Batch {
            session: session(b.session),
            seq: Seq(b.seq),
            items: b.items.into_iter().map(item).collect::<Result<_, _>>()?,
        },
        from_node::Message::Pong(p) => FromNode::Pong {
            session: session(p.session),
            nonce: p.nonce,
            stamp: Stamp(p.stamp),
            used: p.used,
            largest_free: p.largest_free,
            policy: p
                .policy
                .map(|policy| {
                    text("policy", &policy, TEXT_BYTES_MAX).map(|p| p.as_ref().to_owned())
                })
                .transpose()?,
            figures: figures(p.figures),
        },
        from_node::Message::Leave(l) => FromNode::Leave {
            session: session(l.session),
        },
    })
}

fn item_wire(item: &NodeItem) -> wire::NodeItem {
    let named = |kind, name: &ObjectName, version: Version| wire::NodeItem {
        kind,
        tenant: name.tenant.as_str().to_owned(),
        key: key_bytes(&name.key),
        version: version.raw(),
        ..Default::default()
    };
    match item {
        NodeItem::Publish {
            name,
            version,
            shape,
            tier,
            attributes,
            acked,
            inventory,
        } => wire::NodeItem {
            size: shape.size,
            checksum: shape.checksum,
            tier: tier_number(*tier),
            attributes: attributes_wire(attributes),
            acked: *acked,
            inventory: *inventory,
            ..named(1, name, *version)
        },
        NodeItem::Retract { name, version, bad } => wire::NodeItem {
            bad: *bad,
            ..named(2, name, *version)
        },
        NodeItem::Absent { name, version } => named(3, name, *version),
        NodeItem::InventoryEnd => wire::NodeItem {
            kind: 4,
            ..Default::default()
        },
    }
}

fn item(item: wire::NodeItem) -> Result<NodeItem, DecodeError> {
    if item.kind == 4 {
        return Ok(NodeItem::InventoryEnd);
    }
    let name = name(&item.tenant, &item.key)?;
    let version = Version::from_raw(item.version);
    Ok(match item.kind {
        1 => NodeItem::Publish {
            name,
            version,
            shape: Shape {
                size: item.size,
                checksum: item.checksum,
            },
            tier: tier(item.tier)?,
            attributes: attributes(item.attributes)?,
            acked: item.acked,
            inventory: item.inventory,
        },
        2 => NodeItem::Retract {
            name,
            version,
            bad: item.bad,
        },
        3 => NodeItem::Absent { name, version },
        other => return unknown("kind of an item", other),
    })
}

fn to_node_wire(message: &ToNode) -> to_node::Message {
    match message {
        ToNode::Registered {
            session,
            cluster,
            stamp,
            serving,
            policy,
        } => to_node::Message::Registered(wire::Registered {
            session: session_wire(*session),
            cluster: cluster.0,
            stamp: stamp.0,
            serving_ms: serving.0,
            policy: Some(policy_wire(policy)),
        }),
        ToNode::Refused { failure, retry } => to_node::Message::Refused(wire::Refused {
            failure: Some(failure_wire(failure)),
            retry: *retry,
        }),
        ToNode::Ack {
            session,
            seq,
            results,
        } => to_node::Message::Ack(wire::Ack {
            session: session_wire(*session),
            seq: seq.0,
            results: results.iter().map(result_wire).collect(),
        }),
        ToNode::Retire { session, items } => to_node::Message::Retire(wire::Retire {
            session: session_wire(*session),
            items: items
                .iter()
                .map(|(name, version)| named_wire(name, *version, 0))
                .collect(),
        }),
        ToNode::Verify { session, items } => to_node::Message::Verify(wire::Verify {
            session: session_wire(*session),
            items: items
                .iter()
                .map(|(name, version, fault)| named_wire(name, *version, fault_number(*fault)))
                .collect(),
        }),
        ToNode::Ping {
            session,
            nonce,
            confirmed,
        } => to_node::Message::Ping(wire::Ping {
            session: session_wire(*session),
            nonce: *nonce,
            confirmed: confirmed.0,
        }),
        ToNode::EvictNext { session, items } => to_node::Message::EvictNext(wire::EvictNext {
            session: session_wire(*session),
            items: items
                .iter()
                .map(|(name, version)| named_wire(name, *version, 0))
                .collect(),
        }),
    }
}

fn to_node(message: to_node::Message) -> Result<ToNode, DecodeError> {
    Ok(match message {
        to_node::Message::Registered(r) => ToNode::Registered {
            session: session(r.session),
            cluster: ClusterId(r.cluster),
            stamp: Stamp(r.stamp),
            serving: Millis(r.serving_ms),
            policy: policy(require(r.policy, "policy")?)?,
        },
        to_node::Message::Refused(r) => ToNode::Refused {
            failure: failure(require(r.failure, "failure")?)?,
            retry: r.retry,
        },
        to_node::Message::Ack(a) => ToNode::Ack {
            session: session(a.session),
            seq: Seq(a.seq),
            results: a
                .results
                .into_iter()
                .map(result)
                .collect::<Result<_, _>>()?,
        },
        to_node::Message::Retire(r) => ToNode::Retire {
            session: session(r.session),
            items: named(r.items)?,
        },
        to_node::Message::Verify(v) => ToNode::Verify {
            session: session(v.session),
            items: v
                .items
                .into_iter()
                .map(|i| {
                    let version = Version::from_raw(i.version);
                    Ok((name(&i.tenant, &i.key)?, version, fault(i.fault)?))
                })
                .collect::<Result<_, DecodeError>>()?,
        },
        to_node::Message::Ping(p) => ToNode::Ping {
            session: session(p.session),
            nonce: p.nonce,
            confirmed: Stamp(p.confirmed),
        },
        to_node::Message::EvictNext(e) => ToNode::EvictNext {
            session: session(e.session),
            items: named(e.items)?,
        },
    })
}

fn named_wire(name: &ObjectName, version: Version, fault: u32) -> wire::NamedVersion {
    wire::NamedVersion {
        tenant: name.tenant.as_str().to_owned(),
        key: key_bytes(&name.key),
        version: version.raw(),
        fault,
    }
}

fn named(items: Vec<wire::NamedVersion>) -> Result<Vec<(ObjectName, Version)>, DecodeError> {
    items
        .into_iter()
        .map(|i| Ok((name(&i.tenant, &i.key)?, Version::from_raw(i.version))))
        .collect()
}

fn result_wire(&(index, result): &(u32, ItemResult)) -> wire::ItemResult {
    let (outcome, ms) = match result {
        ItemResult::Ok => (1, 0),
        ItemResult::Pending => (2, 0),
        ItemResult::Refused => (3, 0),
        ItemResult::Leased(left) => (4, left.0),
        ItemResult::Held(wait) => (5, wait.0),
    };
    wire::ItemResult { index, outcome, ms }
}

fn result(item: wire::ItemResult) -> Result<(u32, ItemResult), DecodeError> {
    let result = match item.outcome {
        1 => ItemResult::Ok,
        2 => ItemResult::Pending,
        3 => ItemResult::Refused,
        4 => ItemResult::Leased(Millis(item.ms)),
        5 => ItemResult::Held(Millis(item.ms)),
        other => return unknown("outcome of an item", other),
    };
    Ok((item.index, result))
}

fn policy_wire(policy: &ClusterPolicy) -> wire::ClusterPolicy {
    wire::ClusterPolicy {
        lease_ttl_ms: policy.lease_ttl.0,
        eviction_high: policy.eviction_high,
        eviction_ratio: policy.eviction_ratio,
        eviction_policy: match policy.eviction_policy {
            EvictionPolicy::Lru => 1,
            EvictionPolicy::S3Fifo => 2,
        },
        put_wait_ms: policy.put_wait.0,
        put_start_discard_timeout_ms: policy.put_start_discard_timeout.0,
    }
}

fn policy(p: wire::ClusterPolicy) -> Result<ClusterPolicy, DecodeError> {
    let share = |field, value: f64| {
        if (0.0..=1.0).contains(&value) {
            return Ok(value);
        }
        Err(DecodeError::Range {
            field,
            value: value.to_string(),
            allowed: "0 to 1",
        })
    };
    Ok(ClusterPolicy {
        lease_ttl: Millis(p.lease_ttl_ms),
        eviction_high: share("high watermark", p.eviction_high)?,
        eviction_ratio: share("eviction ratio", p.eviction_ratio)?,
        eviction_policy: match p.eviction_policy {
            1 => EvictionPolicy::Lru,
            2 => EvictionPolicy::S3Fifo,
            other => return unknown("eviction policy", other),
        },
        put_wait: Millis(p.put_wait_ms),
        put_start_discard_timeout: Millis(p.put_start_discard_timeout_ms),
    })
}
