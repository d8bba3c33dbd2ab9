//! Runs a plan of puts.

use crate::buffer::Source;
use crate::context::Context;
use crate::plan::put::{Event, Put, Step, Stored};
use crate::plan::{CallId, Ticket};
use crate::port::unexpected;
use crate::run::Live;
use snowskin_transfer::transport::{Batch, Completion, Movement, Operation, WriteTo};
use snowskin_types::call::{Keys, Reply, Request, Reserve};
use snowskin_types::{Code, Failure, Now, Stage, Tenant, Version};
use std::collections::VecDeque;

/// A question to the master that is to be asked when no transfer is under way.
enum Question {
    Reserve(CallId, Keys, Vec<Reserve>),
    Cancel(CallId, Keys, Vec<Version>, Now),
}

struct Run<'c, 's> {
    context: &'c Context,
    tenant: Tenant,
    deadline: Now,
    plan: Put,
    sources: &'s [Source<'s>],
    out: Vec<Step>,
    questions: VecDeque<Question>,
    live: Live,
    results: Vec<Option<Result<Stored, Failure>>>,
}

/// Carries a plan out; `sources` has one entry for each of its items. When it returns, nothing
/// reads a source any more.
pub(crate) fn run<'s>(
    context: &Context,
    tenant: Tenant,
    deadline: Now,
    plan: Put,
    sources: &'s [Source<'s>],
) -> Vec<Result<Stored, Failure>> {
    let mut run = Run {
        context,
        tenant,
        deadline,
        plan,
        sources,
        out: Vec::new(),
        questions: VecDeque::new(),
        live: Live::default(),
        results: sources.iter().map(|_| None).collect(),
    };
    let mut batch = context.transport.batch();
    let mut completions = Vec::new();
    run.feed(Event::Start, &mut *batch);
    loop {
        if batch.under_way() > 0 || !run.live.is_empty() {
            batch.wait(run.plan.wake(), &mut completions);
            let ended = run.collect(&mut completions);
            let event = if ended.is_empty() {
                Event::Tick
            } else {
                Event::Written(ended)
            };
            run.feed(event, &mut *batch);
        } else if let Some(question) = run.questions.pop_front() {
            let event = run.ask(question);
            run.feed(event, &mut *batch);
        } else if run.plan.is_done() {
            break;
        } else {
            context.pause(run.plan.wake());
            if context.check_open().is_err() {
                // Nothing more will be asked; what is undecided ends with its deadline.
                run.plan.hasten(context.now());
            }
            run.feed(Event::Tick, &mut *batch);
        }
    }
    drop(batch);
    run.end()
}

impl<'s> Run<'_, 's> {
    fn feed(&mut self, event: Event, batch: &mut (dyn Batch<'s> + 's)) {
        let mut out = std::mem::take(&mut self.out);
        self.plan.handle(self.context.now(), event, &mut out);
        let mut failed = Vec::new();
        for step in out.drain(..) {
            match step {
                Step::Reserve { call, keys, items } => self
                    .questions
                    .push_back(Question::Reserve(call, keys, items)),
                Step::Cancel {
                    call,
                    keys,
                    versions,
                    until,
                } => self
                    .questions
                    .push_back(Question::Cancel(call, keys, versions, until)),
                Step::Write {
                    ticket,
                    item,
                    place,
                    request,
                } => match self.sources[item].slices() {
                    Ok(source) => {
                        let movement = Movement::Write {
                            to: WriteTo::Object(request),
                            source,
                        };
                        let id = batch.submit(Operation::new(place, movement, self.deadline));
                        self.live.add(id, ticket, item);
                    }
                    Err(failure) => failed.push((ticket, Err(failure))),
                },
                Step::Abort { ticket } => {
                    if let Some(id) = self.live.abort(ticket) {
                        drop(batch.cancel(id));
                    }
                }
                Step::Done { item, outcome } => {
                    if let Some(result) = self.results.get_mut(item) {
                        *result = Some(outcome);
                    }
                }
            }
        }
        self.out = out;
        if !failed.is_empty() {
            self.feed(Event::Written(failed), batch);
        }
    }

    fn ask(&mut self, question: Question) -> Event {
        match question {
            Question::Reserve(call, keys, items) => {
                let request = Request::Reserve {
                    client: self.context.id,
                    tenant: self.tenant.clone(),
                    keys,
                    items,
                };
                let answer = self.context.ask(request, self.deadline);
                let reply = answer.and_then(|answer| match answer.reply {
                    Reply::Reserved { places, items } => Ok((places, items)),
                    other => Err(unexpected(&other, Stage::Reserve)),
                });
                Event::Reserved { call, reply }
            }
            Question::Cancel(call, keys, versions, until) => {
                let given_up = versions.len() as u64;
                let request = Request::Cancel {
                    tenant: self.tenant.clone(),
                    keys,
                    versions,
                };
                let answer = self.context.ask(request, until);
                let reply = answer.and_then(|answer| match answer.reply {
                    Reply::Cancelled(items) => Ok(items),
                    other => Err(unexpected(&other, Stage::Publish)),
                });
                if reply.is_err() {
                    self.context.counters.puts_ambiguous.add(given_up);
                }
                Event::Cancelled { call, reply }
            }
        }
    }

    fn collect(
        &mut self,
        completions: &mut Vec<Completion<'s>>,
    ) -> Vec<(Ticket, Result<(), Failure>)> {
        completions
            .drain(..)
            .filter_map(|completion| {
                let (ticket, _) = self.live.end(completion.id)?;
                Some((ticket, completion.result.map(|_| ())))
            })
            .collect()
    }

    fn end(self) -> Vec<Result<Stored, Failure>> {
        let results: Vec<Result<Stored, Failure>> = self
            .results
            .into_iter()
            .map(|result| {
                result.unwrap_or_else(|| {
                    let text = "the plan ended without an outcome of this item";
                    Err(Failure::new(Code::Internal, Stage::Write, text))
                })
            })
            .collect();
        let counters = &self.context.counters;
        counters.put_items.add(results.len() as u64);
        for (result, source) in results.iter().zip(self.sources) {
            match result {
                Ok(Stored::Written { .. }) => {
                    counters.put_stored.add(1);
                    counters.bytes_written.add(source.len());
                }
                Ok(Stored::Exists { .. }) => counters.put_exists.add(1),
                Err(_) => counters.put_failures.add(1),
            }
        }
        let failures = results.iter().filter_map(|r| r.as_ref().err());
        self.context.count_end(self.deadline, failures);
        results
    }
}
