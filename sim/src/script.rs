//! The hand that plays a fixed schedule: begins calls, keeps messages back, kills and restarts.

use crate::clock::{MS, Micros};
use crate::host::ask::{Ask, Outcome};
use crate::invariants::State;
use crate::net::Held;
use crate::packet::{Packet, Proc};
use crate::setup::{Setup, UNIT};
use crate::trace::Mode;
use crate::world::World;
use snowskin_client::plan::put::Stored;
use snowskin_types::call::{Fault, PutMode};
use snowskin_types::link::{FromNode, ToNode};
use snowskin_types::{Code, Millis, Version};

/// What a schedule says when it does not go as it must.
pub type Played = Result<(), String>;

/// A cluster in which nothing happens by itself but what the schedule leads to.
#[derive(Debug)]
pub struct Script {
    /// The cluster.
    pub world: World,
}

impl Script {
    /// A calm cluster whose nodes have all registered.
    ///
    /// # Errors
    /// When they do not.
    pub fn begin(setup: Setup, mode: Mode) -> Result<Self, String> {
        let mut script = Script {
            world: World::new(setup, mode),
        };
        script.registered()?;
        Ok(script)
    }

    /// Lets simulated time pass.
    ///
    /// # Errors
    /// A violated property.
    pub fn run(&mut self, ms: u64) -> Played {
        let until = self.world.time + ms * MS;
        self.world.run_until(until).map_err(|v| v.to_string())?;
        self.world.sweep_now().map_err(|v| v.to_string())
    }

    /// Lets time pass until something is so.
    ///
    /// # Errors
    /// A violated property, or that it is not so after 20 s.
    pub fn until(&mut self, what: &str, mut so: impl FnMut(&World) -> bool) -> Played {
        let limit = self.world.time + 20_000 * MS;
        match self.world.run_while(limit, |w| !so(w)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("it never came to this: {what}")),
            Err(violation) => Err(violation.to_string()),
        }
    }

    /// Waits until all running nodes have registered and told their inventories.
    ///
    /// # Errors
    /// When they do not.
    pub fn registered(&mut self) -> Played {
        self.until("all nodes are registered", |w| {
            let state = State::of(w);
            let Some(directory) = &state.directory else {
                return false;
            };
            let running = w.nodes.iter().filter(|n| n.core.is_some()).count();
            let ready = directory
                .nodes
                .iter()
                .filter(|n| n.inventoried && n.session.is_some())
                .count();
            ready >= running
        })
    }

    /// Begins a call of a client.
    pub fn begin_call(&mut self, client: usize, ask: Ask) {
        self.world.ask(client, ask);
    }

    /// Waits for the end of a client's call.
    ///
    /// # Errors
    /// When it does not end.
    pub fn outcome(&mut self, client: usize) -> Result<Outcome, String> {
        self.until("the call ends", |w| !w.clients[client].is_busy())?;
        let last = self.world.clients[client].last.clone();
        last.ok_or_else(|| "a call without an outcome".to_owned())
    }

    /// One whole put to a node.
    ///
    /// # Errors
    /// When it fails.
    pub fn put(&mut self, key: usize, node: usize) -> Result<Version, String> {
        self.begin_call(0, put_ask(key, node, PutMode::IfAbsent));
        self.written(0)
    }

    /// One whole replace on a node.
    ///
    /// # Errors
    /// When it fails.
    pub fn replace(&mut self, key: usize, node: usize) -> Result<Version, String> {
        self.begin_call(0, put_ask(key, node, PutMode::Replace));
        self.written(0)
    }

    /// Waits for a put that succeeds.
    ///
    /// # Errors
    /// When it fails.
    pub fn written(&mut self, client: usize) -> Result<Version, String> {
        match self.outcome(client)? {
            Outcome::Put(Ok(Stored::Written { version, .. })) => Ok(version),
            other => Err(format!("the put ended with {other:?}")),
        }
    }

    /// One whole read.
    ///
    /// # Errors
    /// When it does not end.
    pub fn get(&mut self, client: usize, key: usize) -> Result<Outcome, String> {
        let timeout = Millis(4000);
        self.begin_call(client, Ask::Get { key, timeout });
        self.outcome(client)
    }

    /// A read that must bring a version.
    ///
    /// # Errors
    /// When it does not.
    pub fn reads(&mut self, client: usize, key: usize, version: Version) -> Played {
        match self.get(client, key)? {
            Outcome::Get(Ok(read)) if read == version => Ok(()),
            other => Err(format!("version {version} was to be read, but: {other:?}")),
        }
    }

    /// A read that must find nothing.
    ///
    /// # Errors
    /// When it does not.
    pub fn misses(&mut self, client: usize, key: usize) -> Played {
        match self.get(client, key)? {
            Outcome::Get(Err(f)) if f.code == Code::ObjectNotFound => Ok(()),
            other => Err(format!("nothing was to be found, but: {other:?}")),
        }
    }

    /// A remove that must be answered with success or 'not there'.
    ///
    /// # Errors
    /// When it is not.
    pub fn removed(&mut self, client: usize) -> Played {
        match self.outcome(client)? {
            Outcome::Removed(Ok(())) => Ok(()),
            Outcome::Removed(Err(f)) if f.code == Code::ObjectNotFound => Ok(()),
            other => Err(format!("the remove ended with {other:?}")),
        }
    }

    /// A client must still be waiting.
    ///
    /// # Errors
    /// When it is not.
    pub fn still_waits(&self, client: usize, why: &str) -> Played {
        let host = &self.world.clients[client];
        if host.is_busy() {
            return Ok(());
        }
        Err(format!("answered too early ({why}): {:?}", host.last))
    }

    /// Keeps messages back.
    pub fn hold(&mut self, filter: impl Fn(Proc, Proc, &Packet) -> bool + 'static) -> u32 {
        self.world.net.hold(filter)
    }

    /// Waits until a hold has caught something.
    ///
    /// # Errors
    /// When it does not.
    pub fn caught(&mut self, hold: u32, what: &str) -> Played {
        self.until(what, |w| w.net.held.iter().any(|(of, _)| *of == hold))
    }

    /// Ends a hold and gives its messages out, undelivered.
    pub fn take(&mut self, hold: u32) -> Vec<Held> {
        self.world.net.release(hold)
    }

    /// Ends a hold and delivers its messages.
    pub fn release(&mut self, hold: u32) {
        for held in self.world.net.release(hold) {
            self.world.deliver(held.from, held.to, held.packet);
        }
    }

    /// Kills the master and starts it again.
    ///
    /// # Errors
    /// A violated property.
    pub fn restart_master(&mut self) -> Played {
        self.world.crash_master();
        self.run(20)?;
        self.world.start_master();
        Ok(())
    }

    /// Cuts a node off from the master, for good or until [`Script::rejoin`].
    pub fn cut_off(&mut self, node: usize) {
        self.world
            .net
            .partition(Proc::Node(node), Proc::Master, Micros::MAX / 2);
        let links: Vec<u64> = self
            .world
            .links
            .iter()
            .filter(|(_, l)| l.node == node)
            .map(|(id, _)| id)
            .collect();
        for link in links {
            self.world.break_link(link);
        }
    }

    /// Ends all partitions.
    pub fn rejoin(&mut self) {
        self.world.net.heal();
    }

    /// The running master's directory and all stores, as they are now.
    pub fn state(&self) -> State {
        State::of(&self.world)
    }

    /// True while a node holds bytes of a version that it would serve.
    pub fn holds(&self, node: usize, version: Version) -> bool {
        let state = self.state();
        state.stores[node].as_ref().is_some_and(|s| {
            let found = s.replicas.iter().find(|r| r.version == version);
            found.is_some_and(|r| r.state.is_served())
        })
    }
}

