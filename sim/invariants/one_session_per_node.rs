//! Sessions and numbers only rise: every session that the master grants is above all before, a
//! node speaks in the session it was granted last, and under ever higher numbers; no two nodes
//! share a link.
//!
//! Scope: the whole run, master restarts included.

use super::{Invariant, Seen, State, Verdict};
use crate::world::World;
use snowskin_directory::effect::Effect as DirectoryEffect;
use snowskin_store::effect::Effect as StoreEffect;
use snowskin_types::id::{Seq, Session};
use snowskin_types::link::{FromNode, ToNode};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub struct OneSessionPerNode {
    granted: Session,
    spoken: BTreeMap<usize, (Session, Seq)>,
}

impl Invariant for OneSessionPerNode {
    fn name(&self) -> &'static str {
        "one_session_per_node"
    }

    fn observe(&mut self, _world: &World, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::DirectoryEffect(DirectoryEffect::Send {
                message: ToNode::Registered { session, .. },
                ..
            }) => {
                if *session <= self.granted {
                    return Err(format!("session {session} follows {}", self.granted));
                }
                self.granted = *session;
            }
            Seen::NodeStarted { node } => {
                self.spoken.remove(node);
            }
            Seen::StoreEffect {
                node,
                effect:
                    StoreEffect::Send {
                        message: FromNode::Batch { session, seq, .. },
                        ..
                    },
            } => {
                let last = self.spoken.entry(*node).or_default();
                if (*session, *seq) <= *last {
                    return Err(format!(
                        "node{node} sends number {} of session {session} after {} of {}",
                        seq.0, last.1.0, last.0
                    ));
                }
                *last = (*session, *seq);
            }
            _ => {}
        }
        Ok(())
    }

    fn sweep(&mut self, _world: &World, state: &State) -> Verdict {
        let Some(directory) = &state.directory else {
            return Ok(());
        };
        let mut links = BTreeSet::new();
        for link in directory.nodes.iter().filter_map(|n| n.link) {
            if !links.insert(link) {
                return Err(format!("two nodes share link {}", link.0));
            }
        }
        Ok(())
    }
}
