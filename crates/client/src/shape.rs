//! Three shapes of one client: thin, joined with a node in this process, and a whole pool embedded
//! in it. They differ in what questions and bytes travel through, and in nothing else.

use crate::client::{Client, Wiring, unique_id};
use crate::config::Config;
use crate::control::TcpMaster;
use crate::counters::Counters;
use crate::data::local::LocalTransport;
use crate::data::routed::RoutedTransport;
use crate::port::{Answer, MasterPort};
use snowskin_runtime::clock::{Clock, SystemClock};
use snowskin_transfer::transport::Transport;
use snowskin_types::call::{Reply, Request};
use snowskin_types::link::FromNode;
use snowskin_types::object::Place;
use snowskin_types::{ClientId, Code, Failure, Millis, Now, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What a client has running beside its calls; nothing for a thin one.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    // Nodes stop before the master that they talk to.
    nodes: Vec<snowskin_node::Running>,
    master: Option<snowskin_master::Running>,
}

impl Parts {
    /// Stops nodes and master and joins their threads.
    pub(crate) fn stop(self) -> Result<(), Failure> {
        let mut result = Ok(());
        for node in self.nodes {
            let end = node.shutdown().map_err(|e| internal(e.to_string()));
            result = result.and(end);
        }
        if let Some(master) = self.master {
            let end = master.shutdown().map_err(|e| internal(e.to_string()));
            result = result.and(end);
        }
        result
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        let nodes = self.nodes.iter();
        nodes.map(|node| node.handle().place().clone()).collect()
    }

    pub(crate) fn metrics(&self) -> Vec<snowskin_node::Metrics> {
        self.nodes
            .iter()
            .map(snowskin_node::Running::metrics)
            .collect()
    }

    fn own(
        &self,
    ) -> Vec<(
        (snowskin_types::NodeId, snowskin_types::Epoch),
        Arc<dyn Transport>,
    )> {
        let nodes = self.nodes.iter().map(|node| {
            let handle = node.handle();
            let place = handle.place();
            let who = (place.node, place.epoch);
            let way: Arc<dyn Transport> = Arc::new(LocalTransport::new(handle));
            (who, way)
        });
        nodes.collect()
    }
}

/// What every shape begins with.
struct Base {
    id: ClientId,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    deadline: Now,
}

impl Base {
    fn new(config: &Config) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Ok(Base {
            id: unique_id()?,
            deadline: clock.now() + Millis::from(config.connect_timeout),
            clock,
            counters: Arc::default(),
        })
    }

    fn connect(&self, config: &Config) -> Result<Arc<dyn MasterPort>, Failure> {
        let master = TcpMaster::connect(
            config,
            self.id,
            Arc::clone(&self.clock),
            Arc::clone(&self.counters),
            self.deadline,
        )?;
        Ok(Arc::new(master))
    }
}

impl Client {
    /// Connects to the master, trying again until `config.connect_timeout`.
    ///
    /// # Errors
    /// `INVALID_PARAMS` for settings that cannot work; at the deadline the reason of the last
    /// attempt: the name does not resolve, the address refuses, or it does not answer.
    pub fn connect(config: &Config) -> Result<Client, Failure> {
        config.check()?;
        let base = Base::new(config)?;
        let master = base.connect(config)?;
        let transport = crate::data::tcp(config, base.id, &base.clock)?;
        let wiring = Wiring {
            id: base.id,
            clock: base.clock,
            counters: base.counters,
            master,
            transport,
            prefer: None,
            parts: Parts::default(),
        };
        Ok(Client::wire(config, wiring))
    }

    /// Connects to the master and adds a node of this process to its pool. Puts and gets that land
    /// in it are memory copies. The node's master and token are those of `config`.
    ///
    /// Blocks until the master answers (`config.connect_timeout`) and the node is registered (its own
    /// ready time-out); must not be called on a thread that drives a runtime.
    ///
    /// # Errors
    /// As [`Client::connect`], or why the node cannot be started.
    pub fn join(config: &Config, mut node: snowskin_node::Config) -> Result<Client, Failure> {
        config.check()?;
        let base = Base::new(config)?;
        // First, since its failures say best what is wrong with the master's address.
        let master = base.connect(config)?;
        node.master = snowskin_node::Master::Remote(config.master.clone());
        node.token = config.token.clone();
        let running = snowskin_node::Node::start(node).map_err(not_started)?;
        let parts = Parts {
            nodes: vec![running],
            master: None,
        };
        let remote = crate::data::tcp(config, base.id, &base.clock)?;
        let own = parts.own();
        let wiring = Wiring {
            id: base.id,
            clock: base.clock,
            counters: base.counters,
            master,
            prefer: own.first().map(|((node, _), _)| *node),
            transport: Arc::new(RoutedTransport {
                own,
                remote: Some(remote),
            }),
            parts,
        };
        Ok(Client::wire(config, wiring))
    }

