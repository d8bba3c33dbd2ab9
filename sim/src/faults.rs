//! What befalls processes and links. Fault model: everything here must be survived without a wrong
//! answer; what may be lost is cached data of a process that died.

use crate::clock::{MS, Micros, SECOND};
use crate::packet::Proc;
use crate::world::{Happening, World};

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A node dies; restarted on its address after a while.
    NodeCrash,
    /// The master dies; restarted on its disk after a while.
    MasterCrash,
    /// A process is stopped for a while, as by SIGSTOP.
    Freeze,
    /// A control link breaks.
    LinkLoss,
    /// Two processes cannot reach each other for a while.
    Partition,
    /// A client dies.
    ClientCrash,
}

const ALL: [Kind; 6] = [
    Kind::NodeCrash,
    Kind::MasterCrash,
    Kind::Freeze,
    Kind::LinkLoss,
    Kind::Partition,
    Kind::ClientCrash,
];

impl World {
    /// Lets faults happen, at the pace of the setup.
    pub fn begin_faults(&mut self) {
        self.faults_on = true;
        for kind in ALL {
            self.post_fault(kind);
        }
    }

    fn pace_of(&self, kind: Kind) -> Micros {
        let pace = self.setup.pace;
        match kind {
            Kind::NodeCrash => pace.node_crash,
            Kind::MasterCrash => pace.master_crash,
            Kind::Freeze => pace.freeze,
            Kind::LinkLoss => pace.link_loss,
            Kind::Partition => pace.partition,
            Kind::ClientCrash => pace.client_crash,
        }
    }

    fn post_fault(&mut self, kind: Kind) {
        let mean = self.pace_of(kind);
        if mean > 0 {
            let delay = self.rng.within(mean / 10, 2 * mean);
            self.post(delay, Happening::Fault(kind));
        }
    }

    pub(crate) fn fault(&mut self, kind: Kind) {
        if !self.faults_on {
            return;
        }
        self.post_fault(kind);
        match kind {
            Kind::NodeCrash => {
                let node = self.rng.index(self.nodes.len());
                self.crash_node(node);
                let away = if self.rng.chance(600) {
                    self.rng.within(1, 300) * MS
                } else {
                    self.rng.within(300, 8000) * MS
                };
                self.post(away, Happening::StartNode(node));
            }
            Kind::MasterCrash => {
                self.crash_master();
                let away = self.rng.within(5, 1500) * MS;
                self.post(away, Happening::StartMaster);
            }
            Kind::Freeze => {
                let proc = self.any_proc();
                let span = if self.rng.chance(500) {
                    self.rng.within(5, 800) * MS
                } else {
                    self.rng.within(800, 13_000) * MS
                };
                let until = self.time + span;
                self.freeze(proc, until);
            }
            Kind::LinkLoss => {
                let open: Vec<u64> = self
                    .links
                    .iter()
                    .filter(|(_, l)| l.open_at_node && l.open_at_master)
                    .map(|(id, _)| id)
                    .collect();
                if !open.is_empty() {
                    let link = open[self.rng.index(open.len())];
                    self.break_link(link);
                }
            }
            Kind::Partition => {
                let a = self.any_proc();
                let b = self.any_proc();
                let span = self.rng.within(50, 9000) * MS;
                if a != b {
                    let until = self.time + span;
                    self.log(|| format!("{a} and {b} are parted until {} ms", until / MS));
                    self.net.partition(a, b, until);
                    // Keep-alives end links over long partitions, at each side by itself.
                    if span > 3 * SECOND {
                        let cut: Vec<u64> = self
                            .links
                            .iter()
                            .filter(|(_, l)| {
                                let node = Proc::Node(l.node);
                                (a, b) == (node, Proc::Master) || (b, a) == (node, Proc::Master)
                            })
                            .map(|(id, _)| id)
                            .collect();
                        for link in cut {
                            let delays = (self.rng.below(span), self.rng.below(span));
                            self.post(delays.0, Happening::LostAtNode(link));
                            self.post(delays.1, Happening::LostAtMaster(link));
                        }
                    }
                }
            }
            Kind::ClientCrash => {
                let client = self.rng.index(self.clients.len());
                self.crash_client(client);
            }
        }
    }

    /// Breaks a control link; each side notices by itself.
    pub fn break_link(&mut self, link: u64) {
        self.log(|| format!("link {link} breaks"));
        let late = |world: &mut World| {
            if world.rng.chance(700) {
                world.rng.within(0, 20) * MS
            } else {
                world.rng.within(20, 3000) * MS
            }
        };
        let delays = (late(self), late(self));
        self.post(delays.0, Happening::LostAtNode(link));
        self.post(delays.1, Happening::LostAtMaster(link));
    }

    fn any_proc(&mut self) -> Proc {
        let all = 1 + self.nodes.len() + self.clients.len();
        match self.rng.index(all) {
            0 => Proc::Master,
            i if i <= self.nodes.len() => Proc::Node(i - 1),
            i => Proc::Client(i - 1 - self.nodes.len()),
        }
    }

    /// Ends all faults, and starts what is dead.
    pub fn heal(&mut self) {
        self.log(|| "all faults end".to_owned());
        self.faults_on = false;
        self.net.heal();
        self.thaw_all();
        self.start_master();
        for node in 0..self.nodes.len() {
            self.start_node(node);
        }
    }
}
