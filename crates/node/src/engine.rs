//! Where events meet the store: one lock, one order.
//!
//! Whoever has an event (a connection, the clock, the master's link, a caller of this process) feeds it on
//! its own thread, and what the store wants done is done before the lock is given up, in order. Nothing
//! under the lock waits: answers are one-shot sends, messages to the master go into a bounded queue
//! whose overflow ends the link, cuts are flags.

use crate::guard::{ReadPin, Stage, Started, Tell, WriteSlot};
use crate::memory::NodeMemory;
use crate::metrics::{Metrics, Tally};
use crate::scrub::{Job, Scrubber};
use parking_lot::{Condvar, Mutex};
use snowskin_runtime::clock::Clock;
use snowskin_runtime::spawn::Cancel;
use snowskin_store::Store;
use snowskin_store::effect::{Counter, Effect, ReadGrant};
use snowskin_store::event::{Event, Filled, LinkId, ReadId, WriteId};
use snowskin_transfer::tcp::endpoint;
use snowskin_types::access::ReadRequest;
use snowskin_types::call::Fault;
use snowskin_types::error::{self, Code, Failure};
use snowskin_types::id::{ClusterId, Session};
use snowskin_types::link::{FromNode, ToNode};
use snowskin_types::object::Place;
use snowskin_types::time::{Millis, Now};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{Notify, mpsc};

/// The store is fed a tick at least this often.
const TICK: Millis = Millis(100);
/// And this often while somebody waits for space, for an answer of the master or for a read to end.
const TICK_WAITING: Millis = Millis(20);

/// The engine's end of the link to the master.
#[derive(Debug)]
struct Outgoing {
    link: LinkId,
    queue: mpsc::Sender<FromNode>,
    end: Cancel,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    effects: Vec<Effect>,
    follow: VecDeque<Event>,
    writes: HashMap<WriteId, WriteSlot>,
    reads: HashMap<ReadId, Cancel>,
    /// What the store says to the read that is being fed.
    verdict: Option<Result<ReadGrant, Failure>>,
    link: Option<Outgoing>,
    scrubber: Option<Scrubber>,
    counters: BTreeMap<Counter, u64>,
    session: Option<Session>,
    sessions_begun: u64,
    cluster: Option<ClusterId>,
    /// When the clock will look at the store next.
    planned: Now,
    closed: bool,
    /// The last word to the master is under way.
    leaving: bool,
    /// An event is being handled; found set, a panic has left the store half-changed.
    busy: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Engine {
    inner: Mutex<Inner>,
    /// Told when a session begins or ends.
    session_changed: Condvar,
    clock_wake: Notify,
    clock: Arc<dyn Clock>,
    memory: NodeMemory,
    place: Place,
    next: AtomicU64,
    failed: Cancel,
    /// Counters of the shell.
    pub(crate) tally: Tally,
}

impl Engine {
    pub(crate) fn new(
        store: Store,
        place: Place,
        memory: NodeMemory,
        scrubber: Scrubber,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Engine {
            inner: Mutex::new(Inner {
                store,
                effects: Vec::new(),
                follow: VecDeque::new(),
                writes: HashMap::new(),
                reads: HashMap::new(),
                verdict: None,
                link: None,
                scrubber: Some(scrubber),
                counters: BTreeMap::new(),
                session: None,
                sessions_begun: 0,
                cluster: None,
                planned: Now(0),
                closed: false,
                leaving: false,
                busy: false,
            }),
            failed: Cancel::new(),
            session_changed: Condvar::new(),
            clock_wake: Notify::new(),
            clock,
            memory,
            place,
            next: AtomicU64::new(1),
            tally: Tally::default(),
        })
    }

