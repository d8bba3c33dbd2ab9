//! Policy of a cluster: options of the master that its nodes obey unless their own options override.

use crate::limits;
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// Which replica is evicted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionPolicy {
    /// The one not used for the longest time.
    #[default]
    Lru,
    /// S3-FIFO: a small first queue filters what is used once.
    S3Fifo,
}

/// How nodes are chosen for a new replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementPolicy {
    /// Uniformly among the nodes that can hold it.
    #[default]
    Random,
    /// The highest share of free space among a sample.
    FreeRatioFirst,
}

/// What the master pushes to its nodes at registration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterPolicy {
    /// Read lease.
    pub lease_ttl: Millis,
    /// Share of the segment at which eviction starts.
    pub eviction_high: f64,
    /// Share of the segment that one run of eviction frees below the high watermark.
    pub eviction_ratio: f64,
    /// Order of eviction.
    pub eviction_policy: EvictionPolicy,
    /// How long a put waits for space.
    pub put_wait: Millis,
    /// When an unfinished put may be preempted.
    pub put_start_discard_timeout: Millis,
}

impl Default for ClusterPolicy {
    fn default() -> Self {
        ClusterPolicy {
            lease_ttl: limits::LEASE_TTL,
            eviction_high: 0.90,
            eviction_ratio: 0.05,
            eviction_policy: EvictionPolicy::Lru,
            put_wait: limits::PUT_WAIT,
            put_start_discard_timeout: limits::PUT_START_DISCARD_TIMEOUT,
        }
    }
}
