//! The own node as a peer: memory copies on the caller's thread, under the rules of the node's store.

use snowskin_node::{Handle, PendingWrite};
use snowskin_transfer::transport::{
    Batch, Completion, Done, Movement, Operation, OperationId, ReadFrom, Transport, WriteTo,
};
use snowskin_types::{Code, Failure, Now, Stage};
use std::collections::{BTreeMap, VecDeque};

/// Transfers with a node of this process.
pub(crate) struct LocalTransport {
    node: Handle,
}

impl LocalTransport {
    pub(crate) fn new(node: Handle) -> Self {
        LocalTransport { node }
    }
}

impl Transport for LocalTransport {
    fn batch<'m>(&self) -> Box<dyn Batch<'m> + 'm> {
        Box::new(LocalBatch {
            node: self.node.clone(),
            next: 0,
            fresh: VecDeque::new(),
            publishing: BTreeMap::new(),
            done: Vec::new(),
        })
    }
}

/// Nothing goes on outside of the calls on it, so that targets are quiet at any other time. A copy
/// that has begun is finished before a call returns; a write may also wait for space in it, no longer
/// than the node makes writers wait.
struct LocalBatch<'m> {
    node: Handle,
    next: u64,
    fresh: VecDeque<(OperationId, Operation<'m>)>,
    /// Writes whose bytes are in the segment.
    publishing: BTreeMap<OperationId, (Operation<'m>, PendingWrite)>,
    done: Vec<Completion<'m>>,
}

impl<'m> Batch<'m> for LocalBatch<'m> {
    fn submit(&mut self, operation: Operation<'m>) -> OperationId {
        let id = OperationId(self.next);
        self.next += 1;
        self.fresh.push_back((id, operation));
        id
    }

    fn poll(&mut self, completions: &mut Vec<Completion<'m>>) {
        while let Some((id, operation)) = self.fresh.pop_front() {
            self.begin(id, operation);
        }
        completions.append(&mut self.done);
    }

    fn wait(&mut self, _until: Now, completions: &mut Vec<Completion<'m>>) {
        let before = completions.len();
        self.poll(completions);
        if completions.len() > before {
            return;
        }
        // They were begun together, so they are published about together; each has its deadline.
        for (id, (operation, pending)) in std::mem::take(&mut self.publishing) {
            let result = pending.wait(operation.deadline).map(|()| Done {
                bytes: operation.movement.remaining(),
                shape: None,
            });
            completions.push(Completion {
                id,
                operation,
                result,
            });
        }
    }

    fn cancel(&mut self, id: OperationId) -> Option<Operation<'m>> {
        if let Some((operation, _unheard)) = self.publishing.remove(&id) {
            return Some(operation);
        }
        if let Some(index) = self.fresh.iter().position(|(fresh, _)| *fresh == id) {
            return self.fresh.remove(index).map(|(_, operation)| operation);
        }
        let index = self.done.iter().position(|done| done.id == id)?;
        Some(self.done.swap_remove(index).operation)
    }

    fn under_way(&self) -> usize {
        self.fresh.len() + self.publishing.len() + self.done.len()
    }
}

impl<'m> LocalBatch<'m> {
    fn begin(&mut self, id: OperationId, mut operation: Operation<'m>) {
        let deadline = operation.deadline;
        let result = match &mut operation.movement {
            Movement::Write {
                to: WriteTo::Object(request),
                source,
            } => match self.node.start_write(request, source, deadline) {
                Ok(pending) => {
                    self.publishing.insert(id, (operation, pending));
                    return;
                }
                Err(failure) => Err(failure),
            },
            Movement::Read {
                from: ReadFrom::Object(request),
                target,
            } => self.node.read(request, target, deadline),
            Movement::Write { .. } | Movement::Read { .. } => Err(Failure::new(
                Code::NotSupported,
                Stage::Session,
                "regions of the own process are not moved through a transport",
            )),
        };
        self.done.push(Completion {
            id,
            operation,
            result,
        });
    }
}
