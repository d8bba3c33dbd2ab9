//! Where events meet the directory: one lock, one order.
//!
//! Whoever has an event (a connection, the clock, the state directory's writer, a caller in the same process)
//! feeds it here on its own thread and carries out what the directory says before the lock is given up.
//! Nothing under the lock waits: sends go to bounded buffers, durable writes to the writer's queue.

use crate::answer::{Origin, Slot, closed, deliver, late, stage_of};
use crate::connection::LARGE_FRAMES_MAX;
use crate::journal::{Handed, Journal};
use crate::ledger::{Account, Ledger};
use crate::links::{Link, LinkEnd};
use crate::metrics::Tally;
use crate::outbox::Refusal;
use parking_lot::Mutex;
use snowskin_directory::directory::Directory;
use snowskin_directory::effect::Effect;
use snowskin_directory::event::{Event, LinkId, PersistId, RequestId};
use snowskin_directory::gauges::Gauges;
use snowskin_runtime::clock::{Clock, SystemClock};
use snowskin_runtime::telemetry::Seldom;
use snowskin_types::call::{PutMode, Reply, Request};
use snowskin_types::error::Stage;
use snowskin_types::link::{FromNode, ToNode};
use snowskin_types::{ClusterId, Code, Failure, Millis, Now, Term};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{Notify, Semaphore, oneshot};

/// The directory is fed a tick at least this often.
const TICK: Millis = Millis(100);
/// Longest that the master itself waits for an answer of its directory. Clients keep shorter
/// deadlines of their own; this bounds what is kept for those that have lost interest.
pub(crate) const REQUEST_TIMEOUT: Millis = Millis(60_000);

/// Requests not answered yet, of all connections together.
const WAITING_MAX: usize = 262_144;
/// Deadlines of answered requests that are kept before they are cleared out.
const DEADLINES_SLACK: usize = 4_096;

struct Waiting {
    account: Account,
    origin: Origin,
    stage: Stage,
    kept_until: Now,
}

struct Inner {
    core: Directory,
    effects: Vec<Effect>,
    follow: VecDeque<Event>,
    waiting: HashMap<RequestId, Waiting>,
    deadlines: BinaryHeap<Reverse<(Now, RequestId)>>,
    links: HashMap<LinkId, Link>,
    journal: Option<Journal>,
    ledger: Ledger,
    poisoned: bool,
    closed: bool,
    /// Connected processes, with the number of their connections.
    processes: HashMap<u64, u32>,
}

/// What a scrape reads in one go.
pub(crate) struct Figures {
    pub(crate) ledger: Ledger,
    pub(crate) gauges: Gauges,
    pub(crate) clients: u64,
    pub(crate) under_way: u64,
    pub(crate) poisoned: bool,
    pub(crate) ready: bool,
}

/// See the module.
pub(crate) struct Hub {
    inner: Mutex<Inner>,
    driver: Notify,
    more: AtomicBool,
    clock: SystemClock,
    next_request: AtomicU64,
    next_link: AtomicU64,
    /// Counters of sockets and threads.
    pub(crate) tally: Tally,
    /// Tells of connections that were refused.
    pub(crate) strangers: Seldom,
    /// Permits to receive a large frame.
    pub(crate) large_frames: Semaphore,
    /// The cluster.
    pub(crate) cluster: ClusterId,
    /// The leadership.
    pub(crate) term: Term,
}

impl Hub {
    /// Takes the restored directory over.
    pub(crate) fn new(
        cluster: ClusterId,
        term: Term,
        core: Directory,
        first: Vec<Effect>,
    ) -> Arc<Self> {
        let hub = Hub {
            inner: Mutex::new(Inner {
                core,
                effects: first,
                follow: VecDeque::new(),
                waiting: HashMap::new(),
                deadlines: BinaryHeap::new(),
                links: HashMap::new(),
                journal: None,
                ledger: Ledger::default(),
                poisoned: false,
                closed: false,
                processes: HashMap::new(),
            }),
            driver: Notify::new(),
            more: AtomicBool::new(false),
            clock: SystemClock,
            next_request: AtomicU64::new(1),
            next_link: AtomicU64::new(1),
            tally: Tally::default(),
            strangers: Seldom::default(),
            large_frames: Semaphore::new(LARGE_FRAMES_MAX),
            cluster,
            term,
        };
        Arc::new(hub)
    }