    /// Starts a whole pool in this process: a directory, nodes, and this client, all without ports.
    /// Addresses and tokens in the configurations have no meaning then.
    ///
    /// # Errors
    /// Why one of them cannot be started.
    pub fn embed(
        config: &Config,
        master: &snowskin_master::Config,
        nodes: Vec<snowskin_node::Config>,
    ) -> Result<Client, Failure> {
        config.check_bounds()?;
        if nodes.is_empty() {
            let text = "an embedded pool needs at least one node";
            return Err(Failure::new(Code::InvalidParams, Stage::Session, text));
        }
        let base = Base::new(config)?;
        let master = snowskin_master::Master::embedded(master)
            .map_err(|error| refused(error.to_string()))?;
        let mut parts = Parts {
            nodes: Vec::with_capacity(nodes.len()),
            master: None,
        };
        let handle = master.handle();
        // From here on an error drops what has been started, nodes first.
        parts.master = Some(master);
        for mut node in nodes {
            node.master = snowskin_node::Master::InProcess(Arc::new(NodesMaster(handle.clone())));
            node.listening = snowskin_node::Listening::None;
            let running = snowskin_node::Node::start(node).map_err(not_started)?;
            parts.nodes.push(running);
        }
        let own = parts.own();
        let wiring = Wiring {
            id: base.id,
            master: Arc::new(InProcessMaster {
                handle,
                clock: Arc::clone(&base.clock),
                closed: AtomicBool::new(false),
            }),
            clock: base.clock,
            counters: base.counters,
            prefer: None,
            transport: Arc::new(RoutedTransport { own, remote: None }),
            parts,
        };
        Ok(Client::wire(config, wiring))
    }
}

/// The embedded master, as a client sees it.
struct InProcessMaster {
    handle: snowskin_master::Handle,
    clock: Arc<dyn Clock>,
    closed: AtomicBool,
}

impl MasterPort for InProcessMaster {
    fn call(&self, request: Request, deadline: Now) -> Result<Answer, Failure> {
        if self.closed.load(Ordering::Acquire) {
            let text = "the client is closed";
            return Err(Failure::new(
                Code::UnavailableInStatus,
                Stage::Session,
                text,
            ));
        }
        let sent = self.clock.now();
        let until = Instant::now() + self.clock.left(deadline);
        match self.handle.call(request, until) {
            Reply::Failed(failure) => Err(failure),
            reply => Ok(Answer {
                reply,
                sent,
                repeated: false,
            }),
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// The embedded master, as its nodes see it.
#[derive(Debug)]
struct NodesMaster(snowskin_master::Handle);

impl snowskin_node::LocalMaster for NodesMaster {
    fn open(&self, sink: snowskin_node::LinkSink) -> Box<dyn snowskin_node::LocalLink> {
        Box::new(NodesLink(self.0.node_link_into(sink)))
    }
}

struct NodesLink(snowskin_master::NodeLink);

impl snowskin_node::LocalLink for NodesLink {
    fn send(&self, message: FromNode) -> bool {
        self.0.send(message).is_ok()
    }
}

fn internal(text: String) -> Failure {
    Failure::new(Code::Internal, Stage::Session, text)
}

fn refused(text: String) -> Failure {
    Failure::new(Code::InvalidParams, Stage::Session, text)
}

fn not_started(error: snowskin_node::StartError) -> Failure {
    use snowskin_node::StartError;
    match error {
        StartError::Unreachable { ref last, .. } => {
            let mut failure = last.failure(Stage::Session);
            failure.message = error.to_string();
            failure
        }
        StartError::Refused { failure, .. } => *failure,
        StartError::NoMaster { .. } | StartError::Late { .. } => {
            Failure::new(Code::RpcTimeout, Stage::Session, error.to_string())
        }
        other => refused(other.to_string()),
    }
}
