//! How the cores are made for a run.

use crate::host::node::NodeHost;
use crate::setup::Setup;
use snowskin_directory::config::Config as DirectoryConfig;
use snowskin_directory::effect::{Effect as DirectoryEffect, Restored};
use snowskin_store::config::Config as StoreConfig;
use snowskin_types::policy::{ClusterPolicy, EvictionPolicy, PlacementPolicy};
use snowskin_types::{Millis, Now};

pub use snowskin_directory::directory::Directory;
pub use snowskin_store::store::Store;

/// A node is gone after this silence: longer than any process is stopped for by a short freeze,
/// shorter than the long ones.
const CLIENT_TTL: Millis = Millis(6_000);

fn policy(setup: &Setup) -> ClusterPolicy {
    ClusterPolicy {
        lease_ttl: setup.lease_ttl,
        eviction_high: 0.90,
        eviction_ratio: 0.10,
        eviction_policy: match setup.seed % 2 {
            0 => EvictionPolicy::Lru,
            _ => EvictionPolicy::S3Fifo,
        },
        put_wait: Millis(500),
        put_start_discard_timeout: setup.discard,
    }
}

/// Begins a leadership.
pub fn directory(
    now: Now,
    restored: Restored,
    setup: &Setup,
    seed: u64,
) -> (Directory, Vec<DirectoryEffect>) {
    let config = DirectoryConfig {
        lease_ttl: setup.lease_ttl,
        suspect_after: Millis(2_000),
        client_ttl: CLIENT_TTL,
        put_start_discard_timeout: setup.discard,
        placement: match seed % 2 {
            0 => PlacementPolicy::Random,
            _ => PlacementPolicy::FreeRatioFirst,
        },
        policy: policy(setup),
        rng_seed: seed,
        hash_seed: seed ^ 1,
        ..DirectoryConfig::default()
    };
    #[cfg_attr(
        not(known_bugs),
        expect(unused_mut, reason = "planted faults change it")
    )]
    let (mut core, effects) = Directory::new(now, config, restored);
    #[cfg(known_bugs)]
    core.plant(snowskin_directory::bugs::Bugs {
        no_sequence_numbers: setup.bug.as_deref() == Some("no_sequence_numbers"),
    });
    (core, effects)
}

/// Makes the store of a node's new process.
pub fn store(now: Now, host: &NodeHost, setup: &Setup) -> Store {
    let config = StoreConfig {
        put_wait: None,
        ..StoreConfig::new(&host.address, host.epoch, setup.capacity)
    };
    #[cfg_attr(
        not(known_bugs),
        expect(unused_mut, reason = "planted faults change it")
    )]
    let mut core = match Store::new(now, config) {
        Ok(core) => core,
        Err(error) => unreachable!("a segment of at least one unit can be divided: {error}"),
    };
    #[cfg(known_bugs)]
    {
        let is = |name: &str| setup.bug.as_deref() == Some(name);
        core.plant(snowskin_store::bugs::Bugs {
            publish_before_commit: is("publish_before_commit"),
            reclaim_before_grant: is("reclaim_before_grant"),
            rollback_on_missing_answer: is("rollback_on_missing_answer"),
            read_without_version: is("read_without_version"),
            write_not_one_shot: is("write_not_one_shot"),
        });
    }
    core
}
