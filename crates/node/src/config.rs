//! What a node is started with, and why it may not start.

use snowskin_memory::error::MemoryError;
use snowskin_memory::limits::LimitError;
use snowskin_proto::hello::Token;
use snowskin_runtime::net::{DialError, ListenError};
use snowskin_runtime::spawn::Cancel;
use snowskin_store::ConfigError;
use snowskin_types::error::Failure;
use snowskin_types::limits;
use snowskin_types::link::{FromNode, ToNode};
use snowskin_types::policy::EvictionPolicy;
use snowskin_types::time::Millis;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// Takes what a master of the same process sends to the node.
///
/// May be called with locks of the master held: it neither waits nor calls back. `None` says that the
/// link has ended. Returning false ends the link.
pub type LinkSink = Box<dyn FnMut(Option<ToNode>) -> bool + Send>;

/// A node's end of a link to a master of the same process. Dropping it is a lost connection.
pub trait LocalLink: Send {
    /// Hands a message over, in order; false when the link has ended.
    fn send(&self, message: FromNode) -> bool;
}

/// A master of the same process, as a node sees it. The crate of the master knows nothing of this one,
/// nor this one of it: whoever has both puts a few lines in between.
pub trait LocalMaster: Send + Sync + Debug {
    /// Opens a link, into which the master's messages go.
    fn open(&self, sink: LinkSink) -> Box<dyn LocalLink>;
}

/// Where the master is.
#[derive(Debug, Clone)]
pub enum Master {
    /// At `host:port`; the name is resolved anew at each attempt to connect.
    Remote(String),
    /// In this process.
    InProcess(Arc<dyn LocalMaster>),
}

/// Whether the node can be reached from other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Listening {
    /// The data server listens on the data address.
    #[default]
    Open,
    /// No listener: only callers in this process reach it, by [`crate::Handle`].
    None,
}

/// Whether the node compares the bytes of writes with their checksums as they arrive. Readers verify
/// in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// It does (`--checksum verify`).
    #[default]
    Writes,
    /// It trusts the writer (`--checksum off`).
    Off,
}

/// Whether the pages of the segment are made present ahead of their first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Population {
    /// In the background, from the start on.
    #[default]
    Ahead,
    /// By the first write of each page.
    OnUse,
}

/// Options of one node. The command line fills them; nothing here reads the environment.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the master is (`--master`).
    pub master: Master,
    /// Bytes of the segment (`--segment-size`).
    pub segment_size: u64,
    /// Where the data server listens, `host:port` (`--data-address`); port 0 takes a free one.
    pub data_address: String,
    /// Whether it listens at all.
    pub listening: Listening,
    /// How clients reach the data server, `HOST` or `HOST:PORT` (`--advertise`). Without it: the
    /// host of the data address, or for a wildcard the local address of the way to the master.
    pub advertise: Option<String>,
    /// Host it says it runs on (`--host-id`); empty: the advertised host.
    pub host_id: String,
    /// Secret of the cluster.
    pub token: Token,
    /// Verification of writes.
    pub verify: Verify,
    /// Own value instead of the cluster's.
    pub put_wait: Option<Millis>,
    /// Own value instead of the cluster's.
    pub eviction: Option<EvictionPolicy>,
    /// Own value instead of the cluster's.
    pub eviction_high: Option<f64>,
    /// Own value instead of the cluster's.
    pub eviction_ratio: Option<f64>,
    /// A pin of a read without progress ends after this time.
    pub pin_deadline: Millis,
    /// The start fails when no master has registered the node by then.
    pub ready_timeout: Duration,
    /// Cancelled to have the start end soon, for example on a signal.
    pub abandon: Cancel,
    /// Population of the segment.
    pub population: Population,
    /// Threads of the data server; 0: as the machine has processors, 2 to 8.
    pub data_threads: usize,
}

impl Config {
    /// A node with the usual options.
    pub fn new(master: Master, segment_size: u64) -> Self {
        Config {
            master,
            segment_size,
            data_address: "127.0.0.1:0".to_owned(),
            listening: Listening::Open,
            advertise: None,
            host_id: String::new(),
            token: Token::default(),
            verify: Verify::Writes,
            put_wait: None,
            eviction: None,
            eviction_high: None,
            eviction_ratio: None,
            pin_deadline: limits::PIN_DEADLINE,
            ready_timeout: Duration::from_secs(20),
            abandon: Cancel::new(),
            population: Population::Ahead,
            data_threads: 0,
        }
    }
}

/// The option that a smaller value of helps; the limit of open files has none and names itself.
fn blamed(limit: &LimitError) -> &'static str {
    match limit {
        LimitError::Files { .. } | LimitError::Unreadable { .. } => "",
        _ => "--segment-size: ",
    }
}

/// Why a node did not start. Nothing is left running then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An option has a value that is not allowed.
    #[error("{option}: {message}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// The machine or the container has too little of something.
    #[error("{option}{limit}", option = blamed(.0), limit = .0)]
    Limit(#[from] LimitError),
    /// The segment could not be made.
    #[error("--segment-size: {0}")]
    Segment(#[from] MemoryError),
    /// The store refuses its options.
    #[error("{0}")]
    Store(#[from] ConfigError),
    /// The data address is taken or not of this host.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The master's address could not be used at all, in so many attempts.
    #[error("--master: {last} (gave up after {attempts} attempts in {waited:?})")]
    Unreachable {
        /// How the last attempt failed.
        last: DialError,
        /// Attempts.
        attempts: u32,
        /// How long.
        waited: Duration,
    },
    /// Something listens at the master's address, but does not answer as a master.
    #[error("--master {address}: {reason} (gave up after {attempts} attempts in {waited:?})")]
    NoMaster {
        /// The address.
        address: String,
        /// What it did.
        reason: String,
        /// Attempts.
        attempts: u32,
        /// How long.
        waited: Duration,
    },
    /// The master does not take this node.
    #[error("the master at {address} refuses this node: {failure}")]
    Refused {
        /// The master's address.
        address: String,
        /// Its words.
        failure: Box<Failure>,
    },
    /// Not even one attempt to register had ended in time.
    #[error("not registered within {waited:?}: {doing}")]
    Late {
        /// What was under way.
        doing: String,
        /// How long.
        waited: Duration,
    },
    /// The caller asked the start to end.
    #[error("the start was abandoned")]
    Abandoned,
    /// A thread or the event loop could not be made.
    #[error("cannot {verb}: {source}")]
    System {
        /// What was tried.
        verb: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_blamed_only_for_a_limit_that_it_can_keep() {
        let files = LimitError::Files {
            limit: 20,
            used: 12,
            wanted: 64,
        };
        let machine = LimitError::Machine {
            available: 1,
            wanted: 2,
        };
        let files = StartError::from(files).to_string();
        assert!(
            files.contains("RLIMIT_NOFILE") && !files.contains("--"),
            "{files}"
        );
        let machine = StartError::from(machine).to_string();
        assert!(machine.starts_with("--segment-size: "), "{machine}");
    }
}
