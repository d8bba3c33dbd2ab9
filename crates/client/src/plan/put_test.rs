use super::*;
use snowskin_types::checksum::PieceSums;
use snowskin_types::object::Attributes;
use snowskin_types::{Detail, Epoch};

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn place(node: u64) -> Place {
    Place {
        node: NodeId(node),
        epoch: Epoch(node * 10),
        address: format!("node{node}:1").into(),
    }
}

fn ask(name: &str) -> PutItem {
    PutItem {
        key: key(name),
        size: 3,
        sums: PieceSums::of(b"abc"),
        mode: PutMode::IfAbsent,
        replicas: 1,
        attributes: Attributes::default(),
        preferred: Vec::new(),
    }
}

fn replace(name: &str) -> PutItem {
    PutItem {
        mode: PutMode::Replace,
        ..ask(name)
    }
}

fn placed(version: u64, places: &[u16]) -> Reserved {
    Reserved::Placed {
        version: Version::from_raw(version),
        places: places.to_vec(),
    }
}

fn plan(asks: Vec<PutItem>) -> Put {
    Put::new(Tenant::default(), asks, Now(30_000))
}

fn step(put: &mut Put, now: u64, event: Event) -> Vec<Step> {
    let mut out = Vec::new();
    put.handle(Now(now), event, &mut out);
    out
}

fn call_of(steps: &[Step]) -> CallId {
    let calls: Vec<_> = steps
        .iter()
        .filter_map(|s| match s {
            Step::Reserve { call, .. } | Step::Cancel { call, .. } => Some(*call),
            _ => None,
        })
        .collect();
    assert_eq!(calls.len(), 1, "one call in {steps:?}");
    calls[0]
}

fn reserve_of(steps: &[Step]) -> &Reserve {
    steps
        .iter()
        .find_map(|s| match s {
            Step::Reserve { items, .. } => items.first(),
            _ => None,
        })
        .unwrap_or_else(|| panic!("no reservation in {steps:?}"))
}

fn is_cancel(steps: &[Step]) -> bool {
    matches!(steps, [Step::Cancel { .. }])
}

fn writes_of(steps: &[Step]) -> Vec<(Ticket, u64)> {
    steps
        .iter()
        .filter_map(|s| match s {
            Step::Write { ticket, place, .. } => Some((*ticket, place.node.0)),
            _ => None,
        })
        .collect()
}

fn outcome_of(steps: &[Step], item: usize) -> Option<Result<Stored, Code>> {
    steps.iter().find_map(|s| match s {
        Step::Done { item: i, outcome } if *i == item => Some(outcome.clone().map_err(|f| f.code)),
        _ => None,
    })
}

fn written(version: u64, replicas: u32) -> Option<Result<Stored, Code>> {
    Some(Ok(Stored::Written {
        version: Version::from_raw(version),
        replicas,
    }))
}

fn exists(version: u64, unfinished: bool) -> Option<Result<Stored, Code>> {
    Some(Ok(Stored::Exists {
        version: Version::from_raw(version),
        unfinished,
    }))
}

/// Answers the one reservation in `steps`; the table of places is nodes 1, 2, 3.
fn grant(put: &mut Put, now: u64, steps: &[Step], items: Vec<Reserved>) -> Vec<Step> {
    let event = Event::Reserved {
        call: call_of(steps),
        reply: Ok((vec![place(1), place(2), place(3)], items)),
    };
    step(put, now, event)
}

fn end(put: &mut Put, now: u64, ticket: Ticket, code: Option<Code>) -> Vec<Step> {
    let result = match code {
        None => Ok(()),
        Some(code) => Err(Failure::new(code, Stage::Write, "told so")),
    };
    step(put, now, Event::Written(vec![(ticket, result)]))
}

fn cancelled(put: &mut Put, now: u64, steps: &[Step], answer: Cancelled) -> Vec<Step> {
    let event = Event::Cancelled {
        call: call_of(steps),
        reply: Ok(vec![answer]),
    };
    step(put, now, event)
}