    pub(crate) fn memory(&self) -> &NodeMemory {
        &self.memory
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn next_write(&self) -> WriteId {
        WriteId(self.next())
    }

    /// Feeds one event and does all that follows from it.
    pub(crate) fn feed(&self, event: Event) {
        self.feed_locked(&mut self.inner.lock(), event);
    }

    fn feed_locked(&self, inner: &mut Inner, event: Event) {
        if inner.busy {
            self.fail(inner);
        }
        if inner.closed {
            return;
        }
        inner.busy = true;
        let now = self.clock.now();
        let mut event = Some(event);
        while let Some(next) = event {
            inner.store.handle(now, next, &mut inner.effects);
            self.carry_out(inner);
            event = inner.follow.pop_front();
        }
        let session = inner.store.session();
        if session != inner.session {
            inner.session = session;
            inner.sessions_begun += u64::from(session.is_some());
            self.session_changed.notify_all();
        }
        let due = self.due(inner, now);
        if due < inner.planned {
            inner.planned = due;
            self.clock_wake.notify_one();
        }
        inner.busy = false;
    }

    /// Some thread panicked amid an event. What the store says can no longer be trusted.
    fn fail(&self, inner: &mut Inner) {
        inner.busy = false;
        tracing::error!("an internal error: the node serves nothing any more");
        self.end(inner);
        self.failed.cancel();
    }

    /// Cancelled when the node has ended by itself, after an internal error.
    pub(crate) fn failed(&self) -> &Cancel {
        &self.failed
    }

    /// When the clock is to look at the store next.
    fn due(&self, inner: &Inner, now: Now) -> Now {
        let is_waiting = !inner.writes.is_empty() || !inner.reads.is_empty();
        let most = if is_waiting { TICK_WAITING } else { TICK };
        inner.store.next_deadline().min(now + most)
    }

    fn carry_out(&self, inner: &mut Inner) {
        let mut effects = std::mem::take(&mut inner.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Grant { write, extents } => {
                    if let Some(slot) = inner.writes.get_mut(&write) {
                        slot.stage = Stage::Granted;
                        if let Some(start) = slot.start.take() {
                            start.tell(Started::Granted(extents));
                        }
                    }
                }
                Effect::Answer { write, result } => {
                    if let Some(slot) = inner.writes.remove(&write) {
                        match (slot.start, slot.answer) {
                            (Some(start), _) => start.tell(Started::Answered(result)),
                            (None, Some(answer)) => answer.tell(result),
                            (None, None) => {}
                        }
                    }
                }
                Effect::CutWrite { write } => {
                    if let Some(slot) = inner.writes.get(&write) {
                        slot.cut.cancel();
                    }
                }
                Effect::Serve { read: _, grant } => inner.verdict = Some(Ok(grant)),
                Effect::Refuse { read: _, failure } => inner.verdict = Some(Err(failure)),
                Effect::CutRead { read } => {
                    if let Some(cut) = inner.reads.get(&read) {
                        cut.cancel();
                    }
                }
                Effect::Scrub {
                    scrub,
                    shape: _,
                    extents,
                    sums,
                } => {
                    let job = Job {
                        scrub,
                        extents,
                        sums,
                    };
                    let taken = inner.scrubber.as_ref().is_some_and(|s| s.check(job));
                    if !taken {
                        // The queue holds more than the store runs at a time, so this is the end of
                        // the process. Nothing is known of the bytes; their readers verify them.
                        Tally::one(&self.tally.scrubs_skipped);
                        inner
                            .follow
                            .push_back(Event::Scrubbed { scrub, sound: true });
                    }
                }
                Effect::Send { link, message } => self.send(inner, link, message),
                Effect::Close { link } => {
                    if let Some(open) = inner.link.as_ref().filter(|open| open.link == link) {
                        open.end.cancel();
                    }
                }
                Effect::ServeUntil(until) => self.memory.serve_until(until),
                Effect::Count { counter, by } => {
                    *inner.counters.entry(counter).or_default() += by;
                }
            }
        }
        inner.effects = effects;
    }

    fn send(&self, inner: &mut Inner, link: LinkId, message: FromNode) {
        let Some(open) = inner.link.as_ref().filter(|open| open.link == link) else {
            return;
        };
        if open.end.is_cancelled() {
            return;
        }
        if open.queue.try_send(message).is_err() {
            // A gap in the numbered messages would be found only by their time-outs.
            Tally::one(&self.tally.link_overflows);
            open.end.cancel();
        }
    }

    // Writes.

    pub(crate) fn begin_write(&self, write: WriteId, slot: WriteSlot, start: Event) {
        let mut inner = self.inner.lock();
        if inner.closed {
            if let Some(start) = slot.start {
                start.tell(Started::Answered(Err(self.stopping(error::Stage::Write))));
            }
            return;
        }
        inner.writes.insert(write, slot);
        self.feed_locked(&mut inner, start);
    }

    pub(crate) fn end_write(
        &self,
        write: WriteId,
        filled: Filled,
        answer: Tell<Result<(), Failure>>,
    ) {
        let mut inner = self.inner.lock();
        let Some(slot) = inner.writes.get_mut(&write) else {
            if inner.closed {
                answer.tell(Err(self.stopping(error::Stage::Write)));
            }
            return;
        };
        slot.stage = Stage::Filled;
        slot.answer = Some(answer);
        self.feed_locked(&mut inner, Event::WriteEnd { write, filled });
        if filled == Filled::Broken {
            // Unless it had been cut, a broken write gets no answer.
            inner.writes.remove(&write);
        }
    }

