//! After the faults: the cluster heals by itself. Every put succeeds again, every byte put is read
//! back, and when all objects are removed nothing is left: no bytes, no pins, no obligations.

use crate::clock::{MS, Micros, SECOND};
use crate::host::ask::{Ask, Outcome};
use crate::invariants::State;
use crate::setup::UNIT;
use crate::world::{Violation, World};
use snowskin_client::plan::put::Stored;
use snowskin_types::call::PutMode;
use snowskin_types::{Millis, Version};

/// Nodes are back, and graces and retries of the stormy time are over, after this and a lease.
const SETTLE: Micros = 2 * SECOND;
/// A client's call ends within this time.
const CALL: Micros = 10 * SECOND;
/// All is drained after this: a discard, a serving lease, retries.
const DRAIN: Micros = 12 * SECOND;

fn stuck(world: &World, message: String) -> Violation {
    Violation {
        invariant: "liveness",
        time: world.time,
        message,
    }
}

impl World {
    /// Checks that the healed cluster lives.
    ///
    /// # Errors
    /// The first property that does not hold.
    pub fn check_liveness(&mut self) -> Result<(), Violation> {
        self.workload.turn(false);
        self.heal();
        let limit = self.time + CALL + CALL;
        if !self.run_while(limit, |w| w.clients.iter().any(|c| c.is_busy()))? {
            return Err(stuck(self, "a call did not end by its deadline".to_owned()));
        }
        self.run_until(self.time + self.setup.lease_ttl.0 * MS + SETTLE)?;
        self.check_registered()?;
        // Reads come after all puts: they leave leases, which puts would have to wait for.
        let mut versions = Vec::new();
        for key in 0..self.setup.keys {
            versions.push(self.put_now(key)?);
        }
        for (key, version) in versions.into_iter().enumerate() {
            self.read_now(key, version)?;
        }
        self.drain()
    }

    /// One call to its end.
    pub fn call_now(&mut self, client: usize, ask: Ask) -> Result<Outcome, Violation> {
        self.ask(client, ask.clone());
        let limit = self.time + CALL;
        self.run_while(limit, |w| w.clients[client].is_busy())?;
        let outcome = self.clients[client].last.clone();
        outcome.ok_or_else(|| stuck(self, format!("{ask:?} did not end")))
    }

    fn check_registered(&mut self) -> Result<(), Violation> {
        let state = State::of(self);
        let sessions = state
            .stores
            .iter()
            .flatten()
            .filter(|s| s.session.is_some())
            .count();
        let inventoried = state
            .directory
            .iter()
            .flat_map(|d| &d.nodes)
            .filter(|n| n.inventoried && n.session.is_some())
            .count();
        if sessions != self.nodes.len() || inventoried != self.nodes.len() {
            return Err(stuck(
                self,
                format!("{sessions} nodes have a session, {inventoried} are inventoried"),
            ));
        }
        Ok(())
    }

    fn put_now(&mut self, key: usize) -> Result<Version, Violation> {
        let size = self.setup.units_max * UNIT;
        let ask = Ask::Put {
            key,
            size,
            mode: PutMode::Replace,
            replicas: 1,
            prefer: None,
            timeout: Millis(8000),
        };
        match self.call_now(0, ask)? {
            Outcome::Put(Ok(Stored::Written { version, .. })) => Ok(version),
            other => Err(stuck(self, format!("a put of k{key} ended with {other:?}"))),
        }
    }

    fn read_now(&mut self, key: usize, version: Version) -> Result<(), Violation> {
        let ask = Ask::Get {
            key,
            timeout: Millis(4000),
        };
        match self.call_now(0, ask)? {
            Outcome::Get(Ok(read)) if read == version => Ok(()),
            Outcome::Get(Err(_)) if self.oracle.excuse(key, version) == Some("evicted") => Ok(()),
            other => Err(stuck(
                self,
                format!("k{key} was put as version {version}, a read ended with {other:?}"),
            )),
        }
    }

    /// Removes everything, and sees that nothing stays.
    fn drain(&mut self) -> Result<(), Violation> {
        match self.call_now(0, Ask::RemoveAll)? {
            Outcome::Removed(Ok(())) => {}
            other => {
                return Err(stuck(
                    self,
                    format!("the removal of all ended with {other:?}"),
                ));
            }
        }
        let limit = self.time + DRAIN;
        let mut left = String::new();
        while self.time < limit {
            left = leftovers(self);
            if left.is_empty() {
                return Ok(());
            }
            self.run_until(self.time + 100 * MS)?;
        }
        Err(stuck(
            self,
            format!("after the removal of all objects, there is {left}"),
        ))
    }
}

fn leftovers(world: &World) -> String {
    let state = State::of(world);
    let mut left = Vec::new();
    for (node, view) in state.stores.iter().enumerate() {
        let Some(view) = view else { continue };
        if view.used > 0 || !view.replicas.is_empty() || view.waiting > 0 {
            left.push(format!(
                "node{node}: {} bytes, replicas {:?}, {} waiting writes",
                view.used, view.replicas, view.waiting
            ));
        }
        let (reads, writes) = (
            world.nodes[node].reads.len(),
            world.nodes[node].writes.len(),
        );
        if reads + writes > 0 {
            left.push(format!("node{node}: {reads} reads and {writes} writes"));
        }
    }
    if let Some(directory) = &state.directory {
        for entry in &directory.entries {
            if !entry.claims.is_empty() || !entry.obligations.is_empty() || entry.waits > 0 {
                left.push(format!("the master: {entry:?}"));
            }
        }
    }
    left.join("; ")
}
