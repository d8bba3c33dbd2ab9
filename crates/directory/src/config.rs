//! What the directory is told at its start.

use snowskin_types::limits;
use snowskin_types::policy::{ClusterPolicy, PlacementPolicy};
use snowskin_types::time::Millis;

/// Settings of one leadership. The same settings, restored state and events give the same effects.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Read lease, and the longest that a client can ask for.
    pub lease_ttl: Millis,
    /// Silence after which a node gets no placements.
    pub suspect_after: Millis,
    /// Silence after which a node's replicas are hidden.
    pub client_ttl: Millis,
    /// Age at which an unfinished put is cancelled by the master.
    pub put_start_discard_timeout: Millis,
    /// How nodes are chosen.
    pub placement: PlacementPolicy,
    /// Pushed to nodes at registration.
    pub policy: ClusterPolicy,
    /// Seed of the placement's random choices.
    pub rng_seed: u64,
    /// Seed of the key fingerprints; secret towards clients, so that they cannot aim at one chain.
    pub hash_seed: u64,
    /// Most answers that wait for owners to retire.
    pub waits_max: usize,
    /// Most requests that wait for inventories, for the grace or for their next slice.
    pub parked_max: usize,
    /// Most keys remembered without any replica or obligation (removed while a node is away).
    pub bare_max: usize,
    /// Most replicas hidden by a report and not yet checked by their owner.
    pub hidden_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            lease_ttl: limits::LEASE_TTL,
            suspect_after: limits::SUSPECT_AFTER,
            client_ttl: limits::CLIENT_TTL,
            put_start_discard_timeout: limits::PUT_START_DISCARD_TIMEOUT,
            placement: PlacementPolicy::default(),
            policy: ClusterPolicy::default(),
            rng_seed: 0,
            hash_seed: 0,
            waits_max: 262_144,
            parked_max: 65_536,
            bare_max: 1 << 20,
            hidden_max: 65_536,
        }
    }
}
