//! How one batch of requests is carried out, on the thread of its caller.
//!
//! The requests are checked against what is known of the peer, cut into pieces, and kept under way
//! within bounds of count and bytes. When what is known proves wrong (the peer was started again, has
//! registered anew, or listens elsewhere) it is asked for once more and the batch begins again: reads and
//! writes may be repeated.

use crate::counters::{add, count};
use crate::error::EngineError;
use crate::open::Core;
use crate::peers::Description;
use crate::plan::{Piece, Plan};
use crate::request::Opcode;
use snowskin_device::{DeviceError, Gather, Run, Scatter};
use snowskin_runtime::clock::Clock;
use snowskin_transfer::transport::{
    Completion, Movement, Operation, OperationId, ReadFrom, RemoteRange, Transport, WriteTo,
};
use snowskin_types::error::{Code, Failure};
use snowskin_types::id::NodeId;
use snowskin_types::object::Place;
use snowskin_types::time::{Millis, Now};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most pieces under way.
const PIECES_MAX: usize = 128;
/// Most bytes of them, or one piece.
const WINDOW_BYTES: u64 = 64 << 20;
/// Time between two looks at whether the engine is being closed.
const LOOK: Millis = Millis(50);

/// Until when a batch may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    pub(crate) now: Now,
    pub(crate) instant: Instant,
    pub(crate) granted: Duration,
}

impl Until {
    fn left(&self) -> Duration {
        self.instant.saturating_duration_since(Instant::now())
    }
}

/// Carries a batch out.
pub(crate) fn carry_out(
    core: &Core,
    peer: &str,
    opcode: Opcode,
    plan: &Plan,
    until: Until,
) -> Result<(), EngineError> {
    let result = within(core, peer, opcode, plan, until);
    let counters = &core.counters;
    match &result {
        Ok(()) => {
            count(&counters.transfers);
            let bytes = match opcode {
                Opcode::Read => &counters.bytes_read,
                Opcode::Write => &counters.bytes_written,
            };
            add(bytes, plan.bytes);
        }
        Err(error) => {
            count(&counters.transfers_failed);
            if error.is_timeout() {
                count(&counters.transfers_timed_out);
            }
        }
    }
    result
}

fn within(
    core: &Core,
    peer: &str,
    opcode: Opcode,
    plan: &Plan,
    until: Until,
) -> Result<(), EngineError> {
    if plan.bytes == 0 {
        return Ok(());
    }
    let attempt = Attempt {
        core,
        peer,
        opcode,
        plan,
        until,
    };
    if peer == core.session {
        return attempt.at_home();
    }
    let mut known = core.peers.get(peer, until.instant)?;
    let mut again = false;
    loop {
        let ended = match plan.outside(&known.description) {
            Some(chunk) => Err(Ended::Outdated {
                error: EngineError::Outside {
                    peer: peer.to_owned(),
                    address: chunk.remote,
                    len: chunk.len,
                },
                may_be_fresh: false,
            }),
            None => attempt.run(&known.description),
        };
        match ended {
            Ok(()) => return Ok(()),
            Err(Ended::For(error)) => return Err(error),
            Err(Ended::Outdated {
                error,
                may_be_fresh,
            }) => {
                if again || known.is_fresh && !may_be_fresh {
                    return Err(error);
                }
                again = true;
                tracing::debug!(peer, %error, "asks the peer again");
                known = core.peers.again(peer, &known.description, until.instant)?;
            }
        }
    }
}

/// Why an attempt did not succeed.
enum Ended {
    /// What is known of the peer may be wrong.
    Outdated {
        error: EngineError,
        /// Even if it was asked just now.
        may_be_fresh: bool,
    },
    /// Another attempt would not help.
    For(EngineError),
}

impl From<EngineError> for Ended {
    fn from(error: EngineError) -> Self {
        Ended::For(error)
    }
}

impl From<DeviceError> for Ended {
    fn from(error: DeviceError) -> Self {
        Ended::For(error.into())
    }
}

/// Local memory of a piece, held until nothing touches it any more.
enum Held {
    Source(Gather),
    Target(Scatter),
}

struct Flight {
    piece: Piece,
    held: Held,
}

struct Attempt<'a> {
    core: &'a Core,
    peer: &'a str,
    opcode: Opcode,
    plan: &'a Plan,
    until: Until,
}

