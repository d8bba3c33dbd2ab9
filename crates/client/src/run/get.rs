//! Runs a plan of gets.

use crate::buffer::Target;
use crate::context::{Context, Deadline};
use crate::plan::get::{Event, Get, Got, ReadDone, Step};
use crate::plan::{CallId, Ticket};
use crate::port::unexpected;
use crate::run::Live;
use snowskin_memory::slices::TargetSlices;
use snowskin_transfer::transport::{Batch, Completion, Movement, Operation, ReadFrom};
use snowskin_types::access::ReadRequest;
use snowskin_types::call::{Keys, Reply, Request};
use snowskin_types::limits::data_timeout;
use snowskin_types::object::Place;
use snowskin_types::{Code, Failure, Millis, Stage, Tenant};
use std::collections::VecDeque;

/// A read that is to be started.
struct Read {
    ticket: Ticket,
    item: usize,
    place: Place,
    request: ReadRequest,
    len: u64,
}

/// A question to the master that is to be asked when no transfer is under way.
enum Question {
    Locate(CallId, Keys),
    Report(Step),
}

struct Run<'c> {
    context: &'c Context,
    tenant: Tenant,
    lease: Option<Millis>,
    deadline: Deadline,
    bytes: u64,
    plan: Get,
    out: Vec<Step>,
    questions: VecDeque<Question>,
    reads: Vec<Read>,
    aborted: Vec<Ticket>,
    results: Vec<Option<Result<Got, Failure>>>,
}

