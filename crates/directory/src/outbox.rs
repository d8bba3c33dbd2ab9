//! Messages to nodes, gathered during one event and sent together at its end.

use crate::directory::Directory;
use crate::effect::Effect;
use crate::node::NodeIx;
use snowskin_types::call::Fault;
use snowskin_types::id::Seq;
use snowskin_types::key::ObjectName;
use snowskin_types::limits::NODE_BATCH_ITEMS_MAX;
use snowskin_types::link::{ItemResult, ToNode};
use snowskin_types::version::Version;
use std::collections::BTreeMap;

/// Key bytes of one message stay below this, so that a frame never outgrows its limit.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Default)]
struct ForNode {
    retire: Vec<(ObjectName, Version)>,
    verify: Vec<(ObjectName, Version, Fault)>,
    evict: Vec<(ObjectName, Version)>,
    acks: BTreeMap<Seq, Vec<(u32, ItemResult)>>,
    ping: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    nodes: BTreeMap<NodeIx, ForNode>,
}

impl Outbox {
    fn of(&mut self, node: NodeIx) -> &mut ForNode {
        self.nodes.entry(node).or_default()
    }

    pub(crate) fn retire(&mut self, node: NodeIx, name: ObjectName, version: Version) {
        self.of(node).retire.push((name, version));
    }

    pub(crate) fn verify(
        &mut self,
        node: NodeIx,
        name: ObjectName,
        version: Version,
        fault: Fault,
    ) {
        self.of(node).verify.push((name, version, fault));
    }

    pub(crate) fn evict_next(&mut self, node: NodeIx, name: ObjectName, version: Version) {
        self.of(node).evict.push((name, version));
    }

    pub(crate) fn ack(&mut self, node: NodeIx, seq: Seq, index: u32, result: ItemResult) {
        let acks = &mut self.of(node).acks;
        acks.entry(seq).or_default().push((index, result));
    }

    pub(crate) fn ping(&mut self, node: NodeIx) {
        self.of(node).ping = true;
    }

    /// Drops what was meant for a session that has ended.
    pub(crate) fn discard(&mut self, node: NodeIx) {
        self.nodes.remove(&node);
    }
}

/// Cuts a list so that no message is too long.
fn pieces<T>(mut items: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut out = Vec::new();
    while !items.is_empty() {
        let (mut count, mut sum) = (0, 0);
        for item in items.iter().take(NODE_BATCH_ITEMS_MAX) {
            sum += bytes(item);
            if count > 0 && sum > MESSAGE_BYTES_MAX {
                break;
            }
            count += 1;
        }
        let rest = items.split_off(count);
        out.push(std::mem::replace(&mut items, rest));
    }
    out
}

fn name_bytes(name: &ObjectName) -> usize {
    name.key.as_bytes().len() + name.tenant.as_str().len()
}

impl Directory {
    /// Sends what was gathered. Orders to retire go before the ping that lets the node serve on.
    pub(crate) fn flush_outbox(&mut self) {
        for (ix, batch) in std::mem::take(&mut self.outbox.nodes) {
            let Some(node) = self.nodes.get(ix) else {
                continue;
            };
            let (Some(link), Some(session)) = (node.link, node.session) else {
                continue;
            };
            let mut send = |message| self.effects.push(Effect::Send { link, message });
            for items in pieces(batch.retire, |(name, _)| name_bytes(name)) {
                send(ToNode::Retire { session, items });
            }
            for items in pieces(batch.verify, |(name, ..)| name_bytes(name)) {
                send(ToNode::Verify { session, items });
            }
            for items in pieces(batch.evict, |(name, _)| name_bytes(name)) {
                send(ToNode::EvictNext { session, items });
            }
            for (seq, results) in batch.acks {
                send(ToNode::Ack {
                    session,
                    seq,
                    results,
                });
            }
            if batch.ping {
                self.send_ping(ix);
            }
        }
    }
}
