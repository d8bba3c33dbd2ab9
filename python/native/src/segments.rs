//! Names of segments: which node a name means.

use parking_lot::Mutex;
use snowskin_client::{CallOptions, Client};
use snowskin_types::NodeId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A name that was not found is asked for again after this time at the earliest.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Known {
    nodes: HashMap<String, NodeId>,
    asked: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Segments(Mutex<Known>);

impl Segments {
    /// The nodes that the names mean, in their order; names that mean none are left out.
    pub(crate) fn nodes(&self, client: &Client, names: &[String]) -> Vec<NodeId> {
        if names.is_empty() {
            return Vec::new();
        }
        if self.should_ask(names) {
            // What cannot be found out is not preferred: a wish never fails a write.
            if let Ok(stat) = client.stat(&CallOptions::default()) {
                let mut nodes = HashMap::with_capacity(2 * stat.nodes.len());
                for node in &stat.nodes {
                    nodes.insert(node.host.clone(), node.place.node);
                }
                // Addresses are unique, and so stand over names.
                for node in stat.nodes {
                    nodes.insert(node.place.address.to_string(), node.place.node);
                }
                self.0.lock().nodes = nodes;
            }
        }
        let known = self.0.lock();
        names
            .iter()
            .filter_map(|name| known.nodes.get(name).copied())
            .collect()
    }

    fn should_ask(&self, names: &[String]) -> bool {
        let mut known = self.0.lock();
        let is_old = known.asked.is_none_or(|asked| asked.elapsed() > AGAIN);
        let is_new = names.iter().any(|name| !known.nodes.contains_key(name));
        if is_new && is_old {
            known.asked = Some(Instant::now());
        }
        is_new && is_old
    }
}