impl Attempt<'_> {
    fn run(&self, description: &Description) -> Result<(), Ended> {
        let place = Place {
            node: NodeId(0),
            epoch: description.epoch,
            address: Arc::clone(&description.data),
        };
        let mut pieces = self.plan.pieces(description);
        let mut again: Vec<Piece> = Vec::new();
        // The batch is dropped before what it uses.
        let mut flights: HashMap<OperationId, Flight> = HashMap::new();
        let mut batch = self.core.transport.batch();
        let mut bytes = 0;
        let mut completions: Vec<Completion<'static>> = Vec::new();
        loop {
            while flights.is_empty() || flights.len() < PIECES_MAX && bytes < WINDOW_BYTES {
                let Some(piece) = again.pop().or_else(|| pieces.next()) else {
                    break;
                };
                let Some((held, movement)) = self.hold(&piece, description, flights.is_empty())?
                else {
                    // Staging memory is lent to the pieces under way.
                    again.push(piece);
                    break;
                };
                let mut operation = Operation::new(place.clone(), movement, self.until.now);
                // A slow peer has all the time there is; a dead one is noticed by its socket.
                operation.stall = self.core.clock.now().until(self.until.now);
                bytes += piece.len;
                let id = batch.submit(operation);
                flights.insert(id, Flight { piece, held });
            }
            if flights.is_empty() {
                return Ok(());
            }
            self.core.check_open()?;
            let look = self.until.now.min(self.core.clock.now() + LOOK);
            batch.wait(look, &mut completions);
            for completion in completions.drain(..) {
                let Completion {
                    id,
                    operation,
                    result,
                } = completion;
                drop(operation);
                let Some(flight) = flights.remove(&id) else {
                    continue;
                };
                bytes -= flight.piece.len;
                match (result, flight.held) {
                    (Ok(_), Held::Source(_)) => {}
                    (Ok(_), Held::Target(scatter)) => scatter.finish(flight.piece.len)?,
                    (Err(failure), _) if failure.code == Code::ObjectReplicaBusy => {
                        count(&self.core.counters.ranges_in_the_way);
                        again.push(flight.piece);
                    }
                    (Err(failure), _) => return Err(self.sort(failure)),
                }
            }
        }
    }

    /// Takes the local memory of a piece; `None` when it has to wait for those under way.
    fn hold(
        &self,
        piece: &Piece,
        description: &Description,
        may_wait: bool,
    ) -> Result<Option<(Held, Movement<'static>)>, Ended> {
        let range = RemoteRange {
            epoch: description.epoch,
            region: piece.region,
            offset: piece.offset,
        };
        let registry = &self.core.registry;
        let left = self.until.left();
        let held = match (self.opcode, may_wait) {
            (Opcode::Write, true) => registry.gather_within(&piece.runs, left).map(Held::Source),
            (Opcode::Write, false) => registry.gather_now(&piece.runs).map(Held::Source),
            (Opcode::Read, true) => registry.scatter_within(&piece.runs, left).map(Held::Target),
            (Opcode::Read, false) => registry.scatter_now(&piece.runs).map(Held::Target),
        };
        let held = match held {
            Ok(held) => held,
            Err(DeviceError::StagingFull { .. }) if !may_wait => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let movement = match &held {
            Held::Source(gather) => Movement::Write {
                to: WriteTo::Range(range),
                source: gather.scattered().source(),
            },
            Held::Target(scatter) => {
                let target = scatter.scattered().target(piece.len);
                Movement::Read {
                    from: ReadFrom::Range(range),
                    target: target.map_err(|error| EngineError::System {
                        step: "list local memory",
                        reason: error.to_string(),
                    })?,
                }
            }
        };
        Ok(Some((held, movement)))
    }

    /// What a failed piece says about the peer.
    fn sort(&self, failure: Failure) -> Ended {
        let peer = self.peer.to_owned();
        if self.core.clock.now() >= self.until.now {
            return Ended::For(EngineError::TimedOut {
                peer,
                waited: self.until.granted,
            });
        }
        let may_be_fresh = match failure.code {
            // It is another life, or the region is gone.
            Code::ReplicaGone | Code::SegmentNotFound => true,
            // Nothing listens, or the connection broke.
            Code::RpcFail | Code::RpcTimeout | Code::TransferFail => true,
            // The region is not what it was said to be.
            Code::InvalidRead | Code::InvalidParams => false,
            _ => return Ended::For(transfer(peer, failure)),
        };
        Ended::Outdated {
            error: transfer(peer, failure),
            may_be_fresh,
        }
    }

    /// The peer is this engine itself.
    fn at_home(&self) -> Result<(), EngineError> {
        let description = self.core.description();
        if let Some(chunk) = self.plan.outside(&description) {
            return Err(EngineError::Outside {
                peer: self.peer.to_owned(),
                address: chunk.remote,
                len: chunk.len,
            });
        }
        for piece in self.plan.pieces(&description) {
            self.core.check_open()?;
            if self.core.clock.now() >= self.until.now {
                return Err(EngineError::TimedOut {
                    peer: self.peer.to_owned(),
                    waited: self.until.granted,
                });
            }
            // An address of this process, since a region covers it.
            let there = [Run {
                address: piece.remote as usize,
                len: piece.len,
            }];
            let (from, to) = match self.opcode {
                Opcode::Write => (&piece.runs[..], &there[..]),
                Opcode::Read => (&there[..], &piece.runs[..]),
            };
            copy(self.core, from, to, piece.len, self.until)?;
        }
        Ok(())
    }
}

fn transfer(peer: String, failure: Failure) -> EngineError {
    let failure = Box::new(failure);
    EngineError::Transfer { peer, failure }
}

/// Copies within the process, whatever kind of memory it is.
fn copy(core: &Core, from: &[Run], to: &[Run], len: u64, until: Until) -> Result<(), EngineError> {
    let gather = core.registry.gather_within(from, until.left())?;
    let scatter = core.registry.scatter_within(to, until.left())?;
    {
        let mut source = gather.scattered().source();
        let target = scatter.scattered().target(len);
        let mut target = target.map_err(|error| EngineError::System {
            step: "list local memory",
            reason: error.to_string(),
        })?;
        source.copy_to(&mut target);
    }
    scatter.finish(len)?;
    Ok(())
}
