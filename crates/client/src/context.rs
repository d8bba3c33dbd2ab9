//! What all calls of one client share.

use crate::counters::Counters;
use crate::plan::location::{Location, LocationCache};
use crate::port::{Answer, MasterPort};
use crate::shape::Parts;
use parking_lot::{Condvar, Mutex};
use snowskin_runtime::clock::Clock;
use snowskin_transfer::transport::Transport;
use snowskin_types::call::{Fault, Request};
use snowskin_types::limits::{DEADLINE_SLACK, data_timeout};
use snowskin_types::{
    ClientId, Code, Epoch, Failure, Key, Millis, NodeId, Now, ObjectName, Stage, Tenant, Version,
};
use std::sync::Arc;
use std::time::Duration;

/// The parts of a client that its calls use.
pub(crate) struct Context {
    pub(crate) id: ClientId,
    pub(crate) tenant: Tenant,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) master: Arc<dyn MasterPort>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) metadata_timeout: Millis,
    pub(crate) data_timeout: Option<Millis>,
    /// The own node, whose replicas are taken first.
    pub(crate) prefer: Option<NodeId>,
    pub(crate) locations: Mutex<LocationCache>,
    /// What runs beside the calls; taken at the end.
    pub(crate) parts: Mutex<Option<Parts>>,
    pub(crate) closed: Mutex<bool>,
    pub(crate) closing: Condvar,
}

/// When a call must be answered, and whether its caller said so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) start: Now,
    pub(crate) at: Now,
    pub(crate) explicit: bool,
}

impl Context {
    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Deadline of a metadata call.
    pub(crate) fn soon(&self, timeout: Option<Duration>) -> Now {
        self.now() + timeout.map_or(self.metadata_timeout, Millis::from)
    }

    /// Deadline of a data call over so many bytes.
    pub(crate) fn later(&self, timeout: Option<Duration>, bytes: u64) -> Deadline {
        let start = self.now();
        let explicit = timeout.map(Millis::from).or(self.data_timeout);
        Deadline {
            start,
            at: start + explicit.unwrap_or_else(|| data_timeout(bytes)),
            explicit: explicit.is_some(),
        }
    }

    /// Fails when the client was closed.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if *self.closed.lock() {
            return Err(Failure::new(
                Code::UnavailableInStatus,
                Stage::Session,
                "the client is closed",
            ));
        }
        Ok(())
    }

    /// Asks the master within a call that must end at `deadline`.
    pub(crate) fn ask(&self, request: Request, deadline: Now) -> Result<Answer, Failure> {
        self.master
            .call(request, deadline.min(self.now() + self.metadata_timeout))
    }

    /// Waits for a moment, or for the client to be closed.
    pub(crate) fn pause(&self, until: Now) {
        let mut closed = self.closed.lock();
        while !*closed && self.now() < until {
            let left = self.clock.left(until);
            self.closing.wait_for(&mut closed, left);
        }
    }

    pub(crate) fn located(&self, name: &ObjectName) -> Option<Location> {
        let found = self.locations.lock().get(self.now(), name)?;
        self.counters.locations_used.add(1);
        Some(found)
    }

    pub(crate) fn learn(&self, tenant: &Tenant, key: Key, location: Location) {
        let name = ObjectName::new(tenant.clone(), key);
        self.locations.lock().learn(self.now(), name, location);
    }

    pub(crate) fn forget(&self, tenant: &Tenant, key: Key) {
        let name = ObjectName::new(tenant.clone(), key);
        self.locations.lock().forget(&name);
    }

    /// Tells the master what was wrong with a replica. A report that is lost costs later readers a
    /// detour, never a wrong byte, so it fails silently but for its counter.
    #[allow(clippy::too_many_arguments, reason = "the fields of the report")]
    pub(crate) fn report(
        &self,
        tenant: &Tenant,
        key: Key,
        version: Version,
        node: NodeId,
        epoch: Epoch,
        fault: Fault,
        deadline: Now,
    ) -> Result<(), Failure> {
        self.counters.reports.add(1);
        let request = Request::Report {
            tenant: tenant.clone(),
            key,
            version,
            node,
            epoch,
            fault,
        };
        let told = self.ask(request, deadline);
        if told.is_err() {
            self.counters.reports_lost.add(1);
        }
        told.map(|_| ())
    }

    /// Counts what the end of a call says of its deadline.
    pub(crate) fn count_end<'a>(
        &self,
        deadline: Now,
        failures: impl IntoIterator<Item = &'a Failure>,
    ) {
        let missed = failures
            .into_iter()
            .filter(|f| f.code == Code::RpcTimeout)
            .count();
        self.counters.deadline_missed.add(missed as u64);
        if self.now() > deadline + DEADLINE_SLACK {
            self.counters.deadline_overrun.add(1);
        }
    }
}