    /// Gives the hub its way to the state directory and carries out what the directory began with.
    pub(crate) fn begin(&self, journal: Option<Journal>) {
        let mut inner = self.inner.lock();
        inner.journal = journal;
        self.carry_out(&mut inner);
        self.settle(&mut inner);
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    /// Takes a request; its answer goes to `origin`, maybe before this returns.
    ///
    /// # Errors
    /// When the connection may not have one more under way, or has one of this number.
    pub(crate) fn request(&self, origin: Origin, request: Request) -> Result<RequestId, Refusal> {
        self.request_within(origin, request, REQUEST_TIMEOUT)
    }

    /// As [`Hub::request`], answered with `RPC_TIMEOUT` when `timeout` has passed.
    pub(crate) fn request_within(
        &self,
        origin: Origin,
        request: Request,
        timeout: Millis,
    ) -> Result<RequestId, Refusal> {
        let id = RequestId(self.next_request.fetch_add(1, Ordering::Relaxed));
        if let Origin::Connection(outbox, wire) = &origin {
            outbox.begin(*wire, id)?;
        }
        let mut inner = self.inner.lock();
        let waiting = Waiting {
            account: Account::of(&request),
            origin,
            stage: stage_of(&request),
            kept_until: self.now() + timeout.min(REQUEST_TIMEOUT),
        };
        inner.ledger.begin(&waiting.account);
        if let Some(failure) = refused_now(&inner, &request) {
            answer(&mut inner.ledger, waiting, Reply::Failed(failure));
            return Ok(id);
        }
        inner.waiting.insert(id, waiting);
        self.feed(&mut inner, Event::Request { id, request });
        if let Some(waiting) = inner.waiting.get(&id) {
            let due = waiting.kept_until;
            inner.deadlines.push(Reverse((due, id)));
        }
        self.settle(&mut inner);
        Ok(id)
    }

    /// Asks and waits as a task; the answer is `RPC_TIMEOUT` when `timeout` has passed.
    pub(crate) async fn ask(&self, request: Request, timeout: Millis) -> Reply {
        let stage = stage_of(&request);
        let (tell, told) = oneshot::channel();
        if self
            .request_within(Origin::Task(tell), request, timeout)
            .is_err()
        {
            return Reply::Failed(Failure::new(
                Code::Internal,
                stage,
                "the request was not taken",
            ));
        }
        // The hub answers every request, also those whose deadline passes; the timer is the second line.
        match tokio::time::timeout(timeout.duration() + TICK.duration() * 2, told).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) | Err(_) => Reply::Failed(late(stage)),
        }
    }

    /// Asks and waits as a thread until `deadline`.
    pub(crate) fn call(&self, request: Request, deadline: Instant) -> Reply {
        let stage = stage_of(&request);
        let slot = Arc::new(Slot::default());
        let Ok(id) = self.request(Origin::Thread(slot.clone()), request) else {
            return Reply::Failed(Failure::new(
                Code::Internal,
                stage,
                "the request was not taken",
            ));
        };
        if let Some(reply) = slot.wait(deadline) {
            return reply;
        }
        self.give_up(id);
        // The answer may have come between the two.
        slot.wait(deadline)
            .unwrap_or_else(|| Reply::Failed(late(stage)))
    }

    /// The asker no longer waits.
    pub(crate) fn give_up(&self, id: RequestId) {
        let mut inner = self.inner.lock();
        if let Some(waiting) = inner.waiting.remove(&id) {
            inner.ledger.missed(&waiting.account);
            self.feed(&mut inner, Event::Abandon { id });
            self.settle(&mut inner);
        }
    }

    /// The asker's connection has ended.
    pub(crate) fn orphan(&self, ids: &[RequestId]) {
        let mut inner = self.inner.lock();
        for &id in ids {
            if inner.waiting.remove(&id).is_some() {
                self.feed(&mut inner, Event::Abandon { id });
            }
        }
        self.settle(&mut inner);
    }

    /// Opens a link of a node.
    pub(crate) fn open_link(&self, end: LinkEnd) -> LinkId {
        let link = LinkId(self.next_link.fetch_add(1, Ordering::Relaxed));
        let mut inner = self.inner.lock();
        if inner.closed {
            end.end();
        } else {
            inner.links.insert(link, Link::new(end));
        }
        link
    }

    /// Takes a node's message; false when the link has ended.
    pub(crate) fn take_message(&self, link: LinkId, message: FromNode) -> bool {
        let mut inner = self.inner.lock();
        let Inner { links, ledger, .. } = &mut *inner;
        let Some(open) = links.get_mut(&link) else {
            return false;
        };
        open.take(&message, ledger);
        self.feed(&mut inner, Event::Node { link, message });
        self.settle(&mut inner);
        inner.links.contains_key(&link)
    }

    /// A node's link has ended on its side.
    pub(crate) fn link_lost(&self, link: LinkId) {
        let mut inner = self.inner.lock();
        let known = inner.links.remove(&link).is_some();
        if known && !inner.closed {
            self.feed(&mut inner, Event::LinkLost { link });
            self.settle(&mut inner);
        }
    }

    /// Durable writes have ended.
    pub(crate) fn persisted(&self, ids: &[PersistId], done: bool) {
        let written = if done {
            &self.tally.persisted
        } else {
            &self.tally.persist_failed
        };
        written.fetch_add(ids.len() as u64, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        inner.poisoned |= !done;
        for &id in ids {
            self.feed(&mut inner, Event::Persisted { id, done });
        }
        self.settle(&mut inner);
    }

    /// A process has connected (`true`) or one of its connections has ended.
    pub(crate) fn presence(&self, process: u64, here: bool) {
        let mut inner = self.inner.lock();
        let connections = inner.processes.entry(process).or_default();
        *connections = if here {
            *connections + 1
        } else {
            connections.saturating_sub(1)
        };
        if *connections == 0 {
            inner.processes.remove(&process);
        }
    }

    /// What a scrape shows.
    pub(crate) fn figures(&self) -> Figures {
        let inner = self.inner.lock();
        Figures {
            ledger: inner.ledger.clone(),
            gauges: inner.core.gauges(),
            clients: inner.processes.len() as u64,
            under_way: inner.waiting.len() as u64,
            poisoned: inner.poisoned,
            ready: inner.core.ready() && !inner.closed,
        }
    }

    /// True once look-ups of unknown keys are answered at once.
    pub(crate) fn ready(&self) -> bool {
        let inner = self.inner.lock();
        inner.core.ready() && !inner.closed
    }

    /// Answers everything that waits, ends all links and takes nothing more.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        let waiting = std::mem::take(&mut inner.waiting);
        for (_, waiting) in waiting {
            let stage = waiting.stage;
            answer(&mut inner.ledger, waiting, Reply::Failed(closed(stage)));
        }
        for (_, link) in inner.links.drain() {
            link.end.end();
        }
        inner.journal = None;
    }

    /// Feeds the clock until the task is dropped.
    pub(crate) async fn drive(&self) {
        loop {
            let wait = self.plan();
            tokio::select! {
                () = self.driver.notified() => {}
                () = tokio::time::sleep(wait.duration()) => self.tick(),
            }
            while self.more.swap(false, Ordering::Relaxed) {
                // Everything that is ready meanwhile goes first: big jobs wait, pings do not.
                tokio::task::yield_now().await;
                self.tick();
            }
        }
    }

    fn plan(&self) -> Millis {
        let inner = self.inner.lock();
        let now = self.now();
        let first = inner
            .deadlines
            .peek()
            .map_or(Now::NEVER, |Reverse((due, _))| *due);
        let due = inner.core.next_deadline().min(first).min(now + TICK);
        // A moment that has just passed is looked at after a breath, not in a spin.
        now.until(due).max(Millis(1))
    }

    fn tick(&self) {
        let mut inner = self.inner.lock();
        if inner.closed {
            return;
        }
        let now = self.now();
        while let Some(&Reverse((due, id))) = inner.deadlines.peek()
            && due <= now
        {
            inner.deadlines.pop();
            if let Some(waiting) = inner.waiting.remove(&id) {
                inner.ledger.missed(&waiting.account);
                let stage = waiting.stage;
                deliver(waiting.origin, Reply::Failed(late(stage)), stage);
                self.feed(&mut inner, Event::Abandon { id });
            }
        }
        self.feed(&mut inner, Event::Tick);
        self.settle(&mut inner);
    }

    fn feed(&self, inner: &mut Inner, event: Event) {
        if inner.closed {
            return;
        }
        let now = self.now();
        inner.core.handle(now, event, &mut inner.effects);
        self.carry_out(inner);
        while let Some(event) = inner.follow.pop_front() {
            inner.core.handle(now, event, &mut inner.effects);
            self.carry_out(inner);
        }
    }

    fn carry_out(&self, inner: &mut Inner) {
        let mut effects = std::mem::take(&mut inner.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Reply { id, reply } => {
                    if let Some(waiting) = inner.waiting.remove(&id) {
                        answer(&mut inner.ledger, waiting, reply);
                    }
                }
                Effect::Send { link, message } => send(inner, link, message),
                Effect::Close { link } => {
                    if let Some(link) = inner.links.remove(&link) {
                        link.end.end();
                    }
                }
                Effect::Persist { id, record } => {
                    let handed = inner.journal.as_ref().map(|j| j.write(id, record));
                    let written = match handed {
                        Some(Handed::Over) => continue,
                        Some(failed) => {
                            Tally::one(&self.tally.persist_failed);
                            inner.poisoned |= failed == Handed::Ended;
                            false
                        }
                        // Without a directory there is nothing that could outlive the process.
                        None => true,
                    };
                    inner
                        .follow
                        .push_back(Event::Persisted { id, done: written });
                }
                Effect::Continue => self.more.store(true, Ordering::Relaxed),
                Effect::Count { counter, by } => inner.ledger.count(counter, by),
            }
        }
        inner.effects = effects;
    }

    /// Wakes the driver when there is more to do now. Timers that were set meanwhile are seen at its next
    /// look, at most a tick away.
    fn settle(&self, inner: &mut Inner) {
        if self.more.load(Ordering::Relaxed) {
            self.driver.notify_one();
        }
        if inner.deadlines.len() > 2 * inner.waiting.len() + DEADLINES_SLACK {
            let Inner {
                deadlines, waiting, ..
            } = inner;
            deadlines.retain(|Reverse((_, id))| waiting.contains_key(id));
        }
    }
}

