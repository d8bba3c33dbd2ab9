//! The master's ends of its links to nodes, and what is counted on them.

use crate::ledger::{Ledger, Op};
use crate::outbox::Outbox;
use snowskin_types::Version;
use snowskin_types::link::{FromNode, ItemResult, NodeItem, ToNode};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Batches of one link whose answers are awaited for the count of retries. A node keeps far fewer
/// under way; those it has given up for fresh numbers are forgotten beyond this.
const BATCHES_MAX: usize = 64;

/// Takes what the directory sends to one node of the same process.
///
/// Called with the hub's lock held: must neither wait nor call back. `None` says that the link has ended.
/// Returning false ends the link.
pub type LinkSink = Box<dyn FnMut(Option<ToNode>) -> bool + Send>;

/// Where messages to a node go.
pub(crate) enum LinkEnd {
    /// To a connection.
    Connection(Arc<Outbox>),
    /// To a node of the same process.
    Local(LinkSink),
}

impl LinkEnd {
    /// Tells the other side that nothing more comes.
    pub(crate) fn end(self) {
        match self {
            LinkEnd::Connection(outbox) => outbox.close(),
            LinkEnd::Local(mut sink) => {
                sink(None);
            }
        }
    }
}

/// One link.
pub(crate) struct Link {
    pub(crate) end: LinkEnd,
    registering: Op,
    /// Publishes without their last answer, by number and index.
    awaited: BTreeMap<u64, HashMap<u32, Version>>,
}

impl Link {
    /// A link on which nothing has been said.
    pub(crate) fn new(end: LinkEnd) -> Self {
        Link {
            end,
            registering: Op::Mount,
            awaited: BTreeMap::new(),
        }
    }

    /// Counts what a message of the node says.
    pub(crate) fn take(&mut self, message: &FromNode, ledger: &mut Ledger) {
        match message {
            FromNode::Register(register) => {
                let again = register.last_session.n > 0;
                self.registering = if again { Op::Remount } else { Op::Mount };
                ledger.single(self.registering);
            }
            FromNode::Batch { seq, items, .. } => {
                let (mut told_again, mut retried) = (0, 0);
                let mut sent = HashMap::new();
                for (index, item) in (0u32..).zip(items) {
                    match item {
                        NodeItem::Publish {
                            acked: false,
                            inventory: true,
                            ..
                        } => told_again += 1,
                        NodeItem::Publish {
                            version,
                            inventory: false,
                            ..
                        } => {
                            let is_known =
                                |b: &HashMap<u32, Version>| b.values().any(|v| v == version);
                            retried += u64::from(self.awaited.values().any(is_known));
                            sent.insert(index, *version);
                        }
                        _ => {}
                    }
                }
                ledger.ambiguous(told_again);
                ledger.retried(retried);
                if !sent.is_empty() {
                    self.awaited.insert(seq.0, sent);
                }
                while self.awaited.len() > BATCHES_MAX {
                    self.awaited.pop_first();
                }
            }
            FromNode::Pong { .. } => ledger.single(Op::Ping),
            FromNode::Leave { .. } => ledger.single(Op::Unmount),
        }
    }

    /// Sends; false when a node of the same process does not take it. A connection that does not
    /// take it ends by itself and says so.
    pub(crate) fn send(&mut self, message: ToNode, ledger: &mut Ledger) -> bool {
        match &message {
            ToNode::Refused { .. } => ledger.single_failed(self.registering),
            ToNode::Ack { seq, results, .. } => self.answered(seq.0, results),
            _ => {}
        }
        match &mut self.end {
            LinkEnd::Connection(outbox) => {
                outbox.send(0, &message);
                true
            }
            LinkEnd::Local(sink) => sink(Some(message)),
        }
    }

    fn answered(&mut self, seq: u64, results: &[(u32, ItemResult)]) {
        let Some(sent) = self.awaited.get_mut(&seq) else {
            return;
        };
        for (index, result) in results {
            if *result != ItemResult::Pending {
                sent.remove(index);
            }
        }
        if sent.is_empty() {
            self.awaited.remove(&seq);
        }
    }
}
