//! Planners: what a call does next, as pure state machines.
//!
//! A planner is fed events with the time at which they came and emits steps; whoever runs it (the
//! client over sockets, the simulator over simulated ones) carries the steps out *in order* and
//! feeds the answers back. It reads no clock, owns no buffer and opens no socket; destinations and
//! sources of bytes are known to the runner only, by the item's index.
//!
//! Start reading at [`get`], then [`put`].

pub mod get;
pub mod location;
pub mod put;
mod put_step;
pub mod split;

use snowskin_types::{Code, Failure, Key, Stage};

/// Identifies one transfer of one planner, so that an answer to an abandoned one is known as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Identifies one control call of one planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// The failure of an item whose deadline passed.
pub(crate) fn timed_out(key: &Key, stage: Stage, cause: Option<&Failure>) -> Failure {
    let message = match cause {
        Some(cause) => format!("the deadline passed; before that: {}", cause.message),
        None => "the deadline passed before an answer came".to_owned(),
    };
    Failure {
        code: Code::RpcTimeout,
        message,
        key: Some(key.clone()),
        peer: cause.and_then(|c| c.peer.clone()),
        stage,
        detail: cause.and_then(|c| c.detail),
    }
}

/// The same failure, with the key named if it was not.
pub(crate) fn about(mut failure: Failure, key: &Key) -> Failure {
    failure.key.get_or_insert_with(|| key.clone());
    failure
}

/// An answer that does not fit its question.
pub(crate) fn malformed(key: &Key, stage: Stage, what: &str) -> Failure {
    Failure::new(Code::Internal, stage, format!("malformed answer: {what}")).with_key(key)
}