/// A put of two units to a node.
pub fn put_ask(key: usize, node: usize, mode: PutMode) -> Ask {
    Ask::Put {
        key,
        size: 2 * UNIT,
        mode,
        replicas: 1,
        prefer: Some(node),
        timeout: Millis(9000),
    }
}

/// A report on what a client remembers of a key.
pub fn report_ask(key: usize, fault: Fault) -> Ask {
    Ask::Report { key, fault }
}

/// A numbered message of a node that has an item of this kind.
pub fn batch_with(
    node: usize,
    item: impl Fn(&snowskin_types::link::NodeItem) -> bool,
) -> impl Fn(Proc, Proc, &Packet) -> bool {
    move |from, _, packet| from == Proc::Node(node) && packet.items().iter().any(&item)
}

/// Any numbered message of a node.
pub fn batch_of(node: usize) -> impl Fn(Proc, Proc, &Packet) -> bool {
    move |from, _, packet| {
        from == Proc::Node(node)
            && matches!(
                packet,
                Packet::ToMaster {
                    message: FromNode::Batch { .. },
                    ..
                }
            )
    }
}

/// An answer or an order of the master to a node (pings pass, so that the node stays reachable).
pub fn words_to(node: usize) -> impl Fn(Proc, Proc, &Packet) -> bool {
    move |_, to, packet| {
        to == Proc::Node(node)
            && matches!(
                packet,
                Packet::ToNode {
                    message: ToNode::Ack { .. } | ToNode::Retire { .. } | ToNode::Verify { .. },
                    ..
                }
            )
    }
}

/// An order to retire something, to a node.
pub fn retire_to(node: usize) -> impl Fn(Proc, Proc, &Packet) -> bool {
    move |_, to, packet| {
        to == Proc::Node(node)
            && matches!(
                packet,
                Packet::ToNode {
                    message: ToNode::Retire { .. },
                    ..
                }
            )
    }
}

/// The bytes of a put on their way to a node.
pub fn write_to(node: usize) -> impl Fn(Proc, Proc, &Packet) -> bool {
    move |_, to, packet| to == Proc::Node(node) && matches!(packet, Packet::Write { .. })
}
