//! What waits to be sent on one connection, and which requests of it are under way.
//!
//! Answers of one read are gathered and leave in one write; answers that come later wake the
//! connection's writer. A peer that does not take its answers is cut off at a bound.

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use snowskin_directory::event::RequestId;
use snowskin_proto::frame;
use snowskin_proto::message::Message;
use snowskin_types::call::Reply;
use snowskin_types::error::Stage;
use snowskin_types::limits::{FRAME_BYTES_MAX, REQUESTS_PER_CONNECTION_MAX};
use std::collections::HashMap;
use std::io;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Bytes that may wait for one peer. The largest frame fits beside as much again.
pub(crate) const OUTBOUND_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;
/// Nothing more is read from a peer while more than this waits for it.
pub(crate) const READ_PAUSE_BYTES: usize = 1 << 20;
/// A drained buffer larger than this is given back.
const KEEP_BYTES: usize = 256 << 10;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// After everything that waits was sent.
    Flushed,
    /// At once: the peer does not take what waits for it.
    Slow,
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// As many as allowed are under way.
    TooMany,
    /// One of this number is under way.
    Duplicate,
}

/// Result of an attempt to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing waits any more.
    All,
    /// The socket takes no more for now.
    Blocked,
}

#[derive(Debug, Default)]
struct Inner {
    bytes: BytesMut,
    ending: Option<Ending>,
    under_way: HashMap<u64, RequestId>,
    /// The reader gathers answers and sends them itself.
    corked: bool,
}

/// One connection's side of the hub.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    ready: Notify,
    room: Notify,
}

impl Outbox {
    /// Enters a request that came as number `wire`.
    pub(crate) fn begin(&self, wire: u64, id: RequestId) -> Result<(), Refusal> {
        let mut inner = self.inner.lock();
        if inner.under_way.len() >= REQUESTS_PER_CONNECTION_MAX {
            return Err(Refusal::TooMany);
        }
        match inner.under_way.entry(wire) {
            std::collections::hash_map::Entry::Occupied(_) => Err(Refusal::Duplicate),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(id);
                Ok(())
            }
        }
    }

    /// Answers the request that came as number `wire`.
    pub(crate) fn reply(&self, wire: u64, reply: &Reply, stage: Stage) {
        let mut inner = self.inner.lock();
        inner.under_way.remove(&wire);
        if let Err(error) = append(&mut inner, wire, reply) {
            // A refusal is far below the bound of a frame.
            let small = append(&mut inner, wire, &Reply::Failed(error.failure(stage)));
            debug_assert!(small.is_ok());
        }
        self.wake(inner);
    }

    /// Adds a message that answers no entered request.
    pub(crate) fn send<M: Message>(&self, wire: u64, message: &M) {
        let mut inner = self.inner.lock();
        // Messages to nodes are bounded by their item counts; one that does not fit ends the link,
        // and the node's next inventory brings both sides together again.
        if append(&mut inner, wire, message).is_err() {
            inner.ending = Some(Ending::Flushed);
        }
        self.wake(inner);
    }

    /// Adds a frame without body.
    pub(crate) fn send_empty(&self, wire: u64, kind: frame::Kind) {
        let mut inner = self.inner.lock();
        frame::put_empty(&mut inner.bytes, wire, kind);
        bound(&mut inner);
        self.wake(inner);
    }

    /// Ends the connection after what waits was sent.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.ending.get_or_insert(Ending::Flushed);
        drop(inner);
        self.ready.notify_one();
    }

    /// True once the connection is to end.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.inner.lock().ending
    }

    /// Gathers what is sent from now on until [`Outbox::flush`].
    pub(crate) fn cork(&self) {
        self.inner.lock().corked = true;
    }

    /// Sends as much as the socket takes.
    pub(crate) fn flush(&self, stream: &TcpStream) -> io::Result<Sent> {
        let mut inner = self.inner.lock();
        inner.corked = false;
        let sent = write_out(&mut inner.bytes, stream)?;
        let room = inner.bytes.len() <= READ_PAUSE_BYTES;
        let later = sent == Sent::Blocked || inner.ending.is_some();
        drop(inner);
        if room {
            self.room.notify_one();
        }
        if later {
            self.ready.notify_one();
        }
        Ok(sent)
    }

    /// Waits until something is to be sent or the connection is to end.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
    }

    /// Waits until so little waits that more may be read.
    pub(crate) async fn room(&self) {
        while self.inner.lock().bytes.len() > READ_PAUSE_BYTES {
            self.room.notified().await;
        }
    }

    /// Takes the requests under way, when the connection has ended.
    pub(crate) fn orphans(&self) -> Vec<RequestId> {
        self.inner
            .lock()
            .under_way
            .drain()
            .map(|(_, id)| id)
            .collect()
    }

    fn wake(&self, inner: parking_lot::MutexGuard<'_, Inner>) {
        let wake = !inner.corked || inner.ending.is_some();
        drop(inner);
        if wake {
            self.ready.notify_one();
        }
    }
}

fn append<M: Message>(
    inner: &mut Inner,
    wire: u64,
    message: &M,
) -> Result<(), snowskin_proto::EncodeError> {
    if inner.ending.is_some() {
        return Ok(());
    }
    frame::put(&mut inner.bytes, wire, message)?;
    bound(inner);
    Ok(())
}

fn bound(inner: &mut Inner) {
    if inner.bytes.len() > OUTBOUND_BYTES_MAX {
        inner.ending = Some(Ending::Slow);
    }
}

fn write_out(bytes: &mut BytesMut, stream: &TcpStream) -> io::Result<Sent> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes.advance(n),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Blocked),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    if bytes.capacity() > KEEP_BYTES {
        *bytes = BytesMut::new();
    } else {
        bytes.clear();
    }
    Ok(Sent::All)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_over_the_bound_or_twice_under_one_number_are_refused() {
        let outbox = Outbox::default();
        for n in 0..REQUESTS_PER_CONNECTION_MAX as u64 {
            assert_eq!(outbox.begin(n, RequestId(n)), Ok(()));
        }
        assert_eq!(outbox.begin(9_999, RequestId(0)), Err(Refusal::TooMany));
        outbox.reply(3, &Reply::Noted, Stage::Session);
        assert_eq!(outbox.begin(4, RequestId(0)), Err(Refusal::Duplicate));
        assert_eq!(outbox.begin(3, RequestId(0)), Ok(()));
        assert_eq!(outbox.orphans().len(), REQUESTS_PER_CONNECTION_MAX);
    }

    #[test]
    fn a_peer_that_takes_nothing_is_cut_off_at_the_bound() {
        let outbox = Outbox::default();
        let mut keys = snowskin_types::call::Keys::new();
        for _ in 0..16 {
            keys.push(&[b'x'; 60_000]).unwrap();
        }
        let reply = Reply::Listed { keys, more: true };
        for n in 0..64 {
            outbox.reply(n, &reply, Stage::Session);
        }
        assert_eq!(outbox.ending(), Some(Ending::Slow));
        assert!(outbox.inner.lock().bytes.len() <= OUTBOUND_BYTES_MAX + (2 << 20));
    }
}