fn send(inner: &mut Inner, id: LinkId, message: ToNode) {
    let Inner {
        links,
        ledger,
        follow,
        ..
    } = inner;
    if let Some(link) = links.get_mut(&id)
        && !link.send(message, ledger)
    {
        if let Some(link) = links.remove(&id) {
            link.end.end();
        }
        follow.push_back(Event::LinkLost { link: id });
    }
}

fn answer(ledger: &mut Ledger, waiting: Waiting, reply: Reply) {
    ledger.end(&waiting.account, &reply);
    deliver(waiting.origin, reply, waiting.stage);
}

/// What is refused without asking the directory.
fn refused_now(inner: &Inner, request: &Request) -> Option<Failure> {
    let stage = stage_of(request);
    if inner.closed {
        return Some(closed(stage));
    }
    if inner.waiting.len() >= WAITING_MAX {
        let text = format!("{WAITING_MAX} requests wait for their answers; try again later");
        return Some(Failure::new(Code::UnavailableInStatus, stage, text));
    }
    let changes = match request {
        Request::Remove { .. } | Request::RemoveMany { .. } => true,
        Request::Reserve { items, .. } => items.iter().any(|i| i.mode == PutMode::Replace),
        _ => false,
    };
    (changes && inner.poisoned).then(|| {
        Failure::new(
            Code::PersistentFail,
            stage,
            "the master's state directory cannot be written: removes and replaces are refused until it is \
             restarted on a sound one",
        )
    })
}

#[cfg(test)]
mod tests;