/// Starts a put of one key and has its only write to node 1 fail.
fn failed_write(put: &mut Put, code: Code) -> Vec<Step> {
    let steps = step(put, 0, Event::Start);
    let steps = grant(put, 1, &steps, vec![placed(5, &[0])]);
    end(put, 2, writes_of(&steps)[0].0, Some(code))
}

#[test]
fn a_batch_is_reserved_once_and_written_in_parallel() {
    let mut put = plan(vec![ask("a"), ask("b"), ask("c")]);
    let steps = step(&mut put, 0, Event::Start);
    let answers = vec![
        placed(5, &[0]),
        Reserved::Exists {
            version: Version::from_raw(2),
            unfinished: false,
        },
        placed(6, &[1, 2]),
    ];
    let steps = grant(&mut put, 1, &steps, answers);
    assert_eq!(outcome_of(&steps, 1), exists(2, false));
    let writes = writes_of(&steps);
    assert_eq!(writes.iter().map(|w| w.1).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(
        outcome_of(&end(&mut put, 2, writes[0].0, None), 0),
        written(5, 1)
    );
    assert!(end(&mut put, 3, writes[1].0, None).is_empty());
    assert_eq!(
        outcome_of(&end(&mut put, 4, writes[2].0, None), 2),
        written(6, 2)
    );
    assert!(put.is_done());
}

#[test]
fn one_published_copy_of_two_is_a_success_that_says_so() {
    let mut put = plan(vec![ask("a")]);
    let steps = step(&mut put, 0, Event::Start);
    let steps = grant(&mut put, 1, &steps, vec![placed(5, &[0, 1])]);
    let writes = writes_of(&steps);
    assert!(end(&mut put, 2, writes[0].0, None).is_empty());
    let steps = end(&mut put, 3, writes[1].0, Some(Code::TransferFail));
    assert_eq!(outcome_of(&steps, 0), written(5, 1));
}

#[test]
fn an_ambiguous_write_is_cancelled_and_published_means_success() {
    for code in [Code::RpcTimeout, Code::TransferFail, Code::RpcFail] {
        let mut put = plan(vec![ask("a")]);
        let steps = failed_write(&mut put, code);
        assert!(is_cancel(&steps), "{steps:?}");
        let steps = cancelled(&mut put, 3, &steps, Cancelled::Published);
        assert_eq!(outcome_of(&steps, 0), written(5, 1));
    }
}

#[test]
fn a_cancelled_put_is_placed_elsewhere() {
    let mut put = plan(vec![ask("a")]);
    let steps = failed_write(&mut put, Code::TransferFail);
    let steps = cancelled(&mut put, 3, &steps, Cancelled::Ended);
    assert_eq!(reserve_of(&steps).avoid, vec![NodeId(1)]);
    let steps = grant(&mut put, 4, &steps, vec![placed(6, &[1])]);
    let steps = end(&mut put, 5, writes_of(&steps)[0].0, None);
    assert_eq!(outcome_of(&steps, 0), written(6, 1));
}

#[test]
fn the_failed_node_is_asked_again_when_there_is_no_other() {
    let mut put = plan(vec![ask("a")]);
    let steps = failed_write(&mut put, Code::TransferFail);
    let steps = cancelled(&mut put, 3, &steps, Cancelled::Ended);
    let none = Failure::new(Code::SegmentNotFound, Stage::Reserve, "no node");
    let steps = grant(&mut put, 4, &steps, vec![Reserved::Failed(none)]);
    assert!(steps.is_empty(), "it pauses first");
    let wake = put.wake();
    let steps = step(&mut put, wake.0, Event::Tick);
    assert!(reserve_of(&steps).avoid.is_empty());
    let steps = grant(&mut put, wake.0, &steps, vec![placed(6, &[0])]);
    let steps = end(&mut put, wake.0, writes_of(&steps)[0].0, None);
    assert_eq!(outcome_of(&steps, 0), written(6, 1));
}

#[test]
fn a_node_with_another_life_or_term_is_not_avoided() {
    for code in [Code::ReplicaGone, Code::InvalidWrite] {
        let mut put = plan(vec![ask("a")]);
        let steps = failed_write(&mut put, code);
        assert!(cancelled(&mut put, 3, &steps, Cancelled::Ended).is_empty());
        let wake = put.wake();
        let steps = step(&mut put, wake.0, Event::Tick);
        assert!(reserve_of(&steps).avoid.is_empty());
    }
}

#[test]
fn attempts_are_bounded() {
    let mut put = plan(vec![ask("a")]);
    let mut steps = failed_write(&mut put, Code::TransferFail);
    let mut reserved = 1;
    loop {
        steps = cancelled(&mut put, 3, &steps, Cancelled::Ended);
        if put.is_done() {
            break;
        }
        reserved += 1;
        steps = grant(&mut put, 4, &steps, vec![placed(5 + reserved, &[1])]);
        steps = end(
            &mut put,
            5,
            writes_of(&steps)[0].0,
            Some(Code::TransferFail),
        );
    }
    assert_eq!(reserved, u64::from(ATTEMPTS_MAX));
    assert_eq!(outcome_of(&steps, 0), Some(Err(Code::TransferFail)));
}

#[test]
fn a_full_node_waits_once_and_the_first_refusal_is_told() {
    let mut put = plan(vec![ask("a")]);
    let steps = step(&mut put, 0, Event::Start);
    let steps = grant(&mut put, 1, &steps, vec![placed(5, &[0])]);
    let detail = Detail {
        leased: 77,
        ..Detail::default()
    };
    let full = Failure::new(Code::NoSpace, Stage::Write, "full").with_detail(detail);
    let ended = vec![(writes_of(&steps)[0].0, Err(full))];
    let steps = step(&mut put, 500, Event::Written(ended));
    let steps = cancelled(&mut put, 501, &steps, Cancelled::Ended);
    assert_eq!(reserve_of(&steps).avoid, vec![NodeId(1)]);
    let steps = grant(&mut put, 502, &steps, vec![placed(6, &[1])]);
    let Some(Step::Write {
        ticket, request, ..
    }) = steps.first()
    else {
        panic!("no write in {steps:?}");
    };
    assert_eq!(request.patience, Millis(0), "nobody waits a second time");
    let steps = end(&mut put, 503, *ticket, Some(Code::NoSpace));
    let steps = cancelled(&mut put, 504, &steps, Cancelled::Ended);
    let Some(Step::Done {
        outcome: Err(failure),
        ..
    }) = steps.first()
    else {
        panic!("not failed: {steps:?}");
    };
    assert_eq!(failure.code, Code::NoSpace);
    assert_eq!(failure.detail, Some(detail));
}

#[test]
fn what_can_never_fit_fails_at_once() {
    let mut put = plan(vec![ask("a")]);
    let steps = step(&mut put, 0, Event::Start);
    let never = Failure::new(Code::InvalidParams, Stage::Reserve, "largest is 2");
    let steps = grant(&mut put, 1, &steps, vec![Reserved::Failed(never)]);
    assert_eq!(outcome_of(&steps, 0), Some(Err(Code::InvalidParams)));
}

#[test]
fn a_cluster_without_a_usable_node_is_waited_for_as_long_as_a_put_waits() {
    let mut put = plan(vec![ask("a")]);
    let mut steps = step(&mut put, 0, Event::Start);
    let mut now = 0;
    while !put.is_done() {
        let none = Failure::new(Code::SegmentNotFound, Stage::Reserve, "no node");
        steps = grant(&mut put, now, &steps, vec![Reserved::Failed(none)]);
        if !put.is_done() {
            now = put.wake().0;
            steps = step(&mut put, now, Event::Tick);
        }
    }
    assert!((PUT_WAIT.0..PUT_WAIT.0 + 200).contains(&now), "{now}");
    assert_eq!(outcome_of(&steps, 0), Some(Err(Code::SegmentNotFound)));
}

#[test]
fn taken_by_a_version_of_this_put_is_a_success() {
    let mut put = plan(vec![ask("a")]);
    let steps = failed_write(&mut put, Code::TransferFail);
    let steps = cancelled(&mut put, 3, &steps, Cancelled::Ended);
    let own = Reserved::Exists {
        version: Version::from_raw(5),
        unfinished: false,
    };
    let steps = grant(&mut put, 4, &steps, vec![own]);
    assert_eq!(outcome_of(&steps, 0), written(5, 1));
}

#[test]
fn an_unfinished_own_version_is_cancelled_again() {
    let mut put = plan(vec![ask("a")]);
    let steps = failed_write(&mut put, Code::TransferFail);
    let steps = cancelled(&mut put, 3, &steps, Cancelled::Ended);
    let own = Reserved::Exists {
        version: Version::from_raw(5),
        unfinished: true,
    };
    let steps = grant(&mut put, 4, &steps, vec![own]);
    assert!(is_cancel(&steps));
}

#[test]
fn items_with_one_key_take_effect_one_after_the_other() {
    let mut put = plan(vec![ask("a"), ask("a"), replace("a"), ask("a")]);
    let steps = step(&mut put, 0, Event::Start);
    let steps = grant(&mut put, 1, &steps, vec![placed(5, &[0])]);
    let steps = end(&mut put, 2, writes_of(&steps)[0].0, None);
    assert_eq!(outcome_of(&steps, 0), written(5, 1));
    assert_eq!(outcome_of(&steps, 1), exists(5, false));
    assert_eq!(reserve_of(&steps).mode, PutMode::Replace);
    let steps = grant(&mut put, 3, &steps, vec![placed(6, &[0])]);
    let steps = end(&mut put, 4, writes_of(&steps)[0].0, None);
    assert_eq!(outcome_of(&steps, 2), written(6, 1));
    assert_eq!(outcome_of(&steps, 3), exists(6, false));
    assert!(put.is_done());
}

#[test]
fn the_next_item_of_a_key_is_put_when_the_one_before_failed() {
    let mut bad = ask("a");
    bad.replicas = 0;
    let mut put = plan(vec![bad, ask("a")]);
    let steps = step(&mut put, 0, Event::Start);
    assert_eq!(outcome_of(&steps, 0), Some(Err(Code::InvalidParams)));
    assert_eq!(reserve_of(&steps).replicas, 1);
}

#[test]
fn bad_values_are_refused_before_anything_is_asked() {
    let zero = PutItem {
        size: 0,
        sums: PieceSums::default(),
        ..ask("a")
    };
    let sums = PutItem {
        sums: PieceSums::default(),
        ..ask("b")
    };
    let many = PutItem {
        replicas: 17,
        ..ask("c")
    };
    let mut put = plan(vec![zero, sums, many]);
    let steps = step(&mut put, 0, Event::Start);
    for item in 0..3 {
        assert_eq!(outcome_of(&steps, item), Some(Err(Code::InvalidParams)));
    }
    assert!(put.is_done());
}

#[test]
fn at_the_deadline_writes_are_aborted_and_asked_about_once_more() {
    for published in [true, false] {
        let mut put = plan(vec![ask("a"), ask("b")]);
        let steps = step(&mut put, 0, Event::Start);
        let steps = grant(&mut put, 1, &steps, vec![placed(5, &[0]), placed(6, &[0])]);
        let writes = writes_of(&steps);
        end(&mut put, 2, writes[1].0, None);
        let steps = step(&mut put, 30_000, Event::Tick);
        assert_eq!(
            steps[0],
            Step::Abort {
                ticket: writes[0].0
            }
        );
        assert!(is_cancel(&steps[1..]));
        assert_eq!(put.wake(), Now(30_000) + LAST_CANCEL);
        let steps = if published {
            cancelled(&mut put, 30_010, &steps[1..], Cancelled::Published)
        } else {
            let wake = put.wake().0;
            step(&mut put, wake, Event::Tick)
        };
        let wanted = if published {
            written(5, 1)
        } else {
            Some(Err(Code::RpcTimeout))
        };
        assert_eq!(outcome_of(&steps, 0), wanted);
        assert!(put.is_done());
    }
}

#[test]
fn a_put_refused_over_a_failover_is_reserved_again_whatever_the_new_master_says() {
    let mut put = plan(vec![ask("a")]);
    let steps = failed_write(&mut put, Code::InvalidWrite);
    let starting = Failure::new(Code::UnavailableInStatus, Stage::Reserve, "inventories");
    let steps = cancelled(&mut put, 3, &steps, Cancelled::Failed(starting));
    assert!(steps.is_empty(), "it pauses");
    let wake = put.wake().0;
    let steps = step(&mut put, wake, Event::Tick);
    let steps = grant(&mut put, wake, &steps, vec![placed(6, &[0])]);
    let steps = end(&mut put, wake, writes_of(&steps)[0].0, None);
    assert_eq!(outcome_of(&steps, 0), written(6, 1));
}

#[test]
fn a_new_master_that_cannot_tell_yet_is_asked_again() {
    let mut put = plan(vec![ask("a")]);
    let steps = failed_write(&mut put, Code::TransferFail);
    let starting = Failure::new(Code::UnavailableInStatus, Stage::Reserve, "inventories");
    assert!(cancelled(&mut put, 3, &steps, Cancelled::Failed(starting)).is_empty());
    let wake = put.wake().0;
    let steps = step(&mut put, wake, Event::Tick);
    assert!(is_cancel(&steps), "{steps:?}");
    let steps = cancelled(&mut put, wake, &steps, Cancelled::Published);
    assert_eq!(outcome_of(&steps, 0), written(5, 1));
}

#[test]
fn a_cancel_that_fails_leaves_the_failure_of_the_write_and_says_that_it_is_ambiguous() {
    let mut put = plan(vec![ask("a")]);
    let mut steps = failed_write(&mut put, Code::TransferFail);
    let mut now = 3;
    loop {
        let event = Event::Cancelled {
            call: call_of(&steps),
            reply: Err(Failure::new(Code::RpcFail, Stage::Session, "no master")),
        };
        steps = step(&mut put, now, event);
        if put.is_done() {
            break;
        }
        now = put.wake().0;
        steps = step(&mut put, now, Event::Tick);
    }
    let Some(Step::Done {
        outcome: Err(failure),
        ..
    }) = steps.first()
    else {
        panic!("not failed: {steps:?}");
    };
    assert_eq!(failure.code, Code::TransferFail);
    assert_eq!(failure.peer.as_deref(), Some("node1:1"));
    assert!(failure.message.contains("not known"), "{failure}");
    assert!(now >= 3 + METADATA_TIMEOUT.0, "{now}");
}

#[test]
fn a_reservation_over_a_broken_link_is_made_again() {
    let mut put = plan(vec![ask("a")]);
    let steps = step(&mut put, 0, Event::Start);
    let event = Event::Reserved {
        call: call_of(&steps),
        reply: Err(Failure::new(Code::RpcFail, Stage::Session, "reset")),
    };
    assert!(step(&mut put, 1, event).is_empty());
    let wake = put.wake().0;
    let steps = step(&mut put, wake, Event::Tick);
    let steps = grant(&mut put, wake, &steps, vec![placed(5, &[0])]);
    let steps = end(&mut put, wake, writes_of(&steps)[0].0, None);
    assert_eq!(outcome_of(&steps, 0), written(5, 1));
}

#[test]
fn late_answers_of_a_finished_put_change_nothing() {
    let mut put = plan(vec![ask("a")]);
    let steps = step(&mut put, 0, Event::Start);
    let call = call_of(&steps);
    step(&mut put, 30_000, Event::Tick);
    assert!(put.is_done());
    let event = Event::Reserved {
        call,
        reply: Ok((vec![place(1)], vec![placed(5, &[0])])),
    };
    assert!(step(&mut put, 30_001, event).is_empty());
}
