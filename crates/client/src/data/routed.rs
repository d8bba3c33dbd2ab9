//! Several transports as one: nodes of this process by memory copies, everybody else over sockets.

use snowskin_transfer::transport::{Batch, Completion, Operation, OperationId, Transport};
use snowskin_types::{Code, Epoch, Failure, NodeId, Now, Stage};
use std::collections::HashMap;
use std::sync::Arc;

/// Sends transfers with each node of this process its own way, and all others another.
pub(crate) struct RoutedTransport {
    pub(crate) own: Vec<((NodeId, Epoch), Arc<dyn Transport>)>,
    /// None when there is no other process.
    pub(crate) remote: Option<Arc<dyn Transport>>,
}

impl Transport for RoutedTransport {
    fn batch<'m>(&self) -> Box<dyn Batch<'m> + 'm> {
        let own = self.own.iter().map(|(who, way)| Leg::new(Some(*who), way));
        let remote = self.remote.iter().map(|way| Leg::new(None, way));
        Box::new(RoutedBatch {
            // The remote leg stands first: it is the one that has to be driven.
            legs: remote.chain(own).collect(),
            next: 0,
            under_way: HashMap::new(),
            refused: Vec::new(),
        })
    }
}

/// One of the batches and what its numbers mean outside.
struct Leg<'m> {
    who: Option<(NodeId, Epoch)>,
    batch: Box<dyn Batch<'m> + 'm>,
    outer: HashMap<OperationId, OperationId>,
}

impl<'m> Leg<'m> {
    fn new(who: Option<(NodeId, Epoch)>, way: &Arc<dyn Transport>) -> Self {
        Leg {
            who,
            batch: way.batch(),
            outer: HashMap::new(),
        }
    }

    fn is_idle(&self) -> bool {
        self.outer.is_empty()
    }
}

struct RoutedBatch<'m> {
    legs: Vec<Leg<'m>>,
    next: u64,
    /// Leg and inner number of what has not completed.
    under_way: HashMap<OperationId, (usize, OperationId)>,
    refused: Vec<Completion<'m>>,
}

impl<'m> RoutedBatch<'m> {
    /// Gives completions of a leg, from `from` on, their outer numbers.
    fn rename(&mut self, leg: usize, completions: &mut Vec<Completion<'m>>, from: usize) {
        let mut index = from;
        while let Some(completion) = completions.get_mut(index) {
            match self.legs[leg].outer.remove(&completion.id) {
                Some(outer) => {
                    self.under_way.remove(&outer);
                    completion.id = outer;
                    index += 1;
                }
                None => drop(completions.swap_remove(index)),
            }
        }
    }
}

impl<'m> Batch<'m> for RoutedBatch<'m> {
    fn submit(&mut self, operation: Operation<'m>) -> OperationId {
        let id = OperationId(self.next);
        self.next += 1;
        // Another life at an own node's address is another process: the socket's side finds out.
        let who = Some((operation.peer.node, operation.peer.epoch));
        let own = self.legs.iter().position(|leg| leg.who == who);
        let remote = self.legs.iter().position(|leg| leg.who.is_none());
        let Some(leg) = own.or(remote) else {
            let text = "this pool has no node outside of the process";
            let failure = Failure::new(Code::ReplicaGone, Stage::Session, text)
                .with_peer(operation.peer.address.as_ref());
            self.refused.push(Completion {
                id,
                operation,
                result: Err(failure),
            });
            return id;
        };
        let inner = self.legs[leg].batch.submit(operation);
        self.legs[leg].outer.insert(inner, id);
        self.under_way.insert(id, (leg, inner));
        id
    }

    fn poll(&mut self, completions: &mut Vec<Completion<'m>>) {
        completions.append(&mut self.refused);
        for leg in 0..self.legs.len() {
            if !self.legs[leg].is_idle() {
                let from = completions.len();
                self.legs[leg].batch.poll(completions);
                self.rename(leg, completions, from);
            }
        }
    }

    fn wait(&mut self, until: Now, completions: &mut Vec<Completion<'m>>) {
        let before = completions.len();
        self.poll(completions);
        if completions.len() > before {
            return;
        }
        // After the poll a node of this process has only publishes outstanding, which come without
        // being waited for; sockets have to be driven.
        if let Some(leg) = self.legs.iter().position(|leg| !leg.is_idle()) {
            self.legs[leg].batch.wait(until, completions);
            self.rename(leg, completions, before);
        }
    }

    fn cancel(&mut self, id: OperationId) -> Option<Operation<'m>> {
        if let Some((leg, inner)) = self.under_way.remove(&id) {
            self.legs[leg].outer.remove(&inner);
            return self.legs[leg].batch.cancel(inner);
        }
        let index = self.refused.iter().position(|refused| refused.id == id)?;
        Some(self.refused.swap_remove(index).operation)
    }

    fn under_way(&self) -> usize {
        self.under_way.len() + self.refused.len()
    }
}