    /// Whoever had this write has gone.
    pub(crate) fn drop_write(&self, write: WriteId) {
        let mut inner = self.inner.lock();
        let Some(slot) = inner.writes.remove(&write) else {
            return;
        };
        let event = match slot.stage {
            Stage::Waiting | Stage::Filled => Event::WriterGone { write },
            Stage::Granted => Event::WriteEnd {
                write,
                filled: Filled::Broken,
            },
        };
        self.feed_locked(&mut inner, event);
    }

    // Reads.

    /// Pins what a read asks for, or says why not.
    pub(crate) fn start_read(self: &Arc<Self>, request: ReadRequest) -> Result<ReadPin, Failure> {
        let read = ReadId(self.next());
        let cut = Cancel::new();
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(self.stopping(error::Stage::Read));
        }
        inner.verdict = None;
        self.feed_locked(&mut inner, Event::ReadStart { read, request });
        match inner.verdict.take() {
            Some(Ok(grant)) => {
                inner.reads.insert(read, cut.clone());
                Ok(ReadPin {
                    engine: Arc::clone(self),
                    read,
                    grant: endpoint::ReadGrant {
                        shape: grant.shape,
                        offset: grant.offset,
                        len: grant.len,
                        extents: grant.extents,
                        sums: grant.sums,
                    },
                    cut,
                })
            }
            Some(Err(failure)) => Err(failure),
            None => {
                self.feed_locked(&mut inner, Event::ReadEnd { read });
                let text = "the store said nothing to a read";
                Err(Failure::new(Code::Internal, error::Stage::Read, text))
            }
        }
    }

    pub(crate) fn end_read(&self, read: ReadId) {
        let mut inner = self.inner.lock();
        inner.reads.remove(&read);
        self.feed_locked(&mut inner, Event::ReadEnd { read });
    }

    /// Stored bytes were found without their checksum: has the store check them, as if the master
    /// had passed a reader's report on.
    pub(crate) fn found_damaged(&self, request: &ReadRequest) {
        Tally::one(&self.tally.damage_found);
        let mut inner = self.inner.lock();
        let (Some(session), Some(open)) = (inner.session, &inner.link) else {
            // Without a session nothing could be done about it; the next reader finds it again.
            return;
        };
        let message = ToNode::Verify {
            session,
            items: vec![(request.name.clone(), request.version, Fault::Bad)],
        };
        let link = open.link;
        self.feed_locked(&mut inner, Event::Master { link, message });
    }

    // The link to the master.

    /// A connection to the master is open. What the store sends goes into `queue`; `end` is
    /// cancelled when the connection is to be closed.
    pub(crate) fn link_up(&self, queue: mpsc::Sender<FromNode>, end: Cancel) -> LinkId {
        let link = LinkId(self.next());
        let mut inner = self.inner.lock();
        if inner.closed {
            end.cancel();
            return link;
        }
        if let Some(old) = inner.link.replace(Outgoing { link, queue, end }) {
            old.end.cancel();
        }
        self.feed_locked(&mut inner, Event::LinkUp { link });
        link
    }

    /// A message of the master.
    pub(crate) fn take(&self, link: LinkId, message: ToNode) {
        let mut inner = self.inner.lock();
        let cluster = match &message {
            ToNode::Registered { cluster, .. } => Some(*cluster),
            _ => None,
        };
        self.feed_locked(&mut inner, Event::Master { link, message });
        // A registration that the store does not accept teaches nothing.
        if cluster.is_some() && inner.session.is_some() {
            inner.cluster = cluster;
        }
    }

    pub(crate) fn link_lost(&self, link: LinkId) {
        let mut inner = self.inner.lock();
        self.feed_locked(&mut inner, Event::LinkLost { link });
        inner.link.take_if(|open| open.link == link);
    }

    /// The cluster that registered this node, in any session of its life.
    pub(crate) fn cluster(&self) -> Option<ClusterId> {
        self.inner.lock().cluster
    }

    pub(crate) fn session(&self) -> Option<Session> {
        self.inner.lock().session
    }

    /// Sessions that there have been.
    pub(crate) fn sessions_begun(&self) -> u64 {
        self.inner.lock().sessions_begun
    }

    /// Why the master refused the last registration, and whether another try may succeed.
    pub(crate) fn refusal(&self) -> Option<(Failure, bool)> {
        self.inner.lock().store.refusal().cloned()
    }

    /// Waits on the calling thread until there is a session; false at the deadline, or when `stop`
    /// says so. [`Engine::wake_waiting`] has it look at once.
    pub(crate) fn wait_registered(&self, deadline: Instant, stop: impl Fn() -> bool) -> bool {
        let mut inner = self.inner.lock();
        while inner.session.is_none() && !stop() {
            let now = Instant::now();
            if now >= deadline {
                break;
            }
            let look = deadline.min(now + TICK.duration());
            self.session_changed.wait_until(&mut inner, look);
        }
        inner.session.is_some()
    }

    pub(crate) fn wake_waiting(&self) {
        // With the lock, so that nobody is between looking and waiting.
        let _inner = self.inner.lock();
        self.session_changed.notify_all();
    }

    // The clock.

    /// Feeds ticks until the task is dropped.
    pub(crate) async fn drive(&self) {
        loop {
            let (due, wait) = {
                let mut inner = self.inner.lock();
                let now = self.clock.now();
                inner.planned = self.due(&inner, now);
                // A moment that has just passed is looked at after a breath, not in a spin.
                (inner.planned, now.until(inner.planned).max(Millis(1)))
            };
            if due == Now(0) {
                // Work in slices: everything that is ready meanwhile goes first.
                tokio::task::yield_now().await;
            } else {
                tokio::select! {
                    () = self.clock_wake.notified() => continue,
                    () = tokio::time::sleep(wait.duration()) => {}
                }
            }
            self.feed(Event::Tick);
        }
    }

    /// Ends everything: whoever waits is answered, nothing more is taken.
    pub(crate) fn close(&self) {
        self.end(&mut self.inner.lock());
    }

    /// True when the master is being told of the end.
    pub(crate) fn is_leaving(&self) -> bool {
        self.inner.lock().leaving
    }

    /// True once everything has been ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }

    fn end(&self, inner: &mut Inner) {
        inner.closed = true;
        inner.scrubber = None;
        let session = inner.session.take();
        let link = inner.link.take();
        for (_, slot) in inner.writes.drain() {
            slot.cut.cancel();
            let refused = || Err(self.stopping(error::Stage::Write));
            match (slot.start, slot.answer) {
                (Some(start), _) => start.tell(Started::Answered(refused())),
                (None, Some(answer)) => answer.tell(refused()),
                (None, None) => {}
            }
        }
        for (_, cut) in inner.reads.drain() {
            cut.cancel();
        }
        self.session_changed.notify_all();
        // Readers of the same host must not believe a node that has gone.
        self.memory.serve_until(Now(0));
        // Only now is it true that nothing is served: the master may be told. It closes the link then.
        if let Some(link) = link {
            let leave = session.map(|session| FromNode::Leave { session });
            let told = leave.is_some_and(|leave| link.queue.try_send(leave).is_ok());
            inner.leaving = told;
            if !told {
                link.end.cancel();
            }
        }
    }

    pub(crate) fn stopping(&self, stage: error::Stage) -> Failure {
        let text = "the node is stopping";
        Failure::new(Code::UnavailableInStatus, stage, text).with_peer(&*self.place.address)
    }

    /// Fills in what the engine knows.
    pub(crate) fn measure(&self, metrics: &mut Metrics) {
        let inner = self.inner.lock();
        let usage = inner.store.usage();
        metrics.used_bytes = usage.used;
        metrics.capacity_bytes = usage.capacity;
        metrics.largest_free_bytes = usage.largest_free;
        metrics.leased_bytes = usage.leased;
        metrics.pinned_bytes = usage.pinned;
        metrics.unfinished_bytes = usage.unfinished;
        metrics.replicas = usage.replicas;
        metrics.reads_under_way = usage.reads;
        metrics.writes_waiting = usage.waiting;
        metrics.writes_under_way = inner.writes.len() as u64;
        metrics.session = inner.session;
        metrics.is_inventoried = inner.store.is_inventoried();
        metrics.is_serving = !inner.closed && self.clock.now() < inner.store.serving_until();
        metrics.policy = inner.store.policy_text();
        let counters = inner.counters.iter();
        metrics.store = counters
            .map(|(counter, value)| (*counter, *value))
            .collect();
        drop(inner);
        metrics.shell = self.tally.snapshot();
    }
}
