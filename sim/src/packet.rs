//! What travels between simulated processes.

use crate::content::PutId;
use snowskin_store::effect::ReadGrant;
use snowskin_types::Failure;
use snowskin_types::access::{ReadRequest, WriteRequest};
use snowskin_types::call::{Reply, Request};
use snowskin_types::link::{FromNode, NodeItem, ToNode};
use std::fmt;

/// One simulated process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proc {
    /// The master.
    Master,
    /// A node, by its index.
    Node(usize),
    /// A client, by its index.
    Client(usize),
}

impl fmt::Display for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Proc::Master => f.write_str("master"),
            Proc::Node(i) => write!(f, "node{i}"),
            Proc::Client(i) => write!(f, "client{i}"),
        }
    }
}

/// Bytes that a read brought.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadBytes {
    /// What the owner said that it sends.
    pub grant: ReadGrant,
    /// What came.
    pub bytes: Vec<u8>,
}

/// One message, or the end of one transfer.
#[derive(Debug, Clone, PartialEq)]
pub enum Packet {
    /// Node to master, on a control link.
    ToMaster {
        /// The link.
        link: u64,
        /// The words.
        message: FromNode,
    },
    /// Master to node, on a control link.
    ToNode {
        /// The link.
        link: u64,
        /// The words.
        message: ToNode,
    },
    /// Client to master.
    Request {
        /// Who asks.
        client: usize,
        /// Which of its calls.
        call: u64,
        /// The words.
        request: Request,
    },
    /// The client no longer waits for this call.
    Abandon {
        /// Who asked.
        client: usize,
        /// Which of its calls.
        call: u64,
    },
    /// Master to client.
    Reply {
        /// Which of its calls.
        call: u64,
        /// The words.
        reply: Reply,
    },
    /// Client to node: a write whose bytes follow.
    Write {
        /// Who writes.
        client: usize,
        /// Which of its transfers.
        token: u64,
        /// What the bytes are.
        put: PutId,
        /// The words.
        request: WriteRequest,
    },
    /// Node to client: how a write ended.
    WriteDone {
        /// Which of its transfers.
        token: u64,
        /// How.
        result: Result<(), Failure>,
    },
    /// Client to node: a read.
    Read {
        /// Who reads.
        client: usize,
        /// Which of its transfers.
        token: u64,
        /// The words.
        request: ReadRequest,
    },
    /// Node to client: how a read ended.
    ReadDone {
        /// Which of its transfers.
        token: u64,
        /// How.
        result: Result<ReadBytes, Failure>,
    },
    /// The client's side of a connection broke: this call or transfer gets no answer.
    Broken {
        /// Which of its calls or transfers.
        token: u64,
    },
    /// The node's side of a data connection broke.
    Hangup {
        /// Whose connection.
        client: usize,
        /// Which transfer.
        token: u64,
    },
}

impl Packet {
    /// The items of a numbered batch.
    pub fn items(&self) -> &[NodeItem] {
        match self {
            Packet::ToMaster {
                message: FromNode::Batch { items, .. },
                ..
            } => items,
            _ => &[],
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Packet::ToMaster { link, message } => write!(f, "link {link}: {message:?}"),
            Packet::ToNode { link, message } => write!(f, "link {link}: {message:?}"),
            Packet::Request { call, request, .. } => write!(f, "call {call}: {request:?}"),
            Packet::Abandon { call, .. } => write!(f, "call {call}: abandoned"),
            Packet::Reply { call, reply } => write!(f, "call {call}: {reply:?}"),
            Packet::Write {
                token,
                put,
                request,
                ..
            } => write!(
                f,
                "transfer {token}: write {} version {} epoch {} ({} bytes of put {})",
                request.name, request.version, request.epoch, request.size, put.0
            ),
            Packet::WriteDone { token, result } => {
                write!(f, "transfer {token}: written {result:?}")
            }
            Packet::Read { token, request, .. } => write!(
                f,
                "transfer {token}: read {} version {} epoch {}",
                request.name, request.version, request.epoch
            ),
            Packet::ReadDone { token, result } => match result {
                Ok(read) => write!(f, "transfer {token}: {} bytes", read.bytes.len()),
                Err(failure) => write!(f, "transfer {token}: {failure}"),
            },
            Packet::Broken { token } => write!(f, "{token}: connection broke"),
            Packet::Hangup { client, token } => write!(f, "hang-up of client{client}'s {token}"),
        }
    }
}