/// Carries a plan out; `targets` has one entry for each of its items. When it returns, nothing
/// touches a target any more.
pub(crate) fn run(
    context: &Context,
    tenant: Tenant,
    lease: Option<Millis>,
    deadline: Deadline,
    plan: Get,
    targets: &mut [Target<'_>],
) -> Vec<Result<Got, Failure>> {
    let mut run = Run {
        context,
        tenant,
        lease,
        deadline,
        bytes: 0,
        plan,
        out: Vec::new(),
        questions: VecDeque::new(),
        reads: Vec::new(),
        aborted: Vec::new(),
        results: targets.iter().map(|_| None).collect(),
    };
    run.feed(Event::Start);
    loop {
        if !run.reads.is_empty() {
            run.transfer(targets);
        } else if let Some(question) = run.questions.pop_front() {
            run.ask(question);
        } else if run.plan.is_done() {
            break;
        } else {
            context.pause(run.plan.wake());
            if context.check_open().is_err() {
                run.plan.hasten(context.now());
            }
            run.feed(Event::Tick);
        }
    }
    run.end()
}

impl Run<'_> {
    /// Hands an event to the plan and sorts what it wants done.
    fn feed(&mut self, event: Event) {
        let mut out = std::mem::take(&mut self.out);
        self.plan.handle(self.context.now(), event, &mut out);
        for step in out.drain(..) {
            self.sort(step);
        }
        self.out = out;
        if self.plan.is_done() {
            // Whatever was not started is not wanted any more.
            self.reads.clear();
        }
    }

    fn sort(&mut self, step: Step) {
        match step {
            Step::Locate { call, keys } => self.questions.push_back(Question::Locate(call, keys)),
            Step::Report { .. } => self.questions.push_back(Question::Report(step)),
            Step::Read {
                ticket,
                item,
                place,
                request,
                len,
                ..
            } => {
                self.bytes = self.bytes.saturating_add(len);
                self.reads.push(Read {
                    ticket,
                    item,
                    place,
                    request,
                    len,
                });
            }
            Step::Learn { key, location } => self.context.learn(&self.tenant, key, location),
            Step::Forget { key } => self.context.forget(&self.tenant, key),
            Step::Abort { ticket } => self.aborted.push(ticket),
            Step::Done { item, outcome } => {
                if let Some(result) = self.results.get_mut(item) {
                    *result = Some(outcome);
                }
            }
        }
        if !self.deadline.explicit {
            // The time that a call may take grows with its bytes, known only now.
            self.deadline.at = self
                .deadline
                .at
                .max(self.deadline.start + data_timeout(self.bytes));
            self.plan.extend(self.deadline.at);
        }
    }

    fn ask(&mut self, question: Question) {
        match question {
            Question::Locate(call, keys) => {
                let request = Request::Locate {
                    tenant: self.tenant.clone(),
                    keys,
                    lease: self.lease,
                };
                let asked = self.context.now();
                let (sent, reply) = match self.context.ask(request, self.deadline.at) {
                    Ok(answer) => {
                        let reply = match answer.reply {
                            Reply::Located { places, items } => Ok((places, items)),
                            other => Err(unexpected(&other, Stage::Locate)),
                        };
                        (answer.sent, reply)
                    }
                    Err(failure) => (asked, Err(failure)),
                };
                self.feed(Event::Located { call, sent, reply });
            }
            Question::Report(Step::Report {
                key,
                version,
                node,
                epoch,
                fault,
            }) => {
                let until = self.deadline.at;
                let told =
                    self.context
                        .report(&self.tenant, key, version, node, epoch, fault, until);
                if told.is_err() {
                    // Later reports would meet the same master; look-ups say so by themselves.
                    self.questions
                        .retain(|question| matches!(question, Question::Locate(..)));
                }
            }
            Question::Report(_) => {}
        }
    }

    /// Carries the waiting reads out, and those that follow from their ends, until none is under
    /// way. Reads whose target needs another size than before are left for the next time.
    fn transfer(&mut self, targets: &mut [Target<'_>]) {
        let mut slots: Vec<Slot<'_, '_>> = targets.iter_mut().map(Slot::Whole).collect();
        let mut batch = self.context.transport.batch();
        let mut live = Live::default();
        let mut completions = Vec::new();
        loop {
            let failed = self.submit(&mut *batch, &mut slots, &mut live);
            if !failed.is_empty() {
                self.feed(Event::Read(failed));
                continue;
            }
            if batch.under_way() == 0 && live.is_empty() {
                return;
            }
            batch.wait(self.plan.wake(), &mut completions);
            let ended = self.collect(&mut completions, &mut slots, &mut live);
            self.feed(if ended.is_empty() {
                Event::Tick
            } else {
                Event::Read(ended)
            });
            for ticket in std::mem::take(&mut self.aborted) {
                if let Some(id) = live.abort(ticket) {
                    drop(batch.cancel(id));
                }
            }
        }
    }

    /// Starts the waiting reads whose targets are at hand; returns those that failed at once.
    fn submit<'m, 'd>(
        &mut self,
        batch: &mut (dyn Batch<'m> + 'm),
        slots: &mut [Slot<'m, 'd>],
        live: &mut Live,
    ) -> Vec<(Ticket, Result<ReadDone, Failure>)> {
        let mut failed = Vec::new();
        let mut later = Vec::new();
        for read in std::mem::take(&mut self.reads) {
            let slot = slots.get_mut(read.item);
            match slot.map_or(Taken::Busy, |slot| slot.take(read.len)) {
                Taken::Slices(target) => {
                    let movement = Movement::Read {
                        from: ReadFrom::Object(read.request),
                        target,
                    };
                    let operation = Operation::new(read.place, movement, self.deadline.at);
                    let id = batch.submit(operation);
                    live.add(id, read.ticket, read.item);
                }
                Taken::Failed(failure) => failed.push((read.ticket, Err(failure))),
                Taken::Busy => later.push(read),
            }
        }
        self.reads.extend(later);
        failed
    }

    fn collect<'m>(
        &mut self,
        completions: &mut Vec<Completion<'m>>,
        slots: &mut [Slot<'m, '_>],
        live: &mut Live,
    ) -> Vec<(Ticket, Result<ReadDone, Failure>)> {
        let mut ended = Vec::with_capacity(completions.len());
        for completion in completions.drain(..) {
            let Some((ticket, item)) = live.end(completion.id) else {
                continue;
            };
            if let (Movement::Read { target, .. }, Some(slot)) =
                (completion.operation.movement, slots.get_mut(item))
            {
                *slot = Slot::Slices(target);
            }
            let result = completion.result.map(|done| ReadDone {
                len: done.bytes,
                shape: done.shape,
            });
            if let Err(failure) = &result {
                self.context.counters.replicas_left.add(1);
                if failure.code == Code::ChecksumMismatch {
                    self.context.counters.checksum_failures.add(1);
                }
            }
            ended.push((ticket, result));
        }
        ended
    }

    fn end(self) -> Vec<Result<Got, Failure>> {
        let results: Vec<Result<Got, Failure>> = self
            .results
            .into_iter()
            .map(|result| {
                result.unwrap_or_else(|| {
                    let text = "the plan ended without an outcome of this item";
                    Err(Failure::new(Code::Internal, Stage::Read, text))
                })
            })
            .collect();
        let counters = &self.context.counters;
        counters.get_items.add(results.len() as u64);
        for result in &results {
            match result {
                Ok(got) => {
                    counters.get_hits.add(1);
                    counters.bytes_read.add(got.len);
                }
                Err(failure) if failure.code == Code::ObjectNotFound => counters.get_misses.add(1),
                Err(_) => counters.get_failures.add(1),
            }
        }
        let failures = results.iter().filter_map(|r| r.as_ref().err());
        self.context.count_end(self.deadline.at, failures);
        results
    }
}

/// The target of one item during one transfer.
enum Slot<'m, 'd> {
    /// Not lent yet.
    Whole(&'m mut Target<'d>),
    /// Lent before and given back.
    Slices(TargetSlices<'m>),
    /// Lent.
    Lent,
}

enum Taken<'m> {
    Slices(TargetSlices<'m>),
    Failed(Failure),
    /// It cannot be had before this transfer has ended.
    Busy,
}

impl<'m> Slot<'m, '_> {
    fn take(&mut self, len: u64) -> Taken<'m> {
        match std::mem::replace(self, Slot::Lent) {
            Slot::Whole(target) => match target.slices(len) {
                Ok(slices) => Taken::Slices(slices),
                Err(failure) => Taken::Failed(failure),
            },
            Slot::Slices(slices) if slices.remaining() == len => Taken::Slices(slices),
            other => {
                *self = other;
                Taken::Busy
            }
        }
    }
}
