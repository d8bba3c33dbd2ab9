//! Options of one node, and which of them are in force beside the cluster's policy.

use snowskin_types::id::{Epoch, NodeId};
use snowskin_types::limits;
use snowskin_types::policy::{ClusterPolicy, EvictionPolicy};
use snowskin_types::time::Millis;
use std::sync::Arc;

/// Options of one node. Those that are `None` are the cluster's to set.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Who.
    pub node: NodeId,
    /// Which process life.
    pub epoch: Epoch,
    /// Address of the data server, as clients reach it.
    pub address: Arc<str>,
    /// Host it runs on.
    pub host: Arc<str>,
    /// Bytes of the segment.
    pub capacity: u64,
    /// How long a write waits for space.
    pub put_wait: Option<Millis>,
    /// Order of eviction.
    pub eviction: Option<EvictionPolicy>,
    /// Share of the segment at which eviction starts, above 0, at most 1.
    pub eviction_high: Option<f64>,
    /// Share of the segment that one run of eviction frees below the high watermark, 0 to 1.
    pub eviction_ratio: Option<f64>,
    /// A pin of a read without progress ends after this time.
    pub pin_deadline: Millis,
}

impl Config {
    /// A node that leaves every policy to its cluster.
    pub fn new(address: &str, epoch: Epoch, capacity: u64) -> Self {
        Config {
            node: NodeId::from_address(address),
            epoch,
            address: address.into(),
            host: "".into(),
            capacity,
            put_wait: None,
            eviction: None,
            eviction_high: None,
            eviction_ratio: None,
            pin_deadline: limits::PIN_DEADLINE,
        }
    }
}

/// Why a store could not be made.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The segment's size is not usable.
    #[error("segment: {0}")]
    Capacity(#[from] crate::arena::ArenaError),
    /// Not a watermark.
    #[error("eviction high watermark {0} is not a share: it must be above 0 and at most 1")]
    High(f64),
    /// Not a share.
    #[error("eviction ratio {0} is not a share: it must be 0 to 1")]
    Ratio(f64),
}

/// Where a value in force comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The node's own option.
    Node,
    /// Pushed by the master.
    Master,
    /// Nothing was pushed yet.
    Default,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Source::Node => "node",
            Source::Master => "master",
            Source::Default => "default",
        }
    }
}

/// The values in force.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InForce {
    /// How long a write waits for space.
    pub put_wait: Millis,
    /// Order of eviction.
    pub eviction: EvictionPolicy,
    /// Bytes in use at which eviction starts.
    pub high_bytes: u64,
    /// Bytes in use at which it stops.
    pub low_bytes: u64,
    /// When the master gives an unfinished put up.
    pub put_discard: Millis,
    high: f64,
    ratio: f64,
    sources: [Source; 4],
}

impl InForce {
    /// Puts a node's own options over what the cluster pushed. A pushed value that is no share
    /// counts as not pushed.
    pub(crate) fn of(config: &Config, capacity: u64, pushed: Option<&ClusterPolicy>) -> Self {
        fn choose<T>(own: Option<T>, pushed: Option<T>, default: T) -> (T, Source) {
            match (own, pushed) {
                (Some(own), _) => (own, Source::Node),
                (None, Some(pushed)) => (pushed, Source::Master),
                (None, None) => (default, Source::Default),
            }
        }
        let default = ClusterPolicy::default();
        let (put_wait, s0) = choose(
            config.put_wait,
            pushed.map(|p| p.put_wait),
            default.put_wait,
        );
        let (eviction, s1) = choose(
            config.eviction,
            pushed.map(|p| p.eviction_policy),
            default.eviction_policy,
        );
        let (high, s2) = choose(
            config.eviction_high,
            pushed.map(|p| p.eviction_high).filter(|h| is_high(*h)),
            default.eviction_high,
        );
        let (ratio, s3) = choose(
            config.eviction_ratio,
            pushed.map(|p| p.eviction_ratio).filter(|r| is_ratio(*r)),
            default.eviction_ratio,
        );
        let share = |s: f64| (capacity as f64 * s) as u64;
        InForce {
            put_wait,
            eviction,
            high_bytes: share(high),
            low_bytes: share((high - ratio).max(0.0)),
            put_discard: pushed.map_or(default.put_start_discard_timeout, |p| {
                p.put_start_discard_timeout
            }),
            high,
            ratio,
            sources: [s0, s1, s2, s3],
        }
    }

    /// The values with their sources, for people.
    pub fn text(&self) -> String {
        let eviction = match self.eviction {
            EvictionPolicy::Lru => "lru",
            EvictionPolicy::S3Fifo => "s3fifo",
        };
        let [s0, s1, s2, s3] = self.sources.map(Source::name);
        format!(
            "eviction {eviction} ({s1}), high {} ({s2}), ratio {} ({s3}), put-wait {}ms ({s0})",
            self.high, self.ratio, self.put_wait.0
        )
    }
}

pub(crate) fn is_high(share: f64) -> bool {
    share > 0.0 && share <= 1.0
}

pub(crate) fn is_ratio(share: f64) -> bool {
    (0.0..=1.0).contains(&share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_options_win_over_pushed_ones_and_the_text_names_the_source() {
        let mut config = Config::new("a:1", Epoch(1), 1000);
        config.eviction = Some(EvictionPolicy::S3Fifo);
        let before = InForce::of(&config, 1000, None);
        assert_eq!(
            before.text(),
            "eviction s3fifo (node), high 0.9 (default), ratio 0.05 (default), put-wait 500ms (default)"
        );
        let pushed = ClusterPolicy {
            eviction_high: 0.5,
            eviction_ratio: f64::NAN,
            put_wait: Millis(70),
            ..ClusterPolicy::default()
        };
        let after = InForce::of(&config, 1000, Some(&pushed));
        assert_eq!(
            after.text(),
            "eviction s3fifo (node), high 0.5 (master), ratio 0.05 (default), put-wait 70ms (master)"
        );
        assert_eq!((after.high_bytes, after.low_bytes), (500, 450));
    }
}
