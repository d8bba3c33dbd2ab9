//! Whether the master answers: after it was lost, existence checks are 'no' at once until a probe in the
//! background finds it again.

use parking_lot::{Condvar, Mutex};
use snowskin_client::{CallOptions, Client, ExistsOptions};
use snowskin_runtime::thread::Thread;
use snowskin_types::{Code, Failure, Millis};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time between probes.
const PAUSE: Duration = Duration::from_millis(100);
/// Deadline of a probe.
const PATIENCE: Duration = Duration::from_millis(1_000);
/// The probe's thread ends within this.
const JOIN: Duration = Duration::from_secs(2);
/// A key that is asked for; whether it exists does not matter.
const PROBE: &[u8] = b"snowskin/probe";

#[derive(Debug, Default)]
struct State {
    lost: bool,
    closing: bool,
    thread: Option<Thread>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
    wake: Condvar,
    answered: AtomicU64,
}

/// True for failures that say that the master cannot be asked.
pub(crate) fn is_loss(failure: &Failure) -> bool {
    matches!(failure.code, Code::RpcFail | Code::RpcTimeout)
}

fn probe(client: &Client) -> Result<bool, Failure> {
    let options = ExistsOptions {
        call: CallOptions {
            timeout: Some(PATIENCE),
            ..CallOptions::default()
        },
        lease: Some(Millis(1)),
    };
    client.exists(PROBE, &options)
}

impl Watch {
    /// True while the master is known to be lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.lock().lost
    }

    /// Counts keys that were answered 'no' without the master.
    pub(crate) fn answered(&self, keys: usize) {
        // A counter orders nothing.
        self.answered.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// See [`Watch::answered`].
    pub(crate) fn answered_count(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Notes that the master could not be asked, and looks out for it from now on.
    pub(crate) fn lost(self: &Arc<Self>, client: &Client) {
        let mut state = self.state.lock();
        if state.lost || state.closing {
            return;
        }
        // The one before has ended, or is about to: it has cleared the mark.
        let before = state.thread.take();
        let (watch, client) = (Arc::clone(self), client.clone());
        match Thread::start("snowskin-probe", move || watch.look_out(&client)) {
            Ok(thread) => {
                state.lost = true;
                state.thread = Some(thread);
            }
            Err(error) => {
                // Without the look-out every check goes on asking.
                tracing::warn!(%error, "the master is lost and no thread can look out for it");
            }
        }
        drop(state);
        if let Some(before) = before {
            before.join(Instant::now() + JOIN).ok();
        }
    }

    fn look_out(&self, client: &Client) {
        loop {
            {
                let mut state = self.state.lock();
                let closing = |state: &mut State| !state.closing;
                self.wake.wait_while_for(&mut state, closing, PAUSE);
                if state.closing {
                    return;
                }
            }
            let found = probe(client);
            if found.as_ref().is_err_and(is_loss) {
                continue;
            }
            self.state.lock().lost = false;
            return;
        }
    }

    /// Whether the master answers now.
    pub(crate) fn check(self: &Arc<Self>, client: &Client) -> Result<(), Failure> {
        match probe(client) {
            Err(failure) if is_loss(&failure) => {
                self.lost(client);
                Err(failure)
            }
            _ => Ok(()),
        }
    }

    /// Ends the look-out; the client has been closed before, so that a probe ends soon.
    pub(crate) fn close(&self) {
        let thread = {
            let mut state = self.state.lock();
            state.closing = true;
            state.thread.take()
        };
        self.wake.notify_all();
        if let Some(thread) = thread {
            thread.join(Instant::now() + JOIN).ok();
        }
    }
}
