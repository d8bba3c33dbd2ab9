//! What is known of peers: their regions and where their bytes are served.
//!
//! Kept until it proves wrong, and asked for again once then. Threads that find the same thing wrong
//! at once share one answer where they can.

use crate::counters::{Counters, count};
use crate::error::EngineError;
use crate::link::{Dialler, Link};
use parking_lot::Mutex;
use snowskin_proto::{EngineDescription, EngineRegion};
use snowskin_types::id::Epoch;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Most peers that are remembered.
const PEERS_MAX: usize = 4096;

/// The regions of an engine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) epoch: Epoch,
    /// `host:port` of its data server.
    pub(crate) data: Arc<str>,
    generation: u64,
    /// By base.
    regions: Vec<EngineRegion>,
    /// Base of the region that was registered first.
    first: Option<u64>,
}

impl Description {
    /// What the engine at `host` said of itself.
    pub(crate) fn new(host: &str, said: EngineDescription) -> Self {
        let mut regions = said.regions;
        // Numbers rise.
        let oldest = regions.iter().min_by_key(|region| region.region);
        let first = oldest.map(|region| region.base);
        regions.sort_unstable_by_key(|region| region.base);
        Description {
            epoch: said.epoch,
            data: crate::names::join(host, said.data_port).into(),
            generation: said.generation,
            regions,
            first,
        }
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.first
    }

    /// The region that holds the byte at an address.
    pub(crate) fn region_at(&self, address: u64) -> Option<&EngineRegion> {
        let behind = self
            .regions
            .partition_point(|region| region.base <= address);
        let region = self.regions.get(behind.checked_sub(1)?)?;
        (address - region.base < region.len).then_some(region)
    }

    /// Whether all bytes lie in regions, which may follow on each other.
    pub(crate) fn covers(&self, address: u64, len: u64) -> bool {
        // Both were checked not to pass the end.
        let end = address + len;
        let mut at = address;
        while at < end {
            match self.region_at(at) {
                Some(region) => at = region.base + region.len,
                None => return false,
            }
        }
        true
    }
}

/// What is known of a peer, and since when.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) description: Arc<Description>,
    /// It was asked for just now.
    pub(crate) is_fresh: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Peers {
    known: Mutex<HashMap<String, Arc<Description>>>,
    dialler: Dialler,
    counters: Arc<Counters>,
}

impl Peers {
    pub(crate) fn new(dialler: Dialler, counters: Arc<Counters>) -> Self {
        Peers {
            known: Mutex::default(),
            dialler,
            counters,
        }
    }

    /// Opens a connection to a peer's session port.
    pub(crate) fn link(&self, peer: &str, until: Instant) -> Result<Link<'_>, EngineError> {
        self.dialler.open(peer, until)
    }

    /// What is known of a peer; asks it if that is nothing.
    pub(crate) fn get(&self, peer: &str, until: Instant) -> Result<Known, EngineError> {
        if let Some(description) = self.known.lock().get(peer).cloned() {
            return Ok(Known {
                description,
                is_fresh: false,
            });
        }
        self.ask(peer, until)
    }

    /// What is known of a peer apart from `wrong`; asks it if that is nothing.
    pub(crate) fn again(
        &self,
        peer: &str,
        wrong: &Arc<Description>,
        until: Instant,
    ) -> Result<Known, EngineError> {
        let known = self.known.lock().get(peer).cloned();
        if let Some(description) = known.filter(|known| !Arc::ptr_eq(known, wrong)) {
            return Ok(Known {
                description,
                is_fresh: true,
            });
        }
        count(&self.counters.descriptions_again);
        let asked = self.ask(peer, until);
        if asked.is_err() {
            self.known.lock().remove(peer);
        }
        asked
    }

    /// Asks a peer for its regions.
    pub(crate) fn ask(&self, peer: &str, until: Instant) -> Result<Known, EngineError> {
        count(&self.counters.descriptions);
        let said = self.dialler.open(peer, until)?.describe()?;
        let host = crate::names::split(peer).map_or(peer, |(host, _)| host);
        let description = Arc::new(Description::new(host, said));
        tracing::debug!(
            peer,
            epoch = description.epoch.0,
            generation = description.generation,
            regions = description.regions.len(),
            "peer described itself"
        );
        let mut known = self.known.lock();
        if known.len() >= PEERS_MAX && !known.contains_key(peer) {
            // Any of them; it is asked again when it is needed.
            if let Some(victim) = known.keys().next().cloned() {
                known.remove(&victim);
            }
        }
        known.insert(peer.to_owned(), Arc::clone(&description));
        Ok(Known {
            description,
            is_fresh: true,
        })
    }
}
